"""Which events the strategies summarise: what stays, which borders are possible, and that borders do not move."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from support.full_run import examples
from support.window_events import assistant, called, from_user, numbered, result, windows, workflow
from weftline.kernel.ports import approximate_tokens
from weftline.safety.trust.model import Source, Trust, TrustLabel
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import CompactionSource
from weftline.windows.compaction.strategies import call_units, lay_out, title_of
from weftline.windows.compaction.tasks import find_tasks
from weftline.windows.model import Category

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.windows.compaction.model import Layout, StrategyName
    from weftline.windows.model import WindowEvent

STRATEGIES: tuple[StrategyName, ...] = ("sliding_window", "key_facts", "hierarchical", "task_scoped", "auto")
_OF_TOOLS = "of the older tokens are results of tools, from 1 day, with no named tasks."
_HOUR = 3_600
_DAY = 24 * _HOUR
_TEXT = "The importer reads the file line by line and reports what it could not read. " * 12


def source_of(events: Sequence[WindowEvent], keep_recent: int = 4, **more: Any) -> CompactionSource:
    return CompactionSource(events, (), 0.4, keep_recent, approximate_tokens, **more)


def covered(layout: Layout) -> list[str]:
    return [event.event_id for group in layout.groups for event in group.events]


def dialogue(turns: int, seconds: int = 30) -> list[WindowEvent]:
    drafts = [draft for at in range(turns) for draft in (from_user(f"Question {at}. {_TEXT}"), assistant(_TEXT))]
    return numbered(drafts, seconds=seconds)


def pairs(events: Sequence[WindowEvent]) -> list[tuple[str, str]]:
    """Return call and result, by event id: a result answers the newest call of its id."""
    calls: dict[str, str] = {}
    found = []
    for event in events:
        answered = calls.get(event.message.tool_call_id or "")
        if event.message.role == "tool" and answered is not None:
            found.append((answered, event.event_id))
        calls |= {call.call_id: event.event_id for call in event.message.tool_calls}
    return found


def pending(events: Sequence[WindowEvent]) -> set[str]:
    """Return the events with a call that has no result, or whose id was used again before one came."""
    waiting: dict[str, str] = {}
    found = set()
    for event in events:
        if event.message.role == "tool":
            waiting.pop(event.message.tool_call_id or "", None)
        for call in event.message.tool_calls:
            if call.call_id in waiting:
                found.add(waiting[call.call_id])
            waiting[call.call_id] = event.event_id
    return found | set(waiting.values())


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(events=windows(), keep_recent=st.integers(0, 30))
def test_every_strategy_keeps_what_must_stay(
    strategy: StrategyName, events: list[WindowEvent], keep_recent: int
) -> None:
    layout = lay_out(source_of(events, keep_recent), strategy)
    ids = covered(layout)
    assert len(ids) == len(set(ids))
    by_id = {event.event_id: event for event in events}
    assert not any(by_id[each].pinned or by_id[each].category is Category.SYSTEM for each in ids)
    assert not pending(events) & set(ids)
    assert not {event.event_id for event in events[len(events) - keep_recent :] if keep_recent} & set(ids)
    requests = [event.event_id for event in events if event.message.role == "user"]
    assert not set(requests[-1:]) & set(ids)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(events=windows(), keep_recent=st.integers(0, 30))
def test_no_strategy_parts_a_call_from_its_results(
    strategy: StrategyName, events: list[WindowEvent], keep_recent: int
) -> None:
    groups = lay_out(source_of(events, keep_recent), strategy).groups
    group_of = {event.event_id: number for number, group in enumerate(groups) for event in group.events}
    for call, answer in pairs(events):
        assert group_of.get(call) == group_of.get(answer)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(events=windows(), keep_recent=st.integers(0, 30))
def test_groups_are_consecutive_and_in_order(
    strategy: StrategyName, events: list[WindowEvent], keep_recent: int
) -> None:
    groups = lay_out(source_of(events, keep_recent), strategy).groups
    numbers = [[event.number for event in group.events] for group in groups]
    assert all(each == list(range(each[0], each[-1] + 1)) for each in numbers)
    assert [each[0] for each in numbers] == sorted(each[0] for each in numbers)


@pytest.mark.parametrize("strategy", ["sliding_window", "key_facts"])
@given(events=windows(), more=windows(), keep_recent=st.integers(12, 30))
@settings(max_examples=examples(60))
def test_groups_do_not_change_when_events_are_appended(
    strategy: StrategyName, events: list[WindowEvent], more: list[WindowEvent], keep_recent: int
) -> None:
    before = lay_out(source_of(events, keep_recent), strategy).groups
    longer = numbered([*events, *(structs.replace(event, event_id="") for event in more)], seconds=1)
    after = lay_out(source_of(longer, keep_recent), strategy).groups
    ids = {tuple(event.event_id for event in group.events) for group in after}
    # The last one was not full, or not all of it was old enough.
    assert all(tuple(event.event_id for event in group.events) in ids for group in before[:-1])


@pytest.mark.req("CE-F5", part="recent messages in full, older ones in groups")
def test_the_sliding_window_keeps_the_newest_messages_and_groups_the_others_evenly() -> None:
    events = dialogue(60)
    layout = lay_out(source_of(events, 20), "sliding_window")
    assert covered(layout) == [event.event_id for event in events[:-20]]
    sizes = [sum(event.tokens for event in group.events) for group in layout.groups]
    assert all(4_000 <= size < 4_600 for size in sizes[:-1])
    assert [group.target_tokens for group in layout.groups] == [int(size * 0.4) for size in sizes]


def test_a_long_running_call_stays_in_full_with_its_result_and_does_not_merge_everything_between() -> None:
    drafts = [called("slow"), *(assistant(f"Step {at}. {_TEXT}") for at in range(40)), result("slow", "Done." * 50)]
    events = numbered([*drafts, *(assistant(_TEXT) for _ in range(6))])
    ids = covered(lay_out(source_of(events), "sliding_window"))
    assert "e1" not in ids
    assert "e42" not in ids
    assert len(lay_out(source_of(events), "sliding_window").groups) > 1


def test_a_request_that_took_long_stays_also_when_the_next_one_has_come() -> None:
    work = [assistant(f"Step {at}. {_TEXT}") for at in range(30)]
    events = numbered([from_user("Migrate the orders table without downtime."), *work, from_user("Thanks."), *work])
    assert "e1" not in covered(lay_out(source_of(events), "sliding_window"))
    assert "e2" in covered(lay_out(source_of(events), "sliding_window"))


def test_suspicious_redacted_and_routed_events_stay_as_they_are() -> None:
    suspicious = TrustLabel(Source.TOOL, Trust.SUSPICIOUS, 0.99)
    drafts = [called("a"), result("a", _TEXT, trust=suspicious), assistant(_TEXT, redacted=True)]
    events = numbered([*drafts, from_user(_TEXT, routed=True), *(assistant(_TEXT) for _ in range(8))])
    ids = covered(lay_out(source_of(events), "sliding_window"))
    assert ids == ["e5", "e6", "e7", "e8"]


def test_what_follows_a_group_is_known_to_it_up_to_the_recent_messages() -> None:
    groups = lay_out(source_of(dialogue(60), 3), "sliding_window").groups
    assert all(len(group.following) == 3 for group in groups)


@pytest.mark.req("CE-F9")
def test_hierarchical_groups_are_coarser_and_smaller_the_older_they_are() -> None:
    # One message every 20 minutes, from a Monday to the Thursday of the fourth week.
    events = numbered([assistant(f"Step {at}. {_TEXT[:300]}") for at in range(24 * 24 * 3)], seconds=1_200)
    layout = lay_out(source_of(events, 1), "hierarchical")
    titles = [group.title for group in layout.groups]
    assert titles[0].startswith("Week from ")
    assert [len(title) for title in titles[-4:-1]] == [len("2026-03-23 10:00 to 10:59")] * 3
    # Hours of the newest day are one group each: three messages, not one.
    assert all(title.endswith(":59") for title in titles[-4:-1])
    assert [len(group.events) for group in layout.groups[-4:-1]] == [3] * 3
    share = {}
    for group in layout.groups:
        level = "week" if "Week" in group.title else "day" if len(group.title) == 10 else "hour or minute"
        share[level] = group.target_tokens / sum(event.tokens for event in group.events)
    assert share["week"] < share["day"] < share["hour or minute"]
    assert sum(group.target_tokens for group in layout.groups) <= 0.4 * sum(event.tokens for event in events)


@pytest.mark.req("CE-F9")
def test_hierarchical_groups_stay_while_the_hour_lasts() -> None:
    events = numbered([assistant(f"Step {at}. {_TEXT}") for at in range(400)], seconds=120)
    before, after = (lay_out(source_of(part, 20), "hierarchical").groups for part in (events[:395], events[:399]))
    # Both end within one hour.
    assert events[394].at // (_HOUR * 10**6) == events[398].at // (_HOUR * 10**6)
    assert before[:-1] == after[: len(before) - 1]
    # The newest hour is divided by minutes: groups of it end before the hour does.
    hour = after[-1].title[:13]
    assert {group.title[:13] for group in after[-2:]} == {hour}
    assert all(re.fullmatch(r"\S+ \d\d:\d\d to \d\d:\d\d", group.title) for group in after[-2:])


def test_a_week_with_many_tokens_is_divided() -> None:
    events = numbered([assistant(_TEXT * 4) for _ in range(200)], seconds=60)
    later = numbered([*events, assistant("Next month.", event_id="z")])
    later[-1] = structs.replace(later[-1], at=later[-1].at + 40 * _DAY * 10**6)
    groups = lay_out(source_of(later, 1), "hierarchical").groups
    assert len(groups) > 1
    assert max(sum(event.tokens for event in group.events) for group in groups) < 10_000


def task_window() -> list[WindowEvent]:
    def work(task: str, steps: int) -> list[WindowEvent]:
        return [assistant(f"Step {at} on the importer. {_TEXT}", references=(f"task:{task}",)) for at in range(steps)]

    return numbered(
        [
            workflow('{"task_id": "import-7", "status": "started"}'),
            *work("import-7", 6),
            workflow('{"task_id": "report-2", "status": "started"}'),
            *work("report-2", 6),
            assistant(_TEXT),
            workflow('{"task_id": "import-7", "status": "completed"}'),
            *(assistant("Short.") for _ in range(6)),
        ]
    )


@pytest.mark.req("CE-F10")
def test_finished_tasks_are_compacted_and_active_ones_stay_in_full() -> None:
    events = task_window()
    layout = lay_out(source_of(events), "task_scoped")
    assert covered(layout) == [f"e{number}" for number in range(1, 8)]
    assert layout.groups[0].title == "Task import-7"
    assert layout.reason == "1 of 2 tasks are finished and summarised; the others stay in full."


def test_recent_messages_stay_only_as_far_as_they_fit_into_their_part_of_the_window() -> None:
    """Otherwise a window with long results of tools would stay above its threshold, and be compacted at each call."""
    events = dialogue(20)
    whole = covered(lay_out(source_of(events, keep_recent=30), "sliding_window"))
    room = sum(event.tokens for event in events[-6:])
    part = covered(lay_out(source_of(events, keep_recent=30, recent_tokens=room), "sliding_window"))
    assert len(whole) == len(events) - 30
    assert len(part) == len(events) - 6


@pytest.mark.parametrize(
    ("texts", "finished"),
    [
        (["Task T-1 started.", "Task T-1 is done."], {"T-1"}),
        (["Task T-1 started.", "Task T-1 is not done yet."], set()),
        (["Task T-1 started.", "When task T-1 is done, deploy."], set()),
        (["Task T-1 started.", "Task T-1 completed.", "Task T-1 reopened."], set()),
        (["Ticket #12: assigned to Anna.", "Ticket #12 resolved."], {"12"}),
        (['{"task": "a", "state": "in_progress"}', '{"task": "a", "event": "task.completed"}'], {"a"}),
        (['{"task_id": 4, "status": "new"}', '{"task_id": 4, "status": "cancelled"}'], {"4"}),
        (["Task T-1 started.", "Task T-2 started.", "Task T-2 finished."], {"T-2"}),
    ],
)
def test_tasks_are_recognised_by_workflow_events(texts: list[str], finished: set[str]) -> None:
    events = numbered([workflow(text) for text in texts])
    tasks = find_tasks(events, call_units(events))
    assert {task.task_id for task in tasks.by_id.values() if task.is_finished} == finished


def test_events_belong_to_the_task_they_refer_to_the_call_they_answer_or_the_newest_open_task() -> None:
    events = numbered(
        [
            assistant("Build it.", message_type="task_started", references=("task:build",)),
            called("c1"),
            assistant("Write it down.", message_type="task_started", references=("task:docs",)),
            result("c1", "ok"),
            assistant("A note."),
            assistant("About the build.", references=("e1",)),
            assistant("Written.", message_type="task_completed", references=("task:docs",)),
            assistant("Back to work."),
        ]
    )
    tasks = find_tasks(events, call_units(events))
    assert list(tasks.of_event) == ["build", "build", "docs", "build", "docs", "build", "docs", "build"]
    assert tasks.by_id["docs"].is_finished
    assert not tasks.by_id["build"].is_finished


def test_without_tasks_each_request_of_the_user_is_one() -> None:
    events = numbered(
        [
            from_user("Find the bug."),
            called("c1"),
            result("c1", _TEXT),
            assistant(f"Found it. {_TEXT}"),
            from_user("Fix it."),
            *(assistant(_TEXT) for _ in range(6)),
        ]
    )
    layout = lay_out(source_of(events, 2), "task_scoped")
    assert covered(layout) == ["e1", "e2", "e3", "e4"]
    assert layout.reason == "1 of 2 requests are finished and summarised; the others stay in full."


@pytest.mark.parametrize(
    ("events", "used", "reason"),
    [
        (
            task_window(),
            "task_scoped",
            "Task scoped was chosen because 1 of 2 tasks are finished and hold 46% of the older tokens.",
        ),
        (
            numbered(
                [from_user(f"We decided to call table {at} orders_{at}, and never to drop it.") for at in range(60)]
            ),
            "key_facts",
            "Key facts was chosen because key facts need NUMBER% of the room for summaries.",
        ),
        (
            numbered([draft for at in range(30) for draft in (called(f"c{at}"), result(f"c{at}", "a,1,2\n" * 300))]),
            "sliding_window",
            f"Sliding window was chosen because 97% {_OF_TOOLS}",
        ),
        (
            dialogue(40),
            "sliding_window",
            f"Sliding window was chosen because 0% {_OF_TOOLS}",
        ),
    ],
)
def test_auto_chooses_by_content_and_says_why(events: list[WindowEvent], used: str, reason: str) -> None:
    layout = lay_out(source_of(events)._replace(facts=extract_facts(events)), "auto")
    assert (layout.strategy, re.sub(r"\d{3}%", "NUMBER%", layout.reason)) == (used, reason)


def test_the_title_of_few_tokens_has_no_times() -> None:
    events = dialogue(8)
    assert title_of(events[:2]) == "Events 1 to 2"
    assert title_of(events).startswith("Events 1 to 16, 20")
