"""A kind of line is one entry in the registry: with it, history, records and session deletion work for its lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.world import refused
from weftline.app.dispatch import CallContext
from weftline.history import line_kinds
from weftline.history.commits import record
from weftline.history.line_kinds import AGENT, SESSION, CommitMeta, LineKind
from weftline.history.lines import LineStore
from weftline.history.model import (
    BRANCH_MARK,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Head,
    Point,
    Version,
    blob_hash,
    no_line,
)
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import Actor
from weftline.kernel.outbox import Outbox
from weftline.sessions.sql import SessionStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from support.world import World
    from weftline.kernel.transaction import Transaction

pytestmark = pytest.mark.both_databases
LINE = "scratch:s1:planner"


class ScratchLines(msgspec.Struct, frozen=True):
    """Opens lines whose entries exist only as versions; participants of the session may read and change them."""

    actor: Actor
    sessions: SessionStore
    lines: LineStore
    outbox: Outbox
    clock: Clock

    async def to_read(self, line_id: str) -> ScratchLine:
        session = await self.sessions.find(SCRATCH.named(SESSION, line_id) or "")
        line = await self.lines.find(line_id)
        if line is None or session is None or not session.admits(self.actor):
            raise no_line(line_id)
        return ScratchLine(self, line.head)

    async def to_write(self, line_id: str) -> ScratchLine:
        await self.lines.lock(line_id)
        return await self.to_read(line_id)

    async def check_rollback(self, line_id: str) -> None:
        """Require no clearance."""

    async def expire(self, line_id: str, limit: int) -> bool:
        del line_id, limit
        return False

    async def check_size(self, line_id: str, key: str, text: str) -> None:
        """Scratch values have any size."""

    async def check_switch(self, before: str, after: str) -> None:
        del before, after

    async def pin_referenced(self, line_id: str) -> None:
        """No line refers to versions of this kind."""


@dataclass(slots=True)
class ScratchLine:
    """One open line."""

    backend: ScratchLines
    head: Head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return list(versions)

    async def apply(self, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> Head:
        return await self.set({key: None if to is None else to.value for key, to in state.items()}, commit_meta.reason)

    async def set(self, values: Mapping[str, str | None], reason: str) -> Head:
        """Set entries, or delete them, as one commit."""
        lines, actor = self.backend.lines, self.backend.actor
        changes = tuple([await self._change(key, value) for key, value in values.items()])
        for value in filter(None, values.values()):
            await lines.put_blob(blob_hash(value), value)
        author = Author(actor.participant, actor.principal_id)
        now = to_micros(self.backend.clock.now())
        commit = Commit(self.head.line_id, self.head.seq + 1, author, now, reason, None, changes)
        self.head = await record(lines, self.head, commit, weight=0)
        return self.head

    async def _change(self, key: str, value: str | None) -> Change:
        latest = await self.backend.lines.latest(self.head.line_id, key, self.head.seq)
        incarnation, version = (1, 0) if latest is None else (latest.change.incarnation, latest.change.version)
        if value is None:
            return Change(key, incarnation, version, ChangeKind.DELETE, None, ChangeMeta())
        return Change(key, incarnation, version + 1, ChangeKind.WRITE, blob_hash(value), ChangeMeta(size=len(value)))

    async def announce(self, event_type: EventType, subject: str, data: Mapping[str, object]) -> None:
        session_id = SCRATCH.named(SESSION, self.head.line_id)
        actor = self.backend.actor.participant
        await self.backend.outbox.publish(
            NewEvent(type=event_type, session_id=session_id, subject=subject, actor=actor, data=dict(data))
        )

    async def note_branches(self, change: int) -> None:
        """Branches of this kind are not limited."""


SCRATCH = LineKind(
    prefix="scratch",
    names=(SESSION, AGENT),
    backend=ScratchLines,
    item_kind="scratch_entry",
    source_kind="weftline_scratch",
)


@pytest.fixture
async def filled(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world with the kind registered, and a line of two commits."""
    monkeypatch.setitem(line_kinds._registered, SCRATCH.prefix, SCRATCH)
    line_kinds.register([SCRATCH])
    await write(world, LINE, {"system": '"be brief"', "task": '"ship"'})
    await write(world, LINE, {"task": '"wait"', "note": '"late"'})
    return world


async def write(world: World, line_id: str, values: dict[str, str | None]) -> None:
    planner = await world.app.identify(CallContext(world.planner.credential))

    async def commit(transaction: Transaction) -> None:
        backend = world.app._container.build(ScratchLines, planner, transaction)
        await backend.lines.create(line_id)
        await (await backend.to_write(line_id)).set(values, "filled")

    await world.app.database.write(Scope(world.tenant), commit)


async def branch(world: World, line_id: str, name: str) -> None:
    planner = await world.app.identify(CallContext(world.planner.credential))

    async def start(transaction: Transaction) -> None:
        lines = world.app._container.build(ScratchLines, planner, transaction).lines
        found = await lines.find(line_id)
        assert found is not None
        base = Point(line_id, found.head.seq, found.head.hash)
        assert await lines.branch(f"{line_id}{BRANCH_MARK}{name}", base, weight=0, next_expiry_at=None)

    await world.app.database.write(Scope(world.tenant), start)


async def state(world: World) -> dict[str, Any]:
    answer = await world.planner.call("history.state", context_id=LINE)
    return {entry["key"]: entry["value"] for entry in answer["entries"]}


async def scratch_lines(world: World) -> list[str]:
    rows = await world.rows("SELECT line_id FROM lines WHERE tenant = $1", world.tenant)
    return sorted(line_id for (line_id,) in rows if line_id.startswith("scratch:"))


async def test_its_log_lists_the_commits(filled: World) -> None:
    log = await filled.planner.call("history.log", context_id=LINE)
    assert [(commit["version"], commit["author"]) for commit in log["commits"]] == [
        (2, "orchestrator:planner"),
        (1, "orchestrator:planner"),
    ]
    assert await state(filled) == {"system": "be brief", "task": "wait", "note": "late"}
    assert (await filled.planner.call("history.verify", context_id=LINE))["intact"]


async def test_its_versions_can_be_compared(filled: World) -> None:
    diff = await filled.planner.call("history.diff", context_id=LINE, from_version="1", to_version="2")
    assert [each["key"] for each in diff["added"]] == ["note"]
    assert diff["removed"] == []
    (task,) = diff["modified"]
    assert (task["key"], task["diff"]) == ("task", "@@ -1 +1 @@\n-ship\n+wait")


async def test_a_rollback_restores_an_earlier_state(filled: World) -> None:
    done = await filled.planner.call("history.rollback", context_id=LINE, target_version="1")
    assert (done["written"], done["removed"]) == (["task"], ["note"])
    assert await state(filled) == {"system": "be brief", "task": "ship"}
    events = (await filled.planner.events(types=["history.*"]))["events"]
    assert [(event["type"], event["subject"]) for event in events] == [("history.rolled_back", LINE)]


async def test_a_rollback_needs_the_clearance_that_its_backend_asks_for(filled: World) -> None:
    with refused("PERMISSION_DENIED"):
        await filled.analysis.call("history.rollback", context_id=LINE, target_version="1")


async def test_its_versions_are_record_items_with_a_source(filled: World) -> None:
    shown = await filled.planner.call("records.show", record_id=f"{LINE}/task/1.2", with_content=True)
    assert shown["record"]["context_kind"] == "scratch_entry"
    assert shown["content"] == '"wait"'
    (source,) = shown["record"]["source_refs"]
    assert source == "agent://planner/scratch"
    found = await filled.planner.call("records.show", record_id=source)
    assert found["record"]["source_kind"] == "weftline_scratch"


async def test_only_those_whom_its_backend_admits_can_read_it(filled: World) -> None:
    for line_id in ("scratch:s2:planner", "scratch:s1", "scratch:s1:planner:more"):
        with refused("CONTEXT_NOT_FOUND"):
            await filled.planner.call("history.log", context_id=line_id)
    with refused("CONTEXT_NOT_FOUND"):
        await filled.stranger.call("history.log", context_id=LINE)
    with refused("RECORD_NOT_FOUND"):
        await filled.stranger.call("records.show", record_id=f"{LINE}/task/1.2")


async def test_its_lines_are_deleted_with_their_session_and_no_others(filled: World) -> None:
    similar = ("s10", "S1", "as1", "s_1", "sx1")
    for session_id in similar:
        await filled.planner.create_session(session_id)
        await write(filled, f"scratch:{session_id}:planner", {"task": '"other"'})
    # An agent may have the name of a session.
    await write(filled, "scratch:s10:s1", {"task": '"other"'})
    await branch(filled, LINE, "draft")
    await branch(filled, "scratch:s_1:planner", "draft")
    await filled.planner.call("session.delete", session_id="s1")
    kept = {f"scratch:{session_id}:planner" for session_id in similar} | {"scratch:s10:s1", "scratch:s_1:planner@draft"}
    assert set(await scratch_lines(filled)) == kept
    # _ is a wildcard in LIKE.
    await filled.planner.call("session.delete", session_id="s_1")
    assert set(await scratch_lines(filled)) == {line for line in kept if not line.startswith("scratch:s_1:")}
    left = await filled.rows("SELECT COUNT(*) FROM commits WHERE tenant = $1 AND line_id = $2", filled.tenant, LINE)
    assert left[0][0] == 0
