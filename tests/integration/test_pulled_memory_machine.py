"""Prompts and searches against a model: they say what their session pulled, after anything that others do."""

from __future__ import annotations

import asyncio
import re
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from support.assemblies import assemble, texts
from support.contexts import knowledge_entry, pull, push, version_of
from support.full_run import examples
from support.indexed_items import use_scripted_embeddings
from support.teams import create_team
from support.world import World
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from support.world import Caller

SESSIONS = ("s1", "s2", "s3")
TEAM = "team:research"
OWNERS = st.sampled_from([None, TEAM])
KEYS = st.sampled_from(["north", "south", "west"])
TASK = "What are the codewords of the north, south and west gates?"


class PulledMemoryMachine(RuleBasedStateMachine):
    """An agent in three sessions, and the memory that it and its team should have in each."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        url = url or f"{self.folder.name}/weftline.db"
        self.world = World(
            url, FrozenClock(), Settings(database_url=url, rate_limits="off", data_dir=str(Path(self.folder.name)))
        )
        self.run(self.world.open())
        use_scripted_embeddings(self.world)
        for session in SESSIONS[1:]:
            self.run(self.world.planner.create_session(session))
        self.run(create_team(self.world.admin, "research", "planner", "analysis"))
        self.planner = self.world.planner
        self.words = 0
        # Every version of each memory, the first one empty, and what each session has.
        self.versions: dict[str | None, list[dict[str, str]]] = {None: [{}], TEAM: [{}]}
        self.held: dict[str, dict[str | None, dict[str, str]]] = {}
        self.numbers: dict[str, int] = {}

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def writer(self, owner: str | None) -> Caller:
        return self.planner if owner is None else self.world.analysis.at(self.planner.app)

    def current(self) -> dict[str | None, dict[str, str]]:
        return {owner: versions[-1] for owner, versions in self.versions.items()}

    @rule(owner=OWNERS, keys=st.lists(KEYS, min_size=1, max_size=2, unique=True), removed=KEYS)
    def push(self, owner: str | None, keys: list[str], removed: str) -> None:
        memory = dict(self.versions[owner][-1])
        values = {}
        for key in keys:
            self.words += 1
            values[key] = f"codeword{self.words}"
        gone = [removed] if removed in memory and removed not in values else []
        entries = [knowledge_entry(key, f"The codeword of the {key} gate is {word}.") for key, word in values.items()]
        self.change(owner, {key: word for key, word in (memory | values).items() if key not in gone}, entries, gone)

    def change(self, owner: str | None, after: dict[str, str], entries: list[Any], gone: list[str]) -> None:
        shared = {} if owner is None else {"owner": owner}
        by, remove = self.writer(owner), [{"key": key} for key in gone]
        version = self.run(version_of(by, **shared))
        assert version == len(self.versions[owner]) - 1
        self.run(push(by, *entries, remove=remove, if_version=version, **shared))
        self.versions[owner].append(after)

    @rule(owner=OWNERS, data=st.data())
    def roll_back(self, owner: str | None, data: st.DataObject) -> None:
        versions = self.versions[owner]
        target = data.draw(st.integers(0, len(versions) - 1))
        if versions[target] != versions[-1] and target:
            context_id = owner or "context:planner"
            self.run(
                self.world.admin.at(self.planner.app).call(
                    "history.rollback", context_id=context_id, target_version=str(target)
                )
            )
            versions.append(versions[target])
            # What another brought back is in prompts once it is indexed.
            self.run(self.world.index_sessions())

    @rule(session=st.sampled_from(SESSIONS))
    def pull(self, session: str) -> None:
        answer = self.run(pull(self.planner.in_session(session)))
        assert answer["from_version"] == self.numbers.get(session)
        self.hold(session)
        assert answer["to_version"] == self.numbers[session]

    @rule(session=st.sampled_from(SESSIONS))
    def prompt(self, session: str) -> None:
        """The first one gives the session its memory, as a pull would."""
        if session not in self.held:
            self.hold(session)
        agent = self.planner.in_session(session)
        held = {word for memory in self.held[session].values() for word in memory.values()}
        for indexed, fresh in product((False, True), repeat=2):
            if indexed and not fresh:
                self.run(self.world.index_sessions())
            answer = self.run(assemble(agent, TASK, fresh=fresh))
            assert _codewords("\n".join(texts(answer))) == held
        scope = {"session_id": session, "sources": ["memory"], "low_confidence": True}
        found = self.run(agent.call("search.query", query=TASK, top_k=20, **scope))
        assert _codewords(str(found["results"])) == held
        entries = self.run(agent.call("context.read", session_id=session))["entries"]
        assert {entry["key"]: _codewords(entry["value"]).pop() for entry in entries} == self.held[session][None]

    @rule()
    def restart(self) -> None:
        """Another process takes over, with nothing in memory."""
        before, app = self.world.app, self.run(self.world.another_app())
        self.world.app, self.planner = app, self.planner.at(app)
        use_scripted_embeddings(self.world)
        self.run(self.world.close_app(before))

    def hold(self, session: str) -> None:
        self.held[session] = self.current()
        self.numbers[session] = len(self.versions[None]) - 1

    def teardown(self) -> None:
        try:
            for session in SESSIONS:
                self.prompt(session)
        finally:
            self.run(self.world.close())
            self.loop.close()
            self.folder.cleanup()


def _codewords(text: str) -> set[str]:
    return set(re.findall(r"codeword\d+", text))


@pytest.mark.req("CE-F16")
@pytest.mark.req("CE-F18")
@pytest.mark.req("CE-U4")
@pytest.mark.req("CE-E", part="a parent's edit during a session")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_prompts_say_what_their_session_pulled_after_anything_that_others_do(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    run_state_machine_as_test(
        lambda: PulledMemoryMachine(url),
        settings=settings(
            max_examples=examples(24 if kind == "sqlite" else 12),
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
