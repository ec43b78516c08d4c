"""What every importer promises, held for all: against the shared corpus, and against input nobody would write."""

from __future__ import annotations

import ast
import json
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prosa.events import codec
from prosa.events.facts import Compaction, Facts, Header, Mark, Turn, Usage
from prosa.ingest.agents import IMPORTERS
from prosa.ingest.importer import Identity, Raw, Trouble

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
CASES = [
    pytest.param(importer, case, id=f"{importer.AGENT}/{case.name}")
    for importer in IMPORTERS
    for case in sorted((CORPUS / importer.AGENT).glob("*"))
    if (case / "home").is_dir()
] or [pytest.param(None, None, marks=pytest.mark.skip(reason="the shared corpus is not beside this checkout"))]
every_case = pytest.mark.parametrize(("importer", "case"), CASES)
every_importer = pytest.mark.parametrize("importer", IMPORTERS, ids=lambda importer: importer.AGENT)

Fact = Turn | Usage | Mark | Compaction
SMALL = 300_000
"""Raws up to this size are folded many times."""


def all_facts(facts: Facts) -> Iterator[Fact]:
    for group in (facts.turns, facts.usage, facts.marks, facts.compactions):
        yield from group


def raws_of(importer: ModuleType, case: Path, tmp_path: Path) -> Iterator[Raw]:
    """Every session of a case, from a copy of its home."""
    user_home = tmp_path / "home"
    shutil.copytree(case / "home", user_home, symlinks=True)
    troubles: list[Trouble] = []
    for home in importer.homes({}, user_home):
        for source in importer.sources(home, troubles.append):
            yield from importer.raws(source, troubles.append)


def folded(importer: ModuleType, identity: Identity, pieces: Iterable[bytes], save: bool = False) -> Any:
    """The facts of a raw as an index holds them, by kind and key, and the header. `save`: restored after each piece."""
    fold = importer.fold(identity)
    facts: dict[tuple[str, object], Fact] = {}
    for piece in pieces:
        fold.feed(piece)
        if save:
            keep(facts, fold.take())
            fold = importer.fold(identity, fold.state())
    fold.end()
    keep(facts, fold.take())
    return facts, fold.header()


def keep(facts: dict[tuple[str, object], Fact], new: Facts) -> None:
    for fact in all_facts(new):
        key: object = fact.key if fact.key is not None else (getattr(fact, "first", None), len(facts))
        facts[type(fact).__name__, key] = fact


def in_pieces(data: bytes, seed: str) -> list[bytes]:
    chance = random.Random(seed)
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(6))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


# --- the corpus


@every_case
def test_no_two_facts_of_different_kinds_have_one_key(importer: ModuleType, case: Path, tmp_path: Path) -> None:
    for raw in raws_of(importer, case, tmp_path):
        fold = importer.fold(raw.identity)
        kinds: dict[int, set[str]] = defaultdict(set)
        for piece in raw.chunks():
            fold.feed(piece)
        fold.end()
        for fact in all_facts(fold.take()):
            if fact.key is not None:
                kinds[fact.key].add(type(fact).__name__)
        assert {key: names for key, names in kinds.items() if len(names) > 1} == {}


@every_case
def test_any_pieces_give_the_facts_of_the_whole(importer: ModuleType, case: Path, tmp_path: Path) -> None:
    for raw in raws_of(importer, case, tmp_path):
        data = b"".join(raw.chunks())
        whole = folded(importer, raw.identity, [data])
        pieces = in_pieces(data, raw.identity.key)
        assert folded(importer, raw.identity, pieces) == whole
        if resumes(importer, raw, data):
            assert folded(importer, raw.identity, pieces, save=True) == whole


def resumes(importer: ModuleType, raw: Raw, data: bytes) -> bool:
    """Whether this raw's fold can be saved: documents of the first clients cannot."""
    fold = importer.fold(raw.identity)
    fold.feed(data)
    return fold.state() is not None


SCALAR = re.compile(rb'(?<=[:\[,])\s*(?:"(?:[^"\\]|\\.){0,40}"|-?\d+|true|false|null)(?=[,}\]])')
ODD = [
    b"7", b'"x"', b"null", b'[1,"a",{"text":"t","type":"text"}]', b'{"a":1}', b"true", b"-1.5", b'"12"', b"1e400",
    b'"\\ud800"', b'{"type":"text","text":"in"}', b"[]", b"99999999999999999999", b'"\\u0000"',
]  # fmt: skip


@every_case
def test_values_of_other_types_end_nothing(importer: ModuleType, case: Path, tmp_path: Path) -> None:
    for raw in raws_of(importer, case, tmp_path):
        data = b"".join(raw.chunks())
        if len(data) > SMALL:
            continue
        for rate in (0.02, 0.2, 0.6):
            chance = random.Random(f"{raw.identity.key} {rate}")

            def odd(found: re.Match[bytes], chance: random.Random = chance, rate: float = rate) -> bytes:
                return chance.choice(ODD) if chance.random() < rate else found[0]

            survives(importer, raw.identity, SCALAR.sub(odd, data))


# --- the names


@every_importer
def test_an_importer_has_the_names_of_the_protocol(importer: ModuleType, tmp_path: Path) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", importer.AGENT)
    assert re.fullmatch(rf"{importer.AGENT}/[1-9]\d*", importer.PARSER)
    assert importer.HOMES and all(isinstance(name, str) and name.startswith("~/") for name in importer.HOMES)
    assert isinstance(importer.HOMES, tuple)
    assert isinstance(importer.ASIDE_FILES, tuple)
    assert all(isinstance(name, str) and not name.startswith(("/", "~")) for name in importer.ASIDE_FILES)
    homes = importer.homes({}, tmp_path)
    assert homes and all(isinstance(home, Path) and home.is_relative_to(tmp_path) for home in homes)
    words = importer.resume(Identity(importer.AGENT, "0195-7f3c"), None)
    assert words and all(isinstance(word, str) for word in words)
    for name in ("sources", "raws", "fold", "asides"):
        assert callable(getattr(importer, name)), name


def test_no_two_importers_have_one_agent_or_home() -> None:
    assert len({importer.AGENT for importer in IMPORTERS}) == len(IMPORTERS)
    homes = [home for importer in IMPORTERS for home in importer.HOMES]
    assert len(set(homes)) == len(homes)


@every_importer
def test_a_home_that_is_not_there_or_empty_has_nothing_and_no_trouble(importer: ModuleType, tmp_path: Path) -> None:
    for home in (tmp_path / "absent", tmp_path):
        assert list(importer.sources(home, lambda trouble: pytest.fail(trouble.reason))) == []
        assert list(importer.asides(home, {}, lambda trouble: pytest.fail(trouble.reason))) == []
    assert not any(tmp_path.iterdir())


names = st.text(min_size=1, max_size=40) | st.sampled_from(
    ["/", "%", "%2F", "%25", "a/b", "%252F", "é/ü", "会话", "a b", "..", "\0"]
)


@given(st.sampled_from([importer.AGENT for importer in IMPORTERS]), names, st.none() | names)
def test_an_identity_is_read_back_from_its_key(agent: str, native: str, scope: str | None) -> None:
    identity = Identity(agent, native, scope)
    assert Identity.from_key(identity.key) == identity
    assert identity.key.count("/") == (1 if scope is None else 2)


def test_an_empty_scope_is_none() -> None:
    assert Identity("pi", "a/b", "").key == Identity("pi", "a/b").key
    assert Identity.from_key(Identity("pi", "a/b", "").key) == Identity("pi", "a/b")


# --- input nobody would write


def survives(importer: ModuleType, identity: Identity, data: bytes) -> None:
    """Folds the bytes in two halves, with the state restored between, to facts that can be stored."""
    fold = importer.fold(identity)
    for half in (data[: len(data) // 2], data[len(data) // 2 :]):
        fold.feed(half)
        fold.end()
        for fact in all_facts(fold.take()):
            codec.encode(fact)
        header: Header = fold.header()
        assert msgspec.json.decode(msgspec.json.encode(header), type=Header) == header
        state = fold.state()
        if state is not None:
            fold = importer.fold(identity, state)


@cache
def words(importer: ModuleType) -> list[str]:
    """Every name the agent's modules know, as code and as JSON have it: what makes a line one that is looked at."""
    found: set[str] = set()
    for path in sorted(Path(str(importer.__file__)).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                head, *rest = node.target.id.split("_")
                found |= {node.target.id, head + "".join(part.title() for part in rest)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return sorted(word for word in found if re.fullmatch(r"[$\w][\w./$-]{0,40}", word))


def json_lines(importer: ModuleType) -> st.SearchStrategy[bytes]:
    word = st.sampled_from(words(importer))
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | word | st.text(max_size=5)
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(word, inner, max_size=5),
        max_leaves=12,
    )
    heads = st.fixed_dictionaries({}, optional={"type": word, "role": word, "id": word, "timestamp": word})
    record = st.tuples(heads, st.dictionaries(word, values, max_size=6)).map(lambda parts: parts[0] | parts[1])
    return st.lists(record, min_size=1, max_size=5).map(
        lambda records: b"\n".join(json.dumps(record).encode() for record in records) + b"\n"
    )


@every_importer
@settings(max_examples=60)
@given(data=st.data())
def test_lines_of_known_names_and_wrong_types_never_raise(importer: ModuleType, data: st.DataObject) -> None:
    survives(importer, Identity(importer.AGENT, "0195-7f3c"), data.draw(json_lines(importer)))


@every_importer
@settings(max_examples=60)
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_never_raise(importer: ModuleType, data: bytes) -> None:
    survives(importer, Identity(importer.AGENT, "0195-7f3c"), data)
    survives(importer, Identity(importer.AGENT, "0195-7f3c"), b'{"type":"user"}\n' + data + b'\n{"role":"user"}')
