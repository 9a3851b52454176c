"""Records of other producers are read as openly as the standard is, and returned as they were given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported, records
from support.public_schemas import public_validator
from support.records import AT, all_records
from support.world import SESSION, refused

if TYPE_CHECKING:
    from support.world import World

pytestmark = [pytest.mark.req("AC-16"), pytest.mark.req("AC-01")]
# The shapes of the standard's examples, and what its schemas allow besides.
FOREIGN: dict[str, dict[str, Any]] = {
    "a compaction without a version, of items elsewhere": {
        "compaction_id": "shift-9",
        "scope": "session",
        "source_item_refs": ["watch_1", "watch_2"],
        "summary_ref": "log_9",
        "method": "rolling_summary",
        "trigger": "end_of_shift",
        "coverage": {"items_covered": 2, "estimated_tokens_before": 900, "estimated_tokens_after": 80},
        "loss_notes": ["Who had the helm is left out"],
        "validation": {"status": "reviewed", "reviewer": "mate"},
        "replacement_policy": "until_the_next_watch",
        "created_at": AT,
    },
    "an item with a source that is no record": {
        "item_id": "tariff-claim",
        "context_kind": "knowledge_pack_item",
        "title": "Harbour tariff",
        "content_mode": "ref",
        "content_ref": "knowledge://harbour/tariffs#4",
        "source_refs": [
            {
                "source_id": "tariffs",
                "uri": "knowledge://harbour/tariffs.md",
                "selector": {"type": "text_position", "start": 12, "end": 40},
                "digest": "sha256:short",
            }
        ],
        "visibility": ["model", "reviewer"],
        "trust_level": "official",
        "token_estimate": 21,
    },
    "a selection with reasons of its own": {
        "selection_id": "prefetch-3",
        "surface_id": "surface-3",
        "query": "Which berth is free?",
        "selected_item_refs": ["berths", "tide_table"],
        "omitted_item_refs": [
            {"item_ref": "old_log", "reason": "replaced_by_a_newer_log"},
            {"item_ref": "menu", "reason": "low_relevance"},
        ],
        "ranking_signals": {"berths": {"relevance": 0.9, "recency": 0.4}},
        "created_at": AT,
    },
    "missing context": {
        "missing_id": "no-manifest",
        "scope": "turn",
        "question": "Where is the cargo manifest?",
        "needed_for": "clearing customs",
        "severity": "blocking",
        "candidate_sources": [{"kind": "file", "hint": "manifest of the last port"}, {"hint": "ask the agent"}],
        "blocked_actions": ["final_answer"],
        "requested_from": "user",
        "status": "requested",
        "created_at": AT,
    },
    "an envelope of a turn": {
        "schema_version": "0.1.0",
        "context_id": "turn-8",
        "scope": "turn",
        "lifecycle": "injected",
        "runtime_refs": [{"kind": "turn", "id": "8"}],
        "item_refs": ["item_1", "item_2"],
        "budget_ref": "budget_8",
        "created_at": AT,
    },
    "unknown fields, values and versions": {
        "schema_version": "0.2.0-draft",
        "budget_id": "budget-8",
        "target": "model",
        "max_tokens": 8_000,
        "reserved_tokens": 9_000,
        "overflow_strategy": "drop_by_mood",
        "window_segments": [{"label": "head"}, {"name": "tail"}],
        "x_weather": {"wind": 7},
        "created_at": AT,
    },
    "an unknown content mode": {
        "schema_version": "0.1.0",
        "item_id": "signal",
        "context_kind": "flag_signal",
        "content_mode": "semaphore",
        "content": {"flags": ["bravo", "zulu"]},
        "visibility": [],
        "freshness": "today",
        "extra": [1, 2],
    },
}
NAMES = list(FOREIGN)


def id_of(record: dict[str, Any]) -> str:
    return next(str(value) for name, value in record.items() if name.endswith("_id"))


@pytest.mark.parametrize("name", NAMES)
async def test_a_foreign_record_is_returned_as_it_was_given(world: World, name: str) -> None:
    given = FOREIGN[name]
    added = await world.planner.call("records.add", session_id=SESSION, records=[given])
    again = await world.planner.call("records.add", session_id=SESSION, records=[given])
    assert again["records"] == [{**added["records"][0], "known": True}]
    shown = await world.review.call("records.show", record_id=id_of(given), type=added["records"][0]["type"])
    assert shown["record"] == given
    listed = await all_records(world.review, session_id=SESSION)
    assert [each["record"] for each in listed if each["id"] == id_of(given) and each["type"] == shown["type"]] == [
        given
    ]


async def test_exports_of_foreign_records_are_strict_and_keep_them(world: World) -> None:
    await world.planner.call("records.add", session_id=SESSION, records=list(FOREIGN.values()))
    bundle = await exported(world.admin, policy="full")
    for (kind, _), record in records(bundle).items():
        public_validator(kind).validate(record)
    await imported(world.stranger, bundle)
    for given in FOREIGN.values():
        found = [each for each in await all_records(world.stranger, session_id=SESSION) if each["id"] == id_of(given)]
        assert given in [each["record"] for each in found]


@pytest.mark.parametrize(
    "broken",
    [
        {**FOREIGN["an envelope of a turn"], "scope": "never"},
        {**FOREIGN["missing context"], "question": 7},
        {**FOREIGN["unknown fields, values and versions"], "max_tokens": "many"},
        {**FOREIGN["unknown fields, values and versions"], "created_at": "yesterday"},
        {key: value for key, value in FOREIGN["missing context"].items() if key != "severity"},
        {**FOREIGN["an unknown content mode"], "metadata": {"weftline": {"given": {"item_id": "other"}}}},
        {
            "schema_version": "0.1.0",
            "item_id": "x",
            "context_kind": "k",
            "content_mode": "opaque",
            "visibility": [],
            "metadata": {"weftline": {"given": {"item_id": "other"}}},
        },
    ],
)
async def test_what_the_standard_does_not_allow_is_refused(world: World, broken: dict[str, Any]) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("records.add", session_id=SESSION, records=[broken])


@pytest.mark.req("AC-11")
async def test_a_redacted_foreign_record_does_not_show_its_given_form(world: World) -> None:
    item = {**FOREIGN["an unknown content mode"], "content_mode": "inline", "content": "the pin is 4711-zulu"}
    note = {
        "assembly_id": "a9",
        "target": "model",
        "created_at": AT,
        "x": "4711-zulu",
        "ordered_blocks": [{"item_refs": ["signal"], "content": "the pin is 4711-zulu"}],
    }
    await world.planner.call("records.add", session_id=SESSION, records=[item, note])
    await world.planner.call("records.redact", item_id="signal", state="removed", reason="a pin")
    for name in ("signal", "a9"):
        assert "4711-zulu" not in str(await world.planner.call("records.show", record_id=name))
    assert b"4711-zulu" not in await exported(world.planner)
