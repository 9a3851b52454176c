"""Evaluation of a model migration: recall of probes and agreement of results."""

from __future__ import annotations

import pytest

from weftline.indexing.collections import Chunk
from weftline.indexing.model_migration import ModelComparison, ModelMigration, Probe, ProbeResults, compare, probe_of

pytestmark = pytest.mark.req("CE-F51")


def chunk(text: str, first_byte: int = 0) -> Chunk:
    return Chunk(
        source="document",
        place="handbook",
        item="a",
        ordinal=0,
        start=0,
        end=len(text),
        terms="",
        digest=bytes([first_byte] * 32),
        tokens=1,
        timestamp=0,
        text=text,
        collection="domain:handbook",
        number=7,
    )


def migration(**changes: object) -> ModelMigration:
    fields = {"from_model": "a", "to_model": "b", "state": "embedding", "comparable": True, "started_by": "x"}
    return ModelMigration(**{**fields, "started_at": 0, **changes})  # type: ignore[arg-type]


def probe_results(number: int | None, before: list[int], after: list[int]) -> ProbeResults:
    return ProbeResults(Probe("s", "text", number), before, after)


def test_a_probe_is_one_sentence_chosen_by_the_digest_of_its_chunk() -> None:
    text = "The first sentence says one thing. The second one says another!\nA separate line."
    probes = [probe_of(chunk(text, byte)) for byte in range(4)]
    assert [probe and probe.text for probe in probes] == [
        "The first sentence says one thing.",
        "The second one says another!",
        "A separate line.",
        "The first sentence says one thing.",
    ]
    assert probes[0] == ("domain:handbook", "The first sentence says one thing.", 7)


@pytest.mark.parametrize("text", ["", "Yes.", "a\nb\nc", "  .  "])
def test_a_chunk_without_a_long_sentence_is_no_probe(text: str) -> None:
    assert probe_of(chunk(text)) is None


def test_sentences_of_unspaced_scripts_are_probes() -> None:
    text = "会議は来週の月曜日の午後三時から始まります。全員が参加しなければならないことになっています。"
    probe = probe_of(chunk(text, 1))
    assert probe is not None
    assert probe.text == "全員が参加しなければならないことになっています。"


def test_recall_counts_expected_chunks_and_agreement_common_results() -> None:
    compared = compare(
        [
            probe_results(1, [1, 2], [2, 1]),
            probe_results(5, [5, 6], [7, 8]),
            probe_results(None, [1, 2], [1, 9]),
            probe_results(None, [], [3]),
        ]
    )
    assert compared == ModelComparison(probes=2, recall_before=1.0, recall_after=0.5, agreement=0.625)


def test_without_probes_recall_is_one() -> None:
    assert compare([]) == ModelComparison(probes=0, recall_before=1.0, recall_after=1.0, agreement=1.0)


@pytest.mark.parametrize(("before", "after", "parity"), [(0.9, 0.9, True), (0.9, 0.885, True), (0.9, 0.87, False)])
def test_parity_allows_sampling_error_only(before: float, after: float, *, parity: bool) -> None:
    assert ModelComparison(100, before, after, 0.5).is_parity is parity


def test_required_models_depend_on_the_migration_state() -> None:
    assert migration().required_models == {"b"}
    assert migration(state="comparing").required_models == {"a", "b"}
    assert migration(state="comparing", comparable=False).required_models == {"b"}
    assert migration(state="dropping", switched_at=1).required_models == set()


def test_the_leftover_model_is_the_one_not_in_use() -> None:
    assert migration().leftover is None
    assert migration(state="cancelled").leftover == "b"
    assert migration(state="refused").leftover == "b"
    assert migration(state="dropping", switched_at=5).leftover == "a"


def test_old_vectors_are_dropped_after_the_grace_period() -> None:
    seconds = 1_000_000
    dropping = migration(state="dropping", switched_at=100 * seconds)
    assert [dropping.may_be_dropped(timestamp * seconds) for timestamp in (100, 129, 130)] == [False, False, True]
    assert migration(state="cancelled").may_be_dropped(0)
    assert not migration().may_be_dropped(2**60)
