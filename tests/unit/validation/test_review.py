"""Blind review: sheets hide which answer is which, the key resolves it, and scores are those of the textbooks."""

from __future__ import annotations

import csv
import itertools
import json
from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weftline.validation.review import (
    AnswerPair,
    Judgement,
    cohen_kappa,
    figures_of,
    fleiss_kappa,
    read_pairs,
    score_sheets,
    wilson_interval,
    write_sheets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from weftline.validation.model import Figure

pytestmark = pytest.mark.req("CE-V", part="a blind review of answers")
PAIRS = [AnswerPair(f"Question {number}?", f"weftline {number}", f"full {number}") for number in range(1, 9)]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def fill(path: Path, choose: Callable[[dict[str, str]], str], delimiter: str = ",") -> None:
    rows = rows_of(path)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=delimiter)
        writer.writeheader()
        writer.writerows({**row, "choice": choose(row)} for row in rows)


def prefers(word: str) -> Callable[[dict[str, str]], str]:
    return lambda row: "A" if row["answer_a"].startswith(word) else "B"


def value(figures: Sequence[Figure], measured: str) -> float:
    return next(figure.value for figure in figures if measured in figure.measured)


def test_a_sheet_does_not_tell_which_answer_is_which(tmp_path: Path) -> None:
    instructions, *sheets, key = write_sheets(PAIRS, tmp_path / "review", 3)
    assert key.parent == instructions.parent.parent
    assert {path.parent for path in sheets} == {instructions.parent}
    for sheet in sheets:
        rows = rows_of(sheet)
        assert rows[0].keys() == {"sheet", "item", "question", "answer_a", "answer_b", "choice", "comment"}
        assert sum(row["answer_a"].startswith("weftline") for row in rows) == len(PAIRS) // 2
        assert sorted(row["question"] for row in rows) == sorted(pair.question for pair in PAIRS)
        assert all({row["answer_a"].split()[-1], row["answer_b"].split()[-1]} == {row["item"]} for row in rows)
        text = sheet.read_text("utf-8")
        assert "with_weftline" not in text
    assert "choice" in instructions.read_text("utf-8")


def test_orders_differ_between_reviewers(tmp_path: Path) -> None:
    many = [AnswerPair(str(number), "x", "y") for number in range(40)]
    _, one, other, key = write_sheets(many, tmp_path / "review", 2)
    assert [row["item"] for row in rows_of(one)] != [row["item"] for row in rows_of(other)]
    sides = json.loads(key.read_text("utf-8"))["sides"]
    assert sides["reviewer-1"] != sides["reviewer-2"]


def test_the_key_finds_what_reviewers_prefer(tmp_path: Path) -> None:
    _, one, other, third, key = write_sheets(PAIRS, tmp_path / "review", 3)
    fill(one, prefers("weftline"))
    fill(other, prefers("weftline"), delimiter=";")
    fill(third, prefers("full"))
    figures = score_sheets([one, other, third], key)
    assert value(figures, "Weftline preferred") == 16
    assert value(figures, "full context preferred") == 8
    assert value(figures, "no worse") == 100
    (parity,) = [figure for figure in figures if figure.met is not None]
    assert (parity.target, parity.met) == (">= 95 %", True)
    fill(one, prefers("full"))
    (parity,) = [figure for figure in score_sheets([one, other, third], key) if figure.met is not None]
    assert (parity.value, parity.met, len(parity.misses)) == (0, False, 5)


def test_rows_without_a_choice_are_counted_and_not_judged(tmp_path: Path) -> None:
    _, sheet, key = write_sheets(PAIRS, tmp_path / "review", 1)
    fill(sheet, lambda row: "" if row["item"] in {"1", "2"} else "Same ")
    figures = score_sheets([sheet], key)
    assert (value(figures, "judgements"), value(figures, "without a choice")) == (6, 2)
    assert value(figures, "judged the same") == 6
    assert not [figure for figure in figures if "kappa" in figure.measured]


def test_cells_that_a_spreadsheet_would_compute_are_text(tmp_path: Path) -> None:
    hostile = [AnswerPair("=HYPERLINK(1)", "@SUM(1)", "-1+1")]
    _, sheet, _ = write_sheets(hostile, tmp_path / "review", 1)
    (row,) = rows_of(sheet)
    assert all(row[name].startswith("'") for name in ("question", "answer_a", "answer_b"))


def test_no_sheet_is_overwritten(tmp_path: Path) -> None:
    write_sheets(PAIRS, tmp_path / "review", 1)
    with refused("INVALID_INPUT_FORMAT"):
        write_sheets(PAIRS, tmp_path / "review", 1)


def test_wrong_sheets_are_refused_with_their_place(tmp_path: Path) -> None:
    _, sheet, other, key = write_sheets(PAIRS, tmp_path / "review", 2)
    fill(sheet, lambda _: "perhaps")
    fill(other, prefers("weftline"))
    for sheets, told in (
        ([sheet], "'perhaps' is no choice"),
        ([other, other], "Two files are the sheet reviewer-2"),
        ([key], "is no sheet"),
        ([tmp_path / "none.csv"], "cannot be read"),
    ):
        with refused("INVALID_INPUT_FORMAT") as caught:
            score_sheets(sheets, key)
        assert told in caught.value.message
    with refused("INVALID_INPUT_FORMAT") as caught:
        score_sheets([other], other)
    assert "not the key" in caught.value.message
    key.write_text('{"sides": {}}')
    with refused("INVALID_INPUT_FORMAT") as caught:
        score_sheets([other], key)
    assert "the key has no item" in caught.value.message


def test_pairs_are_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"question": "q", "with_weftline": "a", "full_context": "b"}\n\n')
    assert read_pairs(file) == [AnswerPair("q", "a", "b")]
    # JSON may have separators of lines within a text.
    file.write_text('{"question": "q", "with_weftline": "a\u2028a", "full_context": "b\x85"}\r\n', "utf-8")
    assert read_pairs(file) == [AnswerPair("q", "a\u2028a", "b\x85")]
    for text, told in (("\n", "no pairs"), ('\n{"question": "q"}\n', "line 2")):
        file.write_text(text)
        with refused("INVALID_INPUT_FORMAT") as caught:
            read_pairs(file)
        assert told in caught.value.message


def test_several_judgements_of_one_question_do_not_make_it_more_certain() -> None:
    alone = figures_of([Judgement("one", str(item), "same") for item in range(10)])
    often = figures_of([Judgement(sheet, str(item), "same") for item in range(10) for sheet in ("one", "two", "three")])
    assert value(alone, "from") == value(often, "from") == pytest.approx(72.25, abs=0.01)
    assert figures_of([]) == []


def test_the_wilson_interval_is_that_of_the_literature() -> None:
    """Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    for (successes, trials), expected in {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }.items():
        assert wilson_interval(successes, trials) == pytest.approx(expected, abs=5e-5)
    assert wilson_interval(0, 0) == (0, 1)


def test_kappa_is_that_of_worked_examples() -> None:
    """Two readers of 50 proposals: 20 and 15 agreements, 5 and 10 disagreements: 0.4. Fleiss 1971: 0.210."""
    pairs = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)
    table = (
        *((0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1)),
        *((7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7)),
    )
    ratings = [
        list(itertools.chain.from_iterable([str(category)] * n for category, n in enumerate(row))) for row in table
    ]
    assert fleiss_kappa(ratings) == pytest.approx(0.210, abs=5e-4)
    assert cohen_kappa([("yes", "yes")] * 3) is None
    assert fleiss_kappa([("yes", "yes", "yes")]) is None
