"""Token counts of prompts: exact where the tokenizer is public, else an estimate with a learned factor and a margin."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from weftline.kernel.errors import Unavailable
from weftline.kernel.ports import TokenCounter, TokenCounters, approximate_tokens
from weftline.models.language_models.catalog import ModelInfo
from weftline.models.language_models.content import (
    CACHE_MARKS,
    ConversationMessage,
    Media,
    Prompt,
    PromptBlock,
    ToolDefinition,
    parts,
)
from weftline.models.language_models.rendering import FormRules
from weftline.models.language_models.wire_forms import message_parts, rules_of

# Above the estimate, so that a prompt stays within the limit although no tokenizer says how long it is.
SAFETY_MARGIN = 1.1
_MAX_CACHED = 50_000
# Shorter texts are counted faster than hashed.
_MIN_CACHED_CHARS = 64
_CALL_TOKENS = 8
_TOOL_TOKENS = 12
_REPLY_TOKENS = 3
# Base64 characters that make a token: about 3,000 tokens for a page of 50 KB, ten tokens for a second of audio.
_CHARS_PER_TOKEN = {"image": 0, "file": 20, "audio": 1_000}
_MIN_FILE_TOKENS = 3_000
_MIN_AUDIO_TOKENS = 100
# Of fields that only the provider knows: an upper bound for ordinary text.
_CHARS_PER_FIELD_TOKEN = 2
_MAX_NAME = 128
_encode = msgspec.json.Encoder().encode


class PromptCount(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a prompt by part. ``raw`` is the estimate without factor and margin, from which the factor is learned.

    ``exact``: counted by the model's tokenizer, and nothing in it is an estimate (images, files, opaque parts).
    """

    total: int
    tools: int
    blocks: dict[str, int]
    overhead: int
    raw: int
    exact: bool
    factor: float
    margin: float


class CountCache:
    """Token counts by reader and hash of the text. Of two generations the older is dropped when the newer is full.

    Readers share none: the time of counting would tell which texts others have.
    """

    __slots__ = ("_limit", "_new", "_old")

    def __init__(self, limit: int = _MAX_CACHED) -> None:
        self._limit = max(1, limit // 2)
        self._new: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}

    def count(self, text: str, counter: TokenCounter, name: bytes) -> int:
        """Return the tokens of a text by the counter of this name, which contains the reader."""
        if len(text) < _MIN_CACHED_CHARS:
            return counter(text)
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=name).digest()
        found = self._new.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                found = counter(text)
            self._put(key, found)
        return found

    def _put(self, key: bytes, tokens: int) -> None:
        if len(self._new) >= self._limit:
            self._old, self._new = self._new, {}
        self._new[key] = tokens

    def __len__(self) -> int:
        return len(self._new) + len(self._old)


class PromptCounter:
    """Counts prompts for one model.

    ``reader`` is the tenant and principal whose counts in the cache are used.
    ``factor`` corrects the estimate of a model without a public tokenizer: the one learned from reported usage, or None
    for the one of the catalog.
    """

    def __init__(
        self,
        info: ModelInfo,
        counters: TokenCounters,
        factor: float | None = None,
        cache: CountCache | None = None,
        reader: tuple[str, str] = ("", ""),
    ) -> None:
        self.info = info
        self._cache = CountCache() if cache is None else cache
        self._counter, self._name = _counter(info, counters)
        self._counted_for = hashlib.blake2b("\0".join((*reader, self._name)).encode(), digest_size=32).digest()
        self.exact = self._name != "approximate"
        self.factor = 1.0 if self.exact else info.estimate_factor if factor is None else factor
        self.margin = 1.0 if self.exact else SAFETY_MARGIN

    @property
    def method(self) -> Hashable:
        """Return what the counts of messages depend on: counters with the same value count alike."""
        return self._name, self.factor, self.margin, self.info.message_tokens, self.info.image_tokens

    def text(self, text: str) -> int:
        """Return the tokens of a text, with factor and margin."""
        return self.scaled(self._raw(text))

    def message(self, message: ConversationMessage) -> int:
        """Return the tokens of a message, with what the provider adds to it."""
        return self.scaled(self._message(message)[0])

    def tool(self, tool: ToolDefinition) -> int:
        """Return the tokens of a tool definition."""
        return self.scaled(self._tool(tool))

    def block(self, block: PromptBlock) -> int:
        return sum(self.message(message) for message in block.messages)

    def tools(self, tools: Sequence[ToolDefinition]) -> int:
        """Return the tokens of tools, with the instructions that the provider adds for using them."""
        return sum(map(self.tool, tools)) + (self.info.tools_tokens if tools else 0)

    def prompt(self, prompt: Prompt) -> PromptCount:
        """Return the tokens of a prompt by part."""
        blocks: dict[str, int] = {}
        raw = _REPLY_TOKENS + (self.info.tools_tokens if prompt.tools else 0)
        exact = self.exact
        for block in prompt.blocks:
            blocks.setdefault(block.block_id, 0)
            for message in block.messages:
                tokens, counted = self._message(message)
                blocks[block.block_id] += self.scaled(tokens)
                raw += tokens
                exact = exact and counted
        tools = self.tools(prompt.tools)
        return PromptCount(
            total=sum(blocks.values()) + tools + _REPLY_TOKENS,
            tools=tools,
            blocks=blocks,
            overhead=_REPLY_TOKENS,
            raw=raw + sum(map(self._tool, prompt.tools)),
            exact=exact,
            factor=self.factor,
            margin=self.margin,
        )

    def scaled(self, tokens: int) -> int:
        """Return an estimate of this many tokens with factor and margin."""
        return math.ceil(tokens * self.factor * self.margin)

    def _raw(self, text: str) -> int:
        # An estimate takes less time than the hash of the text.
        return self._cache.count(text, self._counter, self._counted_for) if self.exact else self._counter(text)

    def _message(self, message: ConversationMessage) -> tuple[int, bool]:
        """Return the unscaled tokens of a message, and whether all of it is text."""
        tokens = self.info.message_tokens
        for call in message.tool_calls:
            tokens += _CALL_TOKENS + self._raw(call.name) + self._raw(call.arguments)
        if message.name is not None:
            tokens += self._raw(message.name) + 1
        if message.native is None:
            return tokens + self._raw(message.content), True
        texts, media = _split(message)
        opaque = _opaque(message)
        tokens += sum(map(self._raw, texts))
        other = _other_characters(message, [*texts, *opaque], media)
        tokens += sum(map(self._raw, opaque)) + sum(map(self._media, media)) + other // _CHARS_PER_FIELD_TOKEN
        return tokens, not (media or opaque or other)

    def _media(self, media: Media) -> int:
        if media.kind == "image":
            return self.info.image_tokens
        size = len(media.data or "") // _CHARS_PER_TOKEN[media.kind]
        return max(_MIN_FILE_TOKENS if media.kind == "file" else _MIN_AUDIO_TOKENS, size)

    def _tool(self, tool: ToolDefinition) -> int:
        definition = tool.native if tool.native is not None else [tool.name, tool.description, tool.input_schema]
        return _TOOL_TOKENS + self._raw(_encode(definition).decode())


def _counter(info: ModelInfo, counters: TokenCounters) -> tuple[TokenCounter, str]:
    """Return the tokenizer of a model and its name; the estimate if it has none or it is not installed."""
    if info.tokenizer is not None:
        try:
            return counters.named(info.tokenizer), info.tokenizer
        except Unavailable:
            pass
    return approximate_tokens, "approximate"


def _split(message: ConversationMessage) -> tuple[list[str], list[Media]]:
    found = message_parts(message)
    return [part for part in found if isinstance(part, str)], [part for part in found if isinstance(part, Media)]


def _other_characters(message: ConversationMessage, counted: Sequence[str], media: Sequence[Media]) -> int:
    """Return the characters of native content that are neither counted as text nor part of a medium."""
    if message.native is None:
        return 0
    known = sum(map(len, counted)) + sum(len(each.data or each.url or "") for each in media)
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return max(0, _native_characters(message.native, rules_of(message)) - known - calls)


def _native_characters(value: Any, rules: FormRules, field: str = "") -> int:  # noqa: ANN401 - JSON of a provider
    """Return the characters of native content that a provider may count, media included."""
    if isinstance(value, str):
        return 0 if field in rules.naming_fields and len(value) <= _MAX_NAME else len(value)
    if isinstance(value, dict):
        names = sum(len(name) for name in value if name not in rules.fields)
        return names + sum(_native_characters(each, rules, name) for name, each in value.items())
    if isinstance(value, list | tuple):
        return sum(_native_characters(each, rules, field) for each in value)
    return 0 if value is None or isinstance(value, bool) else len(str(value))


def _opaque(message: ConversationMessage) -> list[str]:
    """Return the texts of parts that only the provider understands: reasoning, compaction, results of its tools."""
    native = message.native
    if not isinstance(native, dict):
        return []
    content = native.get("content")
    blocks = content if isinstance(content, list) else [native] if "role" not in native else []
    return [text for block in blocks if isinstance(block, dict) for text in _opaque_texts(block)]


def _opaque_texts(block: dict[str, Any]) -> list[str]:
    if block.get("type") in {"tool_use", "tool_result", "message"} or "call_id" in block or parts([block]):
        return []
    return [
        value if isinstance(value, str) else _encode(value).decode()
        for name, value in block.items()
        if name not in {"type", "id", "status", *CACHE_MARKS}
    ]
