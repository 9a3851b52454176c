"""Contexts against a reference model: snapshots stay frozen and every version reads back."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from support.context_model import ARTIFACT_DAYS, ARTIFACTS, DEFINITION, PARTS, ContextModel, written_at
from support.full_run import examples
from support.history_model import Commit, Entry, Line, ancestors, merge_bases, three_way
from support.world import World
from weftline.kernel.errors import WeftlineError
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from support.context_model import Memory
    from support.history_model import State

OWNERS = ("analysis", "planner")
SESSIONS = ("s1", "s2")
MEMORY_TYPES = ("conversation_context", "learned_knowledge", "team_preferences")
KEYS = st.sampled_from(["a", "b", "c/d"])
# Large values and artifacts are stored in object storage.
LARGE = "large"
VALUES = st.sampled_from(["same", 1, None, ["x"], LARGE])
PUSHED = st.lists(st.tuples(st.sampled_from(PARTS), KEYS, VALUES), max_size=4, unique_by=lambda item: item[:2])
REMOVED = st.lists(st.tuples(st.sampled_from(PARTS), KEYS), max_size=2, unique=True)
# A push of at least this many entries tags the previous state.
LEARNING_CYCLE = 2


class PulledContext:
    """The context a session pulled."""

    def __init__(self, root: Line, memory: Memory) -> None:
        self.root, self.version, self.memory = root, root.head, memory
        self.known = root.head


class ContextMachine(RuleBasedStateMachine):
    """Applies the same calls to the contexts of two agents and to a model."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        url = url or str(folder / "weftline.db")
        self.clock = FrozenClock()
        world_settings = Settings(database_url=url, rate_limits="off", data_dir=str(folder))
        self.world = World(url, self.clock, world_settings)
        self.run(self.world.open())
        self.run(self.world.planner.create_session(SESSIONS[1]))
        self.now, self.named = 0.0, 0
        self.contexts = {owner: ContextModel(owner) for owner in OWNERS}
        self.held: dict[tuple[str, str], PulledContext] = {}
        self.versions: dict[str, int] = {}
        rule = {"subject": "learned_knowledge", "snapshot_from": LEARNING_CYCLE}
        assert self.ask("history.set_retention", **rule)[1] is None

    # Calls.

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def ask(self, operation: str, by: str = "admin", **raw: Any) -> tuple[Any, str | None]:
        try:
            return self.run(getattr(self.world, by).call(operation, **raw)), None
        except WeftlineError as error:
            return error.context, error.code

    def draw_branch(self, data: st.DataObject) -> tuple[ContextModel, str, Line]:
        """Return a context and one of its branches."""
        context = self.contexts[data.draw(st.sampled_from(OWNERS))]
        branch = data.draw(st.sampled_from(sorted(context.roots)))
        return context, branch, context.roots[branch]

    def new_commits(self, line_id: str, after: int) -> list[dict[str, Any]]:
        answer, code = self.ask("history.log", context_id=line_id, limit=10)
        assert code in {None, "CONTEXT_NOT_FOUND"}, code
        commits = answer["commits"] if code is None else []
        return [commit for commit in reversed(commits) if commit["version"] > after]

    def expect_memory(
        self, context: ContextModel, branch: str, memory: Memory, merged: tuple[Line, int] | None = None
    ) -> None:
        """Add the new commit, if any, to the model; check that the context equals ``memory``."""
        root, named = context.roots[branch], {}
        for part in PARTS if branch != "main" else (DEFINITION, *PARTS):
            line, at = context.own_line(part, branch), context.part_at(root, part)
            commits = self.new_commits(context.line_of(part, branch), line.head if line else at[1] if at else 0)
            assert len(commits) <= 1
            for commit in commits:
                changes = {
                    change["key"]: Entry(memory[part][change["key"]]) if change["act"] == "write" else None
                    for change in commit["changes"]
                }
                named[part] = context.commit_part(part, branch, changes, self.now)
        made = self.new_commits(root.name, root.head)
        assert len(made) == (1 if named or merged else 0)
        if made:
            root.add(Commit(self.now, named, merged))
            assert made[0]["version"] == root.head
        assert context.memory(branch) == memory

    # Rules.

    @rule(data=st.data(), pushed=PUSHED, removed=REMOVED, how=st.sampled_from(["exact", "exact", "session", "stale"]))
    def push(
        self, data: st.DataObject, pushed: list[tuple[str, str, Any]], removed: list[tuple[str, str]], how: str
    ) -> None:
        context, branch, root = self.draw_branch(data)
        # Values name their owner, so that a leak between contexts is noticed.
        values = {(part, key): {"of": context.owner, "value": value} for part, key, value in pushed}
        knowledge = [{**_place(*place), "value": _expanded(value)} for place, value in values.items()]
        removed_places = [place for place in removed if place not in values]
        arguments, expected = self.version_arguments(data, how, context, root)
        what = {"knowledge": knowledge, "remove": [_place(*place) for place in removed_places], "branch": branch}
        answer, code = self.ask("context.push", context.owner, **what, **arguments)
        after, changed = self.after_push(context, branch, values, removed_places, is_current=expected == root.head)
        before = context.memory(branch)
        # Without a version, a push may add entries, but replace and remove none.
        if expected is None and any(key in before.get(part, {}) for part, key in changed):
            assert code == "INVALID_INPUT_FORMAT"
            self.expect_memory(context, branch, before)
            return
        # An unchanged push is accepted for any version: it may be a retry.
        if expected is not None and changed and expected != root.head:
            assert (code, answer["current_version"]) == ("VERSION_CONFLICT", root.head)
            self.expect_memory(context, branch, before)
            return
        assert code is None, (code, answer)
        assert {(_part(entry), entry["key"]) for entry in answer["changed"]} == changed
        learned = sum(part == "learned_knowledge" for part, _ in changed) >= LEARNING_CYCLE and root.head > 0
        assert answer["snapshot_before"] == (f"before-learning-v{root.head}" if learned else None)
        self.expect_memory(context, branch, after)
        assert answer["version"] == root.head
        pulled = self.held.get((arguments.get("session_id", ""), context.owner))
        if pulled is not None and pulled.root is root and changed:
            pulled.known = root.head

    def version_arguments(
        self, data: st.DataObject, how: str, context: ContextModel, root: Line
    ) -> tuple[dict[str, Any], int | None]:
        """Return the version arguments of a push and the version they mean, if known."""
        if how == "exact":
            return {"if_version": root.head}, root.head
        if how == "stale":
            version = data.draw(st.integers(0, root.head))
            return {"if_version": version}, version
        session = data.draw(st.sampled_from(SESSIONS))
        pulled = self.held.get((session, context.owner))
        # A recreated branch shares only the commits before its base with the deleted one.
        is_same_branch = pulled and pulled.root.name == root.name and pulled.known <= root.head
        is_known = is_same_branch and root.owner(pulled.known) is pulled.root.owner(pulled.known)
        return {"session_id": session}, pulled.known if is_known or (is_same_branch and pulled.known == 0) else None

    def after_push(
        self,
        context: ContextModel,
        branch: str,
        values: dict[tuple[str, str], Any],
        removed_places: list[tuple[str, str]],
        *,
        is_current: bool,
    ) -> tuple[Memory, set[tuple[str, str]]]:
        """Return the memory after a push, and the entries it changes."""
        after = context.memory(branch)
        overdue = context.expired_artifacts(branch, self.now)
        changed = set()
        for (part, key), value in values.items():
            # Pushing an artifact again renews its retention.
            lives = key in after.get(part, {}) and (part != ARTIFACTS or not (is_current or key in overdue))
            if not lives or after[part][key] != value:
                changed.add((part, key))
                after.setdefault(part, {})[key] = value
        for part, key in removed_places:
            if key in after.get(part, {}):
                changed.add((part, key))
                del after[part][key]
        return _without_empty(after), changed

    @rule(data=st.data())
    def push_several(self, data: st.DataObject) -> None:
        for pushed in data.draw(st.lists(PUSHED, min_size=2, max_size=3)):
            self.push(data, pushed, [], "exact")

    @rule(data=st.data())
    def push_and_roll_back(self, data: st.DataObject) -> None:
        self.push_several(data)
        data.draw(st.sampled_from([self.roll_back_all, self.roll_back_a_part]))(data)

    @rule(data=st.data(), side=st.sampled_from(["ours", "theirs", "base"]))
    def diverge_and_merge(self, data: st.DataObject, side: str) -> None:
        self.push_several(data)
        self.branch(data)
        self.push_several(data)
        self.push_several(data)
        self.merge(data, side)

    @rule(data=st.data(), session=st.sampled_from(SESSIONS))
    def pull(self, data: st.DataObject, session: str) -> None:
        context, branch, root = self.draw_branch(data)
        before = self.held.get((session, context.owner))
        answer, code = self.ask("context.pull", context.owner, session_id=session, branch=branch)
        assert code is None, (code, answer)
        current = context.roots["main"].state_at(context.roots["main"].head).get(DEFINITION)
        known = root.state_at(root.head).get(DEFINITION)
        if branch != "main" and current and (known is None or known.value != current.value):
            root.add(Commit(self.now, {DEFINITION: Entry(current.value)}))
        memory = context.memory(branch)
        for key in context.expired_artifacts(branch, self.now):
            del memory[ARTIFACTS][key]
        self.expect_memory(context, branch, _without_empty(memory))
        self.held[session, context.owner] = pulled = PulledContext(root, context.memory(branch))
        assert (answer["from_version"], answer["to_version"]) == (before and before.version, root.head)
        listed = [entry for of_sort in answer["context"]["memory"].values() for entry in of_sort]
        self.compare(listed, answer["context"]["role"], pulled)

    @rule(data=st.data(), role=st.sampled_from(["Plans", "Reviews", "Writes"]))
    def define(self, data: st.DataObject, role: str) -> None:
        context = self.contexts[data.draw(st.sampled_from(OWNERS))]
        assert self.ask("agent.define", agent_id=context.owner, role=role)[1] is None
        self.expect_memory(context, "main", {**context.memory("main"), DEFINITION: {"role": role}})

    @rule(days=st.integers(10, 60))
    def wait(self, days: int) -> None:
        self.clock.advance(days=days)
        self.now += days

    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        context, branch, root = self.draw_branch(data)
        lines = [root, *filter(None, (context.own_line(part, branch) for part in PARTS))]
        line = lines[data.draw(st.integers(0, len(lines) - 1))]
        self.named += 1
        answer, code = self.ask("history.snapshot", context_id=line.name, label=f"mark{self.named}")
        # A line without commits does not exist.
        assert (code is None) or line.head == 0, code
        if code is None:
            line.named[f"mark{self.named}"] = line.head
            assert answer["version"] == line.head

    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        context, _, root = self.draw_branch(data)
        free = [name for name in ("one", "two") if name not in context.roots]
        if root.head == 0 or not free:
            return
        seq, name = data.draw(st.integers(1, root.head)), data.draw(st.sampled_from(free))
        answer, code = self.ask(
            "history.branch", context.owner, context_id=root.name, branch=name, from_version=str(seq)
        )
        assert (code, answer.get("version")) == (None, seq)
        context.roots[name] = Line(f"context:{context.owner}@{name}", (root.owner(seq), seq))

    @precondition(lambda self: any(len(context.roots) > 1 for context in self.contexts.values()))
    @rule(data=st.data())
    def delete_branch(self, data: st.DataObject) -> None:
        context, branch, root = self.draw_branch(data)
        if branch == "main":
            return
        used = any(other.base and other.base[0] is root for other in context.roots.values())
        _, code = self.ask("history.delete_branch", context_id=f"context:{context.owner}", branch=branch, force=True)
        assert code == ("BRANCH_IN_USE" if used else None)
        if not used:
            context.forget_branch(branch)

    @rule(data=st.data())
    def roll_back_all(self, data: st.DataObject) -> None:
        context, branch, root = self.draw_branch(data)
        if root.head == 0:
            return
        target = data.draw(st.integers(0, root.head))
        answer, code = self.ask("history.rollback", context_id=root.name, target_version=str(target))
        memory = context.memory(branch)
        for part in PARTS if branch != "main" else (DEFINITION, *PARTS):
            memory[part] = self.rolled_back(context.state(root, part), context.state(root, part, target), part)
        memory = _without_empty(memory)
        if code == "VERSION_PRUNED":
            assert self.may_be_pruned(context, branch, target)
            memory = context.memory(branch)
        else:
            assert code is None, (code, answer)
        self.expect_memory(context, branch, memory)
        assert code or answer["version"] == root.head

    def rolled_back(self, present: State, target_state: State, part: str) -> dict[str, Any]:
        """Return a part's values after a rollback; artifacts expired since are not restored."""
        values = {}
        for key in present.keys() | target_state.keys():
            now, wanted = present.get(key), target_state.get(key)
            if now and wanted and now.value == wanted.value:
                values[key] = now.value
            elif wanted and not self.has_expired(wanted, part):
                values[key] = wanted.value
        return values

    def has_expired(self, entry: Entry, part: str) -> bool:
        return part == ARTIFACTS and written_at(entry) <= self.now - ARTIFACT_DAYS

    def may_be_pruned(self, context: ContextModel, branch: str, seq: int) -> bool:
        """Return whether retention may have removed values of a version."""
        states = [context.state(context.roots[branch], part, seq) for part in PARTS]
        return any(Line.is_pruned(*item) for state in states for item in state.items())

    @rule(data=st.data())
    def roll_back_a_part(self, data: st.DataObject) -> None:
        context, branch, _ = self.draw_branch(data)
        lines = {part: context.own_line(part, branch) for part in PARTS}
        part = data.draw(st.sampled_from(PARTS))
        line = lines[part]
        if line is None:
            return
        target = data.draw(st.integers(0, line.head))
        answer, code = self.ask("history.rollback", context_id=line.name, target_version=str(target))
        target_state = line.state_at(target)
        memory = context.memory(branch)
        if code == "VERSION_PRUNED":
            assert any(Line.is_pruned(*item) for item in target_state.items())
        else:
            assert code is None, (code, answer)
            memory[part] = self.rolled_back(line.state_at(line.head), target_state, part)
        self.expect_memory(context, branch, _without_empty(memory))

    @precondition(lambda self: any(len(context.roots) > 1 for context in self.contexts.values()))
    @rule(data=st.data(), side=st.sampled_from(["ours", "theirs", "base", None]))
    def merge(self, data: st.DataObject, side: str | None) -> None:
        context, ours, line = self.draw_branch(data)
        others = sorted(context.roots.keys() - {ours})
        if not others:
            return
        theirs = data.draw(st.sampled_from(others))
        source = context.roots[theirs]
        points = merge_bases((line, line.head), (source, source.head))
        if len(points) > 1:
            # Criss-cross merges have several merge bases; the model does not choose one.
            return
        answer, code = self.ask("history.merge", context.owner, context_id=line.name, from_context_id=source.name)
        memory = context.memory(ours)
        if (source.owner(source.head), source.head) in ancestors((line, line.head)):
            assert (code, answer["merged"]) == (None, True)
            self.expect_memory(context, ours, memory)
            return
        base, seq = next(iter(points))
        sides = [_flat(context, *point) for point in ((base, seq), (line, line.head), (source, source.head))]
        taken, conflicts = three_way(*sides)
        if conflicts:
            assert code is None, (code, answer)
            assert {conflict["key"] for conflict in answer["conflicts"]} == conflicts
            self.expect_memory(context, ours, memory)
            code = self.decide(answer["review_id"], conflicts, side)
            chosen = dict(zip(("base", "ours", "theirs"), sides, strict=True)).get(side or "", {})
            taken |= {key: chosen.get(key) for key in conflicts}
            if side is None:
                return
        if code == "VERSION_PRUNED":
            assert any(entry and Line.is_pruned(key.partition("/")[2], entry) for key, entry in taken.items())
            self.expect_memory(context, ours, memory)
            return
        assert code is None, (code, answer)
        for name, entry in taken.items():
            part, _, key = name.partition("/")
            values = memory.setdefault(part, {})
            values.pop(key, None)
            values |= {} if entry is None or self.has_expired(entry, part) else {key: entry.value}
        self.expect_memory(context, ours, _without_empty(memory), merged=(source, source.head))

    def decide(self, review_id: str, conflicts: set[str], side: str | None) -> str | None:
        """Resolve a review with one side, or close it; return the error code."""
        resolutions = {key: {"take": side} for key in conflicts}
        if side is not None:
            code = self.ask("history.resolve", review_id=review_id, resolutions=resolutions)[1]
        if side is None or code is not None:
            assert self.ask("history.close_review", review_id=review_id)[1] is None
        return None if side is None else code

    @rule(memory_type=st.sampled_from(MEMORY_TYPES), versions=st.integers(1, 3))
    def prune(self, memory_type: str, versions: int) -> None:
        assert self.ask("history.set_retention", subject=memory_type, versions=versions)[1] is None
        self.versions[memory_type] = versions
        answer, code = self.ask("history.prune")
        assert (code, answer["finished"]) == (None, True)
        for context in self.contexts.values():
            for branch in context.roots:
                memory = context.memory(branch)
                if context.own_line(ARTIFACTS, branch) is not None:
                    for key in context.expired_artifacts(branch, self.now):
                        del memory[ARTIFACTS][key]
                self.expect_memory(context, branch, _without_empty(memory))
            held = {(pulled.root, pulled.version) for pulled in self.held.values() if not pulled.root.deleted}
            own = {point for point in held if point[0] in context.roots.values()}
            context.mark_prunable(own, self.versions, self.now)

    # Invariants.

    def compare(self, listed: list[dict[str, Any]], role: str | None, pulled: PulledContext) -> None:
        """Compare listed entries with the pulled context."""
        held = {part: values for part, values in pulled.memory.items() if part != DEFINITION}
        assert {(_part(entry), entry["key"]) for entry in listed} == {
            (part, key) for part in held for key in held[part]
        }
        for entry in listed:
            assert entry.get("truncated", False) or _abbreviated(entry["value"]) == held[_part(entry)][entry["key"]]
        assert role == pulled.memory.get(DEFINITION, {}).get("role")

    def read(self, session: str, owner: str, **which: Any) -> Any:
        """Read a session's context; None if its branch was deleted."""
        answer, code = self.ask("context.read", owner, session_id=session, limit=200, **which)
        assert code is None or (code == "BRANCH_NOT_FOUND" and self.held[session, owner].root.deleted), (code, answer)
        return answer if code is None else None

    @invariant()
    def every_session_has_the_context_it_pulled(self) -> None:
        for (session, owner), pulled in self.held.items():
            answer = self.read(session, owner)
            if answer is not None:
                assert answer["version"] == pulled.version
                self.compare(answer["entries"], answer["definition"].get("role"), pulled)

    def read_whole(self) -> None:
        """Read every pulled value, from the database or object storage."""
        for (session, owner), pulled in self.held.items():
            for part, values in pulled.memory.items():
                for key, value in values.items() if part != DEFINITION else ():
                    answer = self.read(session, owner, **_place(part, key))
                    assert answer is None or _abbreviated(answer["entries"][0]["value"]) == value

    @rule(data=st.data())
    def read_old_version(self, data: st.DataObject) -> None:
        context, branch, root = self.draw_branch(data)
        part = data.draw(st.sampled_from([None, *PARTS]))
        line = root if part is None else context.own_line(part, branch)
        if line is not None and line.head > 0:
            self.expect_version(context, line, data.draw(st.integers(0, line.head)))

    def expect_version(self, context: ContextModel, line: Line, seq: int) -> None:
        """Compare a version of a part or of the whole context with the model."""
        answer, code = self.ask("history.state", context.owner, context_id=line.name, version=str(seq))
        assert code is None, (code, answer)
        state = _flat(context, line, seq) if line in context.roots.values() else line.state_at(seq)
        read = {entry["key"]: entry for entry in answer["entries"] if not entry["key"].startswith(f"{DEFINITION}/")}
        assert read.keys() == state.keys()
        for key, entry in read.items():
            expected = state[key]
            if entry.get("pruned"):
                assert self.has_expired(expected, _part_of(expected)) or Line.is_pruned(
                    key.removeprefix(f"{_part_of(expected)}/"), expected
                )
            elif not entry.get("outside"):
                assert _abbreviated(entry["value"]) == expected.value

    @rule()
    def contexts_are_private(self) -> None:
        for context in self.contexts.values():
            for line in (*context.roots.values(), *context.parts.values()):
                for other in ("analysis", "review", "stranger"):
                    if other != context.owner:
                        assert self.ask("history.state", other, context_id=line.name)[1] == "CONTEXT_NOT_FOUND"

    def teardown(self) -> None:
        try:
            self.read_whole()
            for context in self.contexts.values():
                for branch, root in context.roots.items():
                    for line in filter(None, (root, *(context.own_line(part, branch) for part in PARTS))):
                        for seq in range(line.head + 1):
                            self.expect_version(context, line, seq)
                    verified, code = self.ask("history.verify", context_id=root.name, deep=True)
                    assert code or verified["intact"], verified
                for line in context.parts.values():
                    verified, code = self.ask("history.verify", context_id=line.name, deep=True)
                    assert (code, verified["intact"]) == (None, True), verified
        finally:
            self.run(self.world.close())
            self.loop.close()
            self.folder.cleanup()


def _place(part: str, key: str) -> dict[str, str]:
    memory_type, _, workflow_id = part.partition(":")
    return {"memory_type": memory_type, "key": key, **({"workflow_id": workflow_id} if workflow_id else {})}


def _part(entry: dict[str, Any]) -> str:
    return f"{entry['memory_type']}:{entry['workflow_id']}" if entry.get("workflow_id") else entry["memory_type"]


def _part_of(entry: Entry) -> str:
    """Return the part whose line an entry is on."""
    assert entry.line is not None
    return entry.line.name.partition("@")[0].split(":", 2)[2]


def _expanded(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "value": "y" * 40_000} if value["value"] == LARGE else value


def _abbreviated(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "value": LARGE} if value["value"] == "y" * 40_000 else value


def _flat(context: ContextModel, root: Line, seq: int) -> dict[str, Entry]:
    """Return the entries of a whole context, as PART/KEY."""
    states = {part: context.state(root, part, seq) if seq else {} for part in PARTS}
    return {f"{part}/{key}": entry for part, state in states.items() for key, entry in state.items()}


def _without_empty(memory: Memory) -> Memory:
    return {part: values for part, values in memory.items() if values}


@pytest.mark.req("CE-F2")
@pytest.mark.req("CE-F16")
@pytest.mark.req("CE-F18")
@pytest.mark.req("CE-F20")
@pytest.mark.req("CE-F55")
@pytest.mark.req("CE-E", part="a parent's edit during a session")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_sessions_keep_the_context_they_pulled_and_every_version_reads_back(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    run_state_machine_as_test(
        lambda: ContextMachine(url),
        settings=settings(
            max_examples=examples(25 if kind == "sqlite" else 12),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
