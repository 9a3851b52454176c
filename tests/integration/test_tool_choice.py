"""Agents find the right tool for a task: the tasks of the evaluation, by words; in a full run also by meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from evals.tool_choice import TARGET, TASKS, choose, read_tasks

from support.full_run import FULL
from weftline.app.tools.catalogue import IndexedTools

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGET_BY_WORDS = 0.9


@pytest.mark.req("WX-01")
@pytest.mark.parametrize("by_meaning", [False, True] if FULL else [False])
async def test_the_right_tool_is_listed_or_among_the_first_three_found(
    monkeypatch: pytest.MonkeyPatch,
    by_meaning: bool,  # noqa: FBT001
) -> None:
    async def no_vectors(_: IndexedTools, texts: Sequence[str], model: str) -> None:
        del texts, model

    if not by_meaning:
        monkeypatch.setattr(IndexedTools, "_vectors", no_vectors)
    tasks = read_tasks(TASKS)
    (choices,) = await choose(tasks)
    assert len(tasks) == 120
    right = sum(choice.is_right for choice in choices) / len(choices)
    assert right >= (TARGET if by_meaning else TARGET_BY_WORDS)
