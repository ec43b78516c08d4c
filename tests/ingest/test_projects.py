"""The project of a directory, from git's own files and `.prosa.yaml`; the real git says whether that is right."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prosa.ingest import projects
from prosa.ingest.projects import Project

REMOTE = "https://github.com/owner/repo.git"


def git(where: Path, *words: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
    }  # fmt: skip
    command = ["git", "-c", "protocol.file.allow=always", "-C", str(where), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    where = tmp_path / "repo"
    where.mkdir()
    git(where, "init", "-q", "-b", "main")
    git(where, "remote", "add", "origin", REMOTE)
    git(where, "commit", "-q", "--allow-empty", "-m", "first")
    return where


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/owner/repo",
        "https://github.com/owner/repo.git",
        "https://github.com/owner/repo.git/",
        "https://GitHub.com/owner/repo//",
        "https://github.com:443/owner/repo",
        "https://user:secret@github.com/owner/repo.git",
        "https://secret@github.com/owner/repo.git?token=secret#x",
        "http://github.com:80/owner/repo",
        "ssh://git@github.com/owner/repo.git",
        "ssh://git@github.com:22/owner/repo.git",
        "git+ssh://git@github.com/owner/repo",
        "git://github.com:9418/owner/repo",
        "git@github.com:owner/repo.git",
        "git@github.com:/owner/repo.git/",
        "github.com:owner/repo",
        "user:secret@github.com:owner/repo",
        "gcrypt::git@github.com:owner/repo",
        "  git@github.com:owner/repo.git\n",
        "git@github.com.:owner//repo",
    ],
)
def test_every_spelling_of_a_remote_is_one_project(url: str) -> None:
    assert projects.normalise_remote(url) == "github.com/owner/repo"


@pytest.mark.parametrize(
    ("url", "remote"),
    [
        ("https://git.example.org:8443/a/b/c.git", "git.example.org:8443/a/b/c"),
        ("ssh://git@host:2222/Team/Main.git/", "host:2222/Team/Main"),
        ("ssh://git@[2001:DB8::1]:22/x.git", "[2001:db8::1]/x"),
        ("git@[2001:db8::1]:x.git", "[2001:db8::1]/x"),
        ("https://host/srv/repo/.git", "host/srv/repo"),
        ("https://dev.azure.com/org/my%20project/_git/repo", "dev.azure.com/org/my%20project/_git/repo"),
        ("https://host/@scope/repo", "host/@scope/repo"),
    ],
)
def test_what_tells_remotes_apart_is_kept(url: str, remote: str) -> None:
    assert projects.normalise_remote(url) == remote


@pytest.mark.parametrize(
    "url",
    [
        "", " ", "/srv/git/repo.git", "../repo", "./repo", "~/repo", "repo", "file:///srv/git/repo", "FILE://host/x",
        "C:\\repo", "C:/repo", "\\\\wsl$\\Ubuntu\\repo", "https://github.com", "https://github.com/", "git@github.com:",
        "https://user:pa/ss@host/o/r", "user:secret@github.com/owner/repo", "https://user:12/secret@host/o/r",
        "ext::sh -c foo", "https://a b/c", "https:///x/y", "host:\0x", "x" * 5000, "github.com/owner/repo",
    ],
)  # fmt: skip
def test_what_is_no_place_on_a_network_is_no_remote(url: str) -> None:
    assert projects.normalise_remote(url) is None


@given(st.text(alphabet="ab:/@.?#[]%1\\ git", max_size=30))
def test_no_url_raises(url: str) -> None:
    remote = projects.normalise_remote(url)
    assert remote is None or ("/" in remote and not remote.endswith("/"))


@given(
    st.text(alphabet="abcXYZ019-._~%!$&'()*+,;=", min_size=1, max_size=12),
    st.sampled_from(
        ["https://u:SECRET{}@h.org/o/r", "ssh://SECRET{}@h.org/o/r", "SECRET{}@h.org:o/r", "u:SECRET{}@h.org:o/r"]
    ),
)
def test_no_credential_survives(secret: str, form: str) -> None:
    assert projects.normalise_remote(form.format(secret)) == "h.org/o/r"


def test_a_subdirectory_and_a_link_to_it_have_the_repositorys_remote(repo: Path, tmp_path: Path) -> None:
    deep = repo / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "link").symlink_to(deep)
    for where in (repo, deep, tmp_path / "link", repo / ".git"):
        assert projects.identify(str(where)) == Project(remote="github.com/owner/repo")


def test_a_worktree_has_the_remote_of_its_main_checkout(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "tree" / "sub").mkdir()
    assert projects.identify(str(tmp_path / "tree" / "sub")) == Project(remote="github.com/owner/repo")


def test_a_submodule_has_its_own_remote(repo: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "remote", "add", "origin", "git@host.org:outer.git")
    git(outer, "submodule", "add", "-q", str(repo), "inner")
    assert projects.identify(str(outer / "inner")) == Project()  # cloned from a path: no place on a network
    git(outer / "inner", "remote", "set-url", "origin", "git@host.org:inner.git")
    assert projects.identify(str(outer / "inner")) == Project(remote="host.org/inner")


def test_a_bare_repository_and_a_checkout_of_it_beside(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    git(tmp_path / "bare.git", "remote", "set-url", "origin", REMOTE)
    assert projects.identify(str(tmp_path / "bare.git")) == Project(remote="github.com/owner/repo")


def test_another_remote_than_origin_does_not_count(repo: Path) -> None:
    git(repo, "remote", "rename", "origin", "upstream")
    assert projects.identify(str(repo)) == Project()


def test_the_nearest_repository_decides_even_without_a_remote(repo: Path) -> None:
    inner = repo / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    assert projects.identify(str(inner)) == Project()


def test_an_empty_git_folder_is_passed_over(repo: Path) -> None:
    (repo / "sub" / ".git").mkdir(parents=True)
    assert projects.identify(str(repo / "sub")) == Project(remote="github.com/owner/repo")


def test_what_the_user_rewrites_for_himself_is_not_the_remote(repo: Path) -> None:
    git(repo, "config", "url.ssh://git@mirror.example/.insteadOf", "https://github.com/")
    assert projects.identify(str(repo)) == Project(remote="github.com/owner/repo")


def test_an_included_config_is_read_by_git(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repo, "remote", "remove", "origin")
    (repo / ".git" / "more").write_text('[remote "origin"]\n\turl = git@host.org:included.git\n')
    git(repo, "config", "include.path", "more")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert projects.identify(str(repo)) == Project(remote="host.org/included")
    monkeypatch.setenv("PATH", "/nowhere")
    assert projects.identify(str(repo)) == Project()


@pytest.mark.parametrize(
    "config",
    [
        '[remote "origin"]\n\turl = https://h.org/a\n\turl = https://h.org/b\n',
        '[core] bare = false\n[Remote  "origin"] URL=https://h.org/a ; comment\n',
        '[remote "origin"]\r\n\turl = "https://h.org/a" # comment\r\n',
        '[remote "origin"]\n\turl = https://h.\\\norg/a\n',
        '[remote "Origin"]\n\turl = https://h.org/other\n[remote "origin"]\n\tfetch = x\n\turl = https://h.org/a\n',
        '# [remote "origin"]\n;url = x\n[remote "origin"]\n\turl = https://h.org/"a"\n',
        '[remote.other]\n\turl = https://h.org/b\n[remote "origin"]\n\tpushurl = https://h.org/c\n\turl = https://h.org/a\n',
    ],
)
def test_configs_are_read_as_git_reads_them(repo: Path, config: str) -> None:
    (repo / ".git" / "config").write_bytes(config.encode())
    stated = git(repo, "config", "--local", "--get-all", "remote.origin.url").splitlines()[0]
    assert stated == "https://h.org/a"
    assert projects.identify(str(repo)) == Project(remote="h.org/a")


@given(st.text(alphabet='[]remote "origin"=url#;\\\n\tx', max_size=60))
def test_no_config_raises(text: str) -> None:
    list(projects.config_values(text))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("project: name\n", "name"),
        ("# comment\n---\nother: 1\nproject:   two words  # comment\n", "two words"),
        ("project: 'pkg # one'\n", "pkg # one"),
        ('project: "pkg # \\"two\\""  # x\n', 'pkg # "two"'),
        ("project: 'it''s'\n", "it's"),
        ("project: a#b\n", "a#b"),
        ("\ufeffproject: bom\r\n", "bom"),
        ('"project": quoted key\n', "quoted key"),
        ("nested:\n  project: no\n", None),
        ("project:\n", None),
        ("project: # comment\n", None),
        ("project: ~\n", None),
        ("project: null\n", None),
        ("project: |\n  text\n", None),
        ("project: [a, b]\n", None),
        ("project: 'unclosed\n", None),
        ("project: 'a' b\n", None),
        ("project:name\n", None),
        ("projects: x\n", None),
        ("a: 1\n---\nproject: second document\n", None),
        ("project: \x1b[31m\n", None),
        ("project: " + "x" * 500 + "\n", None),
        ("", None),
    ],
)
def test_the_marker_is_the_top_level_key(text: str, name: str | None) -> None:
    assert projects.marker_name(text) == name


@given(st.text(max_size=60))
def test_no_marker_raises(text: str) -> None:
    projects.marker_name(text)
    projects.marker_name(f"project: {text}")


def test_the_nearest_marker_that_names_a_project_is_taken(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / ".prosa.yaml").write_text("project: outer")
    (tmp_path / "a" / ".prosa.yaml").write_text("other: 1")
    assert projects.identify(str(deep)) == Project(marker="outer")
    (deep / ".prosa.yaml").write_text("project: inner")
    assert projects.identify(str(deep)) == Project(marker="inner")


def test_the_remote_comes_before_the_marker(repo: Path) -> None:
    (repo / ".prosa.yaml").write_text("project: marked")
    assert projects.identify(str(repo)) == Project(remote="github.com/owner/repo")
    git(repo, "remote", "set-url", "origin", "/srv/git/local.git")
    assert projects.identify(str(repo)) == Project(marker="marked")


@pytest.mark.parametrize(
    "cwd",
    [
        "",
        ".",
        "repo",
        "~/repo",
        "C:\\Users\\x",
        "C:/Users/x",
        "\\\\wsl$\\D\\home",
        "//server/share",
        "/a\0b",
        "/" + "x" * 5000,
    ],
)
def test_a_path_of_another_machine_is_never_looked_at(cwd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object, **__: object) -> None:
        raise AssertionError(cwd)

    for name in ("resolve", "stat", "is_dir", "open"):
        monkeypatch.setattr(Path, name, looked)
    monkeypatch.setattr(projects, "_identify", looked)
    assert not projects.known_path(cwd)
    assert projects.identify(cwd) == Project()


def test_a_directory_that_is_gone_has_no_project(repo: Path) -> None:
    assert projects.identify(str(repo / "gone")) == Project()
    (repo / "file").write_text("")
    assert projects.identify(str(repo / "file")) == Project()


def test_pipes_loops_and_broken_files_leave_it_unidentified(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".prosa.yaml")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".git").write_bytes(b"\xff\xfe gitdir")
    assert projects.identify(str(tmp_path)) == Project()
    assert projects.identify(str(tmp_path / "loop")) == Project()
    assert projects.identify(str(tmp_path / "sub")) == Project()
    assert projects.identify(str(tmp_path) + "/\udcff") == Project()


def test_a_file_system_that_hangs_costs_the_limit_and_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    release = threading.Event()

    def hang(cwd: str, limit_s: float) -> Project:
        release.wait(10)
        return Project(marker="late")

    monkeypatch.setattr(projects, "_identify", hang)
    assert projects.identify(str(tmp_path), limit_s=0.01) == Project()
    release.set()
