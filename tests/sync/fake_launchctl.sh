#!/bin/sh
# Answers as launchctl does, keeps what is loaded in $FAKE, and fails at the word in $FAKE_FAIL.
echo "$*" >>"$FAKE/calls"
[ "$1" = "$FAKE_FAIL" ] && { echo "$1 failed: 5: Input/output error" >&2; exit 5; }
case "$1" in
bootstrap) [ -e "$FAKE/loaded" ] && exit 37; cp "$3" "$FAKE/loaded" ;;
bootout) rm "$FAKE/loaded" 2>/dev/null || { echo "Boot-out failed: 3: No such process" >&2; exit 3; } ;;
print) [ -e "$FAKE/loaded" ] && [ -z "$FAKE_DIES" ] || { echo "Could not find service" >&2; exit 113; } ;;
esac
