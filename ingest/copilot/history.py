"""The earliest Copilot sessions: one JSON document with the chat messages, and no times but that in its name."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import Any, Unpack

import msgspec

from prosa.events.facts import Facts, Header, Kind, Role, fact_key
from prosa.ingest.clock import from_number, parse_iso
from prosa.ingest.copilot import AGENT
from prosa.ingest.importer import Identity
from prosa.ingest.json_lines import REFUSED, document
from prosa.ingest.readable import readable_input
from prosa.ingest.turn import About, turn_of

MARK = b'{"prosa.file":'
"""Begins the line that the importer puts before the document; it has the file's name."""
STARTED = re.compile(rb"_(\d{10,16})\.json")
INJECTED = re.compile(r"\s*<(current_datetime|reminder|system_reminder|environment_context)>.*?</\1>", re.DOTALL)


class History:
    """Reads a whole document when it ends."""

    def __init__(self, identity: Identity, mark: bytes) -> None:
        self.identity = identity
        named = STARTED.search(mark)
        self._started = from_number(int(named[1])) if named else None
        self._parts: list[bytes] = []
        self._facts = Facts([], [], [], [])
        self._seen: Counter[tuple[str, str]] = Counter()
        self._tools: dict[str, str] = {}
        self._models: list[str] = []
        self._broken = 0

    def feed(self, data: bytes) -> None:
        self._parts.append(data)

    def take(self) -> Facts:
        facts, self._facts = self._facts, Facts([], [], [], [])
        return facts

    def header(self) -> Header:
        return Header(
            models=tuple(self._models),
            started_at=self._started,
            last_activity_at=self._started,
            malformed=1 if self._broken else 0,
            malformed_bytes=self._broken,
        )

    def end(self) -> None:
        data = b"".join(self._parts)
        self._seen.clear()
        chat = document(data)
        self._broken = len(data) if chat is None else 0
        about = chat if isinstance(chat, dict) else {}
        started = parse_iso(about.get("startTime"))
        if started is None:
            started = from_number(about.get("startTime"))
        self._started = started if started is not None else self._started
        listed = chat if isinstance(chat, list) else []
        for name in ("chatMessages", "messages", "history"):
            if isinstance(about.get(name), list):
                listed = about[name]
                break
        for message in listed:
            if isinstance(message, dict):
                self._message(message)

    def _message(self, message: dict[str, Any]) -> None:
        role, text = message.get("role"), _text(message.get("content"))
        model = _string(message.get("model"))
        if model and model not in self._models:
            self._models.append(model)
        at = parse_iso(message.get("timestamp"))
        if role == "user":
            typed = INJECTED.sub("", text).strip()
            self._say("message", "user", typed or text, at, counted=bool(typed))
        elif role == "assistant":
            self._say("thinking", "assistant", _string(message.get("reasoning_text")), at, model=model or None)
            self._say("message", "assistant", text, at, model=model or None)
            calls = message.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                if isinstance(call, dict):
                    self._call(call, at, model)
        elif role == "tool":
            id_ = _string(message.get("tool_call_id"))
            key = self._key("tool_result", id_ or text)
            self._turn(key, "tool_result", "tool", text, at, tool=self._tools.get(id_), tool_call_id=id_ or None)

    def _call(self, call: dict[str, Any], at: int | None, model: str) -> None:
        function = call.get("function")
        function = function if isinstance(function, dict) else call
        name, id_ = _string(function.get("name")) or "unknown", _string(call.get("id"))
        arguments = function.get("arguments")
        try:
            text = readable_input(msgspec.Raw(msgspec.json.encode(arguments)))
        except (*REFUSED, OverflowError):
            text = ""
        self._tools[id_] = name
        key = self._key("tool_call", id_ or f"{name}\0{text}")
        self._turn(key, "tool_call", "assistant", text, at, model=model or None, tool=name, tool_call_id=id_ or None)

    def _key(self, kind: str, text: str) -> int:
        """Of equal messages each has its number."""
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()
        self._seen[kind, digest] += 1
        return fact_key(AGENT, f"history-{kind}", self.identity.key, f"{digest}#{self._seen[kind, digest]}")

    def _say(self, kind: Kind, role: Role, text: str, at: int | None, **about: Unpack[About]) -> None:
        if text and not text.isspace():
            self._turn(self._key(f"{kind}-{role}", text), kind, role, text, at, **about)

    def _turn(self, key: int, kind: Kind, role: Role, text: str, at: int | None, **about: Unpack[About]) -> None:
        self._facts.turns.append(turn_of(key, kind, role, text, at, **about))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(text for part in content if isinstance(part, dict) and (text := _part(part)))
    return _string(content)


def _part(part: dict[str, Any]) -> str:
    return _string(part.get("text")) or ("[image]" if "image" in _string(part.get("type")) else "")
