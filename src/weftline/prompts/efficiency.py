"""How much of a prompt the model used: useful over sent tokens, from the answer or as an estimate."""

from __future__ import annotations

import re
from collections import Counter
from math import exp, log
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from weftline.indexing.embeddings import EmbedderUnavailable, Embeddings, TextRefused
from weftline.indexing.text_analysis import terms
from weftline.kernel.thread_pools import ASSEMBLY_THREADS, short_turns
from weftline.models.language_models.content import BlockKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.models.language_models.answers import ModelAnswer

    _Three = tuple[str, str, str]


# Efficiency of a prompt: the tokens that the answer used, those that every prompt needs, and the evidence per item.

ItemKind = BlockKind | Literal["tool"]
# What the figures are from: the answer of the model or, as an estimate without one, the scores of retrieval; where
# nothing in the prompt has one, how much of prompts is used usually.
EfficiencyBasis = Literal["answer", "retrieval_scores", "usual_share"]
# How an answer used an item: required items are in every prompt, used or not; repeated ones say what an earlier item
# that was used says already.
Use = Literal["required", "quoted", "cited", "paraphrased", "called", "repeated", "unused"]
USED: frozenset[Use] = frozenset({"quoted", "cited", "paraphrased", "called"})
_DECIMALS = 4


class PromptItem(NamedTuple):
    """An item of a prompt with its text: a passage, an event, a board entry, a tool. Its ref is that in the receipt.

    ``name`` is what an answer may cite it by. ``is_required``: it has to be in the prompt whatever the answer is.
    """

    ref: str
    kind: ItemKind
    tokens: int
    text: str = ""
    name: str = ""
    is_required: bool = False


class ScoredPrompt(NamedTuple):
    """A prompt to compare with its answer: its items, its task, the tokens sent and those that the window can hold."""

    items: Sequence[PromptItem]
    task: str
    sent_tokens: int
    capacity_tokens: int


class ItemUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the answer used an item of the prompt.

    ``useful_tokens``: those of its parts that were used; an item that is not long has one part. ``likelihood``: that it
    was used, where texts had to be compared, of the likeliest part.
    """

    ref: str
    kind: ItemKind
    tokens: int
    use: Use
    useful_tokens: int = 0
    likelihood: float | None = None


class Efficiency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a prompt was used. ``score`` is useful over sent tokens, both without the overhead.

    ``overhead_tokens``: what every prompt needs, used or not: layers, system messages and the task.
    ``capacity_tokens``: what the window can hold, and ``window_fill`` how much of that was sent. Without an answer
    (``basis`` retrieval_scores or usual_share) the useful tokens are an estimate, and there are no ``items``;
    ``ranked_tokens`` are those whose score of retrieval it is from.
    """

    basis: EfficiencyBasis
    score: float | None
    window_fill: float
    sent_tokens: int
    useful_tokens: int
    overhead_tokens: int
    capacity_tokens: int
    ranked_tokens: int = 0
    items: tuple[ItemUse, ...] = ()

    @property
    def is_estimate(self) -> bool:
        return self.basis != "answer"


def efficiency_of(
    basis: EfficiencyBasis,
    *,
    sent: int,
    useful: int,
    overhead: int,
    capacity: int,
    ranked: int = 0,
    items: Sequence[ItemUse] = (),
) -> Efficiency:
    """Return the efficiency of a prompt with its ratios; without anything besides the overhead it has no score."""
    return Efficiency(
        basis=basis,
        score=round(min(1.0, useful / (sent - overhead)), _DECIMALS) if sent > overhead else None,
        window_fill=round(sent / capacity, _DECIMALS) if capacity else 1.0,
        sent_tokens=sent,
        useful_tokens=useful,
        overhead_tokens=overhead,
        capacity_tokens=capacity,
        ranked_tokens=ranked,
        items=tuple(items),
    )


def useful_tokens(items: Iterable[ItemUse]) -> int:
    return sum(item.useful_tokens for item in items)


# What the texts of an answer and of the items of a prompt have in common, by words.
#
# Every text is read once, and only the terms of the answer and the task are kept, so that time and memory grow with
# the length of the texts alone.

# Terms of a run that must be the same, in order, to begin a quotation.
_RUN = 3
# Terms of an answer beyond which its length says nothing more, and of one that is short.
_MAX_SAID, _SHORT_ANSWER = 30, 4
# Characters of a long text that are read at once.
_PIECE = 20_000
# Separators of thousands: 1,250 and 1250 are the same number.
_THOUSANDS = re.compile("(?<=[0-9])[,'\u00a0\u2019\u202f](?=[0-9]{3}(?![0-9]))")
# By their stems.
_NUMBERS = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
    "eleven": "11",
    "twelv": "12",
}


class ItemFeatures(NamedTuple):
    """A text of the prompt against the answer. Terms weigh more the fewer texts have them.

    ``said``: tens of terms that the answer has and the task does not, at most three; the more, the more texts are used.
    ``coverage``: share of these that the text has, of those that any text has. ``lead``: that share over the largest of
    all texts. ``density``: share of the text's terms that the answer has. ``asked``: share of the task's terms that the
    text has, less the longer the answer is: a short one says little without its question. ``run``: terms in a row that
    the answer has too and the task does not. ``length``: its number of terms; ``size``: logarithm of the distinct ones.
    ``content``: the same for texts with the same terms in the same order.
    """

    said: float
    coverage: float
    lead: float
    density: float
    asked: float
    run: int
    size: float
    length: int = 0
    content: int = 0


class _TextTerms(NamedTuple):
    """The terms that a text shares with answer and task, and how many it has in all."""

    shared: AbstractSet[str]
    distinct: int
    length: int
    run: int
    content: int


class _Share:
    """The share of some weighted terms that a text has."""

    def __init__(self, wanted: AbstractSet[str], weight: Mapping[str, float]) -> None:
        self._wanted = wanted
        self._weight = weight
        self._total = sum(weight[term] for term in wanted)

    def __call__(self, shared: AbstractSet[str]) -> float:
        found = sum(self._weight[term] for term in shared & self._wanted)
        return found / self._total if self._total else 0.0


def item_features(texts: Sequence[str], task: str, answer: str) -> list[ItemFeatures]:
    """Return the features of each text of a prompt. A text that occurs several times counts once against the others."""
    said, question = _terms(answer), _terms(task)
    asked, answered = set(question), set(said)
    wanted, runs = asked | answered, _threes(said) - _threes(question)
    found = {text: _text_terms(_terms(text), wanted, runs) for text in dict.fromkeys(texts)}
    distinct = {each.content: each for each in found.values()}.values()
    counts = Counter(term for each in distinct for term in each.shared)
    weight = {term: log(1 + len(distinct) / count) for term, count in counts.items()}
    new = (answered - asked) & weight.keys() or answered & weight.keys()
    of_answer, of_task = _Share(new, weight), _Share(asked & weight.keys(), weight)
    covered = {text: of_answer(each.shared) for text, each in found.items()}
    most = max(covered.values(), default=0.0) or 1.0
    added = len(answered - asked)
    features = {
        text: ItemFeatures(
            said=min(added, _MAX_SAID) / 10,
            coverage=covered[text],
            lead=covered[text] / most,
            density=len(each.shared & answered) / each.distinct if each.distinct else 0.0,
            asked=of_task(each.shared) / (1 + added / _SHORT_ANSWER),
            run=each.run,
            size=log(1 + each.distinct),
            length=each.length,
            content=each.content,
        )
        for text, each in found.items()
    }
    return [features[text] for text in texts]


def _terms(text: str) -> list[str]:
    """Return the terms of a text, numbers in one form, without underscores: marks of Markdown, and of identifiers."""
    found: list[str] = []
    for piece in _pieces(text):
        plain = _THOUSANDS.sub("", piece).replace("_", " ")
        found += [_NUMBERS.get(term, term) for term in terms(plain)]
    return found


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that end with a word: other threads wait while a regular expression reads one."""
    start = 0
    while len(text) - start > _PIECE:
        end = text.find(" ", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end
    yield text[start:]


def _text_terms(found: Sequence[str], wanted: AbstractSet[str], runs: AbstractSet[_Three]) -> _TextTerms:
    distinct = set(found)
    run = _longest_run(found, runs) if runs else 0
    return _TextTerms(distinct & wanted, len(distinct), len(found), run, hash(tuple(found)))


def _threes(found: Sequence[str]) -> set[_Three]:
    """Return all runs of three terms. A loop, because other threads wait while a set is made of an iterator."""
    threes: set[_Three] = set()
    for three in zip(found, found[1:], found[2:], strict=False):
        threes.add(three)
    return threes


def _longest_run(found: Sequence[str], runs: AbstractSet[_Three]) -> int:
    longest = current = 0
    for three in zip(found, found[1:], found[2:], strict=False):
        current = current + 1 if three in runs else 0
        longest = max(longest, current)
    return longest + _RUN - 1 if longest else 0


# Likelihood that an answer used an item, by what their texts have in common.
#
# The constants were fitted on the development half of the evaluation sets, on answers whose evidence is known: ``make
# evals ARGS=efficiency_fit`` prints them, and ``make evals ARGS=efficiency`` reports how well they agree with the
# evidence of the other half.

_MAX_RUN = 8


class UseModel(NamedTuple):
    """Log-odds of use: an intercept and a coefficient for each feature. ``likeness`` is the cosine of vectors."""

    intercept: float
    said: float
    lead: float
    density: float
    asked: float
    run: float
    size: float
    likeness: float = 0.0


# By words alone, and by words and vectors.
WORDS = UseModel(-5.61, 1.15, 5.84, 0.0, 2.21, 0.0, -0.32)
VECTORS = UseModel(-8.76, 1.53, 6.5, 0.07, 4.29, 0.19, -0.27, 3.26)
# From this likelihood on an item counts as used: the best mean F1 of the sets.
USED_LIKELIHOOD = 0.4
# Between these, words alone do not decide. Chosen by hand.
DOUBT = (0.05, 0.8)
# Without an answer: log-odds of use of a passage by its score of retrieval (intercept, slope), and the used share of
# tokens without one. Chosen by hand: the sets have no scores of retrieval.
SCORES = (-4.0, 5.0)
UNRANKED_USE = 0.1
# Terms in a row that make a quotation.
QUOTED_TERMS = 5
# Of a shorter text, all of them, but at least these.
MIN_QUOTED_TERMS = 3


def is_quotation(features: ItemFeatures, terms: int = QUOTED_TERMS) -> bool:
    """Tell whether an answer quotes a text: a long run of its terms, or the whole of a short text."""
    return features.run >= terms or MIN_QUOTED_TERMS <= features.length == features.run


def figures(features: ItemFeatures, likeness: float = 0.0) -> tuple[float, ...]:
    """Return the features as the model weighs them."""
    run = min(features.run, _MAX_RUN)
    return features.said, features.lead, features.density, features.asked, run, features.size, likeness


def by_words(features: ItemFeatures, model: UseModel = WORDS) -> float:
    return _likelihood(model, figures(features))


def by_likeness(features: ItemFeatures, likeness: float, model: UseModel = VECTORS) -> float:
    return _likelihood(model, figures(features, likeness))


def _likelihood(model: UseModel, found: tuple[float, ...]) -> float:
    log_odds = model.intercept + sum(weight * figure for weight, figure in zip(model[1:], found, strict=True))
    return 1 / (1 + exp(-log_odds))


# Expected use of a prompt without its answer: from the scores of retrieval, and how often items are used otherwise.


def estimated(items: Iterable[PromptItem], scores: Mapping[str, float], *, sent: int, capacity: int) -> Efficiency:
    """Return the expected efficiency of a prompt; ``scores`` are those of retrieval by ref. One tool is called."""
    scored = [item for item in items if not item.is_required]
    tools = [item.tokens for item in scored if item.kind == "tool"]
    useful = sum(tools) / len(tools) if tools else 0.0
    ranked = 0
    for item in scored:
        score = scores.get(item.ref)
        if item.kind == "tool":
            continue
        if score is None:
            useful += item.tokens * UNRANKED_USE
        else:
            useful += item.tokens * use_by_score(score)
            ranked += item.tokens
    return efficiency_of(
        "retrieval_scores" if ranked else "usual_share",
        sent=sent,
        useful=round(useful),
        overhead=sent - sum(item.tokens for item in scored),
        capacity=capacity,
        ranked=ranked,
    )


def use_by_score(score: float) -> float:
    """Return the expected useful share of a passage with this score."""
    intercept, slope = SCORES
    return 1 / (1 + exp(-intercept - slope * score))


# Parts of long items: an answer seldom uses all of a document or of a tool's result.

# About the size of an indexed passage, and what an embedding model reads of a text.
PART_CHARACTERS = 1_500
_PART_ENDS = ("\n", ". ", " ")


def text_parts(text: str) -> list[str]:
    """Divide a text into parts of bounded length that are together the text, at ends of lines or sentences."""
    if len(text) <= PART_CHARACTERS:
        return [text]
    parts: list[str] = []
    start = 0
    while len(text) - start > PART_CHARACTERS:
        end = _last_break(text, start)
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _last_break(text: str, start: int) -> int:
    """Return where the part that begins at ``start`` ends: after its last line, sentence or word."""
    limit = start + PART_CHARACTERS
    least = start + PART_CHARACTERS // 2
    for separator in _PART_ENDS:
        found = text.rfind(separator, least, limit)
        if found >= 0:
            return found + len(separator)
    return limit


def shares(tokens: int, weights: Iterable[int]) -> Iterator[int]:
    """Divide tokens in proportion to weights, without a remainder."""
    weights = list(weights)
    total = sum(weights)
    reached = given = 0
    for weight in weights:
        reached += weight
        upto = round(tokens * reached / total) if total else tokens
        yield upto - given
        given = upto


# Scores a prompt by its answer: which items were quoted, cited, paraphrased or called, and how many tokens that is.
#
# Words decide clear cases. Items in doubt are compared by embeddings as well, the likeliest first, a bounded number of
# them. Texts go into no cache on disk: nothing of an answer is stored but the result.

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
