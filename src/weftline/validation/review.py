"""Blind review of answers: sheets for reviewers, the key that is kept from them, and the scores of filled sheets."""

from __future__ import annotations

import csv
import random
from collections import Counter, defaultdict
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import harmless_cell
from weftline.validation.model import Figure, share_at_least

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# Statistics of a review: confidence of a share, and agreement of reviewers beyond chance.

# Of the normal distribution, for 95 %.
_Z = 1.959964


class ConfidenceInterval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float


def wilson_interval(successes: int, trials: int) -> ConfidenceInterval:
    """Return the 95 % score interval of a share, which also holds for few trials and for shares near 0 or 1."""
    if not trials:
        return ConfidenceInterval(0.0, 1.0)
    share, square = successes / trials, _Z * _Z
    centre = share + square / (2 * trials)
    margin = _Z * sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    scale = 1 + square / trials
    return ConfidenceInterval(max((centre - margin) / scale, 0.0), min((centre + margin) / scale, 1.0))


def cohen_kappa(ratings: Sequence[Sequence[str]]) -> float | None:
    """Return the agreement of two raters, one pair of categories for each item; None if both use one category only."""
    observed = sum(one == other for one, other in ratings) / len(ratings)
    first, second = Counter(one for one, _ in ratings), Counter(other for _, other in ratings)
    expected = sum(first[category] * second[category] for category in first) / len(ratings) ** 2
    return _beyond_chance(observed, expected)


def fleiss_kappa(ratings: Sequence[Sequence[str]]) -> float | None:
    """Return the agreement of several raters, as many for each item; None if they use one category only."""
    raters = len(ratings[0])
    totals = Counter(category for item in ratings for category in item)
    pairs = raters * (raters - 1)
    observed = sum(sum(n * (n - 1) for n in Counter(item).values()) / pairs for item in ratings) / len(ratings)
    expected = sum((total / (len(ratings) * raters)) ** 2 for total in totals.values())
    return _beyond_chance(observed, expected)


def _beyond_chance(observed: float, expected: float) -> float | None:
    return None if expected >= 1 else (observed - expected) / (1 - expected)


Side = Literal["a", "b"]
# Of an answer with Weftline against the one with the full context.
Verdict = Literal["better", "same", "worse"]

_COLUMNS = ("sheet", "item", "question", "answer_a", "answer_b", "choice", "comment")
_SAME = "same"
_LEAST_PARITY = 95.0
_MIN_RATERS = 2
_INSTRUCTIONS = """# Compare pairs of answers

Thank you for reviewing. It takes about two minutes for each row.

1. Open the sheet with your name or number in a spreadsheet program. Each row has a question and two answers, A and B.
   They come from two systems; which is which changes from row to row, at random.
2. Read the question, then both answers. Decide which one you would rather get: is it right, is it complete, does it
   say only what it can know? Length, style and order do not count.
3. Write into the column `choice`: `A` if answer A is better, `B` if answer B is better, `same` if neither is. Leave it
   empty if you cannot judge the question.
4. Write a reason into `comment` if you like. Change nothing else.
5. Save the file as CSV and send it back. Please talk about the answers with other reviewers only afterwards.
"""


class AnswerPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question, and its answers with Weftline and with the full context."""

    question: str
    with_weftline: str
    full_context: str


class ReviewKey(msgspec.Struct, frozen=True):
    """Which side has the answer with Weftline, by sheet and item."""

    sides: dict[str, dict[str, Side]]


class Judgement(NamedTuple):
    """What one reviewer says about the answers to one question."""

    sheet: str
    item: str
    verdict: Verdict


class _Filled(NamedTuple):
    judgements: list[Judgement]
    empty: int


def read_pairs(path: Path) -> list[AnswerPair]:
    """Read pairs of answers, one JSON object a line."""
    decoder = msgspec.json.Decoder(AnswerPair)
    pairs = []
    for number, line in enumerate(_read(path).split("\n"), 1):
        if line.strip():
            try:
                pairs.append(decoder.decode(line))
            except msgspec.MsgspecError as error:
                raise InvalidInput(
                    f"{path}, line {number}: {error}.",
                    hint='Each line is {"question": "...", "with_weftline": "...", "full_context": "..."}.',
                ) from error
    if not pairs:
        raise InvalidInput(f"{path} has no pairs of answers.", hint="Write one JSON object a line.")
    return pairs


def write_sheets(pairs: Sequence[AnswerPair], folder: Path, reviewers: int) -> list[Path]:
    """Write a sheet for each reviewer and the instructions into one folder, and the key next to it."""
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"The folder {folder} is not empty.", hint="Name a new folder, so that no sheet is lost.")
    handed_out = folder / "reviewers"
    handed_out.mkdir(parents=True, exist_ok=True)
    instructions, key = handed_out / "instructions.md", folder / "key.json"
    instructions.write_text(_INSTRUCTIONS, "utf-8")
    sides: dict[str, dict[str, Side]] = {}
    written = [instructions]
    for number in range(1, reviewers + 1):
        sheet = f"reviewer-{number}"
        sides[sheet] = _sides(len(pairs))
        written.append(handed_out / f"{sheet}.csv")
        _write_sheet(written[-1], sheet, pairs, sides[sheet])
    key.write_bytes(msgspec.json.format(msgspec.json.encode(ReviewKey(sides)), indent=1))
    return [*written, key]


def _sides(count: int) -> dict[str, Side]:
    """Put the answers with Weftline at random on both sides, equally often."""
    halves: list[Side] = ["a" if number % 2 else "b" for number in range(count)]
    random.SystemRandom().shuffle(halves)
    return {str(number): side for number, side in enumerate(halves, 1)}


def _write_sheet(path: Path, sheet: str, pairs: Sequence[AnswerPair], sides: Mapping[str, Side]) -> None:
    items = list(sides)
    random.SystemRandom().shuffle(items)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for item in items:
            pair = pairs[int(item) - 1]
            answers = [pair.with_weftline, pair.full_context]
            a, b = answers if sides[item] == "a" else reversed(answers)
            writer.writerow([sheet, item, *map(harmless_cell, (pair.question, a, b)), "", ""])


def score_sheets(paths: Sequence[Path], key_path: Path) -> list[Figure]:
    """Return preferences, parity and agreement of filled sheets."""
    try:
        key = msgspec.json.decode(_read(key_path), type=ReviewKey)
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{key_path} is not the key of a review: {error}.", hint="It is the exported key.json."
        ) from None
    filled = [_filled(path, key) for path in paths]
    sheets = [each.judgements[0].sheet for each in filled if each.judgements]
    if twice := [one for one, other in pairwise(sorted(sheets)) if one == other]:
        raise InvalidInput(f"Two files are the sheet {twice[0]}.", hint="Give each reviewer's sheet once.")
    return figures_of([each for sheet in filled for each in sheet.judgements], sum(each.empty for each in filled))


def _filled(path: Path, key: ReviewKey) -> _Filled:
    judgements, empty = [], 0
    for row in _rows(path):
        item, choice = f"item {row['item']}", row["choice"].strip().lower()
        side = key.sides.get(row["sheet"], {}).get(row["item"])
        if side is None:
            raise InvalidInput(f"{path}: the key has no {item} of {row['sheet']}.", hint="Is it the key of this sheet?")
        if not choice:
            empty += 1
        elif choice == _SAME:
            judgements.append(Judgement(row["sheet"], row["item"], "same"))
        elif choice in {"a", "b"}:
            judgements.append(Judgement(row["sheet"], row["item"], "better" if choice == side else "worse"))
        else:
            raise InvalidInput(f"{path}, {item}: '{choice[:40]}' is no choice.", hint="Write A, B or same.")
    return _Filled(judgements, empty)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    text = _read(path).removeprefix("\ufeff")
    # Spreadsheet programs of some countries separate by semicolons.
    delimiter = ";" if ";" in text.partition("\n")[0] else ","
    rows = list(csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter))
    if not rows or not {"sheet", "item", "choice"} <= rows[0].keys():
        raise InvalidInput(f"{path} is no sheet of a review.", hint="Give the CSV files that reviewers filled in.")
    return ({name: row[name] or "" for name in ("sheet", "item", "choice")} for row in rows)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}.") from None


def figures_of(judgements: Sequence[Judgement], empty: int = 0) -> list[Figure]:
    """Return the figures of a review.

    Parity counts questions, not judgements: several judgements of one question are not independent, and would make the
    confidence interval narrower than it is. A question is no worse if as many reviewers prefer Weftline as the other
    one.
    """
    if not judgements:
        return []
    counts = Counter(each.verdict for each in judgements)
    scores: dict[str, int] = defaultdict(int)
    for each in judgements:
        scores[each.item] += {"better": 1, "same": 0, "worse": -1}[each.verdict]
    no_worse = sum(score >= 0 for score in scores.values())
    low, high = wilson_interval(no_worse, len(scores))
    worse = [f"item {item}" for item, score in scores.items() if score < 0]
    return [
        Figure(measured="judgements", value=len(judgements), unit=f"of {len(scores)} questions"),
        *([Figure(measured="rows without a choice", value=empty)] if empty else []),
        Figure(measured="Weftline preferred", value=counts["better"]),
        Figure(measured="judged the same", value=counts["same"]),
        Figure(measured="full context preferred", value=counts["worse"]),
        share_at_least("questions answered no worse with Weftline", no_worse, len(scores), _LEAST_PARITY, worse),
        Figure(measured="95 % confidence interval (Wilson), from", value=round(100 * low, 2), unit="%"),
        Figure(measured="95 % confidence interval (Wilson), to", value=round(100 * high, 2), unit="%"),
        *_agreement(judgements),
    ]


def _agreement(judgements: Sequence[Judgement]) -> Iterator[Figure]:
    """Yield the agreement of reviewers on the questions that all of them judged."""
    by_item: dict[str, dict[str, Verdict]] = defaultdict(dict)
    for each in judgements:
        by_item[each.item][each.sheet] = each.verdict
    raters = sorted({each.sheet for each in judgements})
    complete = [[verdicts[rater] for rater in raters] for verdicts in by_item.values() if len(verdicts) == len(raters)]
    if len(raters) < _MIN_RATERS or not complete:
        return
    name, kappa = (
        ("Cohen's", cohen_kappa(complete)) if len(raters) == _MIN_RATERS else ("Fleiss'", fleiss_kappa(complete))
    )
    if kappa is not None:
        yield Figure(
            measured=f"agreement of reviewers ({name} kappa)",
            value=round(kappa, 3),
            unit=f"on {len(complete)} questions",
        )
