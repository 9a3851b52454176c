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
from weft.kernel.errors import WeftError
from weft.settings import Settings
from weft.testing.clock import FrozenClock

if TYPE_CHECKING:
    from support.context_model import Memory
    from support.history_model import State

OWNERS = ("analysis", "planner")
SESSIONS = ("s1", "s2")
SORTS = ("conversation_context", "learned_knowledge", "team_preferences")
KEYS = st.sampled_from(["a", "b", "c/d"])
# What is large is kept outside the database, as all artifacts are.
LARGE = "large"
VALUES = st.sampled_from(["same", 1, None, ["x"], LARGE])
PUSHED = st.lists(st.tuples(st.sampled_from(PARTS), KEYS, VALUES), max_size=4, unique_by=lambda item: item[:2])
REMOVED = st.lists(st.tuples(st.sampled_from(PARTS), KEYS), max_size=2, unique=True)
# From so many entries at once what was known before gets a name.
LEARNING_CYCLE = 2


class Frozen:
    """What a session holds, as it was pulled."""

    def __init__(self, root: Line, memory: Memory) -> None:
        self.root, self.version, self.memory = root, root.head, memory
        self.known = root.head


class ContextMachine(RuleBasedStateMachine):
    """Does the same to the contexts of two agents and to a few dictionaries."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        url = url or str(folder / "weft.db")
        self.clock = FrozenClock()
        kept = Settings(database_url=url, rate_limits="off", data_dir=str(folder))
        self.world = World(url, self.clock, kept)
        self.run(self.world.open())
        self.run(self.world.planner.create_session(SESSIONS[1]))
        self.now, self.named = 0.0, 0
        self.contexts = {owner: ContextModel(owner) for owner in OWNERS}
        self.held: dict[tuple[str, str], Frozen] = {}
        self.versions: dict[str, int] = {}
        rule = {"subject": "learned_knowledge", "snapshot_from": LEARNING_CYCLE}
        assert self.ask("history.set_retention", **rule)[1] is None

    # How the two are talked to.

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def ask(self, operation: str, by: str = "admin", **raw: Any) -> tuple[Any, str | None]:
        try:
            return self.run(getattr(self.world, by).call(operation, **raw)), None
        except WeftError as error:
            return error.context, error.code

    def drawn(self, data: st.DataObject) -> tuple[ContextModel, str, Line]:
        """Return a context and one of its branches."""
        context = self.contexts[data.draw(st.sampled_from(OWNERS))]
        branch = data.draw(st.sampled_from(sorted(context.roots)))
        return context, branch, context.roots[branch]

    def news_of(self, line_id: str, after: int) -> list[dict[str, Any]]:
        answer, code = self.ask("history.log", context_id=line_id, limit=10)
        assert code in {None, "CONTEXT_NOT_FOUND"}, code
        commits = answer["commits"] if code is None else []
        return [commit for commit in reversed(commits) if commit["version"] > after]

    def expect(
        self, context: ContextModel, branch: str, memory: Memory, merged: tuple[Line, int] | None = None
    ) -> None:
        """Take note of the one commit there may be, and have the context say what it should."""
        root, named = context.roots[branch], {}
        for part in PARTS if branch != "main" else (DEFINITION, *PARTS):
            line, at = context.own_line(part, branch), context.part_at(root, part)
            news = self.news_of(context.line_of(part, branch), line.head if line else at[1] if at else 0)
            assert len(news) <= 1
            for commit in news:
                changes = {
                    change["key"]: Entry(memory[part][change["key"]]) if change["act"] == "write" else None
                    for change in commit["changes"]
                }
                named[part] = context.commit_part(part, branch, changes, self.now)
        made = self.news_of(root.name, root.head)
        assert len(made) == (1 if named or merged else 0)
        if made:
            root.add(Commit(self.now, named, merged))
            assert made[0]["version"] == root.head
        assert context.memory(branch) == memory

    # What can happen.

    @rule(data=st.data(), pushed=PUSHED, removed=REMOVED, how=st.sampled_from(["exact", "exact", "session", "stale"]))
    def push(
        self, data: st.DataObject, pushed: list[tuple[str, str, Any]], removed: list[tuple[str, str]], how: str
    ) -> None:
        context, branch, root = self.drawn(data)
        # Only its owner can have said what is in a context.
        said = {(part, key): {"of": context.owner, "says": value} for part, key, value in pushed}
        knowledge = [{**_place(*place), "value": _written_out(value)} for place, value in said.items()]
        gone = [place for place in removed if place not in said]
        terms, expected = self.terms(data, how, context, root)
        what = {"knowledge": knowledge, "remove": [_place(*place) for place in gone], "branch": branch}
        answer, code = self.ask("context.push", context.owner, **what, **terms)
        after, changed = self.pushed_to(context, branch, said, gone, is_current=expected == root.head)
        # What is said already can be said for any version: perhaps the answer to it was lost.
        if expected is None or (changed and expected != root.head):
            assert code == ("INVALID_INPUT_FORMAT" if expected is None else "VERSION_CONFLICT")
            assert expected is None or answer["current_version"] == root.head
            self.expect(context, branch, context.memory(branch))
            return
        assert code is None, (code, answer)
        assert {(_part(entry), entry["key"]) for entry in answer["changed"]} == changed
        learned = sum(part == "learned_knowledge" for part, _ in changed) >= LEARNING_CYCLE and root.head > 0
        assert answer["snapshot_before"] == (f"before-learning-v{root.head}" if learned else None)
        self.expect(context, branch, after)
        assert answer["version"] == root.head
        frozen = self.held.get((terms.get("session_id", ""), context.owner))
        if frozen is not None and frozen.root is root and changed:
            frozen.known = root.head

    def terms(
        self, data: st.DataObject, how: str, context: ContextModel, root: Line
    ) -> tuple[dict[str, Any], int | None]:
        """Return for which version a push is said to be made, and which that is; None if nobody can tell."""
        if how == "exact":
            return {"if_version": root.head}, root.head
        if how == "stale":
            version = data.draw(st.integers(0, root.head))
            return {"if_version": version}, version
        session = data.draw(st.sampled_from(SESSIONS))
        frozen = self.held.get((session, context.owner))
        # Under the name of a branch that is gone there may be another, which shares with it only what came before.
        is_it = frozen and frozen.root.name == root.name and frozen.known <= root.head
        is_known = is_it and root.owner(frozen.known) is frozen.root.owner(frozen.known)
        return {"session_id": session}, frozen.known if is_known or (is_it and frozen.known == 0) else None

    def pushed_to(
        self,
        context: ContextModel,
        branch: str,
        said: dict[tuple[str, str], Any],
        gone: list[tuple[str, str]],
        *,
        is_current: bool,
    ) -> tuple[Memory, set[tuple[str, str]]]:
        """Return what a context says after a push, and the entries that it changes."""
        after = context.memory(branch)
        over = context.expired_artifacts(branch, self.now)
        changed = set()
        for (part, key), value in said.items():
            # An artifact that is pushed again is given more time.
            lives = key in after.get(part, {}) and (part != ARTIFACTS or not (is_current or key in over))
            if not lives or after[part][key] != value:
                changed.add((part, key))
                after.setdefault(part, {})[key] = value
        for part, key in gone:
            if key in after.get(part, {}):
                changed.add((part, key))
                del after[part][key]
        return _without_empty(after), changed

    @rule(data=st.data())
    def push_several(self, data: st.DataObject) -> None:
        for pushed in data.draw(st.lists(PUSHED, min_size=2, max_size=3)):
            self.push(data, pushed, [], "exact")

    @rule(data=st.data())
    def push_and_take_back(self, data: st.DataObject) -> None:
        self.push_several(data)
        data.draw(st.sampled_from([self.roll_back_all, self.roll_back_a_part]))(data)

    @rule(data=st.data(), decided=st.sampled_from(["ours", "theirs", "base"]))
    def go_apart_and_meet(self, data: st.DataObject, decided: str) -> None:
        self.push_several(data)
        self.branch(data)
        self.push_several(data)
        self.push_several(data)
        self.merge(data, decided)

    @rule(data=st.data(), session=st.sampled_from(SESSIONS))
    def pull(self, data: st.DataObject, session: str) -> None:
        context, branch, root = self.drawn(data)
        before = self.held.get((session, context.owner))
        answer, code = self.ask("context.pull", context.owner, session_id=session, branch=branch)
        assert code is None, (code, answer)
        today = context.roots["main"].state_at(context.roots["main"].head).get(DEFINITION)
        known = root.state_at(root.head).get(DEFINITION)
        if branch != "main" and today and (known is None or known.value != today.value):
            root.add(Commit(self.now, {DEFINITION: Entry(today.value)}))
        memory = context.memory(branch)
        for key in context.expired_artifacts(branch, self.now):
            del memory[ARTIFACTS][key]
        self.expect(context, branch, _without_empty(memory))
        self.held[session, context.owner] = frozen = Frozen(root, context.memory(branch))
        assert (answer["from_version"], answer["to_version"]) == (before and before.version, root.head)
        listed = [entry for of_sort in answer["context"]["memory"].values() for entry in of_sort]
        self.compare(listed, answer["context"]["role"], frozen)

    @rule(data=st.data(), role=st.sampled_from(["Plans", "Reviews", "Writes"]))
    def define(self, data: st.DataObject, role: str) -> None:
        context = self.contexts[data.draw(st.sampled_from(OWNERS))]
        assert self.ask("agent.define", agent_id=context.owner, role=role)[1] is None
        self.expect(context, "main", {**context.memory("main"), DEFINITION: {"role": role}})

    @rule(days=st.integers(10, 60))
    def wait(self, days: int) -> None:
        self.clock.advance(days=days)
        self.now += days

    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        context, branch, root = self.drawn(data)
        lines = [root, *filter(None, (context.own_line(part, branch) for part in PARTS))]
        line = lines[data.draw(st.integers(0, len(lines) - 1))]
        self.named += 1
        answer, code = self.ask("history.snapshot", context_id=line.name, label=f"mark{self.named}")
        # A line that has said nothing yet is not there.
        assert (code is None) or line.head == 0, code
        if code is None:
            line.named[f"mark{self.named}"] = line.head
            assert answer["version"] == line.head

    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        context, _, root = self.drawn(data)
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
        context, branch, root = self.drawn(data)
        if branch == "main":
            return
        used = any(other.base and other.base[0] is root for other in context.roots.values())
        _, code = self.ask("history.delete_branch", context_id=f"context:{context.owner}", branch=branch, force=True)
        assert code == ("BRANCH_IN_USE" if used else None)
        if not used:
            context.forget_branch(branch)

    @rule(data=st.data())
    def roll_back_all(self, data: st.DataObject) -> None:
        context, branch, root = self.drawn(data)
        if root.head == 0:
            return
        target = data.draw(st.integers(0, root.head))
        answer, code = self.ask("history.rollback", context_id=root.name, target_version=str(target))
        memory = context.memory(branch)
        for part in PARTS if branch != "main" else (DEFINITION, *PARTS):
            memory[part] = self.taken_back(context.state(root, part), context.state(root, part, target), part)
        memory = _without_empty(memory)
        if code == "VERSION_PRUNED":
            assert self.may_lack(context, branch, target)
            memory = context.memory(branch)
        else:
            assert code is None, (code, answer)
        self.expect(context, branch, memory)
        assert code or answer["version"] == root.head

    def taken_back(self, present: State, then: State, part: str) -> dict[str, Any]:
        """Return what a part says when it is taken back: what had its time since then does not come back."""
        said = {}
        for key in present.keys() | then.keys():
            now, wanted = present.get(key), then.get(key)
            if now and wanted and now.value == wanted.value:
                said[key] = now.value
            elif wanted and not self.is_over(wanted, part):
                said[key] = wanted.value
        return said

    def is_over(self, entry: Entry, part: str) -> bool:
        return part == ARTIFACTS and written_at(entry) <= self.now - ARTIFACT_DAYS

    def may_lack(self, context: ContextModel, branch: str, seq: int) -> bool:
        """Tell whether retention may have removed something that a version of the whole said."""
        states = [context.state(context.roots[branch], part, seq) for part in PARTS]
        return any(Line.is_pruned(*item) for state in states for item in state.items())

    @rule(data=st.data())
    def roll_back_a_part(self, data: st.DataObject) -> None:
        context, branch, _ = self.drawn(data)
        lines = {part: context.own_line(part, branch) for part in PARTS}
        part = data.draw(st.sampled_from(PARTS))
        line = lines[part]
        if line is None:
            return
        target = data.draw(st.integers(0, line.head))
        answer, code = self.ask("history.rollback", context_id=line.name, target_version=str(target))
        then = line.state_at(target)
        memory = context.memory(branch)
        if code == "VERSION_PRUNED":
            assert any(Line.is_pruned(*item) for item in then.items())
        else:
            assert code is None, (code, answer)
            memory[part] = self.taken_back(line.state_at(line.head), then, part)
        self.expect(context, branch, _without_empty(memory))

    @precondition(lambda self: any(len(context.roots) > 1 for context in self.contexts.values()))
    @rule(data=st.data(), decided=st.sampled_from(["ours", "theirs", "base", None]))
    def merge(self, data: st.DataObject, decided: str | None) -> None:
        context, ours, line = self.drawn(data)
        others = sorted(context.roots.keys() - {ours})
        if not others:
            return
        theirs = data.draw(st.sampled_from(others))
        source = context.roots[theirs]
        points = merge_bases((line, line.head), (source, source.head))
        if len(points) > 1:
            # Merges went both ways at once: which of several common pasts is taken is not for the model to say.
            return
        answer, code = self.ask("history.merge", context.owner, context_id=line.name, from_context_id=source.name)
        memory = context.memory(ours)
        if (source.owner(source.head), source.head) in ancestors((line, line.head)):
            assert (code, answer["merged"]) == (None, True)
            self.expect(context, ours, memory)
            return
        base, seq = next(iter(points))
        sides = [_flat(context, *moment) for moment in ((base, seq), (line, line.head), (source, source.head))]
        taken, conflicts = three_way(*sides)
        if conflicts:
            assert code is None, (code, answer)
            assert {conflict["key"] for conflict in answer["conflicts"]} == conflicts
            self.expect(context, ours, memory)
            code = self.decide(answer["review_id"], conflicts, decided)
            chosen = dict(zip(("base", "ours", "theirs"), sides, strict=True)).get(decided or "", {})
            taken |= {key: chosen.get(key) for key in conflicts}
            if decided is None:
                return
        if code == "VERSION_PRUNED":
            assert any(entry and Line.is_pruned(key.partition("/")[2], entry) for key, entry in taken.items())
            self.expect(context, ours, memory)
            return
        assert code is None, (code, answer)
        for name, entry in taken.items():
            part, _, key = name.partition("/")
            said = memory.setdefault(part, {})
            said.pop(key, None)
            said |= {} if entry is None or self.is_over(entry, part) else {key: entry.value}
        self.expect(context, ours, _without_empty(memory), merged=(source, source.head))

    def decide(self, review_id: str, conflicts: set[str], decided: str | None) -> str | None:
        """Have a human take one side everywhere, or none; return how that was answered."""
        resolutions = {key: {"take": decided} for key in conflicts}
        if decided is not None:
            code = self.ask("history.resolve", review_id=review_id, resolutions=resolutions)[1]
        if decided is None or code is not None:
            assert self.ask("history.close_review", review_id=review_id)[1] is None
        return None if decided is None else code

    @rule(sort=st.sampled_from(SORTS), versions=st.integers(1, 3))
    def prune(self, sort: str, versions: int) -> None:
        assert self.ask("history.set_retention", subject=sort, versions=versions)[1] is None
        self.versions[sort] = versions
        answer, code = self.ask("history.prune")
        assert (code, answer["finished"]) == (None, True)
        for context in self.contexts.values():
            for branch in context.roots:
                memory = context.memory(branch)
                if context.own_line(ARTIFACTS, branch) is not None:
                    for key in context.expired_artifacts(branch, self.now):
                        del memory[ARTIFACTS][key]
                self.expect(context, branch, _without_empty(memory))
            held = {(frozen.root, frozen.version) for frozen in self.held.values() if not frozen.root.deleted}
            own = {moment for moment in held if moment[0] in context.roots.values()}
            context.mark_prunable(own, self.versions, self.now)

    # What must hold.

    def compare(self, listed: list[dict[str, Any]], role: str | None, frozen: Frozen) -> None:
        """Compare entries that are shown with what a session should hold."""
        held = {part: said for part, said in frozen.memory.items() if part != DEFINITION}
        assert {(_part(entry), entry["key"]) for entry in listed} == {
            (part, key) for part in held for key in held[part]
        }
        for entry in listed:
            assert entry.get("truncated", False) or _in_short(entry["value"]) == held[_part(entry)][entry["key"]]
        assert role == frozen.memory.get(DEFINITION, {}).get("role")

    def read(self, session: str, owner: str, **which: Any) -> Any:
        """Return what a session holds; None if it was of a branch that is gone."""
        answer, code = self.ask("context.read", owner, session_id=session, limit=200, **which)
        assert code is None or (code == "BRANCH_NOT_FOUND" and self.held[session, owner].root.deleted), (code, answer)
        return answer if code is None else None

    @invariant()
    def every_session_holds_what_it_pulled(self) -> None:
        for (session, owner), frozen in self.held.items():
            answer = self.read(session, owner)
            if answer is not None:
                assert answer["version"] == frozen.version
                self.compare(answer["entries"], answer["definition"].get("role"), frozen)

    def read_whole(self) -> None:
        """Read every value that is held, wherever it lies."""
        for (session, owner), frozen in self.held.items():
            for part, said in frozen.memory.items():
                for key, value in said.items() if part != DEFINITION else ():
                    answer = self.read(session, owner, **_place(part, key))
                    assert answer is None or _in_short(answer["entries"][0]["value"]) == value

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        context, branch, root = self.drawn(data)
        part = data.draw(st.sampled_from([None, *PARTS]))
        line = root if part is None else context.own_line(part, branch)
        if line is not None and line.head > 0:
            self.expect_version(context, line, data.draw(st.integers(0, line.head)))

    def expect_version(self, context: ContextModel, line: Line, seq: int) -> None:
        """Read a version of a part, or of the whole, and compare it with what was said then."""
        answer, code = self.ask("history.state", context.owner, context_id=line.name, version=str(seq))
        assert code is None, (code, answer)
        state = _flat(context, line, seq) if line in context.roots.values() else line.state_at(seq)
        read = {entry["key"]: entry for entry in answer["entries"] if not entry["key"].startswith(f"{DEFINITION}/")}
        assert read.keys() == state.keys()
        for key, entry in read.items():
            kept = state[key]
            if entry.get("pruned"):
                assert self.is_over(kept, _part_of(kept)) or Line.is_pruned(
                    key.removeprefix(f"{_part_of(kept)}/"), kept
                )
            elif not entry.get("outside"):
                assert _in_short(entry["value"]) == kept.value

    @rule()
    def nobody_looks_into_another(self) -> None:
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


def _written_out(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "says": "y" * 40_000} if value["says"] == LARGE else value


def _in_short(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "says": LARGE} if value["says"] == "y" * 40_000 else value


def _flat(context: ContextModel, root: Line, seq: int) -> dict[str, Entry]:
    """Return the entries of a whole context, as PART/KEY."""
    states = {part: context.state(root, part, seq) if seq else {} for part in PARTS}
    return {f"{part}/{key}": entry for part, state in states.items() for key, entry in state.items()}


def _without_empty(memory: Memory) -> Memory:
    return {part: said for part, said in memory.items() if said}


@pytest.mark.req("CE-F2")
@pytest.mark.req("CE-F16")
@pytest.mark.req("CE-F18")
@pytest.mark.req("CE-F20")
@pytest.mark.req("CE-F55")
@pytest.mark.req("CE-E", part="a parent's edit during a session")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_sessions_hold_what_they_pulled_and_every_version_of_a_context_reads_back(
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
