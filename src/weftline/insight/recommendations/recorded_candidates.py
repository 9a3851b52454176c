"""Packers of a plan for the candidates that a receipt lists.

A set of candidates that was sent in one block is that block again, with its text and its exact tokens. Blocks of
passages that the plan of the call considered have the tokens that they had then. For any other set no receipt has the
text: its tokens are the sum of those of its candidates, and its block has no text of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import structs

from weftline.models.language_models.content import ConversationMessage
from weftline.prompts.assembly.passages import DOUBT, MIN_PASSAGE_ROOM, PASSAGE_OVERHEAD, TURN_OVERHEAD
from weftline.prompts.assembly.plan import Packed
from weftline.prompts.assembly.prompt import item_tokens
from weftline.prompts.assembly.receipts import Candidate, OmittedCandidate, PlannedBlock
from weftline.prompts.efficiency import USED
from weftline.search.model import STRONG_PROBABILITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.models.language_models.content import BlockKind
    from weftline.prompts.assembly.receipts import BlockPacking, CandidateKind, Receipt, StoredReceipt

    ItemSet = frozenset[tuple[str, str]]


# Begins the ids of blocks whose text no receipt has.
WITHOUT_TEXT = "replayed:"
# Reasons of omissions that a policy decides, not the plan.
SCREENED = frozenset({"policy_block", "privacy_risk"})


def candidates_of(receipt: Receipt, kind: CandidateKind) -> list[Candidate]:
    """Return the candidates of one kind that a call had, in their order, also those with the ref of another one.

    Others without tokens, and passages without a score, are no candidates of this call but in its prompt all the same:
    surroundings, and what earlier calls chose.
    """
    screened = {each.ref for each in receipt.omitted if each.reason in SCREENED}
    found = [each for each in receipt.candidates if each.kind == kind and each.tokens]
    if kind == "passage":
        found = [each for each in found if each.score is not None]
    for each in sorted((each for each in receipt.repeated if each.kind == kind), key=lambda one: one.place):
        found.insert(each.place, each)
    return [each for each in found if each.ref not in screened]


def blocks_by_items(blocks: Iterable[PlannedBlock]) -> dict[ItemSet, PlannedBlock]:
    """Return blocks that were sent, by what they contain."""
    return {frozenset(block.items.items()): block for block in blocks}


def block_without_text(kind: BlockKind, items: Mapping[str, str], tokens: int) -> PlannedBlock:
    """Return a block whose text no receipt has: two of them are equal if they contain the same."""
    named = "\n".join(f"{ref}@{version}" for ref, version in items.items())
    message = ConversationMessage(role="user", content=named)
    return PlannedBlock(
        block_id=f"{WITHOUT_TEXT}{kind}:{len(items)}", kind=kind, messages=(message,), tokens=tokens, items=dict(items)
    )


@dataclass(frozen=True)
class Packings:
    """The blocks of one kind that the plan of a call considered, and those of its prompt by id."""

    made: Sequence[BlockPacking]
    sent: Mapping[str, PlannedBlock]

    @classmethod
    def of(cls, receipt: Receipt, kind: CandidateKind, blocks: Iterable[PlannedBlock]) -> Packings:
        return cls(
            [each for each in receipt.packings if each.kind == kind], {block.block_id: block for block in blocks}
        )

    def find(self, room: int, wanted: int) -> BlockPacking | None:
        """Return what was packed into this room for as many candidates."""
        return next((each for each in self.made if (each.room, each.wanted) == (room, wanted)), None)


NO_PACKINGS = Packings((), {})


@dataclass(frozen=True)
class RecordedTexts:
    """Pins, board entries or open questions, in the order of their priority.

    ``heading`` is the tokens of a block without any of them, which the tokens of each candidate contain. ``packings``
    are none if the candidates are not those of the call.
    """

    kind: BlockKind
    candidates: Sequence[Candidate]
    sent: Mapping[ItemSet, PlannedBlock]
    heading: int
    packings: Packings = NO_PACKINGS

    @property
    def tokens(self) -> int:
        return self._tokens(self.candidates) if self.candidates else 0

    def wanted_tokens(self, known: Mapping[str, str]) -> int:
        wanted = _not_in(self.candidates, known)
        return self._tokens(wanted) if wanted else 0

    def pack(self, room: int, known: Mapping[str, str]) -> Packed:
        wanted = _not_in(self.candidates, known)
        before = self.packings.find(room, len(wanted))
        if before is not None and before.block_id in self.packings.sent:
            block: PlannedBlock | None = self.packings.sent[before.block_id]
        else:
            taken = wanted if wanted and self._tokens(wanted) <= room else self._fitting(wanted, room)
            block = self._block(taken) if taken else None
        items = {} if block is None else block.items
        return Packed(block, [OmittedCandidate(each.ref, "budget") for each in wanted if each.ref not in items])

    def _fitting(self, wanted: Sequence[Candidate], room: int) -> list[Candidate]:
        taken: list[Candidate] = []
        for each in wanted:
            if self._tokens([*taken, each]) <= room:
                taken.append(each)
        return taken

    def _tokens(self, candidates: Sequence[Candidate]) -> int:
        sent = self.sent.get(_items(candidates))
        if sent is not None:
            return sent.tokens
        return self.heading + sum(max(0, each.tokens - self.heading) for each in candidates)

    def _block(self, candidates: Sequence[Candidate]) -> PlannedBlock:
        sent = self.sent.get(_items(candidates))
        items = {each.ref: each.version for each in candidates}
        return sent or block_without_text(self.kind, items, self._tokens(candidates))


@dataclass(frozen=True)
class RecordedPassages:
    """Passages of a receipt, best first, and the surroundings that were sent with them.

    ``candidates`` are those that retrieval returned, ``unavailable`` what it left out. ``block`` is the one that this
    call sent. ``removed``: refs that a proposal takes away. ``in_doubt`` are given up first among the surroundings,
    because the receipt does not say in which order they were chosen: those that matter. Doubtful candidates may have
    ``doubt_tokens``. ``scaled`` turns an approximate number of tokens into one of the model. ``packings`` are none if
    the passages are not those of the call.
    """

    candidates: Sequence[Candidate]
    unavailable: Sequence[OmittedCandidate]
    block: PlannedBlock | None
    heading: int
    doubt_tokens: int
    max_tokens: int
    scaled: Callable[[int], int]
    covered: AbstractSet[str] = frozenset()
    original_tokens: int = 0
    removed: AbstractSet[str] = frozenset()
    in_doubt: AbstractSet[str] = frozenset()
    packings: Packings = NO_PACKINGS

    @property
    def tokens(self) -> int:
        return sum(each.tokens + PASSAGE_OVERHEAD for each in self._best)

    def wanted_tokens(self, known: Mapping[str, str]) -> int:
        strong = [each for each in self._best if (each.probability or 1.0) >= STRONG_PROBABILITY]
        wanted = self._within_originals(_not_in(strong, known))
        return sum(each.tokens + PASSAGE_OVERHEAD for each in wanted)

    def pack(self, room: int, known: Mapping[str, str], *, in_doubt: bool = False) -> Packed:
        doubtful = [each for each in self.candidates if each.doubtful]
        admitted = _within(doubtful, self.doubt_tokens) if in_doubt else []
        wanted = _not_in([*self._best, *admitted], known)
        block = self._block(wanted, room, known)
        items = {} if block is None else block.items
        left = [OmittedCandidate(each.ref, "low_relevance", DOUBT) for each in doubtful if each not in admitted]
        over = _over_budget(each for each in wanted if each.ref not in items)
        return Packed(block, [*self.unavailable, *left, *over])

    def _block(self, wanted: Sequence[Candidate], room: int, known: Mapping[str, str]) -> PlannedBlock | None:
        before = self.packings.find(room, len(wanted))
        if before is not None and (before.block_id or not before.tokens):
            return self.packings.sent.get(before.block_id)
        room = min(room, self.max_tokens)
        if not wanted or room - self.heading < MIN_PASSAGE_ROOM:
            return None
        if before is not None:
            return structs.replace(self._estimated(wanted, room, known), tokens=before.tokens)
        return self._as_sent(wanted, room, known) or self._estimated(wanted, room, known)

    def _as_sent(self, wanted: Sequence[Candidate], room: int, known: Mapping[str, str]) -> PlannedBlock | None:
        """Return the block of the call if nothing in it is taken away or known, and nothing else would fit now."""
        block = self.block
        if block is None or block.tokens > room or not block.items.keys().isdisjoint(self.removed):
            return None
        if any(known.get(ref) == version for ref, version in block.items.items()):
            return None
        missing = [each for each in self._within_originals(wanted) if each.ref not in block.items]
        smallest = min((self.scaled(each.tokens + TURN_OVERHEAD) for each in missing), default=None)
        return None if smallest is not None and block.tokens + smallest <= room else block

    def _estimated(self, wanted: Sequence[Candidate], room: int, known: Mapping[str, str]) -> PlannedBlock:
        """Return the results that fit, best first, then surroundings."""
        items: dict[str, str] = {}
        used = self.heading
        for each in self._within_originals(wanted):
            tokens = self._tokens_of(each)
            if used + tokens <= room:
                items[each.ref] = each.version
                used += tokens
        if not items:
            # A passage that does not fit is cut off at the end.
            return block_without_text("retrieved", {wanted[0].ref: wanted[0].version}, room)
        for ref, version in self._surroundings.items():
            tokens = self._sent_tokens.get(ref, 0)
            if known.get(ref) != version and used + tokens <= room:
                items[ref] = version
                used += tokens
        return block_without_text("retrieved", items, used)

    @cached_property
    def _best(self) -> list[Candidate]:
        """Return the passages that are evidence, up to the maximum, whether or not a prompt has them already."""
        return _within([each for each in self.candidates if not each.doubtful], self.max_tokens)

    def _within_originals(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the passages, of events that a compaction covers only the best ones."""
        room, kept = self.original_tokens, list[Candidate]()
        for each in candidates:
            if each.ref in self.covered:
                room -= each.tokens + TURN_OVERHEAD
                if room < 0:
                    continue
            kept.append(each)
        return kept

    @cached_property
    def _surroundings(self) -> dict[str, str]:
        """Return what the block had besides results; what may be given up first comes last."""
        if self.block is None:
            return {}
        results = {each.ref for each in self.candidates} | self.removed
        found = {ref: version for ref, version in self.block.items.items() if ref not in results}
        return dict(sorted(found.items(), key=lambda item: item[0] in self.in_doubt))

    def _tokens_of(self, candidate: Candidate) -> int:
        """Return the tokens that a result took in the block of the call, or about how many it would take."""
        return self._sent_tokens.get(candidate.ref) or self.scaled(candidate.tokens + TURN_OVERHEAD)

    @cached_property
    def _sent_tokens(self) -> dict[str, int]:
        """Return the tokens of each item of the block that was sent, without the heading of the block."""
        if self.block is None:
            return {}
        tokens = item_tokens(self.block)
        share = 1 - self.heading / max(1, self.block.tokens)
        return {ref: int(number * share) for ref, number in tokens.items()}


def _within(candidates: Sequence[Candidate], max_tokens: int) -> list[Candidate]:
    """Return the best candidates whose tokens add up to at most ``max_tokens``."""
    totals = accumulate(each.tokens for each in candidates)
    return [each for each, total in zip(candidates, totals, strict=True) if total <= max_tokens]


def _not_in(candidates: Sequence[Candidate], known: Mapping[str, str]) -> list[Candidate]:
    return [each for each in candidates if known.get(each.ref) != each.version]


def _items(candidates: Iterable[Candidate]) -> ItemSet:
    return frozenset((each.ref, each.version) for each in candidates)


def _over_budget(candidates: Iterable[Candidate]) -> list[OmittedCandidate]:
    return [OmittedCandidate(each.ref, "budget") for each in candidates]


# Which items of a prompt its answer used, by the evidence that is stored with the receipt.

TOOL = "tool:"


def useful_items(stored: StoredReceipt) -> frozenset[str] | None:
    """Return the refs of what the answer used and of what every prompt needs; None without a reported answer."""
    if stored.scored is None:
        return None
    return frozenset(item.ref for item in stored.scored.items if item.use in USED or item.use == "required")


def likelihoods(stored: StoredReceipt) -> dict[str, float]:
    """Return how likely it is that the answer used each item, where texts were compared."""
    items = () if stored.scored is None else stored.scored.items
    return {item.ref: item.likelihood for item in items if item.likelihood is not None}
