"""Prices of model calls."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage as TableUsage
from genai_prices import calc_price
from hypothesis import given
from hypothesis import strategies as st

from weftline.models.language_models.answer_usage import Usage
from weftline.models.language_models.catalog import cost_of, load_catalog
from weftline.providers.prices import PriceTable

AT = datetime(2026, 11, 16, tzinfo=UTC)
CATALOG = load_catalog()
PRICES = PriceTable()


@pytest.mark.parametrize(
    ("model", "read", "write"),
    [
        ("claude-opus-5-5", "0.2", "5"),
        ("claude-sonnet-5", "0.2", "2.5"),
        ("gpt-6-sol", "0.2", "2.5"),
        ("gpt-4o", "1.25", "2.5"),
    ],
)
def test_reads_and_writes_of_the_cache_have_their_price(model: str, read: str, write: str) -> None:
    rates = PRICES.rates(CATALOG.find(model), AT)
    assert rates is not None
    assert (rates.cache_read, rates.cache_write) == (Decimal(read), Decimal(write))


@given(
    model=st.sampled_from(["claude-opus-5-5", "claude-haiku-5-5", "claude-sonnet-4-5", "gpt-6-sol", "gpt-5.6-terra"]),
    uncached=st.integers(0, 400_000),
    read=st.integers(0, 400_000),
    write=st.integers(0, 400_000),
    output=st.integers(0, 10_000),
)
def test_the_cost_of_a_call_matches_the_price_table(
    model: str, uncached: int, read: int, write: int, output: int
) -> None:
    """Also beyond the size from which a request costs more."""
    total = uncached + read + write
    usage = Usage(input_tokens=total, cache_read_tokens=read, cache_write_tokens=write, output_tokens=output)
    expected = calc_price(
        TableUsage(input_tokens=total, cache_read_tokens=read, cache_write_tokens=write, output_tokens=output),
        model,
        provider_id=CATALOG.find(model).provider,
        genai_request_timestamp=AT,
    )
    assert cost_of(PRICES, CATALOG.find(model), usage, AT) == expected.total_price


def test_a_write_for_one_hour_costs_more() -> None:
    info = CATALOG.find("claude-opus-5-5")
    short = Usage(input_tokens=1_000_000, cache_write_tokens=1_000_000, output_tokens=0)
    long = Usage(input_tokens=1_000_000, cache_write_tokens=1_000_000, cache_write_1h_tokens=1_000_000, output_tokens=0)
    assert (cost_of(PRICES, info, short, AT), cost_of(PRICES, info, long, AT)) == (Decimal(5), Decimal(8))


@pytest.mark.parametrize("model", ["nobody-knows-it", "llama-3.3-70b", "gpt-of-the-future", "", "no-host/gpt-oss-20b"])
def test_a_model_without_a_price_has_none(model: str) -> None:
    usage = Usage(input_tokens=10, output_tokens=10)
    assert cost_of(PRICES, CATALOG.find(model), usage, AT) is None


def test_an_open_model_costs_what_its_host_asks() -> None:
    rates = PRICES.rates(CATALOG.find("groq/openai/gpt-oss-120b"), AT)
    assert rates is not None
    assert rates.input == Decimal("0.15")


def test_prices_change_with_time() -> None:
    info = CATALOG.find("gpt-5.6-terra")
    launch, now = PRICES.rates(info, datetime(2026, 7, 1, tzinfo=UTC)), PRICES.rates(info, AT)
    assert launch is not None
    assert now is not None
    assert launch.input > now.input


def test_the_price_table_is_not_read_before_it_is_used() -> None:
    code = "import sys, weftline.app.app, weftline.providers.prices; print('genai_prices' in sys.modules)"
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
