"""The query language of search: text in, a typed Query, an FTS5 expression in which every word is quoted.

No text is an error but a filter with a value that cannot be (`kind:foo`, `before:soon`). What is no operator is looked
for as it stands: `AND`, `NEAR(`, `--flag=17`, `unknown:thing` are words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import Any, Final, get_args

import msgspec

from prosa.events.errors import UsageError
from prosa.events.facts import Kind, Role
from prosa.projections import tokens, zones
from prosa.projections.queries import KINDS

TURN_KINDS: Final = get_args(Kind)
SESSION_KINDS: Final = KINDS
ROLES: Final = get_args(Role)
NAMES: Final = ("agent", "project", "tool", "role", "kind", "model", "before", "after", "is")

LENGTH_LIMIT: Final = 20_000
"""Characters of a query that are read: 4,000 words take FTS5 40 ms to parse."""
NOTES_LIMIT: Final = 5
PREFIX_LENGTH: Final = 3
"""Letters a prefix needs: `a*` would join the lists of a tenth of all words."""

SNIPPET_WIDTH: Final = 160
MARGIN: Final = 1_000
"""Characters on each side of a hit that are cleaned for its snippet: white space and colour codes shrink."""
TERMS_MARKED: Final = 32
ALTERNATIVES_SEEN: Final = 10_000
"""Hits looked at for a place where more of the words stand together."""

DIACRITICS: Final = "\u0300-\u0331"
"""The combining marks FTS5 ignores inside a word; other marks part words."""
LETTER: Final = rf"[^\W_{tokens.CJK}]"
AT_START: Final = rf"(?<!{LETTER}.)(?<![{DIACRITICS}].)"
"""After the first character of a word: none before it."""
UNSEEN: Final = re.compile(r"[\0-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters, and those that turn the direction of the text around."""

ITEM = re.compile(
    r"(?P<filter>(?:" + "|".join(NAMES) + r'):(?:"[^"]+(?:"|$)|[^\s"]\S*))'
    r'|(?P<out>-(?=["\w]))?(?:"(?P<phrase>[^"]*)(?:"|$)(?P<star>\*(?=\s|$))?|(?P<word>\S+))'
)


class Term(msgspec.Struct, frozen=True, omit_defaults=True):
    """Words that must follow each other."""

    text: str
    """As written, without quotes and without the star."""
    prefix: bool = False
    """The last word may go on."""
    quoted: bool = False


class Query(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is asked. All groups must match, each by one of its terms; no excluded term may."""

    groups: tuple[tuple[Term, ...], ...] = ()
    excluded: tuple[Term, ...] = ()
    agents: tuple[str, ...] = ()
    """Filters of one name: any of the values. They are as written; whether an agent is known is the caller's to say."""
    projects: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Of the turn: message, thinking, tool_call, tool_result, compaction."""
    session_kinds: tuple[str, ...] = ()
    """Of the session: those of `--kind`."""
    models: tuple[str, ...] = ()
    since_us: int | None = None
    """Of `after:`, inclusive, of the turn; microseconds UTC."""
    until_us: int | None = None
    """Of `before:`, exclusive."""
    errors_only: bool = False
    blank: bool = False
    """There was a word without letter or digit, which nothing can be found by."""
    notes: tuple[str, ...] = ()
    """What was read in another way than it was written: one line each, for stderr."""

    @property
    def filtered(self) -> bool:
        """Whether there is any filter."""
        lists = (self.agents, self.projects, self.tools, self.roles, self.kinds, self.session_kinds, self.models)
        return any(lists) or self.since_us is not None or self.until_us is not None or self.errors_only

    @property
    def nothing(self) -> bool:
        """Whether it can match nothing: no word to look for, and not filters alone either."""
        return not self.groups and (bool(self.excluded) or self.blank or not self.filtered)


class _Filter(msgspec.Struct, frozen=True):
    name: str
    value: str


def parse(text: str, zone: tzinfo) -> Query:
    """Read a query; dates are local to the zone. Raises UsageError for a filter value that cannot be, naming the known.

    Words without a letter or digit are ignored beside others. A query of only such words, or of exclusions only,
    is `nothing`, and its notes say why. `OR` binds the term before and the term after it.
    """
    notes: list[str] = []
    clean = tokens.composed(text).replace("\0", " ")
    if len(clean) > LENGTH_LIMIT:
        notes.append(f"Only the first {LENGTH_LIMIT:,} of {len(clean):,} characters of the query were read.")
        clean = clean[:LENGTH_LIMIT]
    groups: list[list[Term]] = []
    excluded: list[Term] = []
    filters: dict[str, list[str]] = {}
    blank: list[str] = []
    items = list(_items(clean))
    joined = bound = False
    for at, (item, out) in enumerate(items):
        if isinstance(item, _Filter):
            filters.setdefault(item.name, []).append(item.value)
            joined = bound = False
        elif _is_or(item) and 0 < at < len(items) - 1 and _operands(items, at):
            joined = bound
        elif (term := _known(item, notes)) is None:
            blank += [item.text] if item.text.strip() else []
            joined = bound = False
        elif out:
            excluded.append(term)
            joined = bound = False
            if not item.quoted and item.text.partition(":")[0] in NAMES and ":" in item.text:
                notes.append(f"Only words can be left out, not filters: -{item.text} was read as words.")
        else:
            if joined:
                groups[-1].append(term)
            else:
                groups.append([term])
            joined, bound = False, True
    if blank and not groups:
        notes.append(f"There is no letter or digit in {' '.join(blank)[:60]!r}: nothing can be found by it.")
    elif excluded and not groups:
        notes.append("There are only words to leave out: add one to look for.")
    return Query(
        groups=tuple(dict.fromkeys(tuple(dict.fromkeys(group)) for group in groups)),
        excluded=tuple(dict.fromkeys(excluded)),
        blank=bool(blank),
        notes=tuple(dict.fromkeys(notes))[:NOTES_LIMIT],
        **_filtered(filters, zone),
    )


def match(query: Query) -> str | None:
    """The FTS5 expression, exclusions too; None if there are no words: then all turns, or none if `query.nothing`."""
    if not query.groups:
        return None
    wanted = " AND ".join(_any(group) for group in query.groups)
    return f"({wanted}) NOT {_any(query.excluded)}" if query.excluded else wanted


def excluded(query: Query) -> str | None:
    """The FTS5 expression of what is left out, by itself."""
    return _any(query.excluded) if query.excluded else None


def widened(query: Query) -> Query | None:
    """The query with each plain word as a prefix, to be asked when nothing is found. None if that is the same query."""
    groups = tuple(tuple(_wide(term) for term in group) for group in query.groups)
    return None if groups == query.groups else msgspec.structs.replace(query, groups=groups)


def highlight(text: str, query: Query) -> tuple[str, list[tuple[int, int]]]:
    """About 160 characters of the text where most of the words stand together, and the [start, end) of each there.

    White space is squeezed, control characters and colour codes are left out. Without a hit it is the beginning.
    """
    text = tokens.composed(text)
    groups = query.groups[:TERMS_MARKED]
    finder = _finder(groups, text.isascii()) if groups else None
    start, end = (_best(finder, text) if finder else None) or (0, 0)
    left = max(0, start - MARGIN)
    right = min(len(text), end + MARGIN, left + 4 * MARGIN)
    clean = " ".join(UNSEEN.sub(" ", tokens.ESCAPES.sub("", text[left:right])).split())
    hits = [found.span() for found in finder.finditer(clean)] if finder else []
    start, end = (_best(finder, clean) if finder else None) or (0, 0)

    begin = max(0, min(start - max(0, SNIPPET_WIDTH - (end - start)) // 3, len(clean) - SNIPPET_WIDTH))
    stop = min(len(clean), begin + SNIPPET_WIDTH)
    if begin > 0 and (space := clean.find(" ", begin, start)) >= 0:
        begin = space + 1
    if stop < len(clean) and (space := clean.rfind(" ", end, stop)) > begin:
        stop = space
    before = "…" if begin > 0 or left > 0 else ""
    after = "…" if stop < len(clean) or right < len(text) else ""
    shift = len(before) - begin
    marks = [(max(a, begin) + shift, min(b, stop) + shift) for a, b in hits if a < stop and b > begin]
    return f"{before}{clean[begin:stop]}{after}", marks


def _items(text: str) -> Iterator[tuple[Term | _Filter, bool]]:
    """Terms as written and filters, and whether a minus stands before them."""
    for found in ITEM.finditer(text):
        if found["filter"] is not None:
            name, _, value = found["filter"].partition(":")
            yield _Filter(name, value.strip('"') if value.startswith('"') else value), False
        elif found["phrase"] is not None:
            yield Term(found["phrase"], found["star"] is not None, quoted=True), found["out"] is not None
        else:
            word = found["word"]
            star = len(word) > 1 and word.endswith("*")
            yield Term(word[:-1] if star else word, star), found["out"] is not None


def _operands(items: Sequence[tuple[Term | _Filter, bool]], at: int) -> bool:
    """Whether OR stands between two words to look for, or two filters of one name (which are alternatives anyway)."""
    (before, before_out), (after, after_out) = items[at - 1], items[at + 1]
    if isinstance(before, _Filter) or isinstance(after, _Filter):
        return isinstance(before, _Filter) and isinstance(after, _Filter) and before.name == after.name
    return not before_out and not after_out and not _is_or(before) and not _is_or(after)


def _is_or(term: Term) -> bool:
    return term.text == "OR" and not term.quoted


def _known(term: Term, notes: list[str]) -> Term | None:
    """The term as FTS5 can ask it, None if it has no word."""
    words = tokens.words(term.text)
    if not words:
        return None
    if not term.prefix or _may_go_on(words[-1]):
        return term
    if not tokens.RUN.match(words[-1]):
        notes.append(f"{term.text}* is too short for a prefix ({PREFIX_LENGTH} letters): read as a whole word.")
    return msgspec.structs.replace(term, prefix=False)


def _may_go_on(word: str) -> bool:
    return len(word) >= PREFIX_LENGTH and not tokens.RUN.match(word)


def _wide(term: Term) -> Term:
    plain = not term.quoted and not term.prefix and _may_go_on(tokens.words(term.text)[-1])
    return msgspec.structs.replace(term, prefix=True) if plain else term


def _any(terms: Sequence[Term]) -> str:
    asked = " OR ".join(_quoted(term) for term in terms)
    return asked if len(terms) == 1 else f"({asked})"


def _quoted(term: Term) -> str:
    """The only place where a user's text enters an expression."""
    text = tokens.spaced(term.text).replace('"', " ").replace("\0", " ").strip()
    return f'"{text}" *' if term.prefix else f'"{text}"'


def _filtered(filters: dict[str, list[str]], zone: tzinfo) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in (("agent", "agents"), ("project", "projects"), ("tool", "tools"), ("model", "models")):
        found[field] = tuple(dict.fromkeys(filters.get(name, ())))
    found["roles"] = tuple(_one_of("role", value, ROLES) for value in filters.get("role", ()))
    kinds = [_one_of("kind", value, TURN_KINDS + SESSION_KINDS) for value in filters.get("kind", ())]
    found["kinds"] = tuple(kind for kind in kinds if kind in TURN_KINDS)
    found["session_kinds"] = tuple(kind for kind in kinds if kind in SESSION_KINDS)
    found["errors_only"] = bool([_one_of("is", value, ("error",)) for value in filters.get("is", ())])
    if after := [zones.moment(value, zone, "after:")[0] for value in filters.get("after", ())]:
        found["since_us"] = max(after)
    if before := [zones.moment(value, zone, "before:")[0] for value in filters.get("before", ())]:
        found["until_us"] = min(before)
    return found


def _one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value.lower() in known:
        return value.lower()
    text = f"{name}:{value}"
    what = f"Unknown {name} {value!r}. Known: {', '.join(known)}."
    raise UsageError(what, "", f'To look for the text itself, quote it: "{text}".')


def _best(finder: re.Pattern[str], text: str) -> tuple[int, int] | None:
    """The first place, at most a snippet long, with hits of as many groups as any."""
    best: tuple[int, int] | None = None
    most = 0
    near: deque[tuple[int, int, int]] = deque()
    for found in islice(finder.finditer(text), ALTERNATIVES_SEEN):
        near.append((found.start(), found.end(), found.lastindex or 0))
        while found.end() - near[0][0] > SNIPPET_WIDTH and len(near) > 1:
            near.popleft()
        if (together := len({group for _, _, group in near})) > most:
            best, most = (near[0][0], found.end()), together
            if most == finder.groups:
                break
    return best


@lru_cache(256)
def _finder(groups: tuple[tuple[Term, ...], ...], plain: bool) -> re.Pattern[str]:
    """A pattern with one capturing group for each group of the query. It reads a text as the tokenizer does.

    `plain`: for ASCII texts, which is compiled five times faster. It begins with one class of characters, which is what
    lets `re` pass over the rest of a text fast.
    """
    firsts = ""
    choices = []
    for group in groups:
        forms = []
        for term in sorted(group, key=lambda term: -len(term.text)):
            words = tokens.words(term.text)[:TERMS_MARKED]
            firsts += _variants(words[0][0], plain)
            forms.append(_pattern(words, term.prefix, plain))
        choices.append(f"({'|'.join(forms)})")
    return re.compile(f"[{firsts}](?:{'|'.join(choices)})", re.DOTALL)


def _pattern(words: Sequence[str], prefix: bool, plain: bool) -> str:
    """What follows the first character of a phrase, which must be its own."""
    first = words[0][0]
    parts = [f"(?<=[{_variants(first, plain)}])"]
    if not tokens.RUN.match(first):
        parts.append(r"(?<![A-Za-z0-9].)" if plain else AT_START)
    parts.append(_accents(plain) + _letters(words[0][1:], plain))
    for before, word in pairwise(words):
        least = 0 if tokens.RUN.match(before) or tokens.RUN.match(word) else 1
        parts.append(rf"[\W_]{{{least},80}}{_letters(word, plain)}")
    if prefix:
        parts.append("[A-Za-z0-9]*" if plain else rf"(?:{LETTER}|[{DIACRITICS}])*")
    elif not tokens.RUN.match(words[-1]):
        parts.append("(?![A-Za-z0-9])" if plain else f"(?!{LETTER})")
    return "".join(parts)


def _letters(word: str, plain: bool) -> str:
    return "".join(f"[{_variants(letter, plain)}]{_accents(plain)}" for letter in word)


def _accents(plain: bool) -> str:
    return "" if plain else f"[{DIACRITICS}]*"


def _variants(folded: str, plain: bool) -> str:
    """The inside of a regex class: every character that FTS5 folds to this one."""
    by_case = re.escape(folded + folded.upper() if len(folded.upper()) == 1 else folded)
    return by_case if plain else _unfolded().get(folded) or by_case


@lru_cache(1)
def _unfolded() -> dict[str, str]:
    """Folded letter → its forms, in the scripts that have case or accents. Made in 2 ms; only marks need it."""
    forms = {letter: letter + letter.upper() for letter in "abcdefghijklmnopqrstuvwxyz"}
    for number in chain(range(0x80, 0x530), range(0x1E00, 0x2000)):
        letter = chr(number)
        folded = unicodedata.normalize("NFD", letter)[0].lower()
        if (letter.isalpha() and folded != letter) or letter.upper() != letter:
            forms[folded] = forms.get(folded, re.escape(folded)) + letter
    return forms
