"""The plan of a prompt: which candidates go in, in which order, within the token limit. Pure: same input, same plan.

Order, most stable first: layers, pins, summaries of older events, conversation, passages, board, open questions, task.
Across the calls of a session a plan keeps the blocks that were sent before and appends what is new, so that provider
caches hit. It is rebuilt when it would exceed the limit, when the limit has grown and there was no room for something,
when a source of it was changed or removed, and when a rebuilt one is modelled to cost less: after a compaction, mostly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from weftline.prompts.assembly.receipts import (
    CacheCosts,
    Modelled,
    OmittedCandidate,
    Plan,
    PlannedBlock,
    covers_of,
    items_of,
    over_budget,
)
from weftline.search.model import DEFAULT_PASSAGE_TOKENS, MAX_PASSAGE_TOKENS
from weftline.windows.compaction.trigger import EXPECTED_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.models.language_models.catalog import ModelInfo, Rates
    from weftline.prompts.assembly.conversation import WindowConversation
    from weftline.prompts.assembly.receipts import Candidate, PlanMode, Receipt, Shortening, TokenLimits


# Shares of the room that layers, pins and task leave. What one part does not use goes to the next.
_CONVERSATION_FLOOR = 0.18
_BOARD_SHARE = 0.15
_MISSING_SHARE = 0.05
# A prompt that is rebuilt must leave room, so that the next calls can append and the prefix stays the same for many: if
# it would fill more than the first share, the conversation is trimmed to the second share of its room. Summaries, which
# do not grow and are mostly the same in the next prompt, may have what is left of the third.
HIGH_WATER, _LOW_WATER, _SUMMARY_WATER = 0.75, 0.5, 0.65
# Passages for another question that are appended use at most this share of the room left: events follow.
_APPENDED_SHARE = 0.5
# A rebuilt prompt must be cheaper by this factor: the model of costs is an estimate.
_MIN_GAIN = 1.1
# Kinds of blocks that contain events, or stand for them.
_EVENTS = frozenset({"conversation", "summary"})
# Why a prompt is rebuilt whose sources are no longer as they were.
CONTENT_CHANGED = "Content of the previous prompt changed or was removed."
# A limit that has grown by this factor makes room for what the earlier one left out.
_MIN_GROWTH = 1.25


class Packed(NamedTuple):
    """A block of the candidates that fit, if any, and those that do not."""

    block: PlannedBlock | None
    omitted: Sequence[OmittedCandidate] = ()

    @property
    def tokens(self) -> int:
        return self.block.tokens if self.block else 0


class Packer(Protocol):
    """Candidates of one kind that can be packed into a block."""

    @property
    def candidates(self) -> Sequence[Candidate]: ...

    @property
    def tokens(self) -> int:
        """Return the tokens of a block of all candidates."""
        ...

    def wanted_tokens(self, known: Mapping[str, str]) -> int:
        """Return about how many tokens the candidates have that a prompt does not have already in this version.

        Of passages, only those count that are worth more than older turns.
        """
        ...

    def pack(self, room: int, known: Mapping[str, str]) -> Packed:
        """Return the best candidates that fit into ``room``, without those the prompt has already in this version."""
        ...


class PassagesPacker(Packer, Protocol):
    """Passages of collections that hold evidence, and doubtful ones."""

    def pack(self, room: int, known: Mapping[str, str], *, in_doubt: bool = False) -> Packed:
        """Return the best passages that fit; doubtful ones only ``in_doubt``, and behind all others."""
        ...


class FittedConversation(NamedTuple):
    """The part of a conversation that fits, one block for each event, in order."""

    blocks: Sequence[PlannedBlock]
    omitted: Sequence[OmittedCandidate] = ()
    shortened: Sequence[Shortening] = ()

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)


class Materials(NamedTuple):
    """Everything that a prompt may contain. ``task`` is None if the newest user message says the same.

    ``screened``: what the tenant's policy leaves out of every prompt.
    ``framing_tokens``: what the provider adds to every prompt.
    """

    layers: Sequence[PlannedBlock]
    pins: Packer
    conversation: WindowConversation
    passages: PassagesPacker
    board: Packer
    missing: Packer
    task: PlannedBlock | None
    screened: Sequence[OmittedCandidate] = ()
    tools_tokens: int = 0
    tools_digest: str = ""
    framing_tokens: int = 0

    @property
    def packers(self) -> tuple[Packer, ...]:
        return (self.pins, self.passages, self.board, self.missing)


class Previous(NamedTuple):
    """The prompt of the previous call of this window, and what that call omitted.

    ``invalid``: refs in the prompt whose content was removed, or may no longer be read. ``same_task``: its task was the
    same, so that it need not be sent again. ``limit``: its limit, if there was no room for something.
    """

    blocks: Sequence[PlannedBlock]
    tools_digest: str
    omitted: frozenset[str] = frozenset()
    invalid: frozenset[str] = frozenset()
    same_task: bool = True
    limit: int | None = None


def make_plan(materials: Materials, limit: int, costs: CacheCosts, previous: Previous | None = None) -> Plan:
    """Return the plan of a prompt of at most ``limit`` tokens, tools and framing included.

    Raises ContextOverBudget if layers, tools, pins, task, system messages and the newest user message do not fit.
    """
    _check_required(materials, limit)
    limit -= materials.framing_tokens
    rebuilt = _rebuild(materials, limit, keep_free=previous is not None)
    if previous is None:
        return _plan(materials, rebuilt, "first", "There is no earlier call in this window.", ())
    extended, reason = _extend(materials, limit, previous)
    if _is_newly_compacted(rebuilt.blocks, previous):
        extended, reason = None, "A compaction has summarised events that there was no room for before."
    if extended is None:
        return _plan(materials, rebuilt, "rebuilt", reason, previous.blocks)
    modelled = Modelled(
        extended=_cost(extended, previous.blocks, costs), rebuilt=_cost(rebuilt, previous.blocks, costs)
    )
    if modelled.extended > modelled.rebuilt * _MIN_GAIN:
        reason = "A shorter prompt saves more than the cached part of the longer one."
        return _plan(materials, rebuilt, "rebuilt", reason, previous.blocks, modelled)
    return _plan(materials, extended, "extended", reason, previous.blocks, modelled)


def _is_newly_compacted(blocks: Sequence[PlannedBlock], previous: Previous) -> bool:
    """Tell whether summaries stand for events that the previous prompt, which had none, left out or had facts of."""
    compacted, before = covers_of(_compacted(blocks)), covers_of(_compacted(previous.blocks))
    return not before and not compacted.keys().isdisjoint(previous.omitted | covers_of(previous.blocks).keys())


def _compacted(blocks: Iterable[PlannedBlock]) -> list[PlannedBlock]:
    """Return the blocks that a compaction made: summaries and shortened events, not the key facts of either."""
    return [block for block in blocks if block.kind != "summary" or block.items]


class _Draft(NamedTuple):
    """Blocks of a plan, with the reasons of omissions that are known so far, by ref."""

    blocks: Sequence[PlannedBlock]
    omitted: dict[str, OmittedCandidate]
    shortened: Sequence[Shortening]

    @property
    def tokens(self) -> int:
        return _total(self.blocks)


def _check_required(materials: Materials, limit: int) -> None:
    parts = {
        "layers": _total(materials.layers),
        "tools": materials.tools_tokens,
        "framing": materials.framing_tokens,
        "pins": materials.pins.tokens,
        "task": materials.task.tokens if materials.task else 0,
        "conversation": materials.conversation.required_tokens,
    }
    if sum(parts.values()) > limit:
        pins = {pin.ref: pin.tokens for pin in materials.pins.candidates}
        raise over_budget({name: tokens for name, tokens in parts.items() if tokens}, limit, pins)


def _rebuild(materials: Materials, limit: int, *, keep_free: bool) -> _Draft:
    """Choose from all candidates."""
    pins = materials.pins.pack(materials.pins.tokens, {})
    front = [*materials.layers, *_present(pins)]
    task = [materials.task] if materials.task else []
    room = limit - materials.tools_tokens - _total([*front, *task])
    chosen = _share_room(materials, room, keep_free=keep_free)
    conversation = chosen.conversation
    extras = [each.block for each in (chosen.passages, chosen.board, chosen.missing) if each.block]
    blocks = [*front, *_with_extras(materials, conversation.blocks, extras), *task]
    omitted = [*conversation.omitted, *(each for part in chosen.packed for each in part.omitted)]
    return _Draft(blocks, {each.ref: each for each in omitted}, conversation.shortened)


class _Chosen(NamedTuple):
    conversation: FittedConversation
    passages: Packed
    board: Packed
    missing: Packed

    @property
    def packed(self) -> tuple[Packed, ...]:
        return (self.passages, self.board, self.missing)


def _share_room(materials: Materials, room: int, *, keep_free: bool) -> _Chosen:
    """Divide the room: a conversation that has to be trimmed keeps a floor, and gets what evidence leaves.

    Doubtful passages get only what a whole conversation leaves: they are worth less than any turn of it.
    """
    conversation, passages = materials.conversation, materials.passages
    spare = room - conversation.required_tokens
    board = materials.board.pack(min(spare, int(room * _BOARD_SHARE)), {})
    missing = materials.missing.pack(min(spare - board.tokens, int(room * _MISSING_SHARE)), {})
    rest = room - board.tokens - missing.tokens
    usable = rest * (HIGH_WATER if keep_free else 1)
    whole = _total(conversation.blocks)
    wanted_tokens = passages.wanted_tokens(_known(conversation.blocks, board))
    # What is compacted already is not trimmed for passages, many of which quote what its summaries are of.
    is_compact = not keep_free and bool(covers_of(conversation.blocks)) and whole <= rest * HIGH_WATER
    is_whole = is_compact or whole + wanted_tokens <= usable
    if is_whole:
        kept = FittedConversation(conversation.blocks, (), conversation.shortened)
    else:
        floor = min(whole, max(conversation.required_tokens, int(rest * _CONVERSATION_FLOOR)))
        if whole <= usable:
            # It would fit: it gives up only what strong evidence needs.
            floor = max(floor, int(usable) - wanted_tokens)
        # What has room as a turn is not quoted: only what is found beside the newest turns takes room from them.
        newest = _trimmed(conversation, rest, floor, keep_free=keep_free)
        wanted = passages.pack(rest - min(floor, newest.tokens), _known(newest.blocks, board))
        kept = _trimmed(conversation, rest - wanted.tokens, floor, keep_free=keep_free) if wanted.tokens else newest
    # Events that are in the conversation after all need not be quoted from it as well.
    # Only strong evidence takes what later calls append to.
    free = max(int(usable) - kept.tokens, min(wanted_tokens, rest - kept.tokens))
    found = passages.pack(free, _known(kept.blocks, board), in_doubt=is_whole)
    return _Chosen(kept, found, board, missing)


def _trimmed(conversation: WindowConversation, room: int, floor: int, *, keep_free: bool) -> FittedConversation:
    """Trim a conversation to ``room``, not below ``floor``; with ``keep_free`` to less, so that calls can append."""
    if not keep_free:
        return conversation.fit(max(floor, room))
    events_room = max(floor, int(room * _LOW_WATER))
    return conversation.fit(max(events_room, int(room * _SUMMARY_WATER)), events_room)


def _extend(materials: Materials, limit: int, previous: Previous) -> tuple[_Draft | None, str]:
    """Append what is new to the blocks of the previous call; None with the reason if that is not possible."""
    obstacle = _obstacle(materials, limit, previous)
    if obstacle is not None:
        return None, obstacle
    sent = tuple(previous.blocks)
    known = items_of(sent)
    events = materials.conversation.unseen(known.keys() | covers_of(sent).keys() | previous.omitted)
    task = materials.task
    sent_tasks = [block.items for block in sent if block.kind == "task"] if previous.same_task else []
    new_task = [task] if task and task.items not in sent_tasks else []
    room = limit - materials.tools_tokens - _total([*sent, *events, *new_task])
    # What the previous call omitted stays omitted until there is another question.
    same = not new_task and not any(map(materials.conversation.is_question, events))
    extras, omitted = list[PlannedBlock](), list[OmittedCandidate]()
    for packer in (materials.pins, materials.missing, materials.board, materials.passages):
        skipped = {each.ref: each.version for each in packer.candidates if same and each.ref in previous.omitted}
        having = {**known, **items_of(events), **items_of(extras), **skipped}
        if packer is materials.passages:
            packed = materials.passages.pack(max(0, int(room * _APPENDED_SHARE)), having, in_doubt=True)
        else:
            packed = packer.pack(max(0, room), having)
        extras += _present(packed)
        omitted += packed.omitted
        room -= packed.tokens
    if room < 0 or _is_stale(materials, {**known, **items_of(extras)}):
        return None, "The previous prompt and what is new exceed the limit."
    blocks = [*sent, *_with_extras(materials, events, extras), *new_task]
    draft = _Draft(blocks, {each.ref: each for each in omitted}, materials.conversation.shortened)
    return draft, "Appended to the previous prompt."


def _obstacle(materials: Materials, limit: int, previous: Previous) -> str | None:
    """Return why the previous prompt cannot be extended, whatever is new."""
    sent, front = tuple(previous.blocks), tuple(materials.layers)
    if sent[: len(front)] != front or previous.tools_digest != materials.tools_digest:
        return "Layers or tools changed."
    if previous.limit is not None and limit >= previous.limit * _MIN_GROWTH:
        return "The limit has grown, and there was no room for everything before."
    if previous.invalid:
        return CONTENT_CHANGED
    if not all(materials.conversation.is_live(block) for block in sent if block.kind in _EVENTS):
        return "The conversation no longer has all events of the previous prompt."
    return None


def _is_stale(materials: Materials, sent: Mapping[str, str]) -> bool:
    """Tell whether a pin is missing, or something would be sent in an old version only."""
    pins = (pin.ref for pin in materials.pins.candidates)
    changing = (*materials.board.candidates, *materials.missing.candidates)
    return any(pin not in sent for pin in pins) or any(
        sent.get(each.ref, each.version) != each.version for each in changing
    )


def _with_extras(
    materials: Materials, events: Sequence[PlannedBlock], extras: Sequence[PlannedBlock]
) -> list[PlannedBlock]:
    """Put reference material before the last event if that is a question, so that the question comes last."""
    if events and materials.conversation.is_question(events[-1]):
        return [*events[:-1], *extras, events[-1]]
    return [*events, *extras]


def _cost(draft: _Draft, sent: Sequence[PlannedBlock], costs: CacheCosts) -> float:
    """Return the modelled cost of a prompt: this call, and the expected ones with the same prefix."""
    cached = _total(draft.blocks[: _common(draft.blocks, sent)]) if costs.warm else 0
    now = cached * costs.read + (draft.tokens - cached) * costs.write
    return now + costs.expected_calls * draft.tokens * costs.read


def _plan(
    materials: Materials,
    draft: _Draft,
    mode: PlanMode,
    reason: str,
    sent: Sequence[PlannedBlock],
    modelled: Modelled | None = None,
) -> Plan:
    included = items_of(draft.blocks).keys() | covers_of(draft.blocks).keys()
    candidates = [*materials.conversation.candidates, *(c for packer in materials.packers for c in packer.candidates)]
    refs: dict[str, Candidate] = {}
    for each in candidates:
        refs.setdefault(each.ref, each)
    reasons = {**draft.omitted, **{each.ref: each for each in materials.conversation.omissions}}
    omitted = [reasons.get(ref) or _left_out(candidate) for ref, candidate in refs.items() if ref not in included]
    omitted += [each for each in materials.screened if each.ref not in refs]
    return Plan(
        mode=mode,
        reason=reason,
        blocks=tuple(draft.blocks),
        reused=_common(draft.blocks, sent),
        tokens=draft.tokens + materials.tools_tokens,
        omitted=tuple(omitted),
        shortened=tuple(each for each in draft.shortened if each.ref in included),
        modelled=modelled,
    )


def _left_out(candidate: Candidate) -> OmittedCandidate:
    if candidate.kind == "summary":
        return OmittedCandidate(candidate.ref, "duplicate_coverage", "the prompt has the events themselves")
    return OmittedCandidate(candidate.ref, "budget")


def _common(blocks: Sequence[PlannedBlock], sent: Sequence[PlannedBlock]) -> int:
    """Return the number of leading blocks that are the same."""
    pairs = zip(blocks, sent, strict=False)
    # A later compaction names the same summary differently; a cache sees its text only.
    differing = (place for place, (one, other) in enumerate(pairs) if one.messages != other.messages)
    return next(differing, min(len(blocks), len(sent)))


def _known(blocks: Iterable[PlannedBlock], board: Packed) -> dict[str, str]:
    return items_of([*blocks, *_present(board)])


def _present(packed: Packed) -> list[PlannedBlock]:
    return [packed.block] if packed.block else []


def _total(blocks: Iterable[PlannedBlock]) -> int:
    return sum(block.tokens for block in blocks)


# Costs that a plan weighs: prices of cached tokens, the life of the cache, and the room for passages.

# What the provider adds to every prompt.
FRAMING_TOKENS = 3
# Part of the tokens that a compaction saves which may go back into originals of what it covers, for the task.
_ORIGINALS_SHARE = 0.25
_MICROS = 1_000_000


def cache_costs(info: ModelInfo, rates: Rates | None, *, warm: bool) -> CacheCosts:
    """Return what tokens of a model cost relative to uncached input."""
    rules = info.cache
    write, read = max(rules.write_multipliers.values(), default=1.0), rules.read_multiplier
    if rates is not None and rates.input:
        write, read = float(rates.cache_write / rates.input), float(rates.cache_read / rates.input)
    return CacheCosts(write, read, warm, EXPECTED_CALLS)


def is_warm(info: ModelInfo, cache_ttl: str | None, previous: Receipt, at: int) -> bool:
    """Tell whether the provider's cache of the previous call should still live at a time, in microseconds."""
    rules = info.cache
    lifetime = rules.ttl_seconds.get(cache_ttl or rules.default_ttl or "", 0)
    return previous.model == info.model and at - previous.created_at < lifetime * _MICROS


def originals_room(saved_tokens: int) -> int:
    """Return the room for passages of events that a compaction covers."""
    return int(saved_tokens * _ORIGINALS_SHARE)


def passage_tokens(limits: TokenLimits) -> int:
    """Return the most tokens of passages in a prompt: less if the caller named no budget."""
    return DEFAULT_PASSAGE_TOKENS if limits.token_budget is None else MAX_PASSAGE_TOKENS


class DoubtLimit(msgspec.Struct, frozen=True):
    """How much an assembly in doubt may add: percent of the tokens that passages may have in a prompt."""

    percent: int

    def tokens(self, limit: int) -> int:
        """Return the most tokens of doubtful passages in a prompt of a limit."""
        return min(limit, MAX_PASSAGE_TOKENS) * self.percent // 100
