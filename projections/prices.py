"""What one usage record costs, in whole pico-dollars (1e-12 USD), by model, date, service tier and request size.

The prices come from the library genai-prices, which takes 140 ms to import. So `find` asks it once for a model, the
caller stores the `Tariff`, and `price` is arithmetic on that alone. A name must be one the library declares whole: a
new model has no price, and never the price of the family its name begins with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec

from prosa.events.errors import UsageError

RULES = 1
"""Raise it when `find` or `price` answers differently for the same table: then everything is priced again."""

MAKERS = (
    "anthropic", "openai", "google", "x-ai", "deepseek", "moonshotai", "zai", "zhipuai", "mistral", "minimax", "meta",
    "cohere", "cursor",
)  # fmt: skip
"""Providers that made the models they sell, in the library's names. Nobody else is asked while one of them knows it."""

PREFIX = re.compile(
    r"(?:models|openrouter|bedrock|vertex_ai|publishers/[a-z]+/models"
    r"|anthropic|openai|google|gemini|x-?ai|deepseek(?:-ai)?|moonshot(?:ai)?|z-?ai(?:-org)?|zhipuai|mistral(?:ai)?"
    r"|minimax(?:ai)?|meta(?:-llama)?|cohere|cursor)/"
    r"|(?:(?:us|eu|apac|jp|au|us-gov|global)\.)?(?:anthropic|openai|deepseek|mistral|meta|cohere)\."
)
"""Who serves it, written before the model's name: OpenRouter, opencode and Vertex with a slash, Bedrock with dots."""
SUFFIXES = (
    re.compile(r"\[1m\]$"),  # Claude Code's own mark of the long context, not part of the API's name
    re.compile(r"@.*$"),  # Vertex: @20251101, @default
    re.compile(r"(?:-v\d)?:\d+$"),  # Bedrock: -v1:0
    re.compile(r"-20\d\d-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])$"),
)
DOT = re.compile(r"(?<=\d)\.(?=\d)")
DASH = re.compile(r"(?<!\d)(\d{1,2})-(?=\d{1,2}(?![\da-z]))")
WHOLE_NAME = re.compile(r"\^(?:[\w/@=-]|\\.|\[-@\]|\{\d+\})+\$")
"""A regex of the library that has a fixed length from end to end: `^gpt-6-sol-\\d{4}-\\d{2}-\\d{2}$`."""

PRICE_KEYS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "output_reasoning_mtok": "reasoning",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_5m_mtok": "cache_write_5m",
    "cache_write_1h_mtok": "cache_write_1h",
}
"""The units a usage record counts. Searches, pages, audio and pictures are not in transcripts."""
TIER_KEYS = ("service_tier", "speed", "processing")
"""Contexts of the library's variants whose value agents write as tier: priority, flex / fast / batch."""
OVERRIDE_KEYS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")

MILLION = 1_000_000
DAY_US = 86_400_000_000

Overrides = Mapping[str, Mapping[str, object]]
"""Model → the user's own prices, USD per million tokens."""
Bands = tuple[tuple[int, int], ...]
"""(tokens, rate): the rate of the whole request when its input is more than so many tokens; the first is for all.
A rate is pico-dollars for a million tokens: USD per million, times 1e12."""


class Rates(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a model's tokens cost. None where the table has no price of its own for them."""

    input: Bands | None = None
    output: Bands | None = None
    reasoning: Bands | None = None
    cache_read: Bands | None = None
    cache_write: Bands | None = None
    """Of any lifetime; what the library calls so is the 5-minute price."""
    cache_write_5m: Bands | None = None
    cache_write_1h: Bands | None = None
    request: int = 0
    """Pico-dollars for the request itself, times a million."""


class Period(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Rates, and when they hold (UTC)."""

    rates: Rates
    since_day: int | None = None
    """Days since 1970."""
    from_s: int | None = None
    """Seconds of the day, with `until_s`: a daily interval, over midnight if it ends before it begins."""
    until_s: int = 0
    tier: str | None = None

    def holds(self, at_us: int) -> bool:
        """Whether a request at this time falls into the period."""
        if self.since_day is not None and at_us // DAY_US < self.since_day:
            return False
        if self.from_s is None:
            return True
        second = at_us // MILLION % 86_400
        if self.until_s < self.from_s:
            return second >= self.from_s or second < self.until_s
        return self.from_s <= second < self.until_s


class Tariff(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All the table says about one model."""

    model: str
    """The table's id, or the name in the overrides."""
    provider: str
    """The library's id of who sells it at this price, or `override`."""
    periods: tuple[Period, ...]
    """The last that holds counts, the first if none does."""
    tiers: tuple[Period, ...] = ()
    """Rates that replace the period's for a service tier; the first that holds counts, each rate by itself."""


def find(model: str, overrides: Overrides | None = None) -> Tariff | None:
    """The tariff of a model as an agent names it, or None if neither the overrides nor the table know that name.

    Imports the library unless an override answers. The agents do not say who served a request: the model's maker is
    asked first; any other provider only for the name exactly as written, and only if all who know it agree.
    Raises UsageError for an override that is no price.
    """
    names = list(spellings(model))
    own = {name.lower(): (name, prices) for name, prices in (overrides or {}).items()}
    for name in names:
        if name in own:
            return _overridden(*own[name])
    if not names:
        return None

    from genai_prices.data_snapshot import get_snapshot

    providers = {provider.id: provider for provider in get_snapshot().providers}
    for name in names:
        for maker in MAKERS:
            if maker in providers and (info := _declared(providers[maker], name)):
                return _tariff(maker, info)
    sellers = [p for p in providers.values() if p.id not in MAKERS]
    found = [_tariff(seller.id, info) for seller in sellers if (info := _declared(seller, names[0]))]
    # `vendor/model` is OpenRouter's own way to name one, so there it is no guess
    if "/" in names[0] and (routed := [tariff for tariff in found if tariff.provider == "openrouter"]):
        return routed[0]
    agreed = {(tariff.periods, tariff.tiers) for tariff in found}
    return found[0] if len(agreed) == 1 else None


def spellings(model: str) -> Iterator[str]:
    """The names a model may be declared by, lower case, the one as written first. None for `<synthetic>`."""
    name = model.strip().lower()
    if not name or name.startswith("<") or len(name) > 200:
        return
    forms = [name]
    while match := PREFIX.match(name):
        name = name[match.end() :]
        forms.append(name)
    for suffix in SUFFIXES:
        if (shorter := suffix.sub("", name)) != name:
            name = shorter
            forms.append(name)
    forms += [DOT.sub("-", form) for form in forms] + [DASH.sub(r"\1.", form) for form in forms]
    yield from dict.fromkeys(form for form in forms if form)


def price(
    tariff: Tariff,
    at_us: int | None,
    *,
    input: int,
    output: int,
    cache_read: int = 0,
    cache_write_5m: int = 0,
    cache_write_1h: int = 0,
    reasoning: int | None = None,
    tier: str | None = None,
) -> int | None:
    """Pico-dollars of one request. The four inputs are disjoint (`input` is uncached), reasoning is part of `output`.

    The band is chosen by all input together and holds for the whole request. Without a price of its own a cache read
    or write costs what its kind costs in general, and in the end what plain input costs, as in the library.
    None if the tariff has no rate for something that was used, or if there is no time and the price depends on it.
    """
    counts = (input, output, cache_read, cache_write_5m, cache_write_1h, reasoning or 0)
    if at_us is not None:
        return _amount(_rates(tariff, at_us, tier), counts)
    # no clock in a projection: without a date only a price that never changed is known
    periods = tariff.periods + tariff.tiers
    days = {0, 1 << 20} | {period.since_day for period in periods if period.since_day is not None}
    seconds = {0} | {s for p in periods if p.from_s is not None for s in (p.from_s, p.until_s)}
    times = [day * DAY_US + second * MILLION for day in days for second in seconds]
    amounts = {_amount(_rates(tariff, time, tier), counts) for time in times}
    return amounts.pop() if len(amounts) == 1 else None


def usd(pico: int) -> str:
    """Dollars with six decimals, half to even: 1_234_567_500_000 pico-dollars are `1.234568`."""
    micro, rest = divmod(abs(pico), MILLION)
    if rest * 2 > MILLION or (rest * 2 == MILLION and micro % 2):
        micro += 1
    whole, part = divmod(micro, MILLION)
    return f"{'-' if pico < 0 and micro else ''}{whole}.{part:06d}"


def table_version() -> str:
    """Names the price table in use, without importing it: `genai-prices 0.2.3, rules 1`. Changes with either."""
    from importlib.util import find_spec

    spec = find_spec("genai_prices")
    if spec is None or spec.origin is None:
        return f"no price table, rules {RULES}"
    package = Path(spec.origin).parent
    for info in package.parent.glob("genai_prices-*.dist-info"):
        return f"genai-prices {info.name.removeprefix('genai_prices-').removesuffix('.dist-info')}, rules {RULES}"
    stat = (package / "data.py").stat()
    return f"genai-prices {stat.st_size}-{stat.st_mtime_ns}, rules {RULES}"


def stamp(overrides: Overrides) -> tuple[str, str]:
    """What costs depend on beside the records: version of the table, hash of the overrides."""
    return table_version(), overrides_hash(overrides) if overrides else ""


def overrides_hash(overrides: Overrides) -> str:
    """16 hex digits that change when an override does, however its numbers are spelled. Raises like `find`."""
    tariffs = sorted((_overridden(name.lower(), prices) for name, prices in overrides.items()), key=lambda t: t.model)
    return hashlib.sha256(msgspec.msgpack.encode(tariffs)).hexdigest()[:16]


def _rates(tariff: Tariff, at_us: int, tier: str | None) -> Rates:
    rates = tariff.periods[0].rates
    for period in reversed(tariff.periods):
        if period.holds(at_us):
            rates = period.rates
            break
    if tier and tariff.tiers:
        replaced: dict[str, Any] = {}
        for variant in tariff.tiers:
            if variant.tier == tier.lower() and variant.holds(at_us):
                replaced = {k: v for k, v in msgspec.structs.asdict(variant.rates).items() if v} | replaced
        rates = msgspec.structs.replace(rates, **replaced)
    return rates


def _amount(rates: Rates, counts: tuple[int, int, int, int, int, int]) -> int | None:
    fresh, output, cache_read, write_5m, write_1h, reasoning = counts
    write = rates.cache_write or rates.input
    if rates.reasoning is None:
        reasoning = 0
    lines: tuple[tuple[int, Bands | None], ...] = (
        (fresh, rates.input),
        (output - reasoning, rates.output),
        (reasoning, rates.reasoning),
        (cache_read, rates.cache_read or rates.input),
        (write_5m, rates.cache_write_5m or write),
        (write_1h, rates.cache_write_1h or write),
    )
    size = fresh + cache_read + write_5m + write_1h
    total = rates.request
    for tokens, bands in lines:
        if not tokens:
            continue
        if bands is None:
            return None
        rate = 0
        for above, band in bands:
            if size > above:
                rate = band
        total += tokens * rate
    whole, rest = divmod(total, MILLION)
    return whole + (rest * 2 > MILLION or (rest * 2 == MILLION and whole % 2 == 1))


def _declared(provider: Any, name: str) -> Any | None:
    """The provider's model with this very name: its id or a name its match logic states whole."""
    for info in provider.models:
        if info.id.lower() == name or any(_is_name(clause, name) for clause in _clauses(info.match)):
            return info
    return None


def _clauses(logic: Any) -> Iterator[Any]:
    if hasattr(logic, "or_"):
        for clause in logic.or_:
            yield from _clauses(clause)
    elif not hasattr(logic, "and_"):
        yield logic


def _is_name(clause: Any, name: str) -> bool:
    """A text that stands for the beginning of names is a name too; what only begins with it is not."""
    for attribute in ("equals", "starts_with", "contains", "ends_with"):
        text = getattr(clause, attribute, None)
        if text is not None:
            return bool(text.lower() == name)
    return bool(WHOLE_NAME.fullmatch(clause.regex) and re.fullmatch(clause.regex, name))


def _tariff(provider: str, info: Any) -> Tariff:
    dated = info.prices if isinstance(info.prices, list) else None
    periods = [_period(p.prices, p.constraint) for p in dated] if dated is not None else [_period(info.prices, None)]
    tiers = [
        _period(variant.prices, variant.constraint, tier=value.lower())
        for variant in info.price_variants or ()
        for key, value in variant.when.items()
        if key in TIER_KEYS and len(variant.when) == 1
    ]
    return Tariff(model=info.id, provider=provider, periods=tuple(periods), tiers=tuple(tiers))


def _period(prices: Any, constraint: Any, tier: str | None = None) -> Period:
    stated = {PRICE_KEYS[key]: _bands(p) for key, p in vars(prices).items() if key in PRICE_KEYS and p is not None}
    request = getattr(prices, "requests_kcount", None)
    rates = Rates(**stated, request=_rate(request) * 1000 if request is not None else 0)
    if constraint is None:
        return Period(rates=rates, tier=tier)
    if hasattr(constraint, "start_date"):
        return Period(rates=rates, since_day=constraint.start_date.toordinal() - 719_163, tier=tier)
    begin, end = _second_of_day(constraint.start_time), _second_of_day(constraint.end_time)
    return Period(rates=rates, from_s=begin, until_s=end, tier=tier)


def _second_of_day(time: Any) -> int:
    offset = time.utcoffset()
    seconds: int = time.hour * 3600 + time.minute * 60 + time.second
    return (seconds - (int(offset.total_seconds()) if offset is not None else 0)) % 86_400


def _bands(value: Any) -> Bands:
    if isinstance(value, Decimal):
        return ((-1, _rate(value)),)
    return ((-1, _rate(value.base)), *((tier.start, _rate(tier.price)) for tier in value.tiers))


def _rate(usd_per_million: Decimal) -> int:
    """Twelve decimals of a dollar: only resellers' floats (0.0833333333333333) have more."""
    return int((usd_per_million * 10**12).to_integral_value(ROUND_HALF_EVEN))


def _overridden(model: str, prices: Mapping[str, object]) -> Tariff:
    """An override states the whole price: input and output at least. Cache reads and writes cost input unless given,
    1-hour writes what 5-minute writes cost."""
    if not isinstance(prices, Mapping):
        raise _no_price(model, "", prices)
    if unknown := sorted(prices.keys() - set(OVERRIDE_KEYS)):
        raise UsageError(
            f"The price of {model} has a key {unknown[0]!r}.", "", f"Known ones: {', '.join(OVERRIDE_KEYS)}."
        )
    if missing := [key for key in ("input", "output") if key not in prices]:
        raise UsageError(f"The price of {model} lacks {' and '.join(missing)}.", "", "USD for a million tokens.")
    rates: dict[str, Any] = {key: ((-1, _stated(model, key, value)),) for key, value in prices.items()}
    if "cache_write_5m" in rates:
        rates["cache_write"] = rates.pop("cache_write_5m")
    return Tariff(model=model, provider="override", periods=(Period(rates=Rates(**rates)),))


def _stated(model: str, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        raise _no_price(model, key, value)
    try:
        amount = Decimal(str(value).strip())
    except InvalidOperation:
        raise _no_price(model, key, value) from None
    if not amount.is_finite() or amount < 0 or amount > MILLION:
        raise _no_price(model, key, value)
    return _rate(amount)


def _no_price(model: str, key: str, value: object) -> UsageError:
    what = f"The price {key or 'entry'} of {model} is {value!r}, not a number of dollars."
    return UsageError(what, "", 'Write it as USD for a million tokens: input = "2.5".')
