"""Scores a prompt by its answer: which items were quoted, cited, paraphrased or called, and how many tokens that is.

Words decide clear cases. Items in doubt are compared by embeddings as well, the likeliest first, a bounded number of
them. Texts go into no cache on disk: nothing of an answer is stored but the result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.indexing.embeddings.model import EmbedderUnavailable, Embeddings, TextRefused
from weftline.kernel.thread_pools import ASSEMBLY_THREADS, short_turns
from weftline.prompts.efficiency.calibration import DOUBT, USED_LIKELIHOOD, by_likeness, by_words, is_quotation
from weftline.prompts.efficiency.features import item_features
from weftline.prompts.efficiency.model import USED, ItemUse, efficiency_of, useful_tokens
from weftline.prompts.efficiency.parts import PART_CHARACTERS, shares, text_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weftline.models.language_models.answers import ModelAnswer
    from weftline.prompts.efficiency.features import ItemFeatures
    from weftline.prompts.efficiency.model import Efficiency, PromptItem, ScoredPrompt, Use

_TOOL = "tool:"
# What a citation may be: a name with more than letters, such as a file or a dotted key, not a word of the language.
_CITATION = re.compile(r"[\w][\w./:#-]{2,199}")
_PLAIN = re.compile(r"[^\W\d_]+")
_ENDS = ".:/#-"
# Texts that are embedded for one answer.
MAX_EMBEDDED_ITEMS = 16
_MAX_EMBEDDED_PARTS = 4
_DIGITS = 3
# The strongest evidence first: an item is used as its parts are.
_STRENGTH: tuple[Use, ...] = ("quoted", "cited", "paraphrased", "repeated", "unused")


class ComparedPart(NamedTuple):
    """A part of an item that was compared with the answer, and the likelihood that the answer used it.

    ``place``: that of its item in the prompt.
    """

    place: int
    name: str
    text: str
    tokens: int
    features: ItemFeatures
    likelihood: float

    @property
    def is_quoted(self) -> bool:
        """Tell whether the answer has a long enough run of its terms, or all of them in order."""
        return is_quotation(self.features)


class AnswerScorer(msgspec.Struct, frozen=True):
    """Compares answers with their prompts, in threads."""

    embeddings: Embeddings

    async def score(self, prompt: ScoredPrompt, answer: ModelAnswer) -> Efficiency:
        """Return how much of a prompt an answer used, with the use of each item."""
        compared, doubtful = await ASSEMBLY_THREADS.run(_compare, prompt, answer)
        likeness = await self._likeness(prompt.task, answer, doubtful)
        return await ASSEMBLY_THREADS.run(_efficiency, prompt, answer, compared, likeness)

    async def _likeness(self, task: str, answer: ModelAnswer, doubtful: Sequence[ComparedPart]) -> dict[int, float]:
        """Return the largest cosine of each part in doubt to the answer, by content; empty without vectors."""
        if not doubtful or self.embeddings.off_reason():
            return {}
        said = answer_parts(task, answer)
        texts = [*said, *(part.text for part in doubtful)]
        try:
            vectors = await self.embeddings.of_unstored(texts, self.embeddings.models()[0].name)
        except (EmbedderUnavailable, TextRefused):
            return {}
        cosines = vectors[len(said) :] @ vectors[: len(said)].T
        return {part.features.content: float(row.max()) for part, row in zip(doubtful, cosines, strict=True)}


def compare(prompt: ScoredPrompt, answer: ModelAnswer) -> list[ComparedPart]:
    """Compare the items of a prompt that have a text with the answer, by words; long ones in parts."""
    parts = [
        (place, item.name, text, tokens)
        for place, item in enumerate(prompt.items)
        if item.text and not item.is_required
        for texts in [text_parts(item.text)]
        for text, tokens in zip(texts, shares(item.tokens, map(len, texts)), strict=True)
    ]
    features = item_features([text for _, _, text, _ in parts], prompt.task, answer.written)
    return [ComparedPart(*part, found, by_words(found)) for part, found in zip(parts, features, strict=True)]


def _compare(prompt: ScoredPrompt, answer: ModelAnswer) -> tuple[list[ComparedPart], list[ComparedPart]]:
    """Return the parts of a prompt, compared by words, and those of them that are in doubt."""
    with short_turns():
        compared = compare(prompt, answer)
        return compared, in_doubt(compared)


def in_doubt(compared: Sequence[ComparedPart]) -> list[ComparedPart]:
    """Return the parts that words alone do not decide, likeliest first, one of each content."""
    low, high = DOUBT
    doubtful = {
        each.features.content: each for each in compared if low <= each.likelihood < high and not each.is_quoted
    }
    return sorted(doubtful.values(), key=lambda each: -each.likelihood)[:MAX_EMBEDDED_ITEMS]


def answer_parts(task: str, answer: ModelAnswer) -> list[str]:
    """Return the parts of an answer to embed; a short answer means little without its task."""
    written = answer.written
    if len(written) <= PART_CHARACTERS:
        return [f"{task[:PART_CHARACTERS]}\n{written}".strip()]
    step = max(PART_CHARACTERS, len(written) // _MAX_EMBEDDED_PARTS)
    starts = range(0, len(written), step)
    return [written[start : start + PART_CHARACTERS] for start in starts][:_MAX_EMBEDDED_PARTS]


def with_likeness(compared: Sequence[ComparedPart], likeness: Mapping[int, float]) -> list[ComparedPart]:
    """Return the parts with the likelihood by words and embeddings, for contents that were embedded."""
    return [
        each._replace(likelihood=by_likeness(each.features, likeness[each.features.content]))
        if each.features.content in likeness
        else each
        for each in compared
    ]


def item_uses(prompt: ScoredPrompt, answer: ModelAnswer, compared: Sequence[ComparedPart]) -> list[ItemUse]:
    """Return how the answer used each item of the prompt."""
    called = {f"{_TOOL}{call.name}" for call in answer.tool_calls}
    parts: dict[int, list[tuple[ComparedPart, Use]]] = {}
    for each, use in zip(compared, _part_uses(answer, compared), strict=True):
        parts.setdefault(each.place, []).append((each, use))
    return [_item_use(item, parts.get(place, ()), called) for place, item in enumerate(prompt.items)]


def _item_use(item: PromptItem, parts: Sequence[tuple[ComparedPart, Use]], called: set[str]) -> ItemUse:
    use: Use = "unused"
    useful = 0
    if item.is_required:
        use = "required"
    elif item.ref in called:
        use, useful = "called", item.tokens
    elif parts:
        use = min((use for _, use in parts), key=_STRENGTH.index)
        useful = sum(part.tokens for part, use in parts if use in USED)
    likelihood = round(max(part.likelihood for part, _ in parts), _DIGITS) if parts else None
    return ItemUse(
        ref=item.ref, kind=item.kind, tokens=item.tokens, use=use, useful_tokens=useful, likelihood=likelihood
    )


def _part_uses(answer: ModelAnswer, compared: Sequence[ComparedPart]) -> Iterator[Use]:
    """Yield how each part was used; of those with the same content only the first is."""
    cited = _cited(answer, compared)
    used: set[int] = set()
    for place, each in enumerate(compared):
        use = _part_use(each, is_cited=place in cited)
        if use in USED and each.features.content in used:
            use = "repeated"
        elif use in USED:
            used.add(each.features.content)
        yield use


def _part_use(found: ComparedPart, *, is_cited: bool) -> Use:
    if found.is_quoted:
        return "quoted"
    if is_cited:
        return "cited"
    return "paraphrased" if found.likelihood >= USED_LIKELIHOOD else "unused"


def _cited(answer: ModelAnswer, compared: Sequence[ComparedPart]) -> set[int]:
    """Return the places of parts that the answer names. Of several with one name it is the likeliest."""
    named = {found.group().rstrip(_ENDS) for found in _CITATION.finditer(answer.written)}
    best: dict[str, int] = {}
    for place, each in enumerate(compared):
        if each.name in named and not _PLAIN.fullmatch(each.name):
            first = best.setdefault(each.name, place)
            if each.likelihood > compared[first].likelihood:
                best[each.name] = place
    return set(best.values())


def _efficiency(
    prompt: ScoredPrompt, answer: ModelAnswer, compared: Sequence[ComparedPart], likeness: Mapping[int, float]
) -> Efficiency:
    with short_turns():
        uses = item_uses(prompt, answer, with_likeness(compared, likeness))
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
