"""Folds one Antigravity conversation into facts.

No id of a step survives a copy, so every key holds the conversation; a step is named by its index and the second it
was made in, because an undo lets later steps take the indexes again. The raw is one document, parsed when it is whole.
"""

from __future__ import annotations

from base64 import b64decode
from bisect import bisect_left
from typing import Any, Unpack

import msgspec

from prosa.events.facts import Compaction, Facts, Header, Kind, Role, Usage, fact_key
from prosa.ingest.antigravity import AGENT
from prosa.ingest.antigravity.steps import Call, Step, Tokens, is_failure, step_of, timestamp, tokens_of
from prosa.ingest.clock import from_number, parse_iso
from prosa.ingest.importer import Identity
from prosa.ingest.json_lines import plain
from prosa.ingest.native import json_value, native_id, path_of
from prosa.ingest.protobuf import EMPTY, Message
from prosa.ingest.tally import Tally
from prosa.ingest.turn import About, turn_of

ENCRYPTED = "its store is encrypted"


def read(identity: Identity, data: bytes) -> tuple[Facts, Header]:
    """The facts of a whole raw."""
    conversation = _Conversation(identity, data)
    return conversation.facts, conversation.header


class _Open(msgspec.Struct):
    """A call that no result has answered yet."""

    native: str
    call: Call
    planner: int


class _Conversation:
    """One parse."""

    def __init__(self, identity: Identity, data: bytes) -> None:
        self._identity = identity
        self.facts = Facts([], [], [], [])
        self.header = Header()
        self._steps: dict[int, Step] = {}
        self._generations: list[dict[str, Any]] = []
        self._executors: list[tuple[int, str]] = []
        self._head: dict[str, Any] = {}
        self._open: list[_Open] = []
        self._answered: dict[str, _Open] = {}
        self._label: str | None = None
        self._title: str | None = None
        self._tally = Tally()
        for line in data.split(b"\n"):
            self._line(line)
        match self._head.get("antigravity"):
            case "pb/1":
                self._encrypted()
            case "steps/1":
                self._read()
            case _:
                self.header = Header(malformed=1, malformed_bytes=len(data))

    def _line(self, line: bytes) -> None:
        if not line:
            return
        try:
            said = json_value(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        if "idx" in said:
            step = step_of(said)
            if step is not None:
                self._steps[step.idx] = step
        elif "gen" in said:
            self._generations.append(said)
        elif "executor" in said:
            last, model = said.get("last"), said.get("model")
            if isinstance(last, int) and isinstance(model, str) and model:
                self._executors.append((last, plain(model)))
        elif "antigravity" in said:
            self._head = said

    def _read(self) -> None:
        head = self._head
        blob = _decoded(head.get("blob"))
        self._executors.sort()
        self._steps = dict(sorted(self._steps.items()))
        self._aliases = self._known_aliases()
        self._made: dict[int, dict[str, Any]] = {}
        """The first model call that made a step."""
        for said in self._generations:
            for idx in _indices(said):
                self._made.setdefault(idx, said)
        unreadable = 0
        for step in self._steps.values():
            unreadable += step.unreadable
            self._label = step.label or self._label
            self._step(step)
        has_usage = self._usage()
        times = [at for step in self._steps.values() for at in (step.at, step.done) if at is not None]
        if not times:
            created = timestamp(blob.message(2))
            changed = from_number(head.get("mtime_ms"))
            times = [at for at in (created or changed,) if at is not None]
        starts = [step.at for step in self._steps.values() if step.at is not None] or times
        workspace = next(iter(blob.messages(1)), EMPTY)
        root = native_id(blob.text(6))
        reasons = [f"{unreadable} steps not understood"] if unreadable else []
        if head.get("encrypted"):
            reasons.append(f"{ENCRYPTED}: read from its logs")
        if head.get("broken"):
            reasons.append("its database cannot be read: read from its logs")
        named = any(turn.model for turn in self.facts.turns) or any(usage.model for usage in self.facts.usage)
        self.header = Header(
            cwd=_folder(workspace.text(1)) or _folder(blob.text(7)) or _path(head.get("cwd")),
            branch=workspace.text(4) or None,
            title=self._title,
            parent=root if root != self._identity.id else None,
            models=(self._label,) if self._label and not named else (),
            started_at=min(starts, default=None),
            last_activity_at=max(times, default=None),
            has_usage=has_usage,
            state="partial" if reasons else "plain",
            state_reason=", ".join(reasons) or None,
            unknown=self._tally.unknown,
            malformed=_count(head.get("malformed")),
            malformed_bytes=_count(head.get("malformed_bytes")),
        )

    # steps

    def _step(self, step: Step) -> None:
        name = self._name(step)
        match step.kind:
            case "user":
                if step.text or step.counted:
                    self._turn(step, "message", "user", name, step.text, counted=step.counted)
            case "planner":
                self._planner(step, name)
            case "checkpoint":
                if step.title:
                    self._title = step.title
                if step.text:
                    self._turn(step, "compaction", "system", name, step.text, counted=False)
                if step.counted and not step.pending and not step.failed:
                    key = fact_key(AGENT, "completed", f"{self._identity.key}#{name}")
                    native = f"{self._identity.id}#{step.idx}"
                    self.facts.compactions.append(Compaction(key=key, id=native, at=step.at))
            case "scaffold":
                if step.text:
                    self._turn(step, "message", "system", name, step.text, counted=False)
            case "other":
                self._other(step, name)

    def _planner(self, step: Step, name: str) -> None:
        model = self._model(step.idx)
        if step.thinking:
            self._turn(step, "thinking", "assistant", name, step.thinking, model=model)
        if step.text:
            self._turn(step, "message", "assistant", name, step.text, model=model)
        for number, call in enumerate(step.calls):
            native = f"{name}/{number}"
            self._open.append(_Open(native, call, step.idx))
            self._turn(step, "tool_call", "assistant", native, call.text, model=model, call=call)

    def _other(self, step: Step, name: str) -> None:
        """A tool's result, if it names a call or a call waits for one; else a step of a kind nobody knows."""
        asked = self._asked(step) if step.is_result is not False and not step.pending else None
        if asked is None and not (step.is_result and not step.pending):
            if step.text:
                self._turn(step, "message", "system", name, step.text, counted=False)
            if not step.pending:
                self._tally.strange(step.word, step.size)
            return
        call = step.answers or (asked.call if asked else None)
        native = asked.native if asked else f"{name}/{call.id}" if call and call.id else name
        if asked is not None and call is not None and call.name == "run_command":
            step = step._replace(is_shell=True)
        failed = is_failure(step)
        self._turn(step, "tool_result", "tool", native, step.text, call=asked.call if asked else call, is_error=failed)

    def _asked(self, step: Step) -> _Open | None:
        """The call that a result answers: by id, else the first open one of the newest planner that has any."""
        named = step.answers.id if step.answers else None
        found = next((one for one in self._open if named and one.call.id == named), None)
        if found is None and named is not None and named in self._answered:
            # the same call again: its later result takes the place of the former
            return self._answered[named]
        if found is None and named is None and self._open:
            newest = max(one.planner for one in self._open)
            wanted = step.answers.name if step.answers else None
            waiting = [one for one in self._open if one.planner == newest]
            found = next((one for one in waiting if one.call.name == wanted), waiting[0])
        if found is not None:
            self._open.remove(found)
            if found.call.id:
                self._answered[found.call.id] = found
        return found

    def _turn(
        self,
        step: Step,
        kind: Kind,
        role: Role,
        native: str,
        text: str,
        *,
        call: Call | None = None,
        **about: Unpack[About],
    ) -> None:
        key = fact_key(AGENT, kind, f"{self._identity.key}#{native}")
        if call is not None:
            about |= {"tool": call.name, "tool_call_id": call.id}
        self.facts.turns.append(turn_of(key, kind, role, text, step.at, **about))

    @staticmethod
    def _name(step: Step) -> str:
        return f"{step.idx}@{'' if step.at is None else step.at // 1_000_000}"

    # models and usage

    def _model(self, idx: int) -> str | None:
        """By the executor that ran the step, else as the model call names it, else as the user chose it."""
        if (model := self._executor(idx)) is not None:
            return model
        said = self._made.get(idx)
        if said is None:
            return self._label
        alias = _text(said.get("alias"))
        return self._aliases.get(alias or "", alias) or _text(said.get("label"))

    def _executor(self, idx: int) -> str | None:
        """The model of the executor with the smallest last step that is not before this one."""
        place = bisect_left(self._executors, (idx, ""))
        return self._executors[place][1] if place < len(self._executors) else None

    def _known_aliases(self) -> dict[str, str]:
        """The full name of a model for the cut one that model calls carry."""
        found: dict[str, str] = {}
        for said in self._generations:
            alias = _text(said.get("alias"))
            indices = _indices(said)
            model = self._executor(indices[0]) if alias and indices else None
            if alias and model:
                found.setdefault(alias, model)
        return found

    def _usage(self) -> bool:
        """From the table of model calls; only where it has nothing from the steps, then from the logs."""
        seen: set[str] = set()
        for number, said in enumerate(self._generations):
            tokens = tokens_of(_decoded(said.get("usage")))
            if tokens is None:
                continue
            place = next((idx for idx in _indices(said) if idx in self._steps), None)
            alias = _text(said.get("alias"))
            model = self._model(place) if place is not None else self._aliases.get(alias or "", alias)
            native = tokens.response or (self._name(self._steps[place]) if place is not None else f"gen {number}")
            at = self._steps[place].at if place is not None else timestamp(_decoded(said.get("time")))
            if tokens.response is None:
                while native in seen:
                    native += "+"
            if native not in seen:
                seen.add(native)
                self._tokens(native, tokens, at, model)
        if not seen:
            for step in self._steps.values():
                if step.tokens is not None:
                    native = step.tokens.response or self._name(step)
                    if native not in seen:
                        seen.add(native)
                        self._tokens(native, step.tokens, step.at, self._model(step.idx))
        return bool(seen)

    def _tokens(self, native: str, tokens: Tokens, at: int | None, model: str | None) -> None:
        self.facts.usage.append(
            Usage(
                key=fact_key(AGENT, "usage", f"{self._identity.key}#{native}"),
                at=at,
                model=model,
                input=tokens.input,
                output=tokens.output,
                cache_read=tokens.cache_read,
                cache_write_5m=tokens.cache_write,
                reasoning=tokens.reasoning,
            )
        )

    # encrypted stores

    def _encrypted(self) -> None:
        """What is known without the key: the sidebar's row, the artifacts, the file's own time."""
        head = self._head
        sidebar = _inner(head, "sidebar")
        artifacts = [one for one in _list(head.get("artifacts")) if isinstance(one, dict)]
        times = [from_number(head.get("mtime_ms")), *map(from_number, _list(sidebar.get("times_ms")))]
        times += [parse_iso(one.get("updatedAt")) for one in artifacts]
        known = [at for at in times if at is not None]
        self.header = Header(
            cwd=_path(sidebar.get("cwd")) or _path(head.get("cwd")),
            title=_text(sidebar.get("title")),
            started_at=min(known, default=None),
            last_activity_at=max(known, default=None),
            compactions_known=False,
            compactions_reason=ENCRYPTED,
            state="encrypted",
            state_reason=ENCRYPTED,
        )


def _decoded(value: object) -> Message:
    if not isinstance(value, str):
        return EMPTY
    try:
        return Message(b64decode(value))
    except ValueError:
        return EMPTY


def _indices(said: dict[str, Any]) -> list[int]:
    return [idx for idx in _list(said.get("steps")) if isinstance(idx, int)]


def _inner(said: dict[str, Any], name: str) -> dict[str, Any]:
    value = said.get(name)
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return plain(value) if isinstance(value, str) and value.strip() else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _folder(uri: str | None) -> str | None:
    return path_of(uri) if uri else None


def _path(value: object) -> str | None:
    return path_of(value) if isinstance(value, str) else None
