#!/bin/sh
# Answers as `systemctl --user` and `loginctl` do, keeps what is active in $FAKE, and fails at the words in $FAKE_FAIL.
echo "$(basename "$0") $*" >>"$FAKE/calls"
case "$0" in *loginctl) echo "Linger=${FAKE_LINGER:-no}"; exit 0 ;; esac
if [ -n "$FAKE_NO_BUS" ]; then echo "Failed to connect to bus: No medium found" >&2; exit 1; fi
shift 2
for verb in $FAKE_FAIL; do
    if [ "$verb" = "$1" ]; then echo "Failed to $1 unit: not today." >&2; exit 1; fi
done
units="$HOME/.config/systemd/user"
for last; do :; done
case "$1 $2" in
"show --property=UnitPath") echo "UnitPath=$HOME/.config/systemd/user.control $units /etc/systemd/user" ;;
"show "*)
    if [ -e "$FAKE/active" ] && [ -z "$FAKE_DIES" ]; then echo ActiveState=active; else echo ActiveState=inactive; fi
    if [ -L "$units/timers.target.wants/$2" ]; then echo UnitFileState=enabled; else echo UnitFileState=disabled; fi
    echo "NextElapseUSecRealtime=Mon 2026-11-30 19:15:00 UTC"
    ;;
"enable "*) mkdir -p "$units/timers.target.wants" && ln -sf "$units/$last" "$units/timers.target.wants/$last" ;;
"disable "*) rm -f "$FAKE/active" "$units/timers.target.wants/$last" ;;
"restart "*) [ -e "$units/$last" ] && touch "$FAKE/active" ;;
esac
