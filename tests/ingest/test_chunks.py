"""Files beside the transcripts are opened only where they are files."""

from __future__ import annotations

import os

import pytest
from store import Store

from prosa.ingest.chunks import read_file

SESSION = "11111111-2222-4333-8444-555555555555"
BESIDE = (
    f".claude/projects/-home-dev-app/{SESSION}/custom-title.json",
    ".claude/history.jsonl",
    ".codex/session_index.jsonl",
    ".gemini/projects.json",
    ".gemini/tmp/app/.project_root",
    ".gemini/tmp/app/logs.json",
    ".pi/agent/settings.json",
)


@pytest.mark.parametrize("path", BESIDE)
def test_a_pipe_in_place_of_a_file_is_passed_over(store: Store, path: str) -> None:
    prompt = f'{{"type":"user","uuid":"u","sessionId":"{SESSION}","message":{{"role":"user","content":"x"}}}}\n'
    transcript = store.user / ".claude" / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True, exist_ok=True)
    transcript.write_text(prompt)
    pipe = store.user / path
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    assert store.sync().events > 0
    with pytest.raises(OSError, match="not a regular file"):
        read_file(pipe)
