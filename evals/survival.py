"""Statements that are still in the next prompt after a compaction, by list, kind and language.

Each list was written by an author who saw neither the code nor another list. 64 of its statements stand in 384 messages
of talk, in the roles that the list gives; the product ingests them, compacts to 40 % and to 25 %, and assembles the
next prompt for a task that asks for nothing. A statement survives if all its content words stand within 600 characters
of one message. Nothing is indexed, so that no search brings back what the compaction lost. The injection detector finds
nothing in these conversations: what it marks stays in full or is withheld, which is no merit and no fault of the
compaction; the rows `as_shipped` have it. Baselines: the newest messages, and random sentences, of the target's size.
`chance`: statements of another conversation that are "found" in the prompt.

Intervals are over conversations for a list and over lists otherwise. What was trained on the open lists has seen their
statements: figures of unseen lists are those of `survival_closed`, which alone reads the closed ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import msgspec

from evals.product import CachedEmbedder, open_product
from evals.results import Row
from evals.rulers import closed, share_by_groups
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.safety.injection import HARMLESS, Detection
from weftline.validation.compaction import Passages, Said, as_events, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from evals.product import Product

_DATA = Path(__file__).parent / "data"
OPEN, CLOSED = _DATA / "statements", _DATA / "statements_closed"
TARGETS = {0.4: 0.98, 0.25: 0.95}
# Whatever the target: who is bound by them cannot ask what was lost.
_BINDING, _BINDING_TARGET = ("commitment", "constraint", "open_question"), 0.99
_CONVERSATIONS, _STATEMENTS, _MESSAGES = 4, 64, 384
_WINDOW_TOKENS = 1_000_000
_WAIT_SECONDS = 60
_TASK = "Continue."
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026])\s+")
_RANDOM_NUMBER = 33
_DIGITS = 3


@cache
def _tokenizer() -> Callable[[str], int]:
    # Its vocabulary takes seconds to load.
    return TokenizerRegistry().named("o200k_base")


def _count(text: str) -> int:
    return _tokenizer()(text)


class StatedConversation(NamedTuple):
    """Messages with the statements of one list among them."""

    name: str
    list_name: str
    said: list[Said]

    @property
    def statements(self) -> list[Said]:
        return [each for each in self.said if each.statement]

    @property
    def tokens(self) -> int:
        return sum(_count(each.message) for each in self.said)


class Survival(NamedTuple):
    """Whether a statement is in the prompt, and in the baselines of the same size; ``chance``: in another prompt."""

    statement: Said
    conversation: str
    list_name: str
    survives: bool
    newest: bool
    drawn: bool
    chance: bool


class Measured(NamedTuple):
    """The statements of conversations after a compaction, and the part of their tokens that prompts have."""

    statements: list[Survival]
    tokens: float


def survival(folder: Path | None) -> Iterator[Row]:
    del folder
    conversations = stated_conversations(OPEN)
    yield from _rows("survival", conversations)
    for target in TARGETS:
        # The detector reads every message: one conversation of each list will do.
        shipped = measure(conversations[::_CONVERSATIONS], target, detects=True)
        yield _share(
            f"survival.{round(100 * target)}.as_shipped", shipped.statements, "with the injection detector", None
        )
        yield Row(
            f"survival.{round(100 * target)}.as_shipped.tokens", shipped.tokens, "of the originals", None, None, None
        )


def survival_closed(folder: Path | None) -> Iterator[Row]:
    """Yield the figures of the closed lists: for a release, after everything was decided."""
    del folder
    yield from closed("survival_closed", lambda: _rows("survival_closed", stated_conversations(CLOSED)))


def stated_conversations(
    lists: Path, conversations: int = _CONVERSATIONS, statements: int = _STATEMENTS, messages: int = _MESSAGES
) -> list[StatedConversation]:
    """Return conversations of each list, the same in every run; talk is of the list first, then of the others."""
    draw = random.Random(_RANDOM_NUMBER)  # noqa: S311 - the same conversations each time, not a secret
    known = read_lists(lists)
    # Two closed lists have too little talk.
    every = known | read_lists(OPEN)
    made = []
    for name, lines in known.items():
        stated = draw.sample(_of_type(lines, "statement"), conversations * statements)
        elsewhere = [each for other, more in every.items() if other != name for each in _of_type(more, "talk")]
        for number in range(conversations):
            part = stated[number * statements : (number + 1) * statements]
            own = _of_type(lines, "talk")
            talk = [*draw.sample(own, len(own)), *draw.sample(elsewhere, len(elsewhere))][: messages - statements]
            said = spread(part, draw.sample(talk, len(talk)), draw)
            made.append(StatedConversation(f"{name}-{number}", name, said))
    return made


def read_lists(folder: Path) -> dict[str, list[Said]]:
    """Return the messages of each list that has statements; pairs of messages are not among them."""
    known = {each.name: _read_list(each) for each in sorted(folder.iterdir()) if each.is_dir()}
    return {name: lines for name, lines in known.items() if lines}


def _read_list(folder: Path) -> list[Said]:
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    rows = [msgspec.json.decode(line) for line in lines]
    return [msgspec.convert(row, Said) for row in rows if "message" in row]


def _of_type(lines: Iterable[Said], name: str) -> list[Said]:
    return [each for each in lines if each.type == name]


def measure(conversations: Sequence[StatedConversation], target: float, *, detects: bool = False) -> Measured:
    """Compact each conversation, and look for its statements in the next prompt."""
    texts = asyncio.run(_compacted_prompts(conversations, target, detects=detects))
    prompts = [Passages(each) for each in texts]
    found = []
    for place, (conversation, prompt) in enumerate(zip(conversations, prompts, strict=True)):
        newest, drawn = (Passages(each(conversation, target)) for each in (newest_messages, random_sentences))
        another = prompts[(place + 1) % len(prompts)]
        found += [
            Survival(each, conversation.name, conversation.list_name, *(p.have(each.statement) for p in known))
            for known in [(prompt, newest, drawn, another)]
            for each in conversation.statements
        ]
    before = sum(conversation.tokens for conversation in conversations)
    return Measured(found, sum(_count(text) for each in texts for text in each) / before)


async def _compacted_prompts(
    conversations: Sequence[StatedConversation], target: float, *, detects: bool
) -> list[list[str]]:
    undetected = mock.patch("weftline.app.app.configured_detector", return_value=_Undetecting())
    with contextlib.nullcontext() if detects else undetected:
        async with open_product(CachedEmbedder()) as product:
            return [await _compacted_prompt(product, each, target) for each in conversations]


class _Undetecting:
    def detect(self, text: str, *, data: bool) -> Detection:
        del text, data
        return HARMLESS


async def _compacted_prompt(product: Product, conversation: StatedConversation, target: float) -> list[str]:
    """Return the messages of the prompt after a compaction, without layers and task."""
    session_id = conversation.name
    await product.call("session.create", session_id=session_id, purpose="An evaluation.")
    await product.call("window.create", session_id=session_id, model_max_tokens=_WINDOW_TOKENS)
    await product.ingest(session_id, list(as_events(conversation.said)))
    done = await product.call("context.compact", session_id=session_id, target=target, wait_seconds=_WAIT_SECONDS)
    assert done["state"] == "applied", done  # noqa: S101 - nothing was measured otherwise
    answer = await product.call(
        "context.assemble", session_id=session_id, task_description=_TASK, token_budget=_WINDOW_TOKENS, fresh=True
    )
    messages = answer["body"]["messages"]
    assert messages[-1]["content"] == _TASK  # noqa: S101 - likewise
    return [each["content"] for each in messages[:-1] if each["role"] != "system" and each.get("content")]


def newest_messages(conversation: StatedConversation, target: float) -> list[str]:
    """Return the newest messages that fit a share of the tokens."""
    left, kept = target * conversation.tokens, []
    for each in reversed(conversation.said):
        left -= _count(each.message)
        if left < 0:
            break
        kept.append(each.message)
    return kept


def random_sentences(conversation: StatedConversation, target: float) -> list[str]:
    """Return random sentences of that size, those of one message together."""
    draw = random.Random(conversation.name)  # noqa: S311 - the same sentences each time
    every = [
        (place, sentence)
        for place, each in enumerate(conversation.said)
        for sentence in _SENTENCE_END.split(each.message)
    ]
    left = target * conversation.tokens
    kept: dict[int, list[str]] = {}
    for place, sentence in draw.sample(every, len(every)):
        left -= _count(sentence)
        if left < 0:
            break
        kept.setdefault(place, []).append(sentence)
    return [" ".join(each) for each in kept.values()]


def _rows(name: str, conversations: Sequence[StatedConversation]) -> Iterator[Row]:
    for target, least in TARGETS.items():
        measured = measure(conversations, target)
        yield from target_rows(f"{name}.{round(100 * target)}", measured, least)


def target_rows(name: str, measured: Measured, least: float) -> Iterator[Row]:
    """Yield the figures of one target: all, by list, by kind, by language; tokens and baselines."""
    found = measured.statements
    share = partial(_share, unit="baseline: newest")
    yield share(f"{name}.all", found, least=least)
    yield share(f"{name}.binding", [each for each in found if each.statement.kind in _BINDING], least=_BINDING_TARGET)
    yield from (share(f"{name}.list.{each}", part, least=least) for each, part in _by(found, lambda one: one.list_name))
    for each, part in _by(found, lambda one: one.statement.kind):
        yield share(f"{name}.kind.{each}", part, least=_BINDING_TARGET if each in _BINDING else least)
    for each, part in _by(found, lambda one: one.statement.lang):
        yield share(f"{name}.lang.{each}", part, least=None)
    yield Row(f"{name}.tokens", round(measured.tokens, _DIGITS), "of the originals", None, None, None)
    lists = [each.list_name for each in found]
    for other in ("newest", "drawn", "chance"):
        value, *interval = share_by_groups([getattr(each, other) for each in found], lists)
        label = "random_sentences" if other == "drawn" else other
        yield Row(f"{name}.{label}", round(value, _DIGITS), "share", None, None, None, _rounded(interval))


def _by(found: Sequence[Survival], key: Callable[[Survival], str]) -> Iterator[tuple[str, list[Survival]]]:
    for name in sorted({key(each) for each in found}):
        yield name, [each for each in found if key(each) == name]


def _share(name: str, found: Sequence[Survival], unit: str, least: float | None) -> Row:
    lists = {each.list_name for each in found}
    groups = [each.conversation if len(lists) == 1 else each.list_name for each in found]
    value, *interval = share_by_groups([each.survives for each in found], groups)
    newest = sum(each.newest for each in found) / len(found)
    target, met = (None, None) if least is None else (f">= {least}", value >= least)
    return Row(name, round(value, _DIGITS), unit, round(newest, _DIGITS), target, met, _rounded(interval))


def _rounded(interval: Sequence[float]) -> tuple[float, float]:
    low, high = interval
    return round(low, _DIGITS), round(high, _DIGITS)
