"""What messages state is read in the background as a window grows, so that its compaction has nothing to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.compaction_runs import compact, compactions, long_window, say
from support.jobs import pause_jobs
from support.windows import ingest, message
from support.world import SESSION
from weftline.encoder.classifier import TextClassifier
from weftline.jobs.compaction import COMPACT
from weftline.jobs.windows import READ
from weftline.windows.compaction.facts import units
from weftline.windows.compaction.facts.units import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.world import World

pytestmark = pytest.mark.req("CE-F5")
ANALYSIS = f"window:{SESSION}:analysis"
SAID = [
    message("q1", "Which gate does the ferry use on Monday?"),
    message("a1", "The ferry uses the gate beside the mill on Monday.", role="assistant"),
    message("s1", "The harbour bar opens at six for the crew."),
    message("s2", "From now on the harbour bar opens at seven for the crew."),
]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sentences that are read, each time, and those that are compared with a later one."""
    pause_jobs(monkeypatch, COMPACT, READ)
    sentences: list[str] = []
    kinds, pair = units._statements, TextClassifier.pair

    def noted(classifier: TextClassifier, found: Sequence[str]) -> list[Statement | None]:
        sentences.extend(found)
        return kinds(classifier, found)

    def noted_pair(classifier: TextClassifier, first: str, second: str) -> tuple[float, float]:
        sentences.append(first)
        return pair(classifier, first, second)

    monkeypatch.setattr(units, "_statements", noted)
    monkeypatch.setattr(TextClassifier, "pair", noted_pair)
    # What other tests have read.
    for memory in ("_read", "_compared"):
        monkeypatch.setattr(units, memory, type(units._read)())
    return sentences


async def test_a_compaction_reads_no_sentence_that_was_read_ahead(world: World, read: list[str]) -> None:
    await long_window(world.analysis, turns=30, limit=5_000)
    await ingest(world.analysis, *SAID)
    await say(world.analysis, 60, first=30)
    await world.app.scheduler.drain(READ)
    assert len(read) > 3 * 90
    assert {each["content"] for each in SAID} <= {*read}
    assert len(read) > len({*read})
    read.clear()
    await world.app.scheduler.drain(COMPACT)
    (done,) = await compactions(world, ANALYSIS)
    assert done.state == "applied"
    assert read == []


async def test_what_was_read_ahead_is_not_read_again_as_the_window_grows(world: World, read: list[str]) -> None:
    await long_window(world.analysis, turns=60, limit=5_000)
    await world.app.scheduler.drain(READ)
    before = len(read)
    await say(world.analysis, 3, first=60)
    await world.app.scheduler.drain(READ)
    assert before > 60
    assert 0 < len(read) - before <= 3 * 3


async def test_a_window_far_from_its_threshold_is_not_read(world: World, read: list[str]) -> None:
    await long_window(world.analysis, turns=30, limit=20_000)
    await ingest(world.analysis, *SAID)
    await world.app.scheduler.drain(READ)
    assert read == []
    assert (await compact(world.analysis, keep_recent=1, wait_seconds=30))["state"] in {"applied", "skipped"}
    assert read


async def test_adding_messages_does_not_wait_for_reading(world: World, read: list[str]) -> None:
    await long_window(world.analysis, turns=80, limit=5_000)
    assert read == []
    await world.app.scheduler.drain(READ)
    assert read


async def test_a_window_that_is_gone_is_not_read(world: World, read: list[str]) -> None:
    await long_window(world.analysis, turns=60, limit=5_000)
    world.app.message_reading.note(world.tenant, SESSION, f"{ANALYSIS}-of-nobody")
    await world.app.scheduler.drain(READ)
    assert read
    assert not [each for each in world.app.scheduler.figures(None) if each.name == READ]


async def test_a_window_of_many_megabytes_is_not_read_ahead(world: World, read: list[str]) -> None:
    await long_window(world.analysis, turns=30, limit=5_000)
    await world.sql("UPDATE windows SET stored_bytes = $1", 5 * 2**20)
    await say(world.analysis, 60, first=30)
    await world.app.scheduler.drain(READ)
    assert read == []
