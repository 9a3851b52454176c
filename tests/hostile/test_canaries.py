"""Every principal against every operation and resource, with secrets planted everywhere.

canary_expectations.txt says who may see which secret: a sight that is not on it fails, and so does a secret that nobody
sees, which would show nothing. ``make canary`` runs all principals on both databases.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from test_bad_input import OPERATIONS, VALID

from support.canaries import PRIVATE, Canaries, plant_everywhere, principals, requests, resources
from support.full_run import FULL
from support.undone import undo_writes
from support.world import SESSION
from weftline.app.dispatch import CallContext
from weftline.kernel.clock import SystemClock
from weftline.kernel.errors import WeftlineError
from weftline.transports.http.http_io import error_body
from weftline.transports.resources import parse_uri, read_resource

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from support.world import World
    from weftline.settings import Settings

pytestmark = [pytest.mark.req("CE-V", part="isolation")]
TABLE = Path(__file__).with_name("canary_expectations.txt")
PRINCIPALS = ("analysis", "review", "planner", "outsider", "human1", "human3", "human5", "chief", "admin", "foreign")
# A member, a stranger and a human who may edit nobody in a quick run.
CHOSEN = PRINCIPALS if FULL else ("analysis", "outsider", "human1")
# A part of the requests in a quick run: each principal makes more than four thousand.
STRIDE = 1 if FULL else 12


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, rate_limits="off", session_indexing="on")


class Observer:
    """Makes calls as one principal and notes which secrets it sees, and where."""

    def __init__(self, canaries: Canaries) -> None:
        self._canaries = canaries
        self.sights: dict[str, str] = {}

    async def see(self, where: str, answer: Awaitable[object]) -> None:
        """Note the secrets in an answer or an error."""
        for place in self._canaries.seen(await _text(answer)):
            self.sights.setdefault(place, where)


async def _text(answer: Awaitable[object]) -> str:
    try:
        content = await answer
    except WeftlineError as error:
        return repr(error_body(error, SystemClock()))
    return content.decode() if isinstance(content, bytes) else msgspec.json.encode(content).decode()


async def look_everywhere(world: World, context: CallContext, canaries: Canaries) -> dict[str, str]:
    """Call every operation and read every resource; return where each secret was seen."""
    observer = Observer(canaries)
    for name, operation in OPERATIONS.items():
        for raw in islice(requests(operation, VALID[name], canaries), 0, None, STRIDE):
            await observer.see(f"{name} {raw}", world.app.call(operation, raw, context))
    for uri in resources():
        await observer.see(uri, _resource(world, uri, context))
    return observer.sights


async def _resource(world: World, uri: str, context: CallContext) -> bytes:
    return await read_resource(world.app, parse_uri(uri), context)


def expected() -> dict[str, set[str]]:
    """Return who may see the secret of each place."""
    lines = [line.partition(" | ") for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    return {place.strip(): set(seers.split()) for place, _, seers in lines}


async def test_nobody_sees_a_secret_that_is_not_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    callers = await principals(world)
    canaries = await plant_everywhere(world, callers)
    undo_writes(world, monkeypatch)
    table = expected()
    sights = {name: await look_everywhere(world, CallContext(callers[name].credential), canaries) for name in CHOSEN}
    found = {place: " ".join(name for name in CHOSEN if place in sights[name]) for place in canaries.places}
    wrong = [
        f"{place} | {seers}   # {_unexpected(place, seers, table, sights)}"
        for place, seers in found.items()
        if not _as_expected(set(seers.split()), table.get(place, set()))
    ]
    assert not wrong, "seen otherwise than expected:\n" + "\n".join(wrong)


def _as_expected(seers: set[str], expected: set[str]) -> bool:
    """Return whether nobody else sees a place; in a full run also that everyone on the list does."""
    return seers == expected if FULL else seers <= expected


def _unexpected(
    place: str, seers: str, table: dict[str, set[str]], sights: dict[str, dict[str, str]]
) -> dict[str, str]:
    """Return where those who should not see a place have seen it."""
    return {name: sights[name][place] for name in seers.split() if name not in table.get(place, set())}


@pytest.mark.parametrize("session", [SESSION, PRIVATE])
async def test_a_bound_connection_sees_no_other_session(
    world: World, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner may see all of these unbound."""
    callers = await principals(world)
    canaries = await plant_everywhere(world, callers)
    undo_writes(world, monkeypatch)
    context = CallContext(callers["planner"].credential, session_id=session)
    sights = await look_everywhere(world, context, canaries)
    other = PRIVATE if session == SESSION else SESSION
    wrong = [f"{place}: {where}" for place, where in sights.items() if place in _places_of(other)]
    assert not wrong, "\n".join(wrong)
    assert _places_of(session) & sights.keys()


def _places_of(session: str) -> set[str]:
    """Return the places that belong to one session only."""
    private = {place for place in expected() if "private session" in place or place.endswith(f"in {PRIVATE}")}
    if session == PRIVATE:
        return private
    shared = ("board:", "message:", "window:", "memory: of a session", "task: in s1")
    return {place for place in expected() if place.startswith(shared)} - private
