"""Scores a prompt by its answer: which items were quoted, cited, paraphrased or called, and how many tokens that is.

Words decide clear cases. Items in doubt are compared by embeddings as well, the likeliest first, a bounded number of
them. Texts go into no cache on disk: nothing of an answer is stored but the result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.capabilities.efficiency.calibration import DOUBT, QUOTED_TERMS, USED_LIKELIHOOD, by_likeness, by_words
from weft.capabilities.efficiency.features import item_features
from weft.capabilities.efficiency.model import ItemUse, efficiency_of, useful_tokens
from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable, Embeddings, TextRefused
from weft.kernel.thread_pools import ASSEMBLY_THREADS, short_turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.efficiency.features import ItemFeatures
    from weft.capabilities.efficiency.model import Efficiency, PromptItem, ScoredPrompt, Use
    from weft.capabilities.language_models.answers import ModelAnswer
    from weft.kernel.identity import Actor

_TOOL = "tool:"
# What a citation may be: a name with more than letters, such as a file or a dotted key, not a word of the language.
_CITATION = re.compile(r"[\w][\w./:#-]{2,199}")
_PLAIN = re.compile(r"[^\W\d_]+")
_ENDS = ".:/#-"
# Texts that are embedded for one answer, and the characters of each that are.
_MAX_EMBEDDED_ITEMS = 16
_MAX_EMBEDDED_PARTS = 4
EMBEDDED_CHARACTERS = 1_500
_DIGITS = 3


class ComparedItem(NamedTuple):
    """An item of a prompt that was compared with the answer, and the likelihood that the answer used it."""

    item: PromptItem
    features: ItemFeatures
    likelihood: float


class AnswerScorer(msgspec.Struct, frozen=True):
    """Compares answers with their prompts, in threads."""

    embeddings: Embeddings

    async def score(self, actor: Actor, prompt: ScoredPrompt, answer: ModelAnswer) -> Efficiency:
        """Return how much of a prompt an answer used, with the use of each item."""
        compared = await ASSEMBLY_THREADS.run(compare, prompt, answer)
        likeness = await self._likeness(actor, prompt.task, answer, compared)
        return await ASSEMBLY_THREADS.run(_efficiency, prompt, answer, with_likeness(compared, likeness))

    async def _likeness(
        self, actor: Actor, task: str, answer: ModelAnswer, compared: Sequence[ComparedItem]
    ) -> dict[int, float]:
        """Return the largest cosine of each item in doubt to a part of the answer, by place; empty without vectors."""
        places = in_doubt(compared)
        if not places or self.embeddings.off_reason():
            return {}
        model = self.embeddings.models()[0].name
        try:
            parts = [await self.embeddings.of_query(actor, part, model) for part in answer_parts(task, answer)]
            found = {}
            for place in places:
                vector = await self.embeddings.of_query(actor, compared[place].item.text[:EMBEDDED_CHARACTERS], model)
                found[place] = max(float(vector @ part) for part in parts)
        except (EmbedderUnavailable, TextRefused):
            return {}
        return found


def compare(prompt: ScoredPrompt, answer: ModelAnswer) -> list[ComparedItem]:
    """Compare the items of a prompt that have a text with the answer, by words."""
    items = [item for item in prompt.items if item.text and not item.is_required]
    with short_turns():
        features = item_features((item.text for item in items), prompt.task, answer.written)
    return [ComparedItem(item, found, by_words(found)) for item, found in zip(items, features, strict=True)]


def in_doubt(compared: Sequence[ComparedItem]) -> list[int]:
    """Return the places of items that words alone do not decide, likeliest first."""
    low, high = DOUBT
    places = [place for place, each in enumerate(compared) if low <= each.likelihood < high]
    return sorted(places, key=lambda place: -compared[place].likelihood)[:_MAX_EMBEDDED_ITEMS]


def answer_parts(task: str, answer: ModelAnswer) -> list[str]:
    """Return the parts of an answer to embed; a short answer means little without its task."""
    written = answer.written
    if len(written) <= EMBEDDED_CHARACTERS:
        return [f"{task[:EMBEDDED_CHARACTERS]}\n{written}".strip()]
    step = max(EMBEDDED_CHARACTERS, len(written) // _MAX_EMBEDDED_PARTS)
    starts = range(0, len(written), step)
    return [written[start : start + EMBEDDED_CHARACTERS] for start in starts][:_MAX_EMBEDDED_PARTS]


def with_likeness(compared: Sequence[ComparedItem], likeness: Mapping[int, float]) -> list[ComparedItem]:
    """Return the items with the likelihood by words and embeddings, for those that were embedded."""
    return [
        each._replace(likelihood=by_likeness(each.features, likeness[place])) if place in likeness else each
        for place, each in enumerate(compared)
    ]


def item_uses(prompt: ScoredPrompt, answer: ModelAnswer, compared: Sequence[ComparedItem]) -> list[ItemUse]:
    """Return how the answer used each item of the prompt."""
    called = {f"{_TOOL}{call.name}" for call in answer.tool_calls}
    cited = _cited(answer, compared)
    likelihoods = {id(each.item): each for each in compared}
    return [_use(item, likelihoods.get(id(item)), called, cited) for item in prompt.items]


def _use(item: PromptItem, found: ComparedItem | None, called: set[str], cited: set[int]) -> ItemUse:
    use: Use = "unused"
    if item.is_required:
        use = "required"
    elif item.kind == "tool":
        use = "called" if item.ref in called else "unused"
    elif found is not None:
        use = _text_use(found, is_cited=id(item) in cited)
    likelihood = None if found is None else round(found.likelihood, _DIGITS)
    return ItemUse(ref=item.ref, kind=item.kind, tokens=item.tokens, use=use, likelihood=likelihood)


def _text_use(found: ComparedItem, *, is_cited: bool) -> Use:
    if found.features.run >= QUOTED_TERMS:
        return "quoted"
    if is_cited:
        return "cited"
    return "paraphrased" if found.likelihood >= USED_LIKELIHOOD else "unused"


def _cited(answer: ModelAnswer, compared: Sequence[ComparedItem]) -> set[int]:
    """Return the items that the answer names. Of several with one name, passages of a document, it is the likeliest."""
    named = {name.rstrip(_ENDS) for name in _CITATION.findall(answer.written)}
    best: dict[str, ComparedItem] = {}
    for each in compared:
        name = each.item.name
        if name in named and not _PLAIN.fullmatch(name):
            best[name] = max(best.get(name, each), each, key=lambda found: found.likelihood)
    return {id(each.item) for each in best.values()}


def _efficiency(prompt: ScoredPrompt, answer: ModelAnswer, compared: Sequence[ComparedItem]) -> Efficiency:
    uses = item_uses(prompt, answer, compared)
    scored = sum(use.tokens for use in uses if use.use != "required")
    return efficiency_of(
        "answer",
        sent=prompt.sent_tokens,
        useful=useful_tokens(uses),
        # Whatever is no item belongs to the framing that the provider adds to every prompt.
        overhead=prompt.sent_tokens - scored,
        capacity=prompt.capacity_tokens,
        items=uses,
    )
