"""Text diffs: correct on small texts, bounded on large and hostile ones."""

from __future__ import annotations

from random import Random

import pytest

from support.full_run import FULL
from support.processor_time import at_most
from weftline.history.model import Change, ChangeKind, ChangeMeta, Version
from weftline.history.revisions import last_change
from weftline.history.text_diff import DiffBudget, changed_ranges, text_diff

pytestmark = pytest.mark.req("CE-F24")


def budget(steps: int = 1_000_000, characters: int = 100_000) -> DiffBudget:
    return DiffBudget(steps, characters)


@pytest.mark.parametrize("steps", [1_000_000, 30])
def test_the_changed_ranges_lead_from_one_text_to_the_other(steps: int) -> None:
    random = Random(1)
    for _ in range(2_000):
        old, new = ([random.choice("abcdef") for _ in range(random.randint(0, 20))] for _ in range(2))
        result, at = [], 0
        for hunk in changed_ranges(old, new, budget(steps)):
            result += [*old[at : hunk.old.start], *new[hunk.new]]
            at = hunk.old.stop
        assert result + old[at:] == new


def test_distant_changes_have_their_own_hunks() -> None:
    old = [f"line {number}" for number in range(30)]
    new = [*old[:5], "new", *old[6:25], *old[26:]]
    assert text_diff("\n".join(old), "\n".join(new), budget()).text == (
        "@@ -3,7 +3,7 @@\n line 2\n line 3\n line 4\n-line 5\n+new\n line 6\n line 7\n line 8\n"
        "@@ -23,7 +23,6 @@\n line 22\n line 23\n line 24\n-line 25\n line 26\n line 27\n line 28"
    )


def test_a_moved_block_is_removed_and_added_once() -> None:
    block = ["def f():", "    return 1", ""]
    rest = [f"x{number} = {number}" for number in range(8)]
    shown = text_diff("\n".join([*block, *rest]), "\n".join([*rest, *block]), budget()).text.splitlines()
    assert [line for line in shown if line.startswith("-")] == ["-def f():", "-    return 1", "-"]
    assert [line for line in shown if line.startswith("+")] == ["+def f():", "+    return 1"]


def test_a_long_line_is_cut_around_its_change() -> None:
    removed, added = text_diff(
        "q" * 5_000 + "OLD" + "z" * 1_000, "q" * 5_000 + "NEW" + "z" * 1_000, budget()
    ).text.split("\n")[1:]
    assert "OLD" in removed
    assert "NEW" in added
    assert max(len(removed), len(added)) < 500


def test_words_of_a_long_paragraph_are_shown_with_a_few_around_them() -> None:
    words = [f"word{number}" for number in range(1_000)]
    changed = [*words[:500], "changed", *words[501:]]
    shown = text_diff(" ".join(words), " ".join(changed), budget(), words=True).text
    assert "word499 [-word500-]{+changed+} word501" in shown
    assert len(shown) < 1_000


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("alphabet", ["a", "ab", "abcdefghijklmnop"])
def test_large_texts_are_compared_within_the_budget(alphabet: str, *, words: bool) -> None:
    random = Random(2)
    texts = ["\n".join(random.choice(alphabet) for _ in range(100_000 if FULL else 30_000)) for _ in range(2)]
    left = budget()
    with at_most(20):
        made = text_diff(texts[0], texts[1][:-2], left, words=words)
    assert len(made.text) <= 100_000


def test_many_lines_in_another_order_are_compared_in_time() -> None:
    """A long run of anchors, and then as many that come before it in reverse: each must not copy the run."""
    lines = [f"{number}" for number in range(60_000)]
    moved = [*lines[30_000:], *reversed(lines[:30_000])]
    with at_most(20):
        text_diff("\n".join(moved), "\n".join(lines), budget())


def test_values_that_are_too_long_are_not_compared_in_a_conflict() -> None:
    def version(value: str) -> Version:
        change = Change("key", 1, 1, ChangeKind.WRITE, None, ChangeMeta())
        return Version(change, seq=1, author="orchestrator:a", committed_at=1, value=value)

    assert "diff" in last_change(version("new"), version("old"))
    with at_most(4):
        assert "diff" not in last_change(version("x\u2028" * 500_000), version("y\u2028" * 500_000))
