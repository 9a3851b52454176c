"""Facts that survive a compaction without a model, by strategy, at 40, 25 and 10 percent of the original tokens.

Everything that stands in a prompt for the conversation counts, in text and in tokens: summaries with their titles, the
key facts listed with them, and the messages that stay in full. A request follows the conversation, which stays and does
not count: it is what the conversation is compacted for. Beside the strategies: the newest part alone, every nth
message, TextRank, and the reduction by itself. The word model is trained on AMI and BFCL memory, so their rows are
cross-validated: each conversation is compacted with a model that did not see it, as other conversations will be. LoCoMo
was never trained on. All conversations of LoCoMo and BFCL memory with strict facts, and every fourth of AMI.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple, cast, get_args
from unittest import mock

from msgspec import structs

from evals.compaction import baselines
from evals.compaction.corpora import SETS, read_set, retained_facts
from evals.compaction.train import load_trained, utterances
from evals.results import Row
from weftline.models.language_models.content import ConversationMessage
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.windows.compaction.compacted_events import compacted
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import CompactionSource, StrategyName
from weftline.windows.compaction.reduction import reducer
from weftline.windows.compaction.strategies import lay_out
from weftline.windows.compaction.summariser import ExtractiveSummariser
from weftline.windows.model import Category, WindowEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from evals.compaction.corpora import Conversation
    from weftline.windows.compaction.model import KeyFact
    from weftline.windows.compaction.reduction.features import WordModel

    Method = Callable[[Conversation, float], str]

SHARES = (0.4, 0.25, 0.1)
# Every nth conversation of a set is measured; all of the others.
_EVERY = {"ami": 4}
TARGETS = {"ami": 0.90, "locomo": 0.90, "bfcl_memory": 0.97}
# The one that has to meet the targets: the default.
_STRATEGY: StrategyName = "sliding_window"
_ATTEMPTS = 3
# Part of the tokens that may remain unused.
_UNUSED = 0.01
_REQUEST = ConversationMessage(role="user", content="Go on, please.", name="user")
_REQUEST_TOKENS = 6
_count = TokenizerRegistry().named("o200k_base")


class Retention(NamedTuple):
    """Facts that were retained, and tokens of the texts as a part of the original ones."""

    value: float
    facts: int
    tokens: float


def compaction(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    # Not forked: threads of the encoder may hold locks.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        parts = [processes.submit(_part, folder, name, share) for name in SETS for share in SHARES]
        for part in parts:
            yield from part.result()


def _part(folder: Path, name: str, share: float) -> list[Row]:
    """Measure one set at one share of its tokens; each part runs in a process of its own."""
    trained = load_trained()
    conversations = [each for each in read_set(folder, name) if each.strict_facts][:: _EVERY.get(name, 1)]
    models = {each.name: trained.for_conversation(name, each) for each in conversations}
    return list(_rows(name, conversations, models, share))


def _rows(
    name: str, conversations: Sequence[Conversation], models: dict[str, WordModel], share: float
) -> Iterator[Row]:
    prefix = f"compaction.{name}.{share:.0%}"
    floor = measure(conversations, share, _baseline(baselines.newest_part))
    yield _row(f"{prefix}.newest_part", floor)
    for title, baseline in (("every_nth", baselines.every_nth), ("text_rank", baselines.text_rank)):
        yield _row(f"{prefix}.{title}", measure(conversations, share, _baseline(baseline)), floor)
    yield _row(f"{prefix}.reduction", measure(conversations, share, _reduction(models)), floor)
    compact = _Compactions(models)
    for strategy in get_args(StrategyName):
        found = measure(conversations, share, partial(compact, strategy))
        least = TARGETS[name] if strategy == _STRATEGY and share == SHARES[0] else None
        yield _row(f"{prefix}.{strategy}", found, floor, least, share)
        yield Row(f"{prefix}.{strategy}.tokens", found.tokens, "share", share, None, None)


def _row(
    name: str,
    found: Retention,
    floor: Retention | None = None,
    least: float | None = None,
    most_tokens: float = 1.0,
) -> Row:
    target = None if least is None else f">= {least:.2f}"
    met = None if least is None else found.value >= least and found.tokens <= most_tokens
    return Row(name, found.value, f"of {found.facts}", None if floor is None else floor.value, target, met)


def measure(conversations: Sequence[Conversation], share: float, method: Method) -> Retention:
    """Shorten each conversation to a share of its tokens; return the facts that are in the texts."""
    kept: list[bool] = []
    tokens = before = 0
    for conversation in conversations:
        text = method(conversation, share)
        kept += retained_facts(text, conversation.strict_facts)
        tokens += _count(text)
        before += _count(conversation.text)
    return Retention(sum(kept) / len(kept), len(kept), tokens / before)


def _baseline(shorten: Callable[..., str]) -> Method:
    return lambda conversation, share: shorten(conversation, int(share * _count(conversation.text)), _count)


def _reduction(models: dict[str, WordModel]) -> Method:
    def reduce(conversation: Conversation, share: float) -> str:
        target = int(share * _count(conversation.text))
        return reducer.reduce_texts(utterances(conversation), target, (), _count, models[conversation.name]).text

    return reduce


class _Compactions:
    """Compacts conversations with their models. ``auto`` is one of the other strategies, which is not run twice."""

    def __init__(self, models: dict[str, WordModel]) -> None:
        self._models = models
        self._texts: dict[tuple[str, str, float], str] = {}

    def __call__(self, strategy: StrategyName, conversation: Conversation, share: float) -> str:
        events = window_events(conversation)
        facts = extract_facts(events)
        used = cast("StrategyName", lay_out(_source(events, facts, share), strategy).strategy)
        key = (conversation.name, used, share)
        if key not in self._texts:
            most = int(share * _count(conversation.text))
            with mock.patch.object(reducer, "load_model", return_value=self._models[conversation.name]):
                self._texts[key] = _fitted(events, facts, used, most)
        return self._texts[key]


def _fitted(events: Sequence[WindowEvent], facts: Sequence[KeyFact], strategy: StrategyName, most: int) -> str:
    """Return what a prompt shows of compacted events, in at most ``most`` tokens where possible, and nearly as many.

    The target of a compaction is a part of the events that it covers: titles come on top, and some events stay.
    """
    target = most / sum(event.tokens for event in events)
    texts: dict[int, str] = {}
    for _ in range(_ATTEMPTS):
        text = _compacted(_source(events, facts, target), strategy)
        tokens = _count(text)
        if tokens in texts:
            break
        texts[tokens] = text
        if most * (1 - _UNUSED) <= tokens <= most:
            break
        target *= most * (1 - _UNUSED / 2) / tokens
    fitting = [tokens for tokens in texts if tokens <= most]
    return texts[max(fitting) if fitting else min(texts)]


def _source(events: Sequence[WindowEvent], facts: Sequence[KeyFact], target: float) -> CompactionSource:
    """Return events to be compacted, with the request that follows them."""
    request = structs.replace(
        events[-1], event_id="request", number=len(events) + 1, message=_REQUEST, tokens=_REQUEST_TOKENS
    )
    return CompactionSource([*events, request], facts, target, 1, _count)


def _compacted(source: CompactionSource, strategy: StrategyName) -> str:
    view = asyncio.run(Compactor().compact(source, strategy, ExtractiveSummariser())).view
    *parts, _ = compacted(source.events, view)
    return "\n".join(
        f"{part.message.name}: {part.message.content}" if isinstance(part, WindowEvent) else part.text for part in parts
    )


def window_events(conversation: Conversation) -> list[WindowEvent]:
    """Return a conversation as the events of a window."""
    return [
        WindowEvent(
            event_id=f"e{number}",
            number=number,
            category=Category.DIALOG,
            message=ConversationMessage(role="user", content=message.text, name=message.speaker),
            kind="message",
            at=message.at,
            author=message.speaker,
            agent_id="assistant",
            tokens=_count(f"{message.speaker}: {message.text}\n"),
        )
        for number, message in enumerate(conversation.messages, start=1)
    ]
