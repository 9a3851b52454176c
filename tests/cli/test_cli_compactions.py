"""``weftline compact`` and ``weftline compaction``: originals and result side by side, losses, facts, degradations."""

from __future__ import annotations

import os
import re
import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec
import pytest
from msgspec import structs

from weftline.transports.cli.formatters.compactions import FORMATTERS
from weftline.windows.compaction.model import CompactionState, FactKind
from weftline.windows.compaction.operations import CompactionList, CompactionShown
from weftline.windows.compaction.views import (
    CompactionInfo,
    FactView,
    OriginalEvent,
    ShortenedView,
    SummaryView,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli_support import CommandLine

DECISION = "Decision: we use PostgreSQL 16 for the billing service."
EVENTS = [
    {"event_id": "choice", "content": DECISION},
    *(
        {"event_id": f"e{n}", "content": f"Step {n} is done. {'So much for that, as everyone knows. ' * 8}"}
        for n in range(30)
    ),
]
INFO: dict[str, Any] = {
    "compaction_id": "c1",
    "state": CompactionState.APPLIED,
    "session_id": "launch",
    "agent_id": "planner",
    "requested_by": "planner",
    "trigger": "request",
    "strategy": "auto",
    "used": "sliding_window",
    "reason": "mostly dialogue",
    "created_at": datetime(2026, 1, 2, tzinfo=UTC),
    "tokens_before": 1000,
    "tokens_after": 250,
    "events_covered": 2,
    "summaries": 1,
    "facts": 2,
    "carried_facts": 1,
    "loss_notes": 1,
}
ORIGINALS = (
    OriginalEvent(event_id="e1", number=1, role="user", author="a", tokens=9, content="We have decided to use SQLite."),
    OriginalEvent(event_id="e2", number=2, role="tool", author="a", tokens=90, content="line\n" * 40),
)
FACTS = (
    FactView(fact_id="e1#1", kind=FactKind.DECISION, text="use SQLite", who="user", event_ids=("e1",), place="summary"),
    FactView(
        fact_id="e1#2",
        kind=FactKind.DECISION,
        text="use MySQL",
        who="user",
        event_ids=("e1",),
        status="superseded",
        superseded_by="e1#1",
        place="carried",
    ),
)
SUMMARY = SummaryView(
    summary_id="s1",
    title="Events 1 to 2",
    method="extractive_summary",
    tokens_before=99,
    tokens=12,
    text="decided to use SQLite\n38 lines left out",
    confidence=0.8,
    loss_notes=("2 greetings left out",),
    facts=FACTS,
    originals=ORIGINALS,
)


@pytest.fixture
def render(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def rendered(shown: CompactionShown, columns: int) -> str:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((columns, 50)))
        return FORMATTERS["compaction.show"](shown)

    return rendered


def shown(*summaries: SummaryView, **fields: Any) -> CompactionShown:
    return CompactionShown(compaction=CompactionInfo(**INFO), summaries=list(summaries), **fields)


def test_a_wide_terminal_shows_originals_and_result_side_by_side(render: Callable[..., str]) -> None:
    lines = click.unstyle(render(shown(SUMMARY), 120)).splitlines()
    assert lines[0] == "Compaction c1  applied  2026-01-02 00:00:00Z"
    assert lines[1] == "planner in session launch · sliding_window (asked for: auto): mostly dialogue"
    assert "250 of 1,000 tokens (25.0%)" in lines[2]
    assert lines[3] == "2 events in 1 summary · 2 key facts, 1 carried next to them · 1 loss note"
    assert all(len(line) <= 120 for line in lines)
    (row,) = [line for line in lines if line.startswith("We have decided")]
    left, right = row.split(" │ ")
    assert left.strip() == "We have decided to use SQLite."
    assert right == "38 lines left out"
    assert re.search(r"… 30 more lines +│", "\n".join(lines))


def test_a_narrow_terminal_shows_them_one_below_the_other(render: Callable[..., str]) -> None:
    text = click.unstyle(render(shown(SUMMARY), 60))
    assert "│" not in text
    assert text.index("originals") < text.index("We have decided") < text.index("\nresult\n") < text.index("38 lines")
    compared = text[text.index("originals") : text.index("Left out")]
    assert all(len(line) <= 60 for line in compared.splitlines())


def test_words_that_are_not_in_the_result_are_dim(render: Callable[..., str]) -> None:
    text = render(shown(SUMMARY), 120)
    assert click.style("We", dim=True) + " " + click.style("have", dim=True) + " decided to use SQLite." in text


def test_losses_facts_with_status_and_source_and_degradations_are_listed(render: Callable[..., str]) -> None:
    degraded = shown(SUMMARY)
    info = msgspec.structs.replace(degraded.compaction, degraded=("The model did not answer in time.",))
    text = click.unstyle(render(msgspec.structs.replace(degraded, compaction=info), 140))
    assert "degraded: The model did not answer in time." in text
    assert "Left out\n  ✂ 2 greetings left out" in text
    assert "Key facts  1 in the summary, 1 carried next to it" in text
    assert re.search(r"decision +use SQLite +user +e1\n", text)
    assert re.search(r"decision +use MySQL +superseded by e1#1 +user +e1 +carried", text)


def test_an_invalid_summary_shows_its_originals_only(render: Callable[..., str]) -> None:
    invalid = msgspec.structs.replace(SUMMARY, valid=False, text="", facts=())
    text = click.unstyle(render(shown(invalid), 120))
    assert "No longer valid" in text
    assert "We have decided to use SQLite." in text
    assert "│" not in text.replace("▕", "").replace("▏", "")


def test_shortened_events_pages_and_expired_views(render: Callable[..., str]) -> None:
    short = ShortenedView(original=ORIGINALS[1], tokens=3, content="line\n[39 lines left out]")
    text = click.unstyle(render(shown(SUMMARY, shortened=(short,), shortened_omitted=2, next_offset=5), 120))
    assert "2 tool · e2 · 90 tokens → 3" in text
    assert "2 more shortened events." in text
    assert text.endswith("More: --offset 5")
    assert "Only the figures are kept" in render(shown(expired=True), 120)


def test_control_characters_and_wide_characters_do_not_break_the_columns(render: Callable[..., str]) -> None:
    hostile = OriginalEvent(
        event_id="e\x1b[2J", number=1, role="user", author="a", tokens=1, content="\x1b[31m漢字" * 30, name="\x07"
    )
    wide = msgspec.structs.replace(SUMMARY, originals=(hostile,), text="漢" * 200, title="\x1b]0;x\x07")
    text = click.unstyle(render(shown(wide), 120))
    assert "\x1b" not in text
    assert "\x07" not in text
    rows = [line for line in text.splitlines() if " │ " in line]
    assert {sum(2 if ord(each) > 0x2E80 else 1 for each in row.split(" │ ")[0]) for row in rows} == {58}


def test_compacting_showing_expanding_and_dropping(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("--as", "planner", "context", "ingest", msgspec.json.encode(EVENTS).decode())
    done = launch.run("--as", "planner", "compact", "--keep-recent", "4").stdout
    assert done.startswith("applied  sliding_window: ")
    (compaction_id,) = re.findall(r"See: weftline compaction show (\S+)", done)
    listed = launch.run("--as", "planner", "compaction", "list").stdout
    assert re.search(rf"{compaction_id} +applied +sliding_window", listed)
    page = launch.run("--as", "planner", "compaction", "show", compaction_id).stdout
    assert "PostgreSQL 16" in page
    assert "│" not in page.replace("▕", "").replace("▏", "")
    summary_id = launch.json("--as", "planner", "compaction", "show", compaction_id)["summaries"][0]["summary_id"]
    expanded = launch.run("--as", "planner", "compaction", "expand", summary_id, "never", "--limit", "2").stdout
    assert f"1 user · choice · 14 tokens\n  {DECISION}" in expanded
    assert "Not found: never" in expanded
    assert expanded.endswith("More: --offset 2\n")
    facts = launch.run("--as", "planner", "compaction", "facts", "--kind", "decision").stdout
    assert DECISION in facts
    assert launch.run("--as", "planner", "compaction", "drop").stdout == (
        f"Dropped {compaction_id}: prompts have the original events again.\n"
    )
    again = launch.run("--as", "planner", "compaction", "drop").stdout
    assert again == "Nothing is compacted: prompts have the original events.\n"


def test_empty_lists_say_so(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("--as", "planner", "context", "ingest", '[{"event_id": "a", "content": "hello"}]')
    assert launch.run("--as", "planner", "compaction", "list").stdout == "No compactions.\n"
    assert launch.run("--as", "planner", "compaction", "facts").stdout == "No key facts.\n"
    assert "COMPACTION_NOT_FOUND" in launch.run("--as", "planner", "compaction", "show", "none", code=1).stderr
    empty = launch.run("--as", "planner", "compact").stdout
    assert empty.startswith("skipped  sliding_window: Nothing would be saved")
    assert "weftline compaction show" not in empty


def test_a_held_compaction_says_how_to_read_it_and_to_decide(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("agent", "define", "planner", "--config", '{"compaction": {"review": true}}')
    launch.run("--as", "planner", "context", "ingest", msgspec.json.encode(EVENTS).decode())
    held = launch.run("--as", "planner", "compact", "--keep-recent", "4").stdout
    assert held.startswith("held  sliding_window: ")
    (compaction_id,) = re.findall(r"See: weftline compaction show (\S+)", held)
    (approval_id,) = re.findall(r"Decide with: weftline approval approve (\S+),", held)
    review = launch.run("approval", "show", approval_id).stdout
    assert f"\nRead it: weftline compaction show {compaction_id}\n" in review
    assert f"Decide with: weftline approval approve {approval_id}" in review
    assert "summaries:" not in review


def test_unknown_ids_say_where_ids_are(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("--as", "planner", "context", "ingest", msgspec.json.encode(EVENTS).decode())
    assert "weftline compaction facts --json" in launch.run("--as", "planner", "compaction", "expand", "never").stdout


def test_the_list_names_what_happened_and_code_keeps_its_indentation(render: Callable[..., str]) -> None:
    degraded = ("The model did not answer; the words of the original were used.",)
    listed = FORMATTERS["compaction.list"](
        CompactionList(compactions=[CompactionInfo(**{**INFO, "degraded": degraded})])
    )
    assert "The model did not answer  " in listed
    assert "were used" not in listed
    code = structs.replace(ORIGINALS[0], content="def f():\n    return 1")
    text = click.unstyle(render(shown(structs.replace(SUMMARY, originals=(code,))), 80))
    assert "\ndef f():\n    return 1\n" in text
