"""Profiles in config.toml: one line is written, the rest stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Ran

from prosa.cli.config import read, set_profile
from prosa.events.errors import ConflictError, UsageError
from prosa.events.home import Home


@pytest.fixture
def place(home: Path) -> Home:
    return Home(home / "prosa", home / "config")


def test_a_profile_is_added_moved_and_removed(prosa: Callable[..., Ran], place: Home, home: Path) -> None:
    file = place.config / "config.toml"
    assert prosa("profiles", "add", "codex", "work", "~/.codex-work").code == 0
    assert read(place).profiles == {"codex": {"work": home / ".codex-work"}}
    assert file.stat().st_mode & 0o777 == 0o600
    assert place.config.stat().st_mode & 0o777 == 0o700
    assert prosa("profiles", "set-path", "codex", "work", "other").code == 0
    assert read(place).profiles["codex"]["work"] == home / "work" / "other"
    assert prosa("profiles", "remove", "codex", "work").code == 0
    assert read(place).profiles == {}


def test_what_is_not_ours_stays_byte_for_byte(place: Home) -> None:
    file = place.config / "config.toml"
    place.config.mkdir()
    text = (
        '# mine\nother = 1\n\n[prices."a-model"]\ninput = 2.5\noutput = 10 # as agreed\n'
        '\n[profiles.codex]\na = "/a"\n\n[x]\ny = 2'
    )
    file.write_text(text, encoding="utf-8")
    set_profile(place, "codex", "b", Path('/with "quotes" and ü'))
    assert file.read_text(encoding="utf-8") == (
        text.replace('a = "/a"\n', 'a = "/a"\nb = "/with \\"quotes\\" and ü"\n') + "\n"
    )
    set_profile(place, "codex", "b", None)
    assert file.read_text(encoding="utf-8") == text + "\n"
    assert read(place).prices == {"a-model": {"input": 2.5, "output": 10}}


@pytest.mark.parametrize("text", ['profiles.codex.a = "/a"\n', 'profiles = { codex = { a = "/a" } }\n'])
def test_a_form_that_cannot_be_edited_is_left_alone(text: str, place: Home) -> None:
    place.config.mkdir()
    (place.config / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConflictError, match="left as it is"):
        set_profile(place, "codex", "b", Path("/b"))
    assert (place.config / "config.toml").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("text", ["[profiles", "profiles = 3", "[profiles]\ncodex = 3", "[profiles.codex]\na = 3"])
def test_a_broken_file_is_named(text: str, place: Home) -> None:
    place.config.mkdir()
    (place.config / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"config\.toml"):
        read(place)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("add", "nope", "work", "/x"), "There is no agent 'nope'."),
        (("add", "codex", "a b", "/x"), "is no name for a profile"),
        (("add", "codex", "default", "/x"), "has a profile 'default' already"),
        (("remove", "codex", "default"), "no configured profile 'default'"),
        (("set-path", "codex", "work", "/x"), "no configured profile 'work'"),
    ],
)
def test_what_makes_no_sense_is_refused(args: tuple[str, ...], said: str, prosa: Callable[..., Ran]) -> None:
    ran = prosa("profiles", *args)
    assert ran.code == 2
    assert said in ran.err


def test_the_list_has_defaults_configured_and_forgotten_profiles(prosa: Callable[..., Ran], home: Path) -> None:
    (home / ".codex").mkdir()
    prosa("profiles", "add", "codex", "work", str(home / "gone"))
    rows = [json.loads(line) for line in prosa("profiles", "list", "--json").out.splitlines()]
    found = {(row["agent"], row["profile"]): (row["path"], row["state"], row["sessions"]) for row in rows}
    assert found["codex", "default"] == (str(home / ".codex"), "found", 1)
    assert found["codex", "work"] == (str(home / "gone"), "missing", 0)
    assert found["gemini", "default"] == (None, "not configured", 1)
