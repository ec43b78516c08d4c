"""Prices are the library's to the pico-dollar, for names it declares and no others."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import genai_prices
import msgspec
import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from prosa.events.errors import UsageError
from prosa.projections import prices

PICO = Decimal(10) ** 12


def us(year: int, month: int, day: int, hour: int = 0) -> int:
    return int(datetime(year, month, day, hour, tzinfo=UTC).timestamp()) * 1_000_000


NOW = us(2026, 11, 30)


def cost(model: str, at_us: int | None = NOW, **counts: Any) -> int | None:
    tariff = prices.find(model)
    assert tariff is not None, model
    return prices.price(tariff, at_us, **{"input": 0, "output": 0, **counts})


def declared_names(logic: Any) -> list[str]:
    if hasattr(logic, "or_"):
        return [name for clause in logic.or_ for name in declared_names(clause)]
    return [logic.equals] if hasattr(logic, "equals") else []


def exact_names(provider_id: str) -> list[tuple[str, Any]]:
    provider = next(p for p in get_snapshot().providers if p.id == provider_id)
    return [
        (name, info)
        for info in provider.models
        for name in (info.id, *declared_names(info.match))
        if provider.find_model(name) is info
    ]


@pytest.mark.parametrize("provider", ["anthropic", "openai", "google", "deepseek", "x-ai", "perplexity"])
def test_the_price_is_the_librarys_to_the_pico_dollar(provider: str) -> None:
    rng = random.Random(provider)
    compared = 0
    for name, info in exact_names(provider):
        tariff = prices.find(name)
        if tariff is None or tariff.provider != provider:
            assert provider in ("google", "perplexity"), name  # Claude on Vertex: the maker's price is taken
            continue
        assert tariff.model == info.id
        tariff = msgspec.msgpack.decode(msgspec.msgpack.encode(tariff), type=prices.Tariff)
        tiers = [None, "priority", "fast", "flex", "batch", "default", "standard", "unheard-of"]
        for tier in tiers:
            for _ in range(4):
                top = rng.choice([10, 1_000, 150_000, 300_000, 2_000_000])
                fresh, output, read, short, long = (rng.choice([0, rng.randint(0, top)]) for _ in range(5))
                when = datetime.fromtimestamp(rng.randint(1_735_689_600, 1_830_297_600), UTC)
                usage = genai_prices.Usage(
                    input_tokens=fresh + read + short + long,
                    output_tokens=output,
                    cache_read_tokens=read,
                    cache_write_tokens=short + long,
                    cache_write_1h_tokens=long,
                )
                context = dict.fromkeys(prices.TIER_KEYS, tier) if tier else None
                theirs = genai_prices.calc_price(
                    usage, name, provider_id=provider, genai_request_timestamp=when, price_context=context
                )
                ours = prices.price(
                    tariff,
                    int(when.timestamp()) * 1_000_000,
                    input=fresh,
                    output=output,
                    cache_read=read,
                    cache_write_5m=short,
                    cache_write_1h=long,
                    tier=tier,
                )
                if ours is None:
                    assert all(p.rates.output is None or p.rates.input is None for p in tariff.periods), name
                else:
                    assert ours == theirs.total_price * PICO, (name, tier, when)
                    compared += 1
    assert compared > 100


def test_every_kind_of_token_price_in_the_table_is_understood() -> None:
    seen: set[str] = set()
    for provider in get_snapshot().providers:
        for info in provider.models:
            sets = [p.prices for p in info.prices] if isinstance(info.prices, list) else [info.prices]
            sets += [variant.prices for variant in info.price_variants or ()]
            seen |= {key for stated in sets for key in vars(stated)}
    others = {key for key in seen if key.endswith("_mtok")} - prices.PRICE_KEYS.keys()
    assert {key for key in others if not any(w in key for w in ("audio", "image", "video"))} == {"output_citation_mtok"}


@pytest.mark.parametrize(("size", "rate"), [(200_000, 3), (200_001, 6)])
def test_the_band_changes_strictly_above_the_threshold_and_for_the_whole_request(size: int, rate: int) -> None:
    assert cost("claude-sonnet-4-5", input=size) == size * rate * 1_000_000


@pytest.mark.parametrize("part", ["cache_read", "cache_write_5m", "cache_write_1h"])
def test_cached_input_counts_towards_the_band(part: str) -> None:
    below, above = (cost("claude-sonnet-4-5", output=1, **{part: size}) for size in (200_000, 200_001))
    alone_below, alone_above = (cost("claude-sonnet-4-5", **{part: size}) for size in (200_000, 200_001))
    assert below is not None and above is not None and alone_below is not None and alone_above is not None
    assert (below - alone_below, above - alone_above) == (15_000_000, 22_500_000)


@pytest.mark.parametrize(("size", "band"), [(272_000, 0), (272_001, 1)])
def test_other_thresholds_are_the_tables(size: int, band: int) -> None:
    tariff = prices.find("gpt-5.4")
    assert tariff is not None
    bands = tariff.periods[-1].rates.input
    assert bands is not None and [above for above, _ in bands] == [-1, 272_000]
    assert prices.price(tariff, NOW, input=size, output=0) == size * bands[band][1] // 1_000_000


def test_five_minute_and_one_hour_writes_are_priced_apart() -> None:
    assert cost("claude-opus-4-5", cache_write_5m=1000) == 6_250_000_000
    assert cost("claude-opus-4-5", cache_write_1h=1000) == 10_000_000_000


def test_a_cached_read_without_a_price_of_its_own_costs_input() -> None:
    assert cost("gpt-4", cache_read=10) == cost("gpt-4", input=10)


def test_the_price_is_that_of_the_day_in_utc() -> None:
    tariff = prices.find("claude-opus-4-6")
    assert tariff is not None
    changes = [p.since_day for p in tariff.periods if p.since_day is not None]
    assert changes
    change = changes[0] * prices.DAY_US
    before, after = (prices.price(tariff, t, input=300_000, output=0) for t in (change - 1, change))
    assert (before, after) == (300_000 * 10_000_000, 300_000 * 5_000_000)


def test_without_a_date_a_price_is_known_only_if_it_never_changed() -> None:
    assert cost("claude-opus-4-6", at_us=None, input=100_000) == 100_000 * 5_000_000
    assert cost("claude-opus-4-6", at_us=None, input=300_000) is None


def test_the_price_by_the_time_of_day_wraps_midnight() -> None:
    rates = prices.Rates(input=((-1, 1_000_000),))
    cheap = prices.Period(rates=rates, from_s=23 * 3600, until_s=3600)
    assert [cheap.holds(us(2026, 5, 1, hour)) for hour in (22, 23, 0, 1)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("claude-opus-4.7", "claude-opus-4-7"),
        ("Claude-Opus-4-7", "claude-opus-4-7"),
        ("anthropic/claude-opus-4.7", "claude-opus-4-7"),
        ("openrouter/anthropic/claude-opus-4.7", "claude-opus-4-7"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4-0"),
        ("claude-3-5-haiku-20241022", "claude-3-5-haiku-latest"),
        ("openai/gpt-5.4-mini", "gpt-5.4-mini"),
        ("gpt-5-4-mini", "gpt-5.4-mini"),
        ("gpt-5.4-2026-03-05", "gpt-5.4"),
        ("google/gemini-2.5-pro", "gemini-2.5-pro"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("x-ai/grok-code-fast-1", "grok-code-fast-1"),
        ("glm-4.7", "GLM-4.7"),
        ("composer-2.5[fast=true]", "composer-2.5-fast"),
        ("gpt-6-sol-2026-09-01", "gpt-6-sol"),
    ],
)
def test_a_declared_spelling_finds_the_model(written: str, model: str) -> None:
    tariff = prices.find(written)
    assert tariff is not None and tariff.model == model
    assert tariff.provider in prices.MAKERS


def test_a_dated_model_with_its_own_price_keeps_it() -> None:
    assert cost("gpt-4o-2024-05-13", input=10) != cost("gpt-4o", input=10)


@pytest.mark.parametrize(
    "model",
    [
        "<synthetic>", "", " ", "claude", "claude-opus", "claude-opus-9", "claude-opus-4-7-turbo", "gpt-5.4-micro",
        "gpt-5-mini-mini", "gemini-2.5-pro-next", "codex-auto-review", "opus", "unknown", "anthropic/", "/", "\0",
        "x" * 5000,
    ],
)  # fmt: skip
def test_a_name_nobody_declared_has_no_price(model: str) -> None:
    assert prices.find(model) is None


@given(st.text(max_size=40))
def test_no_name_raises(model: str) -> None:
    prices.find(model)


def test_what_a_model_has_no_rate_for_has_no_price() -> None:
    tariff = prices.find("text-embedding-3-small")
    assert tariff is not None
    embedding = msgspec.structs.replace(tariff, periods=(prices.Period(rates=prices.Rates(input=((-1, 1),))),))
    assert prices.price(embedding, NOW, input=1_000_000, output=0) == 1
    assert prices.price(embedding, NOW, input=1, output=1) is None


def test_reasoning_has_its_own_rate_only_where_the_table_says_so() -> None:
    rates = prices.Rates(input=((-1, 0),), output=((-1, 2_000_000),), reasoning=((-1, 5_000_000),))
    apart = prices.Tariff(model="m", provider="p", periods=(prices.Period(rates=rates),))
    assert prices.price(apart, NOW, input=0, output=10, reasoning=4) == 6 * 2 + 4 * 5
    assert prices.price(apart, NOW, input=0, output=10) == 20
    assert cost("gpt-5.4", output=10, reasoning=4) == cost("gpt-5.4", output=10)


def test_an_override_wins_and_needs_no_library() -> None:
    code = (
        "import sys; from prosa.projections import prices\n"
        "own = {'My-Model': {'input': '2.5', 'output': 10, 'cache_read': 0.25, 'cache_write_5m': '3'}}\n"
        "t = prices.find('openai/my-model', own)\n"
        "c = [prices.price(t, 0, **{'input': 0, 'output': 0, k: 1}) for k in"
        " ('input', 'output', 'cache_read', 'cache_write_5m', 'cache_write_1h')]\n"
        "print(c, 'genai_prices' in sys.modules, prices.table_version() != '', 'genai_prices' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "[2500000, 10000000, 250000, 3000000, 3000000] False True False\n"


def test_an_override_replaces_the_whole_price() -> None:
    tariff = prices.find("claude-opus-4-7", {"claude-opus-4.7": {"input": 1, "output": 2}})
    assert tariff is not None and tariff.provider == "override"
    assert prices.price(tariff, NOW, input=0, output=0, cache_read=3) == 3_000_000


@pytest.mark.parametrize(
    "entry",
    [
        {"input": 1}, {"input": "x", "output": 1}, {"input": -1, "output": 1}, {"input": True, "output": 1}, 7,
        {"input": float("nan"), "output": 1}, {"input": None, "output": 1}, {"input": 1, "output": 1, "cache": 1},
    ],
)  # fmt: skip
def test_an_override_that_is_no_price_names_the_model(entry: Any) -> None:
    with pytest.raises(UsageError, match="my-model"):
        prices.find("my-model", {"my-model": entry})


def test_the_hash_of_overrides_changes_with_a_price_and_not_with_its_spelling() -> None:
    one = prices.overrides_hash({"a": {"input": "2.50", "output": 1}, "b": {"input": 0, "output": 0}})
    same = prices.overrides_hash({"B": {"output": "0", "input": 0}, "a": {"input": 2.5, "output": "1"}})
    other = prices.overrides_hash({"a": {"input": "2.51", "output": 1}, "b": {"input": 0, "output": 0}})
    assert one == same != other and len(one) == 16


def test_the_table_is_named_by_the_librarys_version() -> None:
    assert prices.table_version() == f"genai-prices {genai_prices.__version__}, rules {prices.RULES}"


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (0, "0.000000"), (1_234_567_890_123, "1.234568"), (500_000, "0.000000"), (1_500_000, "0.000002"),
        (2_500_000, "0.000002"), (500_001, "0.000001"), (10**18, "1000000.000000"), (-1_500_000, "-0.000002"),
    ],
)  # fmt: skip
def test_dollars_have_six_decimals_half_even(pico: int, text: str) -> None:
    assert prices.usd(pico) == text
