"""Usage objects of providers in one shape."""

from __future__ import annotations

from typing import Any

import pytest

from weftline.kernel.errors import InvalidInput
from weftline.models.language_models.answer_usage import Usage, normalise_usage


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        pytest.param(
            {
                "prompt_tokens": 2006,
                "completion_tokens": 300,
                "total_tokens": 2306,
                "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(input_tokens=2006, output_tokens=300, cache_read_tokens=1920, reasoning_tokens=20),
            id="openai_chat",
        ),
        pytest.param(
            {
                "input_tokens": 5000,
                "input_tokens_details": {"cached_tokens": 3000, "cache_write_tokens": 1500},
                "output_tokens": 10,
                "output_tokens_details": {"reasoning_tokens": 4},
            },
            Usage(
                input_tokens=5000, output_tokens=10, cache_read_tokens=3000, cache_write_tokens=1500, reasoning_tokens=4
            ),
            id="openai_responses",
        ),
        pytest.param(
            {
                "input_tokens": 50,
                "cache_read_input_tokens": 100_000,
                "cache_creation_input_tokens": 556,
                "cache_creation": {"ephemeral_5m_input_tokens": 456, "ephemeral_1h_input_tokens": 100},
                "output_tokens": 503,
                "service_tier": "standard",
            },
            Usage(
                input_tokens=100_606,
                output_tokens=503,
                cache_read_tokens=100_000,
                cache_write_tokens=556,
                cache_write_1h_tokens=100,
            ),
            id="anthropic",
        ),
        pytest.param(
            {"input_tokens": 21, "output_tokens": 5, "cache_read_input_tokens": None, "cache_creation": None},
            Usage(input_tokens=21, output_tokens=5),
            id="anthropic without a cache",
        ),
        pytest.param(
            {
                "promptTokenCount": 9000,
                "cachedContentTokenCount": 8000,
                "candidatesTokenCount": 30,
                "thoughtsTokenCount": 70,
                "toolUsePromptTokenCount": 5,
            },
            Usage(input_tokens=9005, output_tokens=100, cache_read_tokens=8000, reasoning_tokens=70),
            id="gemini",
        ),
        pytest.param(
            {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 64},
            Usage(input_tokens=100, output_tokens=1, cache_read_tokens=64),
            id="deepseek",
        ),
    ],
)
def test_every_provider_is_understood(reported: dict[str, Any], usage: Usage) -> None:
    assert normalise_usage(reported) == usage
    assert usage.uncached_tokens == usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens


@pytest.mark.parametrize(
    ("reported", "field"),
    [
        (None, "usage"),
        ([1], "usage"),
        ({}, "usage"),
        ({"prompt_tokens": -1}, "usage.prompt_tokens"),
        ({"prompt_tokens": True}, "usage.prompt_tokens"),
        ({"prompt_tokens": 1.5}, "usage.prompt_tokens"),
        ({"prompt_tokens": "9"}, "usage.prompt_tokens"),
        ({"input_tokens": 20_000_001}, "usage.input_tokens"),
        # What is not known is not nothing.
        ({"prompt_tokens": None, "completion_tokens": 5}, "usage.prompt_tokens"),
        ({"input_tokens": None, "output_tokens": 5}, "usage.input_tokens"),
        ({"cache_read_input_tokens": 5, "output_tokens": 5}, "usage.input_tokens"),
        ({"usageMetadata": {}}, "usage.promptTokenCount"),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}}, "usage"),
        ({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 6}}, "usage"),
        ({"input_tokens": 10, "input_tokens_details": []}, "usage.input_tokens_details"),
        ({"input_tokens": 1, "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 2}}, "usage"),
        (
            {
                "input_tokens": 1,
                "cache_creation_input_tokens": 5,
                "cache_creation": {"ephemeral_1h_input_tokens": 6},
            },
            "usage",
        ),
    ],
)
def test_nonsense_is_refused(reported: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        normalise_usage(reported)
    assert refused.value.context["field"] == field
