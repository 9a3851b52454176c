"""What events state is read once: a window is compacted again and again as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from support.window_events import assistant, from_user, numbered
from weftline.encoder.classifier import TextClassifier
from weftline.windows.compaction.facts import units
from weftline.windows.compaction.facts.extraction import WindowReader, extract_facts

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.req("CE-F5")
def test_a_second_compaction_runs_no_layer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sentences nor pairs of a question with its reply and of a statement with a later one are read twice."""
    said = ["Which berth does the tug take on Sunday?", "The tug takes the berth behind the crane on Sunday."]
    later = ["The slipway opens at six for the tug.", "From now on the slipway opens at seven for the tug."]
    events = numbered([from_user(said[0]), assistant(said[1]), from_user(later[0]), from_user(later[1])])
    passes = 0
    states = TextClassifier.states

    def counted(classifier: TextClassifier, tokens: Sequence[int]) -> object:
        nonlocal passes
        passes += 1
        return states(classifier, tokens)

    monkeypatch.setattr(TextClassifier, "states", counted)
    first = extract_facts(events)
    assert passes > len(events)
    passes = 0
    assert extract_facts(events) == first
    assert passes == 0


@pytest.mark.req("CE-F5")
async def test_another_history_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rollback other events follow those that were read ahead."""
    said = [f"The crane of berth {number} is painted on day {number}." for number in range(9)]
    events = numbered([from_user(text) for text in said])
    ahead = WindowReader()
    while await ahead.read(events):
        pass
    others = numbered([*map(from_user, said[:3]), *(assistant(f"{text} Or later.") for text in said[3:])])
    changed = [structs.replace(event, event_id=f"{event.event_id}-new") for event in others[3:]]
    while await ahead.read([*others[:3], *changed]):
        pass

    def refused(classifier: TextClassifier, sentences: Sequence[str]) -> list[None]:
        raise AssertionError(sentences)

    monkeypatch.setattr(units, "_statements", refused)
    assert extract_facts([*others[:3], *changed])
