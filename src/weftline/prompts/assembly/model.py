"""Candidates of an assembly, what became of each, and the plan that orders the chosen ones into a prompt."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from weftline.kernel.errors import Rejected
from weftline.models.language_models.model import BlockKind, ConversationMessage
from weftline.records.vocabulary import OmissionReason
from weftline.safety.trust.model import Source, Trust

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

CandidateKind = Literal["layer", "tool", "pin", "summary", "event", "passage", "board", "missing", "task"]
# The kind of the candidates in a block.
_KINDS: dict[BlockKind, CandidateKind] = {
    "layer": "layer",
    "pins": "pin",
    "summary": "summary",
    "conversation": "event",
    "retrieved": "passage",
    "board": "board",
    "missing": "missing",
    "task": "task",
}
# Kinds of blocks whose text is always enclosed in data elements, trusted or not.
DATA_KINDS: frozenset[BlockKind] = frozenset({"pins", "summary", "retrieved", "board", "missing"})
# How a plan relates to the prompt of the previous call.
PlanMode = Literal["first", "extended", "rebuilt"]
_encode = msgspec.json.Encoder(order="sorted").encode


class ContextOverBudget(Rejected):
    """What a prompt must contain exceeds the token limit."""

    code = "CONTEXT_OVER_BUDGET"
    hint = (
        "Raise token_budget, choose a model with a larger context window, or shorten the parts named in 'parts'; "
        "`pin.remove` unpins what is named in 'pins'."
    )
    related = ("assemble_context",)


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that may go into a prompt. ``ref`` is its item id, or the id of a passage; unique in a plan.

    ``version`` changes with the content: a candidate that was sent in another version is sent again. Of a passage,
    ``probability`` is that of being evidence for the task, ``doubtful`` if its collection probably holds none.
    """

    ref: str
    kind: CandidateKind
    tokens: int
    version: str = ""
    score: float | None = None
    probability: float | None = None
    doubtful: bool = False


class RepeatedCandidate(Candidate, frozen=True, kw_only=True, omit_defaults=True):
    """A candidate whose ref another one has: a passage of an event of the conversation, or a pinned board entry.

    ``place``: its place among all candidates of its own kind, in their order of priority.
    """

    place: int = 0


class BlockPacking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block that a plan considered: the kind of its candidates, its room, how many it was for, and its tokens.

    ``block_id`` is its id in the prompt; empty if it is not part of it.
    """

    kind: CandidateKind
    room: int
    wanted: int
    tokens: int = 0
    block_id: str = ""


class OmittedCandidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate that is not in the prompt, with the reason."""

    ref: str
    reason: OmissionReason
    detail: str | None = None


class Shortening(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate of which only a part is in the prompt: beginning and end, or what a compaction kept of it."""

    ref: str
    original_tokens: int
    kept_tokens: int
    compacted: bool = False


class PlannedBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A block of a plan: messages, and the versions of the candidates they contain, by ref.

    ``covers`` are the versions of what it contains in a shorter form only: the events of a summary. Passages of these
    are no repetition. ``source`` and ``trust`` are those of its least trusted candidate. ``spans``: where the texts
    of several candidates begin and end in the content of its one message.
    """

    block_id: str
    kind: BlockKind
    messages: tuple[ConversationMessage, ...]
    tokens: int
    items: dict[str, str] = msgspec.field(default_factory=dict)
    covers: dict[str, str] = msgspec.field(default_factory=dict)
    source: Source = Source.DOCUMENT
    trust: Trust = Trust.UNTRUSTED
    spans: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    @property
    def is_data(self) -> bool:
        """Whether all of its texts are in data elements. The task is of the caller, whatever was found in it."""
        return self.kind in DATA_KINDS or (self.trust is not Trust.TRUSTED and self.kind != "task")

    @cached_property
    def digest(self) -> bytes:
        return digest_of(self.messages)


class PackingLog:
    """The blocks that a packer made while a plan was made."""

    __slots__ = ("_kind", "_made")

    def __init__(self, kind: CandidateKind) -> None:
        self._kind = kind
        self._made: list[tuple[int, int, PlannedBlock | None]] = []

    def add(self, room: int, wanted: int, block: PlannedBlock | None) -> None:
        self._made.append((room, wanted, block))

    def packings(self, sent: Container[str]) -> Iterator[BlockPacking]:
        """Yield what was made, for the receipt of a prompt with the blocks of these ids."""
        for room, wanted, block in self._made:
            block_id = block.block_id if block is not None and block.block_id in sent else ""
            tokens = 0 if block is None else block.tokens
            yield BlockPacking(kind=self._kind, room=room, wanted=wanted, tokens=tokens, block_id=block_id)


class CacheCosts(NamedTuple):
    """Relative prices of an input token: not cached and written to the cache, and read from it.

    ``warm`` is false if the cache of the previous call has expired. ``expected_calls`` is how many calls are expected
    to follow with the same prefix.
    """

    write: float
    read: float
    warm: bool
    expected_calls: int


class Modelled(msgspec.Struct, frozen=True):
    """Modelled cost of sending this prompt now and again in the expected calls, in uncached input tokens."""

    extended: float
    rebuilt: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Ordered blocks within the limit, and what became of every candidate.

    ``reused`` is the number of leading blocks that are the same as in the previous call.
    """

    mode: PlanMode
    reason: str
    blocks: tuple[PlannedBlock, ...]
    reused: int
    tokens: int
    omitted: tuple[OmittedCandidate, ...]
    shortened: tuple[Shortening, ...] = ()
    modelled: Modelled | None = None

    @property
    def included(self) -> dict[str, str]:
        """Return the version of every candidate in the prompt, by ref."""
        return items_of(self.blocks)

    @property
    def covered(self) -> dict[str, str]:
        """Return the version of every candidate that the prompt has in a shorter form, by ref."""
        return covers_of(self.blocks)

    @property
    def trimmed(self) -> frozenset[str]:
        """Return the refs that it has no room for; none if it extends a prompt, which says what it left out."""
        return frozenset(each.ref for each in self.omitted if each.reason == "budget" and self.mode != "extended")

    @property
    def reused_tokens(self) -> int:
        return sum(block.tokens for block in self.blocks[: self.reused])


def items_of(blocks: Iterable[PlannedBlock]) -> dict[str, str]:
    """Return the versions of the candidates in blocks, by ref; the last block wins."""
    found: dict[str, str] = {}
    for block in blocks:
        found |= block.items
    return found


def covers_of(blocks: Iterable[PlannedBlock]) -> dict[str, str]:
    """Return the versions of the candidates that blocks have in a shorter form, by ref."""
    found: dict[str, str] = {}
    for block in blocks:
        found |= block.covers
    return found


def with_included(candidates: Iterable[Candidate], blocks: Iterable[PlannedBlock]) -> tuple[Candidate, ...]:
    """Return the candidates and what else is in a prompt: its task, surroundings, and what earlier calls chose."""
    found = {each.ref: each for each in candidates}
    for block in blocks:
        tokens = block.tokens if len(block.items) == 1 else 0
        for ref, version in block.items.items():
            known = found.get(ref) or Candidate(ref=ref, kind=_KINDS[block.kind], tokens=tokens)
            # What is no evidence for this task has no version, but an earlier call may have sent it.
            found[ref] = known if known.version else msgspec.structs.replace(known, version=version)
    return tuple(found.values())


def digest_of(value: object) -> bytes:
    """Return the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(_encode(value)).digest()


def over_budget(parts: Mapping[str, int], limit: int, pins: Mapping[str, int]) -> ContextOverBudget:
    """Return the error that names the parts that do not fit and each pin, with their tokens, largest first."""
    largest = _largest_first(parts)
    named = ", ".join(f"{name} {tokens}" for name, tokens in largest.items())
    return ContextOverBudget(
        f"The prompt must contain {sum(parts.values())} tokens ({named}), but the limit is {limit}.",
        limit_tokens=limit,
        needed_tokens=sum(parts.values()),
        parts=largest,
        pins=_largest_first(pins),
    )


def _largest_first(tokens: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(tokens.items(), key=lambda part: -part[1]))
