"""Token counts of prompts, and the factors learned from reported usage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models import wire_forms
from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.content import (
    ConversationMessage,
    Prompt,
    PromptBlock,
    ToolCall,
    ToolDefinition,
)
from weftline.models.language_models.token_counts import SAFETY_MARGIN, CountCache, PromptCounter
from weftline.models.sql import MIN_SAMPLES, TokenFactor, UsageFactor, updated
from weftline.providers.tokenizers import TokenizerMissing, TokenizerRegistry
from weftline.testing.clock import FrozenClock

CATALOG = load_catalog()
COUNTERS = TokenizerRegistry()
TEXT = "The deploy of the billing service failed because the migration was not applied. " * 5
# A tokenizer reads its vocabulary in a way that Python has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:open_binary:DeprecationWarning")
LIMIT = pytest.mark.req("CE-F13", part="counting within the limit of a model")


class NoTokenizers:
    def named(self, tokenizer: str) -> Any:
        raise TokenizerMissing(tokenizer)


def user_message(text: str) -> ConversationMessage:
    return ConversationMessage(role="user", content=text)


def prompt_of(*messages: ConversationMessage, tools: tuple[ToolDefinition, ...] = ()) -> Prompt:
    half = len(messages) // 2
    blocks = (
        PromptBlock("first", "layer", tuple(messages[:half])),
        PromptBlock("second", "conversation", tuple(messages[half:])),
    )
    return Prompt("m", tools, blocks, 100)


@LIMIT
def test_a_model_with_a_public_tokenizer_is_counted_exactly() -> None:
    counter = PromptCounter(CATALOG.find("gpt-6-sol"), COUNTERS)
    assert counter.exact
    assert counter.text(TEXT) == COUNTERS.named("o200k_base")(TEXT)
    counted = counter.prompt(prompt_of(user_message(TEXT), user_message(TEXT)))
    assert counted.exact
    assert (counted.factor, counted.margin) == (1.0, 1.0)
    assert counted.total == sum(counted.blocks.values()) + counted.tools + counted.overhead == counted.raw


@LIMIT
def test_a_model_without_one_is_estimated_with_factor_and_margin() -> None:
    info = CATALOG.find("claude-opus-5-5")
    counter = PromptCounter(info, COUNTERS)
    assert not counter.exact
    assert counter.text(TEXT) >= approximate_tokens(TEXT) * info.estimate_factor * SAFETY_MARGIN
    learned = PromptCounter(info, COUNTERS, factor=0.9)
    assert learned.text(TEXT) < counter.text(TEXT)
    assert learned.prompt(prompt_of(user_message(TEXT), user_message(TEXT))).factor == 0.9


def test_long_texts_are_counted_exactly_too() -> None:
    count = COUNTERS.named("o200k_base")
    assert count("word " * 300_000) == 300_001
    assert count("x" * 1_200_000) == 150_000


def test_a_tokenizer_that_is_not_installed_is_replaced_by_the_estimate() -> None:
    counter = PromptCounter(CATALOG.find("gpt-6-sol"), NoTokenizers())
    assert not counter.exact
    assert counter.margin == SAFETY_MARGIN
    assert counter.text(TEXT) >= COUNTERS.named("o200k_base")(TEXT)


@given(st.lists(st.text(max_size=100), max_size=6), st.text(max_size=100))
def test_more_messages_are_never_fewer_tokens(texts: list[str], more: str) -> None:
    for model in ("gpt-6-sol", "claude-opus-5"):
        counter = PromptCounter(CATALOG.find(model), COUNTERS)
        messages = [user_message(text) for text in texts]
        assert (
            counter.prompt(prompt_of(*messages)).total < counter.prompt(prompt_of(*messages, user_message(more))).total
        )


def test_blocks_tools_and_total_are_counted_apart() -> None:
    counter = PromptCounter(CATALOG.find("claude-opus-5"), COUNTERS)
    tool = ToolDefinition("search", "Search the web", {"type": "object", "properties": {}})
    counted = counter.prompt(prompt_of(user_message("a"), user_message(TEXT), tools=(tool,)))
    assert counted.blocks["first"] < counted.blocks["second"]
    assert counted.tools == counter.tools([tool]) > CATALOG.find("claude-opus-5").tools_tokens
    assert counted.blocks["second"] == counter.message(user_message(TEXT))


def test_a_text_is_counted_once() -> None:
    counted: list[str] = []

    class Counting:
        def named(self, tokenizer: str) -> Any:
            return lambda text: counted.append(text) or len(text) + len(tokenizer)

    cache = CountCache()
    for _ in range(3):
        PromptCounter(CATALOG.find("gpt-6-sol"), Counting(), cache=cache).prompt(
            prompt_of(user_message(TEXT), user_message(TEXT))
        )
    assert counted.count(TEXT) == 1
    # Another tokenizer counts for itself.
    PromptCounter(CATALOG.find("gpt-4"), Counting(), cache=cache).text(TEXT)
    assert counted.count(TEXT) == 2
    # So does another reader: the time would tell that somebody has the same text.
    for reader in (("t", "a"), ("t", "b"), ("u", "a")):
        PromptCounter(CATALOG.find("gpt-4"), Counting(), cache=cache, reader=reader).text(TEXT)
    assert counted.count(TEXT) == 5


def test_the_cache_of_counts_is_bounded() -> None:
    cache = CountCache(limit=10)
    for number in range(100):
        assert cache.count("x" * 100 + str(number), len, b"n") == 100 + len(str(number))
    assert len(cache) <= 10


@pytest.mark.parametrize(
    ("block", "least"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, 1_105),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 200_000}}, 10_000),
        ({"type": "input_audio", "input_audio": {"data": "A" * 500_000, "format": "wav"}}, 500),
        ({"type": "file", "file": {"file_id": "f"}}, 3_000),
    ],
)
def test_media_are_estimated(block: dict[str, Any], least: int) -> None:
    messages = wire_forms.parse(
        "openai_chat", [{"role": "user", "content": [{"type": "text", "text": "x"}, block]}]
    ).messages
    counted = PromptCounter(CATALOG.find("gpt-4o"), COUNTERS).prompt(prompt_of(*messages))
    assert counted.total >= least
    assert not counted.exact


def test_opaque_parts_are_counted() -> None:
    thinking = {"type": "thinking", "thinking": TEXT, "signature": "s" * 400}
    given_blocks = [thinking, {"type": "text", "text": "x"}]
    [message] = wire_forms.parse("anthropic", [{"role": "assistant", "content": given_blocks}]).messages
    counter = PromptCounter(CATALOG.find("claude-opus-5"), COUNTERS)
    assert counter.message(message) >= counter.text(TEXT) + 100
    [item] = wire_forms.parse(
        "openai_responses", [{"type": "reasoning", "encrypted_content": TEXT, "summary": []}]
    ).messages
    assert counter.message(item) >= counter.text(TEXT)


def test_calls_of_tools_are_counted_once() -> None:
    call = ToolCall("c", "f", '{"a":"' + TEXT + '"}')
    neutral = ConversationMessage(role="assistant", tool_calls=(call,))
    item = {"type": "function_call", "id": "x", "call_id": "c", "name": "f", "arguments": call.arguments}
    [native] = wire_forms.parse("openai_responses", [item]).messages
    counter = PromptCounter(CATALOG.find("gpt-6-sol"), COUNTERS)
    assert native.native is not None
    assert counter.message(native) == counter.message(neutral)


class Factors:
    def __init__(self) -> None:
        self.held: dict[tuple[str, str], TokenFactor] = {}

    async def find(self, agent_id: str, model: str) -> TokenFactor | None:
        return self.held.get((agent_id, model))

    async def put(self, factor: TokenFactor) -> None:
        self.held[factor.agent_id, factor.model] = factor

    async def count(self, agent_id: str) -> int:
        return sum(owner == agent_id for owner, _ in self.held)


async def test_a_factor_is_used_after_enough_reports() -> None:
    learning = UsageFactor(Factors(), FrozenClock())
    for _ in range(MIN_SAMPLES - 1):
        await learning.learn("me", "Claude-X", 1_000, 1_300)
        assert await learning.factor("me", "claude-x") is None
    await learning.learn("me", "claude-x", 1_000, 1_300)
    assert await learning.factor("me", "claude-x") == pytest.approx(1.3)
    assert await learning.factor("me", None) is None


async def test_little_prompts_and_too_many_models_teach_nothing() -> None:
    factors = Factors()
    learning = UsageFactor(factors, FrozenClock())
    assert await learning.learn("me", "m", 10, 20) is None
    assert await learning.learn("me", "m", 1_000, 0) is None
    for number in range(100):
        await learning.learn("me", f"m{number}", 1_000, 1_000)
    assert await learning.learn("me", "one-more", 1_000, 1_000) is None
    assert await learning.learn("me", "m1", 1_000, 1_000) is not None
    assert await learning.learn("you", "one-more", 1_000, 1_000) is not None
    assert await factors.count("me") == 100


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_a_factor_stays_within_its_bounds(ratios: list[float]) -> None:
    factor = TokenFactor("me", "m", 1.0, 0, 0)
    for ratio in ratios:
        factor = updated(factor, ratio, 1)
    assert 0.5 <= factor.factor <= 2.0
    assert factor.samples == len(ratios)


def test_a_factor_follows_a_change() -> None:
    factor = TokenFactor("me", "m", 1.0, 0, 0)
    for ratio in [1.0] * 20 + [1.5] * 20:
        factor = updated(factor, ratio, 1)
    assert factor.factor == pytest.approx(1.5, abs=0.01)
