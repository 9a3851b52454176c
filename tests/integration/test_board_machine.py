"""The board against a reference model, with random calls by two callers."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from support.full_run import examples
from support.world import World
from weftline.kernel.errors import WeftlineError
from weftline.kernel.ports import approximate_tokens
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

KEYS = st.sampled_from(["a", "b", "c_c"])
VALUES = st.sampled_from(["", "one", "two words", "漢字", "x" * 60])
TTLS = st.one_of(st.none(), st.integers(1, 10))
CALLERS = st.sampled_from(["planner", "analysis"])
NAMES = {"planner": "orchestrator:planner", "analysis": "subagent:analysis"}
LIMIT = 30


@dataclass(frozen=True)
class Entry:
    """A live key in the model."""

    value: str
    version: int
    by: str
    expires_at: float | None


def size(value: str) -> int:
    return max(1, approximate_tokens(value))


class BoardMachine(RuleBasedStateMachine):
    """Applies the same calls to the board and to a dictionary."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        url = url or str(Path(self.folder.name) / "weftline.db")
        self.clock = FrozenClock()
        self.world = World(url, self.clock, Settings(database_url=url, rate_limits="off"))
        self.run(self.world.open())
        self.run(self.world.planner.create_session("m", max_total_tokens=LIMIT))
        self.now = 0.0
        self.live: dict[str, Entry] = {}
        self.pasts: dict[str, list[list[str]]] = {"a": [], "b": [], "c_c": []}
        self.marks: dict[str, dict[str, tuple[str, float | None]]] = {}

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def caller(self, name: str) -> Any:
        return getattr(self.world, name).in_session("m")

    def attempt(self, work: Any) -> tuple[Any, str | None]:
        try:
            return self.run(work), None
        except WeftlineError as error:
            return None, error.code

    def total(self) -> int:
        return sum(size(entry.value) for entry in self.live.values())

    def put(self, key: str, value: str, by: str, expires_at: float | None) -> None:
        present = self.live.get(key)
        if present is None:
            self.pasts[key].append([])
        self.pasts[key][-1].append(value)
        self.live[key] = Entry(value, sum(map(len, self.pasts[key])), NAMES[by], expires_at)

    @rule(by=CALLERS, key=KEYS, value=VALUES, ttl=TTLS, if_version=st.one_of(st.none(), st.integers(0, 4)))
    def write(self, by: str, key: str, value: str, ttl: int | None, if_version: int | None) -> None:
        answer, code = self.attempt(self.caller(by).write(key, value, ttl_seconds=ttl, if_version=if_version))
        present = self.live.get(key)
        freed = size(present.value) if present else 0
        added = size(value)
        if if_version is not None and if_version != (present.version if present else 0):
            assert code == "VERSION_CONFLICT"
        elif self.total() - freed + added > LIMIT and added > freed:
            assert code == "STORE_FULL"
        else:
            self.put(key, value, by, None if ttl is None else self.now + ttl)
            assert code is None
            assert answer["version"] == self.live[key].version

    @rule(by=CALLERS, key=KEYS)
    def delete(self, by: str, key: str) -> None:
        answer, code = self.attempt(self.caller(by).delete(key))
        present = self.live.pop(key, None)
        if present is None:
            assert code == "KEY_NOT_FOUND"
        else:
            assert answer == {"deleted": key, "previous_version": present.version}

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.now += seconds
        self.live = {k: v for k, v in self.live.items() if v.expires_at is None or v.expires_at > self.now}

    @precondition(lambda self: len(self.marks) < 4)
    @rule(by=CALLERS)
    def snapshot(self, by: str) -> None:
        label = f"mark{len(self.marks)}"
        self.run(self.caller(by).snapshot(label))
        self.marks[label] = {
            key: (entry.value, None if entry.expires_at is None else entry.expires_at - self.now)
            for key, entry in self.live.items()
        }

    @precondition(lambda self: self.marks)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        label = data.draw(st.sampled_from(sorted(self.marks)))
        snapshot = self.marks[label]
        answer = self.run(self.caller("planner").restore(label))
        deleted = sorted(self.live.keys() - snapshot.keys())
        for key in deleted:
            del self.live[key]
        written = []
        for key, (value, left) in snapshot.items():
            present = self.live.get(key)
            if present and present.value == value and present.expires_at is None and left is None:
                continue
            written.append(key)
            self.put(key, value, "planner", None if left is None else self.now + left)
        assert answer == {"restored": label, "written": sorted(written), "deleted": deleted}

    @rule(by=CALLERS, key=KEYS)
    def read_history(self, by: str, key: str) -> None:
        past = self.pasts[key]
        answer, code = self.attempt(self.caller(by).history(key))
        if not past:
            assert code == "KEY_NOT_FOUND"
            return
        assert (answer["incarnations"], [v["value"] for v in answer["versions"]]) == (len(past), past[-1])
        assert ("ended" in answer) == (key not in self.live)
        first = self.run(self.caller(by).history(key, incarnation=1))
        assert [v["value"] for v in first["versions"]] == past[0]

    @precondition(lambda self: self.marks)
    @rule(data=st.data())
    def read_snapshot(self, data: st.DataObject) -> None:
        label = data.draw(st.sampled_from(sorted(self.marks)))
        seen = self.run(self.caller("analysis").read_snapshot(label))
        assert seen == {key: value for key, (value, _) in self.marks[label].items()}

    @invariant()
    def the_board_equals_the_model(self) -> None:
        listed = self.run(self.caller("analysis").list())
        assert {e["key"]: (e["version"], e["written_by"]) for e in listed["keys"]} == {
            key: (entry.version, entry.by) for key, entry in self.live.items()
        }
        assert listed["metadata"]["total_size_tokens"] == self.total() <= LIMIT
        values = self.run(self.caller("planner").batch("a", "b", "c_c"))["entries"]
        assert {e["key"]: e["value"] for e in values} == {key: entry.value for key, entry in self.live.items()}

    def teardown(self) -> None:
        inspected = self.run(self.world.admin.in_session("m").inspect())
        self.run(self.world.close())
        self.loop.close()
        self.folder.cleanup()
        assert inspected["history_intact"]


@pytest.mark.req("SC-02")
@pytest.mark.req("SC-14")
@pytest.mark.req("SC-15")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_board_agrees_with_the_model(kind: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    run_state_machine_as_test(
        lambda: BoardMachine(url),
        settings=settings(
            max_examples=examples(30 if kind == "sqlite" else 15),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
