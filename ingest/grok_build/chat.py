"""Turns out of chat_history.jsonl: what the model sees now. It is rewritten by compaction and rewind, and has no times.

Its rows serve alone where updates.jsonl holds no turn; beside it they add only what that log lacks. A row has no
id, so it is named by its content, which a compaction leaves as it is.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from prosa.events.facts import PROVEN, Kind, Role, fact_key
from prosa.ingest.grok_build import AGENT
from prosa.ingest.grok_build.records import Call, Row, blocks_text, unwrapped
from prosa.ingest.grok_build.telling import Place, Telling
from prosa.ingest.readable import readable_input

SHORT = 4_000
"""Injected text up to this many characters is shown; longer is system material."""
INJECTED = ("<user_info>", "<system-reminder>", "<project_instructions>", "<environment")
SILENT = ("system", "developer")


class Chat:
    """Reads the rows in their order and tells what they say."""

    def __init__(self, telling: Telling) -> None:
        self.telling = telling
        self.parent: str | None = None
        self.inherited = 0
        """Leading rows that a fork took from its parent."""
        self._row = 0
        self._seen: Counter[tuple[str, str]] = Counter()
        self._tools: dict[str, str | None] = {}
        self.called: set[str] = set()
        """Ids and names of the calls in updates.jsonl."""

    def row(self, row: Row, line: bytes) -> None:
        self._row += 1
        copied = self.parent is not None and self._row <= self.inherited
        place = Place(self.telling.key, "", copied=PROVEN if copied else 0, copied_from=self.parent if copied else None)
        if row.model_id and not copied and row.model_id not in self.telling.chat_models:
            self.telling.chat_models.append(row.model_id)
        kind = row.type or row.role or ""
        if self.telling.spoken and kind != "backend_tool_call":
            return
        match kind:
            case "user":
                self._user(place, row)
            case "assistant":
                self._assistant(place, row)
            case "reasoning":
                self._say(place, "thinking", "assistant", self._thought(row))
            case "tool_result" | "tool":
                self._result(place, row)
            case "backend_tool_call":
                self._backend(place, row)
            case _ if kind not in SILENT:
                self.telling.tally.strange(f"chat/{kind}", len(line))

    def _key(self, kind: str, text: str) -> int:
        """Of equal rows each has its number."""
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()
        self._seen[kind, digest] += 1
        return fact_key(AGENT, f"chat-{kind}", self.telling.key, f"{digest}#{self._seen[kind, digest]}")

    def _say(self, place: Place, kind: Kind, role: Role, text: str, *, counted: bool = True) -> None:
        if text and not text.isspace():
            self.telling.say(place, self._key(f"{kind}-{role}", text), kind, role, text, counted=counted)

    def _user(self, place: Place, row: Row) -> None:
        text = blocks_text(row.content)
        typed = unwrapped(text)
        if row.synthetic_reason not in (None, "", "interjection"):
            human = False
        elif row.type is None:
            human = not text.startswith(INJECTED)
        else:
            human = typed is not None or row.prompt_index is not None or row.synthetic_reason == "interjection"
        if human:
            self._say(place, "message", "user", typed if typed is not None else text)
        elif len(text) <= SHORT:
            self._say(place, "message", "user", text, counted=False)

    def _assistant(self, place: Place, row: Row) -> None:
        if row.reasoning_content:
            self._say(place, "thinking", "assistant", row.reasoning_content)
        self._say(place, "message", "assistant", blocks_text(row.content))
        for call in row.tool_calls or ():
            self._call(place, call)

    def _thought(self, row: Row) -> str:
        parts = (blocks_text(row.summary), blocks_text(row.content))
        return "\n\n".join(part for part in parts if part and not part.isspace())

    def _call(self, place: Place, call: Call) -> None:
        function = call.function
        name = call.name or (function.name if function is not None else None) or "unknown"
        arguments = call.arguments if bytes(call.arguments) else function.arguments if function is not None else None
        text = readable_input(arguments) if arguments is not None else ""
        key = self._key("tool_call", call.id or f"{name}\0{text}")
        if call.id:
            self._tools[call.id] = name
        self.telling.say(place, key, "tool_call", "assistant", text, tool=name, tool_call_id=call.id)

    def _result(self, place: Place, row: Row) -> None:
        call, text = row.tool_call_id, blocks_text(row.content)
        key = self._key("tool_result", call or text)
        name = self._tools.get(call) if call else None
        self.telling.say(
            place, key, "tool_result", "tool", text, tool=name, tool_call_id=call, is_error=bool(row.is_error)
        )

    def _backend(self, place: Place, row: Row) -> None:
        """A call that ran at the vendor. It has no result of its own."""
        call = row.kind
        name = call.tool_type if call is not None else None
        if call is None or not name:
            return
        if self.telling.spoken and (self.parent is not None or call.id in self.called or name in self.called):
            return
        text = readable_input(call.action)
        key = self._key("backend", call.id or f"{name}\0{text}")
        failed = call.status == "failed"
        self.telling.say(place, key, "tool_call", "assistant", text, tool=name, tool_call_id=call.id, is_error=failed)
