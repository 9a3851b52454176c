"""Missing context against a reference model, with random calls."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from support.full_run import examples
from support.world import SESSION, World
from weftline.exchange.missing_context import answer_key
from weftline.kernel.errors import WeftlineError
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import Awaitable

SEVERITIES = ("blocking", "high", "medium", "low", "info")
QUESTIONS = ("Who decides?", "who  DECIDES?", "Which region?", "When is it due?", " When is it due? ")
CALLERS = st.sampled_from(["planner", "analysis", "review"])
FORMS: dict[str, dict[str, str]] = {
    "user_question": {},
    "retrieval": {},
    "peer_task": {"agent_id": "analysis"},
    "tool_invocation": {"tool": "lookup"},
    "policy_request": {"requested_from": "legal"},
}


@dataclass
class Gap:
    """A question in the model."""

    question: str
    severity: str
    number: int
    status: str = "detected"
    refs: tuple[str, ...] = ()
    forms: list[str] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    events: list[str] = field(default_factory=lambda: ["detected"])

    def resolve(self, *refs: str) -> None:
        self.status, self.refs = "resolved", refs
        self.events.append("resolved")

    @property
    def normalised(self) -> str:
        return " ".join(self.question.split()).casefold()


class MissingContextMachine(RuleBasedStateMachine):
    """Applies the same calls to a session and to a dictionary."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        url = url or str(folder / "weftline.db")
        self.clock = FrozenClock()
        self.world = World(url, self.clock, Settings(database_url=url, rate_limits="off", data_dir=str(folder)))
        self.run(self.world.open())
        self.gaps: dict[str, Gap] = {}
        self.versions: dict[str, int] = {}
        self.messages = 0

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def ask(self, by: str, operation: str, **raw: Any) -> tuple[Any, str | None]:
        self.clock.advance(seconds=1)
        try:
            return self.run(getattr(self.world, by).call(operation, **raw)), None
        except WeftlineError as error:
            return error.context, error.code

    def draw_gap(self, data: st.DataObject) -> tuple[str, Gap]:
        missing_id = data.draw(st.sampled_from(sorted(self.gaps)))
        return missing_id, self.gaps[missing_id]

    def answer_written(self, missing_id: str) -> str:
        """Count a write of the answer's key and return its item id."""
        key = answer_key(missing_id)
        self.versions[key] = self.versions.get(key, 0) + 1
        return f"board:{SESSION}/{key}/1.{self.versions[key]}"

    @rule(by=CALLERS, question=st.sampled_from(QUESTIONS), severity=st.sampled_from(SEVERITIES))
    def report(self, by: str, question: str, severity: str) -> None:
        new = Gap(question, severity, len(self.gaps))
        answer, code = self.ask(by, "missing.report", session_id=SESSION, question=question, severity=severity)
        assert code is None, (code, answer)
        same = [key for key, gap in self.gaps.items() if gap.status != "resolved" and gap.normalised == new.normalised]
        assert [answer["missing_id"]] == same or (not same and answer["missing_id"] not in self.gaps)
        assert answer.get("already_open", False) == bool(same)
        if not same:
            self.gaps[answer["missing_id"]] = new

    @precondition(lambda self: self.gaps)
    @rule(data=st.data(), by=CALLERS, form=st.sampled_from(sorted(FORMS)))
    def request(self, data: st.DataObject, by: str, form: str) -> None:
        missing_id, gap = self.draw_gap(data)
        answer, code = self.ask(by, "missing.request", missing_id=missing_id, form=form, **FORMS[form])
        if gap.status == "resolved":
            assert code == "ALREADY_RESOLVED"
            return
        assert (code, answer["status"]) == (None, "requested")
        again = form != "retrieval" and form in gap.forms
        assert answer.get("already_requested", False) == again
        if again:
            assert form != "peer_task" or [answer["message_id"]] == gap.tasks
            return
        gap.status = "requested"
        gap.forms.append(form)
        gap.events.append("requested")
        if form == "peer_task":
            self.messages += 1
            assert answer["message_id"] == self.messages
            gap.tasks.append(self.messages)

    @precondition(lambda self: self.gaps)
    @rule(data=st.data(), by=CALLERS, refs=st.sampled_from([("a",), ("a", "b"), ("b", "a")]))
    def resolve(self, data: st.DataObject, by: str, refs: tuple[str, ...]) -> None:
        missing_id, gap = self.draw_gap(data)
        answer, code = self.ask(by, "missing.resolve", missing_id=missing_id, resolution_refs=list(refs))
        if gap.status == "resolved" and set(gap.refs) != set(refs):
            assert (code, answer["resolution_refs"]) == ("ALREADY_RESOLVED", list(gap.refs))
            return
        assert (code, answer.get("already_resolved", False)) == (None, gap.status == "resolved")
        if gap.status != "resolved":
            gap.resolve(*refs)

    @precondition(lambda self: any(gap.status != "resolved" for gap in self.gaps.values()))
    @rule(data=st.data(), first=CALLERS, second=CALLERS)
    def resolve_concurrently(self, data: st.DataObject, first: str, second: str) -> None:
        still_open = sorted(key for key, gap in self.gaps.items() if gap.status != "resolved")
        missing_id = data.draw(st.sampled_from(still_open))

        async def both() -> list[Any]:
            calls = (
                getattr(self.world, by).call("missing.resolve", missing_id=missing_id, resolution_refs=[ref])
                for by, ref in ((first, "first"), (second, "second"))
            )
            return await asyncio.gather(*calls, return_exceptions=True)

        results = self.run(both())
        won = [end for end in results if isinstance(end, dict)]
        lost = [end.code for end in results if isinstance(end, WeftlineError)]
        assert (len(won), lost) == (1, ["ALREADY_RESOLVED"])
        self.gaps[missing_id].resolve(*won[0]["resolution_refs"])

    @precondition(lambda self: self.gaps)
    @rule(data=st.data(), by=CALLERS)
    def resolve_with_text(self, data: st.DataObject, by: str) -> None:
        missing_id, gap = self.draw_gap(data)
        answer, code = self.ask(by, "missing.resolve", missing_id=missing_id, answer="Dana")
        if gap.status == "resolved":
            item_of_answer = (
                f"board:{SESSION}/{answer_key(missing_id)}/1.{self.versions.get(answer_key(missing_id), 0)}"
            )
            assert code == (None if gap.refs == (item_of_answer,) else "ALREADY_RESOLVED")
            return
        item = self.answer_written(missing_id)
        assert (code, answer["resolution_refs"]) == (None, [item])
        gap.resolve(item)

    @precondition(lambda self: self.gaps)
    @rule(data=st.data(), by=CALLERS)
    def write_the_answer(self, data: st.DataObject, by: str) -> None:
        missing_id, gap = self.draw_gap(data)
        key = answer_key(missing_id)
        assert self.ask(by, "board.write", session_id=SESSION, key=key, value="Dana")[1] is None
        item = self.answer_written(missing_id)
        if gap.status != "resolved":
            gap.resolve(item)

    @precondition(lambda self: any(gap.tasks for gap in self.gaps.values()))
    @rule(data=st.data(), by=CALLERS, visibility=st.sampled_from(["public", "private"]))
    def answer_a_task(self, data: st.DataObject, by: str, visibility: str) -> None:
        gap = data.draw(st.sampled_from([gap for gap in self.gaps.values() if gap.tasks]))
        what = {"content": "Dana", "parent_message_id": data.draw(st.sampled_from(gap.tasks)), "visibility": visibility}
        answer, code = self.ask(by, "message.add", session_id=SESSION, **what)
        self.messages += 1
        assert (code, answer["message_id"]) == (None, self.messages)
        if gap.status != "resolved" and by == "analysis" and visibility == "public":
            gap.resolve(f"message:{SESSION}/{self.messages}")

    @rule()
    def restart(self) -> None:
        self.run(self.world.close_app(self.world.app))
        self.world.app = self.run(self.world.another_app())
        for name in ("admin", "planner", "analysis", "review"):
            setattr(self.world, name, getattr(self.world, name).at(self.world.app))

    # Invariants.

    @invariant()
    def questions_equal_the_model(self) -> None:
        answer, _ = self.ask("review", "missing.list", session_id=SESSION, status="all", limit=200)
        shown = [
            (
                gap["missing_id"],
                gap["status"],
                tuple(gap.get("resolution_refs", ())),
                [made["form"] for made in gap.get("requests", ())],
            )
            for gap in answer["missing"]
        ]
        expected = sorted(self.gaps.items(), key=lambda item: (SEVERITIES.index(item[1].severity), item[1].number))
        assert shown == [(key, gap.status, gap.refs, gap.forms) for key, gap in expected]

    @invariant()
    def open_questions_are_counted(self) -> None:
        answer, _ = self.ask("planner", "session.get", session_id=SESSION)
        still_open = sum(gap.status != "resolved" for gap in self.gaps.values())
        assert answer.get("open_missing_context", 0) == still_open

    @invariant()
    def every_step_is_published_once(self) -> None:
        answer, _ = self.ask("review", "events.read", session_id=SESSION, after=0, types=["context.missing.*"])
        for missing_id, gap in self.gaps.items():
            published = [event["type"] for event in answer["events"] if event["subject"] == missing_id]
            assert published == [f"context.missing.{step}" for step in gap.events]

    def teardown(self) -> None:
        self.run(self.world.close())
        self.loop.close()
        self.folder.cleanup()


@pytest.mark.req("AC-10")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_missing_context_agrees_with_the_model(database: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgres" else None
    machine_settings = settings(
        max_examples=examples(12), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(lambda: MissingContextMachine(url), settings=machine_settings)
