"""Writes docs/events.md from events/catalogue.py and events/facts.py: every type, its fields, what is said of them.

.venv/bin/python docs/make_events.py            write it
.venv/bin/python docs/make_events.py --check    exit 1 if it is not current
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from prosa.events import catalogue, facts
from prosa.events.catalogue import EVENTS, Event

PAGE = Path(__file__).with_name("events.md")
FACTS: tuple[type[msgspec.Struct], ...] = (
    facts.Header, facts.Turn, facts.Usage, facts.Mark, facts.Compaction, facts.Summary,
)  # fmt: skip
HEAD = """# Events

Made from `events/catalogue.py` and `events/facts.py` by `docs/make_events.py`; do not edit.

An event says what happened, once. A type is never renamed and a field never changes its meaning; a field that is added
has a default, and what cannot be said so raises the version, with an upcast that lifts old bodies when they are read.
Stored bytes are never rewritten. `tests/events/golden/` holds a body of every type and version that was ever shipped.

**shared** events are sent to the server, where there is one; **local** ones never leave the device. Fields stand in
the order of their bytes, and one that has its default is left out ([log-format.md](log-format.md)). `T | None` is
unknown where it is null, never zero. Times are microseconds since 1970, UTC.

| type | version | scope | stream | says |
|---|---|---|---|---|
"""
STREAMS = {
    "log": "log-<origin>", "local": "log-<origin>", "device": "device-<origin>", "body": "event-<id>",
    "source": "source-<agent>/<hash of the path>", "raw": "session-<key>", "session": "session-<key>",
    "project": "project-<hash of the path>", "login": "login-<server>", "logout": "login-<server>",
    "token": "token-<id>", "prune": "operation-<id>", "push": "session-<key>", "events": "push-<server>",
    "device_renamed": "device-<fingerprint>", "device_merged": "device-<fingerprint>",
    "device_merge_reverted": "device-<fingerprint>", "device_revoked": "device-<fingerprint>",
    "push_refused": "push-<server>",
}  # fmt: skip
"""A type, or its first word → the stream it is said in."""


def main() -> int:
    text = page()
    if sys.argv[1:] == ["--check"]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("docs/events.md is current." if current else "docs/events.md is not current: docs/make_events.py")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The text of docs/events.md."""
    said = spoken(catalogue.__file__) | spoken(facts.__file__)
    rows = "".join(
        f"| [`{event.TYPE}`](#{event.TYPE}) | {event.VERSION} | {event.SCOPE} | `{stream(event)}` "
        f"| {(event.__doc__ or '').partition(chr(10))[0]} |\n"
        for event in EVENTS
    )
    parts = [section(event, said, f"`{event.TYPE}`") for event in EVENTS]
    inside = [section(kind, said, f"{kind.__name__}") for kind in FACTS]
    return f"{HEAD}{rows}\n{''.join(parts)}## What a parse holds\n\n{''.join(inside)}".rstrip("\n") + "\n"


def stream(event: type[Event]) -> str:
    return STREAMS.get(event.TYPE) or STREAMS[event.TYPE.partition("_")[0]]


def section(kind: type[msgspec.Struct], said: dict[tuple[str, str], tuple[str, str, str]], title: str) -> str:
    level = "##" if issubclass(kind, Event) else "###"
    text = " ".join(line.strip() for line in (kind.__doc__ or "").splitlines()).replace("  ", "\n\n").strip()
    lines = [f"{level} {title}\n\n{text}\n"]
    fields = [(field.name, *find(kind, field.name, said)) for field in msgspec.structs.fields(kind)]
    if fields:
        lines.append("\n| field | type | default | |\n|---|---|---|---|\n")
        lines += [f"| `{name}` | `{escaped(of)}` | {code(default)} | {doc} |\n" for name, of, default, doc in fields]
    return "".join(lines) + "\n"


def find(kind: type[Any], name: str, said: dict[tuple[str, str], tuple[str, str, str]]) -> tuple[str, str, str]:
    """Type, default and text of a field, from the class that declares it."""
    return next(said[each.__name__, name] for each in kind.__mro__ if (each.__name__, name) in said)


def spoken(file: str | None) -> dict[tuple[str, str], tuple[str, str, str]]:
    """(class, field) → type, default, the string below it; as the source says them."""
    tree = ast.parse(Path(file or "").read_text(encoding="utf-8"))
    return {
        (cls.name, name): rest for cls in tree.body if isinstance(cls, ast.ClassDef) for name, rest in declared(cls)
    }


def declared(cls: ast.ClassDef) -> Iterator[tuple[str, tuple[str, str, str]]]:
    for node, after in zip(cls.body, [*cls.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        default = ast.unparse(node.value) if node.value else ""
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        text = str(after.value.value) if is_text else ""  # type: ignore[union-attr]
        yield node.target.id, (ast.unparse(node.annotation), default, " ".join(text.split()))


def code(default: str) -> str:
    if default.startswith("msgspec.field(default_factory="):
        return "`{}`" if "dict" in default else "`()`"
    constant = getattr(facts, default, None) if default.isidentifier() else None
    return f"`{default if constant is None else constant}`" if default else ""


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("'", '"')


if __name__ == "__main__":
    sys.exit(main())
