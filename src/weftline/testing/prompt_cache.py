"""A simulator of provider prompt caches: what each of successive requests reads from and writes to the cache.

It follows the documented rules:

- Anthropic: entries are written at ``cache_control`` breakpoints and found at a breakpoint or one of the positions
  before it, twenty in all; consecutive tool calls, or results, are one position. A hit renews the entry.
- OpenAI from GPT-5.6: entries are written at explicit breakpoints and, unless switched off, at the last message of the
  user or of a tool.
- Earlier models of OpenAI, and others: the longest common prefix with an earlier request, in steps.

The prefix is hashed in the order tools, system, messages. Tokens are counted by the counter given, so figures can be
compared with each other, not with an invoice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from weftline.kernel.ports import TokenCounter, approximate_tokens
from weftline.models.language_models.answer_usage import Usage
from weftline.models.language_models.catalog import CacheRules, ModelInfo, Rates
from weftline.models.language_models.content import CACHE_MARKS, WireForm
from weftline.models.language_models.rendering import RequestSegment
from weftline.models.language_models.wire_forms import FORMS

# Breakpoints that OpenAI considers when it looks for an entry.
_OPENAI_READS = 80
_REMEMBERED = 500
_ONE_HOUR = "1h"
_RUNS = {"tool_use", "tool_result"}
_encode = msgspec.json.Encoder(order="sorted").encode


class SimulatedCall(NamedTuple):
    """Tokens of one call, and its price in US dollars if rates are given."""

    usage: Usage
    cost: Decimal | None

    @property
    def read_share(self) -> float:
        """Return the share of input tokens that came from the cache."""
        return self.usage.cache_read_tokens / self.usage.input_tokens if self.usage.input_tokens else 0.0


class _Segment(NamedTuple):
    """A part of a request in hashed order. ``ttl`` is set if a breakpoint follows it.

    ``ends_turn``: it is the end of a message of the user or of a tool.
    """

    text: str
    tokens: int
    kind: str = ""
    ttl: str | None = None
    ends_turn: bool = False


@dataclass(slots=True)
class _Entry:
    ttl: str
    expires_at: float


@dataclass(slots=True)
class _Sent:
    """An earlier request, for caches that match any prefix."""

    scope: str
    segments: list[_Segment]
    expires_at: float


@dataclass(slots=True)
class CacheSimulator:
    """The prompt cache of one model. Calls are given in order of time."""

    info: ModelInfo
    rates: Rates | None = None
    count: TokenCounter = approximate_tokens
    calls: list[SimulatedCall] = field(default_factory=list)
    _entries: dict[bytes, _Entry] = field(default_factory=dict)
    _sent: list[_Sent] = field(default_factory=list)

    def call(
        self, form: WireForm, body: dict[str, Any], at: float, output_tokens: int = 0, rates: Rates | None = None
    ) -> SimulatedCall:
        """Return what a request reads and writes; ``at`` is in seconds."""
        rules = self.info.cache
        segments = list(_segments(form, body, rules, self.count))
        if rules.mode == "marked":
            usage = self._marked(segments, at, output_tokens, _marks(segments))
        elif rules.mode == "marked_or_automatic":
            usage = self._openai(segments, body, at, output_tokens)
        elif rules.mode == "automatic":
            usage = self._automatic(segments, _scope(body), at, output_tokens)
        else:
            usage = Usage(input_tokens=_total(segments), output_tokens=output_tokens)
        prices = rates or self.rates
        result = SimulatedCall(usage, None if prices is None else prices.cost(usage))
        self.calls.append(result)
        return result

    def _marked(self, segments: Sequence[_Segment], at: float, output: int, marks: Sequence[int]) -> Usage:
        """Anthropic: look back from each breakpoint, write at those after the hit."""
        rules = self.info.cache
        reached = _reached(segments)
        usable = [mark for mark in marks if reached[mark] >= rules.min_tokens][-rules.max_breakpoints :]
        hashes = _hashes(segments)
        positions = {place for mark in usable for place in _looked_at(segments, mark, rules)}
        hit = max((place for place in positions if self._alive(hashes[place], at)), default=-1)
        return self._written(segments, hashes, usable, hit, at, output)

    def _openai(self, segments: Sequence[_Segment], body: dict[str, Any], at: float, output: int) -> Usage:
        """OpenAI from GPT-5.6: entries at explicit breakpoints and at the end of the last turn."""
        rules = self.info.cache
        reached = _reached(segments)
        marks = _marks(segments)
        turns = [place for place, segment in enumerate(segments) if segment.ends_turn]
        implicit = body.get("prompt_cache_options", {}).get("mode", "implicit") == "implicit"
        latest = marks[-(rules.max_breakpoints - implicit) :]
        written = sorted({*latest, *(turns[-1:] if implicit else ())})
        written = [place for place in written if reached[place] >= rules.min_tokens]
        looked_at = sorted({*marks, *(turns if implicit else ())})[-_OPENAI_READS:]
        hashes = _hashes(segments, _scope(body))
        hit = max((place for place in looked_at if self._alive(hashes[place], at)), default=-1)
        return self._written(segments, hashes, written, hit, at, output)

    def _written(
        self,
        segments: Sequence[_Segment],
        hashes: Sequence[bytes],
        marks: Sequence[int],
        hit: int,
        at: float,
        output: int,
    ) -> Usage:
        """Renew what was hit, write what follows it, and return the usage."""
        rules = self.info.cache
        reached = _reached(segments)
        for mark in {*marks, hit} - {-1}:
            if mark <= hit and self._alive(hashes[mark], at):
                entry = self._entries[hashes[mark]]
                entry.expires_at = at + rules.ttl_seconds[entry.ttl]
            elif mark > hit:
                ttl = segments[mark].ttl or rules.default_ttl or ""
                self._entries[hashes[mark]] = _Entry(ttl, at + rules.ttl_seconds[ttl])
        read = reached[hit] if hit >= 0 else 0
        later = [mark for mark in marks if mark > hit]
        written = reached[later[-1]] - read if later else 0
        hour = [mark for mark in later if segments[mark].ttl == _ONE_HOUR]
        return Usage(
            input_tokens=_total(segments),
            output_tokens=output,
            cache_read_tokens=read,
            cache_write_tokens=written,
            cache_write_1h_tokens=reached[hour[-1]] - read if hour else 0,
        )

    def _automatic(self, segments: list[_Segment], scope: str, at: float, output: int) -> Usage:
        """Match the longest prefix of an earlier request, in steps above the minimum."""
        rules = self.info.cache
        lifetime = rules.ttl_seconds[rules.default_ttl or ""]
        self._sent = [sent for sent in self._sent if sent.expires_at > at][-_REMEMBERED:]
        longest = 0
        for sent in self._sent:
            common = self._common(sent.segments, segments) if sent.scope == scope else 0
            if common >= rules.min_tokens:
                sent.expires_at = at + lifetime
                longest = max(longest, common)
        read = longest - (longest - rules.min_tokens) % rules.increment if longest else 0
        total = _total(segments)
        if total >= rules.min_tokens:
            self._sent.append(_Sent(scope, segments, at + lifetime))
        return Usage(input_tokens=total, output_tokens=output, cache_read_tokens=min(read, total))

    def _common(self, before: Sequence[_Segment], now: Sequence[_Segment]) -> int:
        tokens = 0
        for one, other in zip(before, now, strict=False):
            if one.text != other.text:
                return tokens + self.count(other.text[: _same_characters(one.text, other.text)])
            tokens += other.tokens
        return tokens

    def _alive(self, key: bytes, at: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.expires_at > at


def _segments(form: WireForm, body: dict[str, Any], rules: CacheRules, count: TokenCounter) -> Iterator[_Segment]:
    """Yield the parts of a request in hashed order: tools, system, messages."""
    tools = (RequestSegment("tool", tool, tool) for tool in body.get("tools", ()))
    for role, content, marked, ends_turn in (*tools, *FORMS[form].segments(body)):
        mark = next((marked[name] for name in CACHE_MARKS if name in marked), None)
        plain = _without_marks(content)
        yield _Segment(
            text=_encode([role, plain]).decode(),
            tokens=count(_encode(plain).decode()),
            kind=str(content.get("type", "")),
            ttl=None if mark is None else _ttl(mark, rules),
            ends_turn=ends_turn,
        )


def _without_marks(value: dict[str, Any]) -> dict[str, Any]:
    plain = {name: inner for name, inner in value.items() if name not in CACHE_MARKS}
    if isinstance(plain.get("content"), dict):
        plain["content"] = _without_marks(plain["content"])
    return plain


def _ttl(mark: Any, rules: CacheRules) -> str:  # noqa: ANN401 - JSON
    named = mark.get("ttl") if isinstance(mark, dict) else None
    return named if named in rules.ttl_seconds else rules.default_ttl or ""


def _scope(body: dict[str, Any]) -> str:
    """Return what must be equal besides the prefix: requests with another key go to another machine."""
    return str(body.get("prompt_cache_key", ""))


def _marks(segments: Sequence[_Segment]) -> list[int]:
    return [place for place, segment in enumerate(segments) if segment.ttl is not None]


def _looked_at(segments: Sequence[_Segment], mark: int, rules: CacheRules) -> Iterator[int]:
    """Yield what is checked from a breakpoint, which is the first; a run of tool calls or of results counts once."""
    left = rules.lookback_blocks
    after = ""
    for place in range(mark, -1, -1):
        kind = segments[place].kind
        if kind not in _RUNS or kind != after:
            left -= 1
        if left < 0:
            return
        after = kind
        yield place


def _hashes(segments: Sequence[_Segment], scope: str = "") -> list[bytes]:
    state = hashlib.sha256(scope.encode())
    hashes = []
    for segment in segments:
        state.update(hashlib.sha256(segment.text.encode("utf-8", "surrogatepass")).digest())
        hashes.append(state.digest())
    return hashes


def _reached(segments: Sequence[_Segment]) -> list[int]:
    total = 0
    reached = []
    for segment in segments:
        total += segment.tokens
        reached.append(total)
    return reached


def _total(segments: Sequence[_Segment]) -> int:
    return sum(segment.tokens for segment in segments)


def _same_characters(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
