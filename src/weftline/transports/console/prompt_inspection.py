"""What the prompt inspector makes of a receipt: texts of blocks, bars, limits, layers, candidates, changes."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from weftline.state.layers.prefix import sections_of
from weftline.transports.console.item_links import item_link
from weftline.transports.console.rendering import Part, segments
from weftline.transports.console.side_by_side import compared as diffs_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.history.text_diff import TextDiff
    from weftline.prompts.assembly.receipt_operations import ReceiptShown
    from weftline.prompts.assembly.receipts import ReceiptBlock
    from weftline.transports.console.rendering import Rectangle

IN_PROMPT, SHORTENED = "in the prompt", "shortened"
_LAYER_LINE = "layer:"
# In a bar of more, blocks of one kind are drawn as one.
_DRAWN_BLOCKS = 200


class JudgedCandidate(NamedTuple):
    """Something that could have been in the prompt, and what became of it."""

    ref: str
    link: str | None
    kind: str
    tokens: int
    score: float | None
    outcome: str
    detail: str
    use: str | None


class KindTotal(NamedTuple):
    """Blocks of one kind: how many, their tokens, and their part of the prompt."""

    kind: str
    blocks: int
    tokens: int
    part: float


class CostBar(NamedTuple):
    """What a prompt costs: its tokens, those that a cache is expected to serve, and the money."""

    name: str
    tokens: int
    cached: int
    cost: float | None
    bar: list[Rectangle]


class Limit(NamedTuple):
    """One of the limits of a prompt; the smallest counts."""

    name: str
    tokens: int
    counts: bool


class BudgetRow(NamedTuple):
    """A category of the window: its tokens, and its budget."""

    category: str
    tokens: int
    budget: int

    @property
    def is_over(self) -> bool:
        return self.tokens > self.budget


class SignedLayer(NamedTuple):
    """A layer of the prompt. ``hash`` is that of the text that was sent; None if the text is no longer kept."""

    name: str
    line_id: str
    version: str
    level: int | None = None
    hash: str | None = None
    text: str | None = None


class BlockChange(NamedTuple):
    """A block of this prompt or of the previous one, and whether it is new, the same, changed or gone.

    ``before`` is the id of the block of the previous prompt that stands beside it.
    """

    block: ReceiptBlock
    change: str
    before: str


class PromptChanges(NamedTuple):
    """The blocks in the order of the later prompt, then those that are gone; ``kept`` lead both prompts."""

    blocks: list[BlockChange]
    kept: int
    kept_tokens: int

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(each.change for each in self.blocks))

    @classmethod
    def of(cls, previous: ReceiptShown | None, receipt: ReceiptShown) -> PromptChanges:
        before = () if previous is None else previous.blocks
        known = {block.block_id: block.digest for block in before}
        ids = {block.block_id for block in receipt.blocks}
        gone = [block for block in before if block.block_id not in ids]
        changes = []
        for block in receipt.blocks:
            change, beside = _change(block, known), block.block_id
            if change == "new" and block.kind != "conversation":
                # Passages of another task have another id: they are compared with those in the previous prompt.
                replaced = next((each for each in gone if each.kind == block.kind), None)
                if replaced is not None:
                    gone.remove(replaced)
                    change, beside = "changed", replaced.block_id
            changes.append(BlockChange(block, change, beside))
        kept = 0
        for old, new in zip(before, receipt.blocks, strict=False):
            if old.digest != new.digest:
                break
            kept += 1
        left = [BlockChange(block, "gone", block.block_id) for block in gone]
        return cls(changes + left, kept, sum(block.tokens for block in receipt.blocks[:kept]))


def _change(block: ReceiptBlock, known: Mapping[str, str]) -> str:
    if block.block_id not in known:
        return "new"
    return "same" if known[block.block_id] == block.digest else "changed"


async def compared_blocks(
    blocks: Sequence[BlockChange], before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, TextDiff]:
    """Return the diff of each changed block by its id; none of those whose text is no longer kept."""
    changed = [each for each in blocks if each.before in before and each.block.block_id in after]
    diffs = await diffs_of([(before[each.before], after[each.block.block_id]) for each in changed])
    return dict(zip((each.block.block_id for each in changed), diffs, strict=True))


def judged_candidates(receipt: ReceiptShown) -> list[JudgedCandidate]:
    """Return every candidate with what became of it, and how the answer used it where one was reported."""
    omitted = {each.ref: each for each in receipt.omitted}
    shortened = {each.ref: each for each in receipt.shortened}
    uses = {} if receipt.efficiency is None else {each.ref: each.use for each in receipt.efficiency.items}
    judged = []
    for each in receipt.candidates:
        out, short = omitted.get(each.ref), shortened.get(each.ref)
        kept = f"{short.original_tokens:,} to {short.kept_tokens:,} tokens" if short else ""
        judged.append(
            JudgedCandidate(
                each.ref,
                item_link(receipt.documents.get(each.ref, each.ref)),
                each.kind,
                each.tokens,
                each.score,
                out.reason if out else SHORTENED if short else IN_PROMPT,
                (out.detail or "") if out else kept,
                uses.get(each.ref),
            )
        )
    return judged


def outcomes_of(judged: Sequence[JudgedCandidate]) -> dict[str, tuple[int, int]]:
    """Return how many candidates had each outcome, and their tokens; most first."""
    counted: dict[str, tuple[int, int]] = {}
    for each in judged:
        number, tokens = counted.get(each.outcome, (0, 0))
        counted[each.outcome] = number + 1, tokens + each.tokens
    return dict(sorted(counted.items(), key=lambda entry: -entry[1][0]))


def prompt_bar(receipt: ReceiptShown) -> list[Rectangle]:
    """Return the prompt as one bar: tools, then the blocks in order, with a line where a cache may end."""
    tools = [Part("tool", receipt.tools_tokens, f"tools: {receipt.tools_tokens:,} tokens")]
    blocks = [
        Part(block.kind, block.tokens, f"{block.kind} {block.block_id}: {block.tokens:,} tokens", block.cache_point)
        for block in receipt.blocks
    ]
    drawn = blocks if len(blocks) <= _DRAWN_BLOCKS else _joined(blocks)
    return segments((tools if receipt.tools_tokens else []) + drawn)


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Return parts of one kind that follow each other as one, up to each mark."""
    joined: list[Part] = []
    for kind, run in groupby(parts, key=lambda part: part.kind):
        amount = number = 0
        for part in run:
            amount, number = amount + int(part.amount), number + 1
            if part.is_marked:
                joined.append(_joined_part(kind, amount, number, is_marked=True))
                amount = number = 0
        if number:
            joined.append(_joined_part(kind, amount, number))
    return joined


def _joined_part(kind: str, tokens: int, blocks: int, *, is_marked: bool = False) -> Part:
    return Part(kind, tokens, f"{kind}: {blocks:,} blocks, {tokens:,} tokens", is_marked)


def kind_totals(receipt: ReceiptShown) -> list[KindTotal]:
    """Return the tokens of each kind of block, in the order of the prompt."""
    tokens: Counter[str] = Counter()
    blocks: Counter[str] = Counter()
    if receipt.tools_tokens:
        tokens["tool"] = receipt.tools_tokens
    for block in receipt.blocks:
        tokens[block.kind] += block.tokens
        blocks[block.kind] += 1
    whole = sum(tokens.values()) or 1
    return [KindTotal(kind, blocks[kind], number, number / whole) for kind, number in tokens.items()]


def cost_bars(receipt: ReceiptShown) -> list[CostBar]:
    """Return the conversation alone and the assembled prompt, drawn to one scale."""
    saved = receipt.savings
    naive = saved.naive_baseline_tokens, saved.naive_cached_tokens, saved.naive_cost
    sent = saved.engine_assembled_tokens, saved.cached_tokens, saved.cost
    whole = max(naive[0], sent[0])
    return [
        CostBar(name, tokens, cached, cost, segments(_cached_parts(tokens, cached), whole))
        for name, (tokens, cached, cost) in (("conversation alone", naive), ("assembled", sent))
    ]


def _cached_parts(tokens: int, cached: int) -> list[Part]:
    served = min(cached, tokens)
    return [
        Part("cached", served, f"{served:,} tokens expected from the cache"),
        Part("uncached", tokens - served, f"{tokens - served:,} tokens not cached"),
    ]


def limits_of(receipt: ReceiptShown) -> list[Limit]:
    """Return the limits that apply to the prompt; those that are the smallest count."""
    limits = receipt.limits
    found = {
        "asked for by the call": limits.token_budget,
        "window of the agent": limits.window_tokens,
        "model, less the answer": limits.model_tokens - limits.reserved_output_tokens,
    }
    return [Limit(name, tokens, tokens == limits.limit) for name, tokens in found.items() if tokens is not None]


def budget_rows(receipt: ReceiptShown) -> list[BudgetRow]:
    return [
        BudgetRow(category, receipt.window_tokens.get(category, 0), budget)
        for category, budget in receipt.window_budgets.items()
    ]


def signed_layers(receipt: ReceiptShown, texts: Mapping[str, str]) -> list[SignedLayer]:
    """Return the layers that the prompt begins with, with the hash of each text as it was sent."""
    block = next((block for block in receipt.blocks if block.kind == "layer"), None)
    if block is None:
        return []
    sent = {layer.name: layer for layer in sections_of(texts.get(block.block_id, ""))}
    found = []
    for line_id, version in block.items.items():
        # The persona is the definition of the agent, which is no layer of its own.
        name = line_id.removeprefix(_LAYER_LINE) if line_id.startswith(_LAYER_LINE) else "persona"
        layer = sent.get(name)
        details = () if layer is None else (layer.level, layer.hash, layer.text)
        found.append(SignedLayer(name, line_id, version, *details))
    return sorted(found, key=lambda each: (each.level or 0, each.name))
