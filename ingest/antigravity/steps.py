"""One step of an Antigravity conversation, from a row of its database, a line of its logs, or both.

The two describe the same steps. The database has exact times, ids and usage; the log has thoughts and outputs that some
builds leave out of the database, and names for step types whose numbers are not known.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any, Literal, NamedTuple

from prosa.ingest.clock import parse_iso, plausible
from prosa.ingest.json_lines import plain, values
from prosa.ingest.native import json_value, readable
from prosa.ingest.protobuf import EMPTY, Message, WireError, leaves
from prosa.ingest.protobuf import readable as readable_bytes

Kind = Literal["user", "planner", "checkpoint", "scaffold", "other"]

TYPES: dict[int, Kind] = {14: "user", 15: "planner", 23: "checkpoint", 98: "scaffold", 17: "scaffold", 101: "scaffold"}
LOG_TYPES: dict[str, Kind] = {
    "USER_INPUT": "user",
    "PLANNER_RESPONSE": "planner",
    "CHECKPOINT": "checkpoint",
    "CONVERSATION_HISTORY": "scaffold",
    "KNOWLEDGE_ARTIFACTS": "scaffold",
    "EPHEMERAL_MESSAGE": "scaffold",
    "SYSTEM_MESSAGE": "scaffold",
    "ERROR_MESSAGE": "scaffold",
}
SHELL_TYPES = (21, 112)
ERROR, CLEARED = 7, 5
PENDING = (1, 2, 8)
"""Not started, running, being generated."""
PENDING_WORDS = ("PENDING", "RUNNING", "IN_PROGRESS", "GENERATING")
SERVICE_FIELDS = (1, 4, 5, 6, 31)
"""Fields of a payload beside its body."""
FAILED = re.compile(r"^\s*The command failed with exit code: (-?\d+)", re.MULTILINE)
MODEL = re.compile(r"Model Selection`? from .{0,200}? to (.{1,200}?)\.(?:\s|$)")
SETTINGS = 4000
"""Characters of a change of settings."""
TOKEN_CAP = 2_000_000
"""More tokens than any request has: a field that means something else."""


class Call(NamedTuple):
    id: str | None
    name: str | None
    text: str


class Tokens(NamedTuple):
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int | None
    response: str | None = None


class Step(NamedTuple):
    idx: int
    kind: Kind
    at: int | None = None
    done: int | None = None
    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    answers: Call | None = None
    """The call that a result repeats."""
    is_result: bool | None = None
    """None: only an unanswered call before it can tell."""
    failed: bool = False
    exit_code: int | None = None
    is_shell: bool = False
    cleared: bool = False
    pending: bool = False
    counted: bool = True
    tokens: Tokens | None = None
    label: str | None = None
    """A model that the user chose here."""
    title: str | None = None
    word: str = ""
    """Its type as it is written, and how large it is: for kinds nobody knows."""
    size: int = 0
    unreadable: bool = False


def step_of(said: dict[str, Any]) -> Step | None:
    """The step of one line of the raw."""
    idx = said.get("idx")
    if not isinstance(idx, int):
        return None
    row, line = said.get("row"), said.get("log")
    stored = from_row(idx, row) if isinstance(row, dict) else None
    logged = from_log(idx, log_record(line)) if isinstance(line, str) else None
    if stored is None or logged is None:
        return stored or logged
    return _joined(stored, logged)


def _joined(stored: Step, logged: Step) -> Step:
    """The row, completed from the log."""
    kind = logged.kind if stored.kind == "other" else stored.kind
    text = stored.text
    if not text or (kind == "other" and len(logged.text) > len(text)):
        text = logged.text
    return stored._replace(
        kind=kind,
        at=stored.at if stored.at is not None else logged.at,
        text=text,
        thinking=stored.thinking or logged.thinking,
        calls=stored.calls or logged.calls,
        is_result=stored.is_result or None,
        failed=stored.failed or logged.failed,
        exit_code=stored.exit_code if stored.exit_code is not None else logged.exit_code,
        is_shell=stored.is_shell or logged.is_shell,
        cleared=stored.cleared and logged.cleared,
        pending=stored.pending and logged.pending,
        # a log says when a request was empty; a database that keeps no text cannot
        counted=stored.counted if stored.text else logged.counted,
        label=stored.label or logged.label,
        tokens=stored.tokens or logged.tokens,
        word=logged.word or stored.word,
        unreadable=stored.unreadable and not (logged.text or logged.thinking or logged.calls),
    )


# database


def from_row(idx: int, row: dict[str, Any]) -> Step:
    number, status = _int(row.get("type")), _int(row.get("status"))
    metadata, bad_metadata = _message(row.get("metadata"))
    payload, unreadable = _message(row.get("payload"))
    if number is None or number == 0:
        number = payload.number(1)
    kind = TYPES.get(number or 0, "other")
    called = metadata.message(4) if 4 in metadata else None
    has_metadata = bool(metadata.fields) or bad_metadata
    step = Step(
        idx,
        kind,
        at=timestamp(metadata.message(1)),
        done=timestamp(metadata.message(8)),
        answers=_call(called) if called is not None else None,
        is_result=(True if called is not None else False if has_metadata else None) if kind == "other" else False,
        failed=status == ERROR,
        is_shell=number in SHELL_TYPES,
        cleared=status == CLEARED,
        pending=status in PENDING,
        tokens=tokens_of(metadata.message(9)),
        word=f"step {number}",
        size=len(str(row.get("payload") or "")) * 3 // 4,
        unreadable=unreadable,
    )
    match kind:
        case "user":
            return _user_row(step, payload.message(19))
        case "planner":
            return _planner_row(step, payload.message(20))
        case "checkpoint":
            body = payload.message(30)
            text = "\n\n".join(filter(None, (body.text(4), body.text(5))))
            return step._replace(
                text=text, title=body.text(10) or None, counted=body.number(9) in (None, 0), pending=step.pending
            )
    error = payload.message(31).text(1) or _message(row.get("error"))[0].text(1) or ""
    return _result_row(step, number, payload, error)


def _user_row(step: Step, body: Message) -> Step:
    text = body.text(2) or "\n".join(filter(None, (item.text(1) for item in body.messages(3))))
    typed, counted = request_of(text)
    if not typed and (5 in body or 9 in body):
        typed, counted = "[image]", True
    return step._replace(text=typed, counted=counted or step.cleared, label=model_label(text))


def _planner_row(step: Step, body: Message) -> Step:
    return step._replace(
        text=_visible(body.text(8)) or _visible(body.text(1)),
        thinking=_visible(body.text(3)) or _visible(body.text(16)),
        calls=tuple(_call(call) for call in body.messages(7) if call.fields),
    )


def _result_row(step: Step, number: int | None, payload: Message, error: str) -> Step:
    if number in SHELL_TYPES:
        body = payload.message(28 if number == 21 else 127)
        output = body.message(21).text(1) or "\n".join(filter(None, (body.text(4), body.text(5))))
        code = body.number(6) if number == 21 else None
        rejected = number == 21 and body.number(14) == 1
        text = "\n".join(filter(None, (output, error)))
        return step._replace(text=text, exit_code=code, failed=step.failed or rejected)
    if number == 132:
        text = payload.message(140).message(2).text(1) or ""
        return step._replace(text="\n".join(filter(None, (text, error))))
    texts: list[str] = []
    for field, found in sorted(payload.fields.items()):
        if field not in SERVICE_FIELDS:
            texts += [_words(value) for value in found if isinstance(value, bytes)]
    return step._replace(text="\n".join(filter(None, [*texts, error])))


def _words(data: bytes) -> str:
    """Every text inside, one below the other."""
    try:
        return "\n".join(plain(leaf) for leaf in leaves(data) if isinstance(leaf, str))
    except WireError:
        return plain(readable_bytes(data) or "")


def _call(message: Message) -> Call:
    return Call(message.text(1) or None, message.text(2) or None, arguments(message.text(3) or ""))


def arguments(value: object) -> str:
    """The input of a tool as people read it. Capped logs write every value as JSON once more."""
    if isinstance(value, str):
        try:
            value = json_value(value)
        except (ValueError, RecursionError):
            return plain(value) if isinstance(value, str) else ""
    if isinstance(value, dict):
        value = {name: _decoded(inner) for name, inner in value.items()}
    return readable(value)


def _decoded(value: Any) -> Any:
    if isinstance(value, str) and value[:1] == '"' and value[-1:] == '"':
        try:
            return json_value(value)
        except (ValueError, RecursionError):
            return value
    return value


def tokens_of(stats: Message) -> Tokens | None:
    """The usage of one model call; None where none is recorded, or the layout is not the known one."""
    counts = {number: stats.number(number) or 0 for number in (2, 3, 4, 5, 9, 10)}
    if not any(counts.values()) or max(counts.values()) > TOKEN_CAP:
        return None
    if (counts[9] or counts[10]) and counts[3] != counts[9] + counts[10]:
        return None
    return Tokens(counts[2], counts[3], counts[5], counts[4], counts[9], stats.text(11) or None)


def timestamp(message: Message) -> int | None:
    seconds = message.number(1)
    if seconds is None or seconds > 1 << 40:
        return None
    return plausible(seconds * 1_000_000 + min(message.number(2) or 0, 999_999_999) // 1000)


def _message(value: object) -> tuple[Message, bool]:
    """A message from base64, and whether there were bytes that are none."""
    if not isinstance(value, str) or not value:
        return EMPTY, False
    try:
        return Message(b64decode(value)), False
    except ValueError:
        return EMPTY, True


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# logs


def log_record(line: str) -> dict[str, Any]:
    """A line of a log, also a damaged one; empty where nothing can be saved."""
    try:
        said = json_value(line)
    except (ValueError, RecursionError):
        found, _ = values(line.encode("utf-8", "replace"))
        said = found[-1] if found else {}
    return said if isinstance(said, dict) else {}


def from_log(idx: int, said: dict[str, Any]) -> Step:
    word = said.get("type")
    kind = LOG_TYPES.get(word, "other") if isinstance(word, str) else "scaffold"
    status = said.get("status")
    content = _visible(said.get("content"))
    code = said.get("exit_code")
    source = said.get("source")
    step = Step(
        idx,
        kind,
        at=parse_iso(said.get("created_at")),
        text=content,
        is_result=None if kind == "other" else False,
        failed=status == "ERROR",
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
        is_shell=word in ("RUN_COMMAND", "SHELL_EXEC"),
        cleared=status == "CLEARED",
        pending=status in PENDING_WORDS,
        tokens=_log_tokens(said) if kind == "planner" else None,
        word=plain(word)[:80] if isinstance(word, str) else "",
        size=len(content),
    )
    if kind == "user":
        typed, counted = request_of(content)
        # a cleared prompt was one, though nobody can read it now
        counted = (counted or (step.cleared and not content)) and source not in ("SYSTEM", "MODEL")
        return step._replace(text=typed, counted=counted, label=model_label(content))
    if kind == "planner":
        calls = said.get("tool_calls")
        found = [_log_call(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        return step._replace(thinking=_visible(said.get("thinking")), calls=tuple(found))
    return step


def _log_call(call: dict[str, Any]) -> Call:
    name, native = call.get("name"), call.get("id")
    return Call(
        plain(native) if isinstance(native, str) and native else None,
        plain(name) if isinstance(name, str) and name else None,
        arguments(call.get("args")),
    )


def _log_tokens(said: dict[str, Any]) -> Tokens | None:
    counts = [said.get(name) for name in ("input_tokens", "output_tokens", "cache_read_tokens")]
    found = [n if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= TOKEN_CAP else None for n in counts]
    if not any(found):
        return None
    return Tokens(found[0] or 0, found[1] or 0, found[2] or 0, 0, None)


def request_of(text: str) -> tuple[str, bool]:
    """What the user typed, and whether that is anything."""
    start = text.find("<USER_REQUEST>")
    if start >= 0:
        end = text.rfind("</USER_REQUEST>")
        typed = text[start + 14 : end if end > start else len(text)].strip()
    else:
        typed = text.strip()
    return typed, bool(typed)


def model_label(text: str) -> str | None:
    """The model named by the last change of settings in a prompt."""
    start = max(text.rfind("<USER_SETTINGS_CHANGE>"), 0)
    found = MODEL.findall(text[start : start + SETTINGS]) if text.find("Model Selection", start) >= 0 else []
    return plain(found[-1]) if found else None


def _visible(value: object) -> str:
    return plain(value) if isinstance(value, str) and value.strip() else ""


def is_failure(step: Step) -> bool:
    """A failed tool: its status, its exit code, or, where it has none, the words the agent writes for one."""
    if step.failed:
        return True
    if step.exit_code is not None:
        return step.exit_code != 0
    found = FAILED.search(step.text[:4096]) if step.is_shell else None
    return found is not None and found[1].strip("-0") != ""
