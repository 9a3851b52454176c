"""History against a reference model: every version reads back until retention removes it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from support.full_run import examples
from support.history_model import Commit, Entry, Line, ancestors, merge_bases, prune, three_way
from support.world import World
from weftline.kernel.errors import WeftlineError
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from support.history_model import State

SESSION = "m"
MAIN = f"board:{SESSION}"
KEYS = st.sampled_from(["a", "b", "c_c"])
# The last strategy gives values long enough to be compressed; only the first gives equal values often.
VALUES = st.one_of(
    st.sampled_from(["", "same"]), st.text("xyzäß漢 \n", max_size=12), st.integers(0, 9).map(lambda n: f"{n} " * 700)
)
TTLS = st.one_of(st.none(), st.none(), st.integers(1, 8))
CHOICES = st.sampled_from(["ours", "theirs", "base", "value"])
MAX_LINES = 4


class HistoryMachine(RuleBasedStateMachine):
    """Applies the same calls to a board with branches and to a model."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        url = url or str(Path(self.folder.name) / "weftline.db")
        self.clock = FrozenClock()
        self.world = World(url, self.clock, Settings(database_url=url, rate_limits="off"))
        self.run(self.world.open())
        self.run(self.world.planner.create_session(SESSION, keep_versions=10_000))
        self.now = 0.0
        self.lines: dict[str, Line] = {"main": Line(MAIN)}
        self.current, self.is_deleted = "main", False
        self.named = 0
        self.tagged: dict[tuple[Line, str], dict[str, str]] = {}
        self.tagged_at: dict[tuple[Line, str], float] = {}

    # Calls.

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def ask(self, operation: str, by: str = "planner", **raw: Any) -> tuple[Any, str | None]:
        caller = getattr(self.world, by).in_session(SESSION)
        try:
            return self.run(caller.call(operation, **raw)), None
        except WeftlineError as error:
            return None, error.code

    @property
    def current_line(self) -> Line | None:
        """The line of the branch the planner switched to; None if it was deleted, even if recreated."""
        return None if self.is_deleted else self.lines[self.current]

    def line(self, data: st.DataObject) -> tuple[str, Line]:
        branch = data.draw(st.sampled_from(sorted(self.lines)))
        return branch, self.lines[branch]

    def new_commits(self, line: Line) -> list[dict[str, Any]]:
        """Add new expiry commits to the model and return the other new ones."""
        answer, _ = self.ask("history.log", context_id=line.name, limit=20)
        fresh = [commit for commit in reversed(answer["commits"]) if commit["version"] > line.head]
        while fresh and {change["act"] for change in fresh[0]["changes"]} == {"expire"}:
            keys = {change["key"] for change in fresh.pop(0)["changes"]}
            assert keys <= line.expired(self.now)
            line.add(Commit(self.now, dict.fromkeys(keys)))
        return fresh

    def expect_commit(self, line: Line, commit: Commit | None) -> None:
        """Check that the line's only new commit equals ``commit``, and add it to the model."""
        fresh = self.new_commits(line)
        if commit is None:
            assert fresh == []
            return
        (made,) = fresh
        assert {change["key"]: change["act"] for change in made["changes"]} == {
            key: "delete" if entry is None else "write" for key, entry in commit.changes.items()
        }
        merged = made.get("merged")
        assert (merged and merged["context_id"]) == (commit.merged and commit.merged[0].name)
        line.add(commit)
        assert made["version"] == line.head

    def tag(self, line: Line, label: str) -> None:
        """Tag the head; the tagged state must stay readable."""
        line.named[label] = line.head
        self.tagged_at.setdefault((line, label), self.now)
        state = line.present(self.now)
        self.tagged[line, label] = {key: e.value for key, e in state.items() if not Line.is_pruned(key, e)}

    def applied(
        self, line: Line, state: dict[str, Entry | None], *, restored_at: float | None = None
    ) -> dict[str, Entry | None] | None:
        """Return the changes that bring keys to a state; None if a needed value was pruned."""
        present = line.present(self.now)
        changes: dict[str, Entry | None] = {}
        for key, wanted in state.items():
            entry = wanted
            if entry is not None and entry.expires_at is not None and restored_at is not None:
                entry = entry._replace(expires_at=self.now + entry.expires_at - restored_at)
            if entry is None or not entry.is_live_at(self.now):
                if key in present:
                    changes[key] = None
                continue
            lasts = restored_at is None or entry.expires_at is None
            if lasts and key in present and present[key].content == entry.content:
                continue
            if line.is_pruned(key, entry):
                return None
            changes[key] = Entry(*entry.content)
        return changes

    # Rules.

    @rule(data=st.data(), key=KEYS, value=VALUES, ttl=TTLS)
    def write(self, data: st.DataObject, key: str, value: str, ttl: int | None) -> None:
        by = data.draw(st.sampled_from(["planner", "analysis"]))
        branch, line = self.line(data) if by == "analysis" else (self.current, self.current_line)
        named = {"branch": branch} if by == "analysis" else {}
        answer, code = self.ask("board.write", by, session_id=SESSION, key=key, value=value, ttl_seconds=ttl, **named)
        if line is None:
            assert code == "BRANCH_NOT_FOUND"
            return
        assert code is None, code
        assert answer["key"] == key
        self.expect_commit(line, Commit(self.now, {key: Entry(value, None if ttl is None else self.now + ttl)}))

    @rule(data=st.data(), keys=st.lists(KEYS, min_size=2, max_size=5))
    def write_several(self, data: st.DataObject, keys: list[str]) -> None:
        for key in keys:
            self.write(data, key, data.draw(VALUES), None)

    @rule(data=st.data(), key=KEYS)
    def delete(self, data: st.DataObject, key: str) -> None:
        branch, line = self.line(data)
        exists = key in line.present(self.now)
        _, code = self.ask("board.delete", "analysis", session_id=SESSION, key=key, branch=branch)
        assert code == (None if exists else "KEY_NOT_FOUND")
        self.expect_commit(line, Commit(self.now, {key: None}) if exists else None)

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.now += seconds

    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        _, line = self.line(data)
        self.named += 1
        label = f"mark{self.named}"
        answer, code = self.ask("history.snapshot", context_id=line.name, label=label)
        assert code is None, code
        self.expect_commit(line, None)
        self.tag(line, label)
        assert answer["version"] == line.head

    @precondition(lambda self: len(self.lines) < MAX_LINES)
    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        _, line = self.line(data)
        seq = data.draw(st.integers(0, line.head))
        name = data.draw(st.sampled_from(["one", "two", "three"]).filter(lambda name: name not in self.lines))
        answer, code = self.ask("history.branch", context_id=line.name, branch=name, from_version=str(seq))
        assert code is None, code
        self.expect_commit(line, None)
        assert answer["version"] == seq
        self.lines[name] = Line(f"{MAIN}@{name}", (line.owner(seq), seq))

    @rule(data=st.data())
    def switch(self, data: st.DataObject) -> None:
        branch, _ = self.line(data)
        answer, code = self.ask("history.switch", context_id=MAIN, branch=branch)
        assert (answer["branch"], code) == (branch, None)
        self.current, self.is_deleted = branch, False

    @precondition(lambda self: len(self.lines) > 1)
    @rule(data=st.data(), force=st.booleans())
    def delete_branch(self, data: st.DataObject, force: bool) -> None:  # noqa: FBT001 - drawn by name
        branch = data.draw(st.sampled_from(sorted(self.lines.keys() - {"main"})))
        line = self.lines[branch]
        assert line.base is not None
        used = any(other.base and other.base[0] is line for other in self.lines.values())
        others = [line.base[0], self.lines["main"]]
        merged = any((line, line.head) in ancestors((other, other.head)) for other in others)
        merges = {(other.name, made.merged) for other in self.lines.values() for made in other.commits.values()}
        merged_by = {
            name for name, merged_point in merges if merged_point and merged_point[0].owner(merged_point[1]) is line
        }
        code = self.ask("history.delete_branch", context_id=MAIN, branch=branch, force=force)[1]
        if used:
            assert code == "BRANCH_IN_USE"
        elif line.commits and not merged and not force:
            assert code == "BRANCH_NOT_MERGED"
        elif len(merged_by) > 1 and not force:
            assert code == "BRANCH_IN_USE"
        else:
            assert code is None
            line.deleted = True
            del self.lines[branch]
            self.is_deleted |= branch == self.current

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        _, line = self.line(data)
        target = data.draw(st.integers(0, line.head))
        answer, code = self.ask("history.rollback", context_id=line.name, target_version=str(target))
        fresh = self.new_commits(line)
        target_state, present = line.state_at(target), line.present(self.now)
        differing = {
            key for key in {*target_state, *present} if _value_of(target_state, key) != _value_of(present, key)
        }
        commit = line.commit_at(target)
        wanted = {key: target_state.get(key) for key in differing}
        changes = self.applied(line, wanted, restored_at=commit.at if commit else self.now)
        if changes is None:
            assert (code, fresh) == ("VERSION_PRUNED", [])
            return
        assert code is None, code
        assert answer["from_version"] == line.head
        if differing:
            self.tag(line, answer["snapshot_before"])
        self.expect_commit(line, Commit(self.now, changes) if changes else None)
        assert answer["version"] == line.head

    @precondition(lambda self: len(self.lines) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        ours, theirs = data.draw(st.permutations(sorted(self.lines)))[:2]
        line, source = self.lines[ours], self.lines[theirs]
        points = merge_bases((line, line.head), (source, source.head))
        if len(points) > 1:
            # Criss-cross merges have several merge bases; the model does not choose one.
            return
        answer, code = self.ask("history.merge", context_id=line.name, from_context_id=source.name)
        self.new_commits(line)
        theirs_now = (source.owner(source.head), source.head)
        if source.head == 0 or theirs_now in ancestors((line, line.head)):
            assert (code, answer["merged"]) == (None, True)
            self.expect_commit(line, None)
            return
        base, seq = next(iter(points), (line, 0))
        in_line, in_source = (each.present(self.now) for each in (line, source))
        # What is missing there because it expired was not changed there.
        then = {k: e for k, e in base.state_at(seq).items() if k in in_source or e.is_live_at(self.now)}
        states = [then, in_line, in_source]
        taken, conflicts = three_way(*states)
        if conflicts:
            assert {conflict["key"] for conflict in answer["conflicts"]} == conflicts
            self.expect_commit(line, None)
            if data.draw(st.booleans()):
                assert self.ask("history.close_review", "admin", review_id=answer["review_id"])[1] is None
                return
            taken, code = self.decide(data, answer["review_id"], taken, conflicts, states)
        changes = self.applied(line, taken)
        if changes is None:
            assert code == "VERSION_PRUNED"
            self.expect_commit(line, None)
            return
        assert code is None, code
        if taken:
            self.tag(line, f"before-merge-v{line.head}")
        self.expect_commit(line, Commit(self.now, changes, merged=(source.owner(source.head), source.head)))

    def decide(
        self,
        data: st.DataObject,
        review_id: str,
        taken: dict[str, Entry | None],
        conflicts: set[str],
        states: list[State],
    ) -> tuple[dict[str, Entry | None], str | None]:
        """Resolve every conflict as a human; return the merged entries and the error code."""
        sides = dict(zip(("base", "ours", "theirs"), states, strict=True))
        chosen = {key: data.draw(CHOICES) for key in sorted(conflicts)}
        code = self.ask(
            "history.resolve",
            "admin",
            review_id=review_id,
            resolutions={key: {"take": take, "value": "settled"} for key, take in chosen.items()},
        )[1]
        if code is not None:
            assert self.ask("history.close_review", "admin", review_id=review_id)[1] is None
        decided = {key: Entry("settled") if take == "value" else sides[take].get(key) for key, take in chosen.items()}
        return {**taken, **decided}, code

    @rule(versions=st.integers(1, 3))
    def prune(self, versions: int) -> None:
        rule = {"subject": "board", "days": None, "versions": versions}
        assert self.ask("history.set_retention", "admin", **rule)[1] is None
        answer, code = self.ask("history.prune", "admin")
        assert (code, answer["finished"]) == (None, True)
        for line in self.lines.values():
            self.delete_automatic_tags(line, versions)
        assert answer["versions"] == prune([*self.lines.values()], versions)

    def delete_automatic_tags(self, line: Line, at_most: int) -> None:
        """Delete all but the newest automatic tags."""
        automatic = [label for label in line.named if label.startswith("before-")]
        newest = sorted(automatic, key=lambda label: (-self.tagged_at[line, label], label))
        for label in newest[at_most:]:
            del line.named[label], self.tagged[line, label], self.tagged_at[line, label]

    # Invariants.

    def values_at(self, line: Line, version: str) -> dict[str, str | None]:
        answer, code = self.ask("history.state", "analysis", context_id=line.name, version=version)
        assert code is None, code
        return {entry["key"]: entry["value"] for entry in answer["entries"]}

    def expect_version(self, line: Line, seq: int) -> None:
        assert self.values_at(line, str(seq)) == {
            key: None if Line.is_pruned(key, entry) else entry.value for key, entry in line.state_at(seq).items()
        }

    @invariant()
    def every_board_equals_the_model(self) -> None:
        for branch, line in self.lines.items():
            state = line.present(self.now)
            which = {"session_id": SESSION, "branch": branch}
            values, code = self.ask("board.read_batch", "analysis", keys=["a", "b", "c_c"], **which)
            if any(Line.is_pruned(*item) for item in state.items()):
                assert code == "VERSION_PRUNED"
                continue
            assert {entry["key"]: entry["value"] for entry in values["entries"]} == {
                key: entry.value for key, entry in state.items()
            }

    @rule(data=st.data())
    def read_old_version(self, data: st.DataObject) -> None:
        _, line = self.line(data)
        seq = data.draw(st.integers(0, line.head))
        self.expect_version(line, seq)

    def teardown(self) -> None:
        try:
            for line in self.lines.values():
                for seq in range(line.head + 1):
                    self.expect_version(line, seq)
                for label in line.named:
                    assert self.tagged[line, label].items() <= self.values_at(line, label).items()
                verified, _ = self.ask("history.verify", context_id=line.name)
                assert verified["intact"], verified
        finally:
            self.run(self.world.close())
            self.loop.close()
            self.folder.cleanup()


def _value_of(state: State, key: str) -> tuple[str, float | None] | None:
    return state[key].content if key in state else None


@pytest.mark.req("CE-F20")
@pytest.mark.req("CE-F22")
@pytest.mark.req("CE-F25")
@pytest.mark.req("SC-12")
@pytest.mark.req("SC-15")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_version_reads_back_as_it_was_until_retention_removes_it(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    run_state_machine_as_test(
        lambda: HistoryMachine(url),
        settings=settings(
            max_examples=examples(60 if kind == "sqlite" else 25),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
