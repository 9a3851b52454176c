"""Savings on pages: the conversation alone first, plainly where a prompt is larger, then with documents."""

from __future__ import annotations

import re
from typing import Any

import pytest

from weftline.models.metering import UsageSums
from weftline.transports.console.rendering import environment

pytestmark = pytest.mark.req("CE-F54")


def saved(sums: UsageSums) -> str:
    macros: Any = environment().get_template("macros.html").module
    return " ".join(re.sub(r"<[^>]+>", " ", macros.saved(sums)).split())


def test_documents_are_compared_apart() -> None:
    sums = UsageSums(naive_baseline_tokens=10_000, document_tokens=30_000, engine_assembled_tokens=4_000)
    assert saved(sums) == (
        "60.0 % of the 10,000 tokens of the conversation alone "
        "90.0 % of the 40,000 tokens of conversation and documents"
    )


def test_prompts_that_are_larger_than_the_conversation_say_so() -> None:
    sums = UsageSums(naive_baseline_tokens=86, engine_assembled_tokens=15_245)
    assert saved(sums) == "-17626.7 % 15,159 tokens more than the conversation alone, which has 86"


def test_bars_of_days_fit_whichever_is_larger() -> None:
    days = [
        {"group": "Monday", "naive_baseline_tokens": 100, "engine_assembled_tokens": 400},
        {"group": "Tuesday", "naive_baseline_tokens": 200, "engine_assembled_tokens": 50},
    ]
    charts: Any = environment().get_template("charts.html").module
    drawn = str(charts.days(days, "Tokens by day"))
    assert re.findall(r'height="([\d.]+)"', drawn) == ["12.0", "48.0", "24.0", "6.0"]
    assert "Monday: conversation alone: 100 tokens" in drawn
