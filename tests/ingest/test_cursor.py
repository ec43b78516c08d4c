"""The Cursor importer against the shared corpus, and against small stores of its own for each promise."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from folded import Folded, copied_home, differences, fold_bytes, is_empty, owned, reckon, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import field

from prosa.events.facts import PROVEN, TEXT_LIMIT, Compaction, Turn
from prosa.ingest.clock import parse_iso
from prosa.ingest.cursor import importer as cursor
from prosa.ingest.cursor.prompts import prompt_of, stamp_time
from prosa.ingest.importer import Identity, Raw, Trouble

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "cursor"
CASES = sorted(path.name for path in CORPUS.glob("*") if path.is_dir()) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not CASES, reason="the shared corpus is not beside this checkout")

CHAT = "11111111-2222-4333-8444-555555555555"
OTHER = "66666666-7777-4888-8999-aaaaaaaaaaaa"
CREATED_MS = 1_780_308_000_000


# --- folding and reckoning


def fold(data: bytes, native: str = CHAT, cuts: Iterable[int] = (), surface: str = "") -> Folded:
    identity = Identity("cursor", native)
    return Folded(identity, *fold_bytes(cursor.fold, identity, data, cuts), surface)


def raws_of(homes: Iterable[Path]) -> Iterator[tuple[Raw | None, Trouble | None]]:
    for home in homes:
        troubles: list[Trouble] = []
        for source in cursor.sources(home, troubles.append):
            for raw in cursor.raws(source, troubles.append):
                yield raw, None
        for trouble in troubles:
            yield None, trouble


def fold_home(user_home: Path, env: dict[str, str] | None = None) -> tuple[dict[str, Folded], list[Trouble]]:
    """Every session below a user's home: of its surfaces the one with the most prompts, then the first by name."""
    homes = cursor.homes(env or {}, user_home)
    found: dict[str, list[Folded]] = defaultdict(list)
    troubles = []
    for raw, trouble in raws_of(homes):
        if trouble is not None:
            troubles.append(trouble)
        if raw is not None:
            data = b"".join(raw.chunks())
            assert data == b"".join(raw.chunks())
            assert all(len(piece) <= 1 << 20 for piece in raw.chunks())
            found[raw.identity.id].append(fold(data, raw.identity.id, surface=raw.surface))
    sessions = {
        native: max(sorted(ones, key=lambda one: one.surface), key=lambda one: one.prompts)
        for native, ones in found.items()
    }
    known = {native: [one.identity] for native, one in sessions.items()}
    for home in homes:
        for aside in cursor.asides(home, known, troubles.append):
            one = sessions[aside.identity.id]
            if aside.field == "cwd" and (aside.rank > 0 or one.cwd is None):
                one.cwd = aside.value
    return sessions, troubles


@needs_corpus
@pytest.mark.parametrize("case", CASES)
def test_a_corpus_case_gives_the_numbers_a_person_worked_out(case: str, tmp_path: Path) -> None:
    want = json.loads((CORPUS / case / "expected.json").read_text())
    home = copied_home(CORPUS / case / "home", tmp_path, want)
    before = snapshot(home)
    sessions, troubles = fold_home(home)
    counted = owned(sessions)
    rows = {native: reckon(one, counted[native]) for native, one in sessions.items()}
    wrong = {}
    for session in want["sessions"]:
        native = session["session_id"]
        row = rows.pop(native, None)
        if row is None:
            assert session.get("optional"), native
        elif found := differences(session, row):
            wrong[native] = found
    assert wrong == {}
    never = set(want.get("not_sessions", ()))
    allowed = set(want.get("optional_sessions", ()))
    assert [native for native, row in rows.items() if native in never or not (native in allowed or is_empty(row))] == []
    said = "\n".join(f"{one.path}: {one.reason}" for one in troubles)
    assert all(name in said for name in want.get("expected_errors", ()))
    assert not troubles or want.get("damaged")
    assert snapshot(home) == before


# --- making stores


class Chat:
    """A store under construction: blobs, and the fields of its root."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.root = b""

    def blob(self, data: bytes | dict[str, Any]) -> bytes:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        digest = hashlib.sha256(body)
        self.blobs[digest.hexdigest()] = body
        return digest.digest()

    def message(self, role: str, content: Any, **more: Any) -> None:
        self.root += field(1, self.blob({"role": role, "content": content, **more}))

    def prompt(self, text: str, request: str = "", stamp: str = "") -> None:
        text = f"{f'<timestamp>{stamp}</timestamp>' if stamp else ''}\n<user_query>\n{text}\n</user_query>"
        options = {"cursor": {"requestId": request or f"request {text}"}}
        self.message("user", [{"type": "text", "text": text}], providerOptions=options)

    def answer(self, text: str) -> None:
        self.message("assistant", [{"type": "text", "text": text}])

    def turn(self, text: str, *steps: bytes, user: bytes = b"") -> None:
        prompt = self.blob(field(1, text) + field(2, f"id {text}") + user)
        listed = b"".join(field(2, self.blob(step)) for step in steps)
        self.root += field(8, self.blob(field(1, field(1, prompt) + listed + field(3, "request"))))

    def write(self, home: Path, native: str = CHAT, cwd: str = "/home/dev/app", **meta: Any) -> Path:
        folder = home / ".cursor" / "chats" / hashlib.md5(cwd.encode()).hexdigest() / native
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "store.db"
        path.unlink(missing_ok=True)
        root = self.blob(self.root)
        said = {"agentId": native, "latestRootBlobId": root.hex(), "name": "New Agent", "createdAt": CREATED_MS, **meta}
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB)")
            db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
            db.executemany("INSERT INTO blobs VALUES (?, ?)", sorted(self.blobs.items()))
            db.execute("INSERT INTO meta VALUES ('0', ?)", (json.dumps(said).encode().hex(),))
        db.close()
        return path


def mirror(home: Path, native: str, *lines: Any, project: str = "home-dev-app", kind: str = "jsonl") -> Path:
    folder = home / ".cursor" / "projects" / project / "agent-transcripts" / native
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{native}.{kind}"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def spoken(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "message": {"content": [{"type": "text", "text": text}]}}


def said(text: str) -> bytes:
    return field(1, field(1, text))


def tool(number: int, args: bytes, result: bytes | None) -> bytes:
    body = field(1, args) + (field(2, result) if result is not None else b"")
    return field(2, field(number, body))


# --- stores


def test_only_what_the_newest_root_reaches_is_the_session(tmp_path: Path) -> None:
    chat = Chat()
    chat.blob({"role": "user", "content": "<user_query>retracted</user_query>"})
    chat.prompt("kept")
    chat.answer("yes")
    chat.write(tmp_path)
    sessions, troubles = fold_home(tmp_path)
    assert (sessions[CHAT].texts("user"), sessions[CHAT].texts("assistant"), troubles) == (["kept"], ["yes"], [])


def test_the_encryption_key_of_a_store_is_in_no_raw(tmp_path: Path) -> None:
    secret = "ab" * 32
    chat = Chat()
    chat.prompt("hello")
    chat.write(tmp_path, blobEncryptionKey=secret, token=secret, name="Title")
    raws = [raw for raw, _ in raws_of([tmp_path / ".cursor"]) if raw is not None]
    assert len(raws) == 1
    assert secret not in b"".join(raws[0].chunks()).decode()


def test_the_turn_tree_is_completed_from_the_messages(tmp_path: Path) -> None:
    chat = Chat()
    chat.turn("old")
    chat.turn("fix it", tool(8, field(1, "/home/dev/app/a.py"), None), tool(1, field(1, "make"), field(3, "x")))
    chat.prompt("fix it")
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "Read", "args": {"path": "a.py"}}
    other = {"type": "tool-call", "toolCallId": "c2", "toolName": "Shell", "args": {}}
    chat.message("assistant", [{"type": "reasoning", "text": "hm"}, call, other])
    result = {"type": "tool-result", "toolCallId": "c1", "result": "no such file", "isError": True}
    chat.message("tool", [result])
    chat.write(tmp_path)
    session = fold_home(tmp_path)[0][CHAT]
    assert session.surface == "store"
    assert session.texts("user") == ["old", "fix it"]
    assert session.texts("assistant", "thinking") == ["hm"]
    assert [(turn.tool, turn.is_error, turn.text) for turn in session.turns if turn.kind == "tool_result"] == [
        ("Read", True, "no such file"),
        ("Shell", True, "x"),
    ]


def test_messages_serve_where_they_have_more_prompts_than_the_tree(tmp_path: Path) -> None:
    chat = Chat()
    chat.turn("one", said("ok"))
    for text in ("one", "two"):
        chat.prompt(text)
        chat.answer("ok")
    chat.write(tmp_path)
    session = fold_home(tmp_path)[0][CHAT]
    assert (session.surface, session.texts("user"), session.texts("assistant")) == (
        "store-list",
        ["one", "two"],
        ["ok", "ok"],
    )


def test_shell_turns_and_simulated_messages_are_shown_and_are_no_prompts(tmp_path: Path) -> None:
    chat = Chat()
    chat.turn("go on", said("done"), user=field(5, 1))
    shell = field(1, chat.blob(field(1, "git status"))) + field(2, chat.blob(field(1, "clean")))
    chat.root += field(8, chat.blob(field(2, shell)))
    chat.turn("typed", said("well"))
    chat.write(tmp_path)
    session = fold_home(tmp_path)[0][CHAT]
    assert session.texts("user") == ["typed"]
    assert session.texts("user", counted=False) == ["go on", "! git status"]


def test_a_continued_fork_counts_only_what_it_added(tmp_path: Path) -> None:
    chat = Chat()
    chat.prompt("design", stamp="Monday, Jun 1, 2026, 10:00 AM (UTC+0)")
    chat.answer("LRU")
    chat.write(tmp_path)
    chat.prompt("continue")
    chat.answer("LRU")
    chat.write(tmp_path, OTHER, createdAt=CREATED_MS + 3_600_000)
    sessions, _ = fold_home(tmp_path)
    counted = owned(sessions)
    assert sessions[OTHER].header.forked_from == CHAT
    assert [fact.text for fact in counted[OTHER] if isinstance(fact, Turn)] == ["continue", "LRU"]
    assert len(counted[CHAT]) == 2
    assert reckon(sessions[OTHER], counted[OTHER])["started_at"] == CREATED_MS + 3_600_000


def test_a_fork_of_a_turn_tree_counts_only_what_it_added(tmp_path: Path) -> None:
    chat = Chat()
    chat.turn("design", said("LRU"))
    chat.write(tmp_path)
    chat.turn("continue", said("LRU"))
    chat.write(tmp_path, OTHER, createdAt=CREATED_MS + 3_600_000)
    sessions, _ = fold_home(tmp_path)
    assert sessions[OTHER].header.forked_from == CHAT
    assert [turn.text for turn in sessions[OTHER].turns if turn.copied == PROVEN] == ["design", "LRU"]
    assert sum(isinstance(fact, Turn) for fact in owned(sessions)[OTHER]) == 2


def test_equal_answers_in_unrelated_chats_are_no_fork(tmp_path: Path) -> None:
    for native, created in ((CHAT, 0), (OTHER, 1000)):
        chat = Chat()
        chat.message("system", "You are an agent.")
        chat.prompt("hello", request=native)
        chat.answer("Hi!")
        chat.write(tmp_path, native, createdAt=CREATED_MS + created)
    sessions, _ = fold_home(tmp_path)
    assert [one.header.forked_from for one in sessions.values()] == [None, None]
    assert all(len(facts) == 2 for facts in owned(sessions).values())


def test_a_chat_that_grew_keeps_the_keys_of_what_it_had(tmp_path: Path) -> None:
    for tree in (False, True):
        chat = Chat()
        before: set[int] = set()
        for number in range(3):
            if tree:
                chat.turn("again", said("same"), user=field(9, number))
            else:
                chat.prompt("again", request="same request")
                chat.answer("same")
            chat.write(tmp_path)
            now = set(fold_home(tmp_path)[0][CHAT].facts)
            assert before < now and len(now) == 2 * (number + 1)
            before = now


def test_a_dropped_beginning_keeps_the_keys_of_the_rest(tmp_path: Path) -> None:
    chat = Chat()
    for text in ("one", "two"):
        chat.prompt(text)
        chat.answer(f"about {text}")
    chat.write(tmp_path)
    whole = fold_home(tmp_path)[0][CHAT]
    chat.root = field(1, chat.blob({"role": "user", "content": "<summary>\nall of it\n</summary>"}))
    chat.prompt("two")
    chat.answer("about two")
    chat.root += field(17, 1)
    chat.write(tmp_path)
    rest = fold_home(tmp_path)[0][CHAT]
    counted = {turn.key for turn in rest.turns if turn.counted}
    assert counted == {turn.key for turn in whole.turns if "two" in turn.text}
    assert [turn.kind for turn in rest.turns if not turn.counted] == ["compaction"]
    assert [one.id for one in rest.facts.values() if isinstance(one, Compaction)] == [f"{CHAT}#1"]


def test_a_root_that_is_missing_is_an_error_and_never_guessed(tmp_path: Path) -> None:
    chat = Chat()
    chat.prompt("lost")
    path = chat.write(tmp_path, latestRootBlobId="11" * 32)
    sessions, troubles = fold_home(tmp_path)
    assert [one.path for one in troubles] == [str(path)]
    assert (sessions[CHAT].turns, sessions[CHAT].header.state) == ([], "partial")


def test_an_encrypted_root_gives_a_session_without_turns(tmp_path: Path) -> None:
    chat = Chat()
    chat.root = b"\xff\xfe\x0b" * 20
    chat.write(tmp_path, name="Secret plan", blobEncryptionKey="00" * 32)
    sessions, troubles = fold_home(tmp_path)
    header = sessions[CHAT].header
    assert (header.state, header.title, header.compactions_known, troubles) == ("encrypted", "Secret plan", False, [])


def test_missing_and_changed_blobs_cost_only_themselves(tmp_path: Path) -> None:
    chat = Chat()
    for text in ("one", "two", "three"):
        chat.prompt(text)
    names = list(chat.blobs)
    del chat.blobs[names[1]]
    chat.blobs[names[2]] = chat.blobs[names[2]].replace(b"three", b"drei")
    chat.write(tmp_path)
    session = fold_home(tmp_path)[0][CHAT]
    assert session.texts("user") == ["one", "drei"]
    assert (session.header.state, session.header.state_reason) == ("partial", "1 blobs missing, 1 blobs changed")


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (field(9, "file:///home/dev/other%20app"), "/home/dev/other app"),
        (field(9, "file:///home/x") + field(9, "file:///home/dev/app"), "/home/dev/app"),
        (field(9, "vscode-remote://ssh/home/dev/app"), None),
        (field(18, "/home/dev/app/src/deep/a.py"), "/home/dev/app"),
        (field(18, "/home/dev/elsewhere/a.py"), None),
    ],
)
def test_the_folder_is_recorded_or_proven_by_its_hash(tmp_path: Path, root: bytes, expected: str | None) -> None:
    chat = Chat()
    chat.prompt("hello")
    chat.root += root
    chat.write(tmp_path)
    assert fold_home(tmp_path)[0][CHAT].cwd == expected


def test_a_folder_is_known_from_another_chat_of_the_same_hash(tmp_path: Path) -> None:
    for native, root in ((CHAT, b""), (OTHER, field(9, "file:///home/dev/app"))):
        chat = Chat()
        chat.prompt(f"hello {native}")
        chat.root += root
        chat.write(tmp_path, native)
    assert fold_home(tmp_path)[0][CHAT].cwd == "/home/dev/app"


def test_a_busy_store_is_tried_again_and_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prosa.ingest.foreign_db.BUSY_S", 0.01)
    monkeypatch.setattr("prosa.ingest.foreign_db.PAUSE_S", 0.0)
    chat = Chat()
    chat.prompt("hello")
    path = chat.write(tmp_path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA locking_mode = EXCLUSIVE")
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("INSERT INTO blobs VALUES ('x', 'y')")
    sessions, troubles = fold_home(tmp_path)
    writer.close()
    assert [one.retry for one in troubles] in ([True], [])
    assert bool(sessions) != bool(troubles)


def test_numbers_no_json_reader_takes_and_other_strange_meta_do_no_harm(tmp_path: Path) -> None:
    chat = Chat()
    chat.prompt("hello")
    chat.write(tmp_path, createdAt=10**30, name=["x"], lastUsedModel={"a": 1}, agentId="\ud800")
    sessions, troubles = fold_home(tmp_path)
    assert [one.texts("user") for one in sessions.values()] == [["hello"]]
    assert troubles == []


# --- mirrors


def test_a_mirror_serves_where_the_store_has_fewer_prompts(tmp_path: Path) -> None:
    chat = Chat()
    chat.prompt("one")
    chat.write(tmp_path)
    mirror(tmp_path, CHAT, spoken("user", "one"), spoken("user", "two"))
    session = fold_home(tmp_path)[0][CHAT]
    assert (session.surface, session.prompts) == ("transcript", 2)
    mirror(tmp_path, CHAT, spoken("user", "one"))
    assert fold_home(tmp_path)[0][CHAT].surface == "store-list"


def test_a_mirror_that_serves_has_title_folder_and_model_of_its_store(tmp_path: Path) -> None:
    chat = Chat()
    chat.root = b"\xff" * 50
    path = chat.write(tmp_path, name="Encrypted", lastUsedModel="composer-1")
    (path.parent / "meta.json").write_text(json.dumps({"cwd": "/home/dev/app", "updatedAtMs": CREATED_MS + 5000}))
    mirror(tmp_path, CHAT, spoken("user", "one"))
    session = fold_home(tmp_path)[0][CHAT]
    row = reckon(session, owned({CHAT: session})[CHAT])
    assert (row["title"], row["cwd"], row["model"]) == ("Encrypted", "/home/dev/app", "composer-1")
    assert (row["started_at"], row["last_activity_at"]) == (CREATED_MS, CREATED_MS + 5000)


def test_a_sub_agent_with_a_store_of_its_own_has_its_parent(tmp_path: Path) -> None:
    for native, root in ((CHAT, field(16, field(1, OTHER) + field(2, b""))), (OTHER, b"")):
        chat = Chat()
        chat.prompt(f"hello {native}")
        chat.root += root
        chat.write(tmp_path, native)
    assert fold_home(tmp_path)[0][OTHER].header.parent == CHAT


def test_no_bytes_of_an_image_are_in_a_result(tmp_path: Path) -> None:
    chat = Chat()
    chat.prompt("look")
    results = [f"see data:image/png;base64,{'iVBOR' * 99}", [{"type": "image", "data": "iVBOR" * 99}]]
    for number, result in enumerate(results):
        part = {"type": "tool-result", "toolCallId": f"c{number}", "result": result}
        chat.message("tool", [part])
    chat.write(tmp_path)
    assert fold_home(tmp_path)[0][CHAT].texts("tool", "tool_result") == ["see [image]", "[image]"]


def test_a_prompt_of_images_alone_is_one(tmp_path: Path) -> None:
    chat = Chat()
    image = {"type": "image", "image": "iVBOR" * 10}
    chat.message("user", [image, {"type": "text", "text": "<user_query>\n\n</user_query>"}])
    chat.write(tmp_path)
    assert fold_home(tmp_path)[0][CHAT].texts("user") == ["[image]"]


def test_scrubbed_text_is_not_visible_and_not_counted(tmp_path: Path) -> None:
    mirror(
        tmp_path, CHAT, spoken("user", "go"), spoken("assistant", "[REDACTED]"), spoken("assistant", "Hi [REDACTED]")
    )
    assert fold_home(tmp_path)[0][CHAT].texts("assistant") == ["Hi "]


def test_damaged_lines_of_a_mirror_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = mirror(tmp_path, CHAT, spoken("user", "one"), '{"role":"user","message"', "[]", spoken("user", "two"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b'{"role":"assistant","mess')
    sessions, troubles = fold_home(tmp_path)
    assert sessions[CHAT].texts("user") == ["one", "two"]
    assert (sessions[CHAT].header.malformed, troubles) == (2, [])


def test_records_of_unknown_kind_are_counted(tmp_path: Path) -> None:
    mirror(tmp_path, CHAT, spoken("user", "one"), {"type": "user_message", "text": "?"}, {"type": "turn_ended"})
    assert list(fold_home(tmp_path)[0][CHAT].header.unknown) == ["user_message"]


def test_the_folder_of_a_mirror_is_said_only_where_one_known_path_has_its_name(tmp_path: Path) -> None:
    mirror(tmp_path, OTHER, spoken("user", "one"))
    assert fold_home(tmp_path)[0][OTHER].cwd is None
    chat = Chat()
    chat.prompt("hello")
    path = chat.write(tmp_path)
    (path.parent / "meta.json").write_text(json.dumps({"cwd": "/home/dev/app", "hasConversation": True}))
    assert fold_home(tmp_path)[0][OTHER].cwd == "/home/dev/app"
    path = chat.write(tmp_path, "another", cwd="/home/dev-app")
    (path.parent / "meta.json").write_text(json.dumps({"cwd": "/home/dev-app"}))
    assert fold_home(tmp_path)[0][OTHER].cwd is None


# --- IDE


def ide(home: Path, rows: dict[str, Any]) -> Path:
    path = home / ".config" / "Cursor" / "User" / "globalStorage" / "state.vscdb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
        db.executemany(
            "INSERT INTO cursorDiskKV VALUES (?, ?)",
            [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in rows.items()],
        )
    db.close()
    return path


def composer(*bubbles: dict[str, Any], **more: Any) -> dict[str, Any]:
    headers = [{"bubbleId": f"b{number}", "type": bubble["type"]} for number, bubble in enumerate(bubbles)]
    rows: dict[str, Any] = {f"bubbleId:{CHAT}:b{number}": bubble for number, bubble in enumerate(bubbles)}
    row = {"composerId": CHAT, "createdAt": CREATED_MS, "fullConversationHeadersOnly": headers, **more}
    return rows | {f"composerData:{CHAT}": row}


def test_secrets_of_ide_rows_are_in_no_raw(tmp_path: Path) -> None:
    secret = "cd" * 32
    bubble = {"type": 1, "text": "hi", "token": secret, "thinking": {"text": "", "signature": secret}}
    path = ide(tmp_path, composer(bubble, blobEncryptionKey=secret, modelConfig={"apiKey": secret, "modelName": "m"}))
    raws = [raw for raw, _ in raws_of([path.parents[1]]) if raw is not None]
    assert len(raws) == 1 and secret not in b"".join(raws[0].chunks()).decode()


def test_token_counts_of_zero_everywhere_are_unknown(tmp_path: Path) -> None:
    zero = {"inputTokens": 0, "outputTokens": 0}
    ide(
        tmp_path, composer({"type": 1, "text": "hi", "tokenCount": zero}, {"type": 2, "text": "yo", "tokenCount": zero})
    )
    session = fold_home(tmp_path)[0][CHAT]
    assert (session.header.has_usage, session.prompts) == (False, 1)


def test_a_chat_of_the_ide_is_a_sub_agent_where_another_one_lists_it(tmp_path: Path) -> None:
    rows = composer({"type": 1, "text": "hi"}, subagentInfo={"subagentType": "explore"})
    rows[f"composerData:{OTHER}"] = {"composerId": OTHER, "subagentComposerIds": [CHAT]}
    ide(tmp_path, rows)
    assert fold_home(tmp_path)[0][CHAT].header.parent == OTHER


def test_opening_a_chat_again_is_no_activity(tmp_path: Path) -> None:
    later = {"lastUpdatedAt": CREATED_MS + 86_400_000}
    ide(tmp_path, composer({"type": 1, "text": "hi", "createdAt": CREATED_MS + 1000}, **later))
    assert fold_home(tmp_path)[0][CHAT].header.last_activity_at == (CREATED_MS + 1000) * 1000
    ide(tmp_path, composer({"type": 1, "text": "hi"}, **later))
    assert fold_home(tmp_path)[0][CHAT].header.last_activity_at == (CREATED_MS + 86_400_000) * 1000


def test_a_failed_ide_tool_without_result_is_an_error_of_its_call(tmp_path: Path) -> None:
    tools = [
        {"name": "read", "status": status, "result": result} for status, result in (("error", None), ("error", "x"))
    ]
    ide(tmp_path, composer({"type": 1, "text": "hi"}, *({"type": 2, "toolFormerData": one} for one in tools)))
    errors = [turn.kind for turn in fold_home(tmp_path)[0][CHAT].turns if turn.is_error]
    assert errors == ["tool_call", "tool_result"]


# --- anything at all


def test_folders_fifos_and_loops_in_the_way_do_not_stop_the_rest(tmp_path: Path) -> None:
    chat = Chat()
    chat.prompt("hello")
    folder = chat.write(tmp_path).parent
    os.mkfifo(folder / "meta.json")
    for name in ("fifo", "folder", "dangling"):
        (folder.parent / name).mkdir()
    os.mkfifo(folder.parent / "fifo" / "store.db")
    (folder.parent / "folder" / "store.db").mkdir()
    (folder.parent / "dangling" / "store.db").symlink_to("nowhere")
    (folder.parent / "loop").symlink_to(folder.parent)
    (folder.parent.parent / "up").symlink_to(folder.parent.parent.parent)
    (folder.parent / "gone").symlink_to("nowhere")
    project = tmp_path / ".cursor" / "projects" / "p" / "agent-transcripts"
    project.mkdir(parents=True)
    os.mkfifo(project / "x.jsonl")
    (project / "again").symlink_to(project)
    sessions, troubles = fold_home(tmp_path)
    assert list(sessions) == [CHAT]
    assert troubles == []


def test_variables_of_the_agent_move_its_home(tmp_path: Path) -> None:
    ide_home = tmp_path / ".config" / "Cursor" / "User"
    assert cursor.homes({}, tmp_path) == [tmp_path / ".cursor", ide_home]
    assert cursor.homes({"CURSOR_CONFIG_DIR": "/x"}, tmp_path) == [Path("/x"), ide_home]
    assert cursor.homes({"XDG_CONFIG_HOME": "/c"}, tmp_path) == [
        Path("/c/cursor"),
        tmp_path / ".cursor",
        Path("/c/Cursor/User"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tuesday, Jun 16, 2026, 9:00 AM (UTC+0)", "2026-06-16T09:00:00Z"),
        ("Tuesday, Jun 16, 2026, 12:05 AM (UTC-8)", "2026-06-16T08:05:00Z"),
        ("Tuesday, June 16, 2026, 12:30 PM (UTC+5:30)", "2026-06-16T07:00:00Z"),
        ("Jun 16, 2026, 21:00", "2026-06-16T21:00:00Z"),
        ("Tuesday, Foo 16, 2026, 9:00 AM (UTC+0)", None),
        ("Tuesday, Jun 46, 2026, 9:00 AM (UTC+0)", None),
        ("yesterday", None),
    ],
)
def test_time_stamps_of_prompts_have_their_own_offset(text: str, expected: str | None) -> None:
    assert stamp_time(text) == (parse_iso(expected) if expected else None)


@pytest.mark.parametrize(
    ("text", "typed", "counted"),
    [
        ("<user_query>\nfix it\n</user_query>", "fix it", True),
        ("<attached_files>\nx\n</attached_files>\n<user_query>go</user_query>", "go", True),
        ("plain old text", "plain old text", True),
        ("<div>what is this?</div>", "<div>what is this?</div>", True),
        ("<user_info>\nOS\n</user_info>", "<user_info>\nOS\n</user_info>", False),
        ("<system_reminder>x</system_reminder>\nand typed", "and typed", True),
        ("<user_query>torn", "torn", True),
    ],
)
def test_what_the_client_wraps_around_a_prompt_is_taken_off(text: str, typed: str, counted: bool) -> None:
    assert prompt_of(text)[:2] == (typed, counted)


def test_ten_thousand_unclosed_tags_are_read_in_linear_time() -> None:
    assert not prompt_of("<user_info>" * 10_000 + "<a_b>" * 10_000).counted


def test_text_beyond_the_bound_is_cut_and_its_size_told(tmp_path: Path) -> None:
    chat = Chat()
    chat.prompt("x" * (TEXT_LIMIT + 10))
    chat.write(tmp_path)
    turn = fold_home(tmp_path)[0][CHAT].turns[0]
    assert (turn.size, len(turn.text) < 2 * TEXT_LIMIT) == (TEXT_LIMIT + 10, True)


@cache
def corpus_raws() -> list[bytes]:
    found = []
    for case in CASES:
        for home in cursor.homes({}, CORPUS / case / "home"):
            if home.is_dir():
                found += [b"".join(raw.chunks()) for raw, _ in raws_of([home]) if raw is not None]
    return found


@needs_corpus
def test_reading_in_pieces_gives_the_same_facts_and_header() -> None:
    for data in corpus_raws():
        whole = fold(data)
        for step in (1 + len(data) // 7, 1000, 97):
            pieces = fold(data, cuts=range(step, len(data), step))
            assert (pieces.facts, pieces.header) == (whole.facts, whole.header)
        assert cursor.fold(Identity("cursor", CHAT)).state() is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_raw_never_breaks_the_fold(data: st.DataObject) -> None:
    chat = b'{"id":"00","text":"{\\"role\\":\\"user\\"}"}\n{"cursor":"store/1","root":"00","meta":{}}\n'
    lines = b'{"cursor":"jsonl/1"}\n{"role":"user","message":{"content":[{"type":"text","text":"x"}]}}\n'
    ide_raw = b'{"bubble":{"type":1,"text":"x","bubbleId":"b"}}\n{"cursor":"ide/1","composer":{}}\n'
    body = bytearray(data.draw(st.sampled_from([*corpus_raws()[:6], chat, lines, ide_raw])))
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
        body = body or bytearray(b"x")
    for turn in fold(bytes(body)).turns:
        turn.text.encode()
