"""Nothing that a caller is shown depends on values that it may not read, unless in a way that only a salt explains.

The same tenant is created several times, with the same ids and times. What a caller sees of it, in every operation,
may depend on hidden values only through the random salts of commits: what changes with a value, but not with the salts,
would confirm a guess of the value.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import secrets
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from test_bad_input import VALID

from support.undone import undo_writes
from support.world import SESSION, World
from weftline.history.lines import LineStore
from weftline.history.model import EMPTY, blob_hash
from weftline.kernel.errors import WeftlineError
from weftline.storage.sql.database import Scope
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.databases import EmptiedDatabase
    from support.world import Caller
    from weftline.history.model import StoredCommit
    from weftline.settings import Settings

pytestmark = pytest.mark.req("CE-V", part="isolation")
BOARD = f"board:{SESSION}"
HIDDEN = ["subagent:review:*"]
PIN, OTHER_PIN, LONG_PIN = "4821", "1734", "a value of many words, which is much longer than a PIN"
# The size of a board includes hidden keys: it decides whether a write fits.
TOTALS = {"total_size_tokens"}
SALTS, OTHER_SALTS = 1_000_000, 2_000_000
LINES = (
    BOARD,
    f"{BOARD}@try",
    "memory:review-2",
    "context:review-2",
    "context:review-2:learned_knowledge",
    "agent:review-2",
    f"window:{SESSION}:review-2",
    "layer:team:auditors",
)
OF_LINES = ("log", "show", "state", "diff", "blame", "verify", "branches", "context_snapshots", "snapshot", "bisect")
SCOPES = ("session", "handoff")


Shown = dict[tuple[str, str], object]


class Randomness:
    """Ids that are the same in every run; the salts of commits depend on a number.

    They begin anew with each call, so that calls with a different number of ids have no effect on later ones.
    """

    def __init__(self, salts: int) -> None:
        self._first_salt = salts
        self._ids, self._salts = random.Random(0), random.Random(0)
        self.restart(0)

    def restart(self, call: int) -> None:
        self._ids.setstate(random.Random(call).getstate())
        self._salts.setstate(random.Random(call + self._first_salt).getstate())
        self._time = itertools.count(10**18 + call * 10**9, 1_000)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "urandom", self._salts.randbytes)
            patch.setattr(secrets, "token_bytes", self._ids.randbytes)
            patch.setattr(secrets, "token_hex", lambda size: self._ids.randbytes(size).hex())
            patch.setattr(secrets, "token_urlsafe", lambda size: self._ids.randbytes(size).hex())
            patch.setattr(time, "time_ns", lambda: next(self._time))
            yield


async def plant(world: World, pin: str) -> None:
    """Put a value wherever the reviewer can read it and others cannot."""
    planner, review, admin = world.planner, world.review, world.admin
    await planner.write("goal", "ship")
    await review.write("pin", pin, readable_by=HIDDEN)
    await review.write("pin", f"{pin} again", readable_by=HIDDEN)
    # Everyone could read this version until its key was closed.
    await review.write("closed", pin)
    await review.write("closed", "now hidden", readable_by=HIDDEN)
    await review.write("gone", pin, readable_by=HIDDEN)
    await review.delete("gone")
    await planner.snapshot("mark")
    await planner.call("history.branch", context_id=BOARD, branch="try")
    await review.write("pin", f"{pin} ours", readable_by=HIDDEN)
    await review.call("board.write", session_id=SESSION, key="pin", value=f"{pin} theirs", branch="try")
    await review.say(pin, visibility="private")
    await planner.say("ship it")
    await review.remember("pin", pin)
    await review.call("context.push", knowledge=[{"key": "pin", "value": pin}], if_version=0)
    await review.call("context.pull", session_id=SESSION)
    await review.call("context.ingest", session_id=SESSION, events=[{"event_id": "e1", "content": f"The PIN is {pin}"}])
    await review.call("window.checkpoint", session_id=SESSION, label="before")
    await review.call("context.assemble", session_id=SESSION, task_description="What is the PIN?")
    await admin.call("team.create", team="auditors")
    await admin.call("team.add_member", team="auditors", agent_id="review-2")
    await admin.call("layer.define", layer="team:auditors", text=f"The PIN is {pin}.")
    await admin.call("agent.define", agent_id="review-2", role="reviewer", system_prompt=f"The PIN is {pin}.")
    await admin.call("knowledge.create_domain", domain="handbook", clearance=5)
    await admin.call("knowledge.add_document", domain="handbook", document_id="a.md", text=f"The PIN is {pin}.")
    item = {
        "schema_version": "0.1.0",
        "item_id": "item1",
        "context_kind": "note",
        "content_mode": "inline",
        "visibility": HIDDEN,
        "content": pin,
        "created_at": "2026-02-20T00:00:00Z",
    }
    await review.call("records.add", session_id=SESSION, records=[item], readable_by=HIDDEN)
    await world.app.scheduler.drain("knowledge.ingest")
    await world.index_sessions()
    await review.call("search.get_context", session_id=SESSION, query=f"PIN {pin}")
    for scope in SCOPES:
        await review.call("bundle.export", session_id=SESSION, scope=scope, recipient="other")


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests for every operation, and for all lines and items with a hidden value."""
    yield from VALID.items()
    for line, action in itertools.product(LINES, OF_LINES):
        name = f"history.{action}"
        yield name, {**VALID[name], "context_id": line}
    for version in range(1, 13):
        yield "history.show", {"context_id": BOARD, "version": str(version)}
    yield "history.merge", {"context_id": BOARD, "from_context_id": f"{BOARD}@try"}
    yield "history.delete_branch", {"context_id": BOARD, "branch": "try", "force": True}
    yield "events.read", {"after": 0}
    yield "board.read", {"session_id": SESSION, "key": "pin"}
    yield "board.list_keys", {"session_id": SESSION}
    yield "records.list", {"session_id": SESSION}
    for item in ("pin/1.1", "pin/1.2", "closed/1.1", "closed/1.2", "gone/1.1"):
        yield "records.show", {"record_id": f"{BOARD}/{item}"}
        yield "trust.trace", {"item": f"{BOARD}/{item.partition('/')[0]}"}
    for name in ("item1", "memory:review-2/pin/1.1", f"window:{SESSION}:review-2/e1/1.1", f"message:{SESSION}/1"):
        yield "records.show", {"record_id": name}
    for scope, form, history in itertools.product(SCOPES, ("ndjson", "prov"), (True, False)):
        yield (
            "bundle.export",
            {"session_id": SESSION, "scope": scope, "format": form, "history": history, "recipient": "x"},
        )


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{place}]")
    elif isinstance(value, str) and value[:1] in {"{", "["}:
        for place, line in enumerate(value.splitlines()):
            try:
                yield from leaves(msgspec.json.decode(line), f"{path}:{place}")
            except msgspec.DecodeError:
                yield f"{path}:{place}", line
    else:
        yield path, value


async def answer(caller: Caller, name: str, raw: dict[str, Any]) -> Any:
    try:
        return await caller.call(name, **raw)
    except WeftlineError as error:
        return {"code": error.code, "message": error.message, "hint": error.hint, "context": error.context}


async def seen(world: World, pin: str, randomness: Randomness) -> Shown:
    """Return the leaves of all answers to callers who may not read the PIN, by call and place in the answer."""
    await plant(world, pin)
    callers = {"sub": world.analysis, "human": await world.admin.create_agent("ann", kind="human", clearance=1)}
    callers["outside"] = await world.admin.create_agent("mallory", agent_type="planning", clearance=3)
    await world.planner.admit("ann")
    # Until its tools are embedded, an App finds them by words only.
    await world.app.tool_catalogue.prepare()
    shown: Shown = {}
    with pytest.MonkeyPatch.context() as patch:
        undo_writes(world, patch)
        for who, caller in callers.items():
            for number, (name, raw) in enumerate(requests()):
                randomness.restart(number + 1)
                for path, value in leaves(await answer(caller, name, raw)):
                    shown[f"{number} {name} by {who} {raw}", path] = value
    return shown


async def run(settings: Settings, pin: str, salts: int = SALTS) -> Shown:
    """Create the tenant in an empty database, and return what callers see who may not read the PIN."""
    randomness = Randomness(salts)
    with randomness.in_use():
        world = World(settings.database_url, FrozenClock(), settings)
        await world.open()
        # On demand only: a job would take ids in the middle of a call.
        world.app.scheduler.paused |= {job.name for job in world.app.scheduler.jobs}
        try:
            return await seen(world, pin, randomness)
        finally:
            await world.close()


@pytest.fixture
def empty_databases(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> Callable[[], Settings]:
    """Return a function that returns the settings of another empty database of the same kind."""
    number = itertools.count()

    def another() -> Settings:
        folder = tmp_path / str(next(number))
        folder.mkdir()
        if settings.database_url.startswith("postgres"):
            emptied: EmptiedDatabase = request.getfixturevalue("emptied")
            emptied.empty()
            return replace(settings, data_dir=str(folder))
        path = shutil.copy(request.getfixturevalue("empty_file"), folder / "weftline.db")
        return replace(settings, data_dir=str(folder), database_url=str(path))

    return another


def differing(one: Shown, other: Shown) -> set[tuple[str, str]]:
    return {at for at in one.keys() | other.keys() if one.get(at, EMPTY) != other.get(at, EMPTY)}


async def test_answers_depend_on_hidden_values_only_through_salts(empty_databases: Callable[[], Settings]) -> None:
    shown, repeated, of_other_value, of_other_salts, of_other_size = [
        await run(await asyncio.to_thread(empty_databases), pin, salts)
        for pin, salts in ((PIN, SALTS), (PIN, SALTS), (OTHER_PIN, SALTS), (PIN, OTHER_SALTS), (LONG_PIN, SALTS))
    ]
    durations = {at for at in shown if at[1] == ".search_time_ms"}
    assert differing(shown, repeated) <= durations, "the runs are not comparable"
    by_value, by_salts = differing(shown, of_other_value) - durations, differing(shown, of_other_salts)
    assert not [(at, shown.get(at), of_other_value.get(at)) for at in sorted(by_value - by_salts)]
    assert {path.rpartition(".")[2] for _, path in by_value} >= {"hash", "parent"}, "no hash was seen"
    by_size = differing(shown, of_other_size) - durations - by_salts
    assert not [(at, shown.get(at), of_other_size.get(at)) for at in by_size if at[1].rpartition(".")[2] not in TOTALS]


async def commits_of(world: World, line_id: str) -> list[StoredCommit]:
    """Return the commits of a line from the database, oldest first."""
    found = await world.app.database.read(Scope(world.tenant), lambda tx: LineStore(tx).log(line_id, 100, 100))
    return list(found)[::-1]


async def weight(world: World, line_id: str, seq: int) -> int | None:
    return await world.app.database.read(Scope(world.tenant), lambda tx: LineStore(tx).weight_at(line_id, seq))


@pytest.mark.both_databases
async def test_a_short_value_cannot_be_found_from_the_hash_of_its_commit(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.review.write("pin", PIN, readable_by=HIDDEN)
    log = (await world.analysis.call("history.log", context_id=BOARD))["commits"]
    before, stored = await commits_of(world, BOARD)
    assert [commit["hash"] for commit in log] == [stored.hash.hex(), before.hash.hex()]
    (change,), tokens = stored.commit.changes, await weight(world, BOARD, 2)

    def guessed(salt: bytes | None) -> list[str]:
        """Return the PINs that explain the hash, for an attacker who knows everything else."""
        found = []
        for number in range(10_000):
            value = msgspec.structs.replace(change, blob_hash=blob_hash(f"{number:04}"))
            commit = msgspec.structs.replace(stored.commit, changes=(value,), salt=salt)
            if commit.hash_after(before.hash, weight=tokens).hex() == log[0]["hash"]:
                found.append(f"{number:04}")
        return found

    assert guessed(None) == []
    assert guessed(bytes(16)) == []
    assert guessed(stored.commit.salt) == [PIN], "the attack does not work even with the salt"
