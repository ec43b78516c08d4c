"""What is needed to host a server: the files name variables that exist, and copy what is in the repository."""

from __future__ import annotations

import re
from pathlib import Path

from prosa.server.settings import read_settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
COMPOSE = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
EXAMPLE = dict(
    line.split("=", 1)
    for line in (DEPLOY / "example.env").read_text(encoding="utf-8").splitlines()
    if "=" in line and not line.startswith("#")
)


def test_every_variable_of_compose_is_in_the_example() -> None:
    asked = set(re.findall(r"\$\{(\w+)", COMPOSE)) | set(re.findall(r"environment: (\w+)$", COMPOSE, re.MULTILINE))
    assert asked <= EXAMPLE.keys()
    assert EXAMPLE.keys() <= asked, "the example has a variable that nothing reads"


def test_the_server_starts_with_what_compose_gives_it() -> None:
    given = dict(re.findall(r"^      (PROSA_\w+): (.+)$", COMPOSE, re.MULTILINE))
    given |= dict(re.findall(r"(PROSA_\w+)=(\S+)", DOCKERFILE))
    settings = read_settings(given | {"PROSA_OWNER_EMAILS": "You@example.org"})
    assert settings.s3 is not None
    assert (settings.listen, settings.owner_emails, settings.dev_login) == ("0.0.0.0:7070", ("you@example.org",), None)
    known = (ROOT / "server" / "settings.py").read_text(encoding="utf-8")
    assert all(name in known or name == "PROSA_HOME" for name in given)


def test_the_image_copies_what_is_here_and_every_room() -> None:
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    }
    assert all((ROOT / word).exists() for word in copied)
    assert {"events", "projections", "ingest", "sync", "server", "cli"} <= copied
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    assert all(f"!{word}\n" in ignored for word in copied)
