"""Helpers of the red team: an attempt has to be blocked, and to be on the log.

>>> await blocked(world, mallory.call("agent.define", agent_id="mallory", role="root"), "SELF_MODIFICATION",
...               violation="self_modification")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from weftline.kernel.errors import WeftlineError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from support.world import Caller, World

EVERYTHING = ["read", "write", "admin"]


@dataclass(frozen=True, slots=True)
class Logged:
    """What an attempt left on the tenant's log."""

    rows: list[dict[str, Any]]
    events: list[dict[str, Any]]

    @property
    def violations(self) -> set[str]:
        return {event["data"]["violation"] for event in self.events}


async def security_events(reader: Caller, after: int = 0) -> list[dict[str, Any]]:
    """Return the security events that a caller may read."""
    return (await reader.events(after=after, types=["security.violation"], wait_seconds=0))["events"]


async def logged_since(reader: Caller, seq: int, audit_id: str) -> Logged:
    await reader.app.flush_refusals()
    rows = [row for row in await reader.audit(limit=1000) if row["audit_id"] > audit_id and row["outcome"] != "done"]
    return Logged(rows, await security_events(reader, seq))


async def blocked(
    world: World, attempt: Awaitable[Any], *codes: str, violation: str | None = None, reader: Caller | None = None
) -> WeftlineError:
    """Expect an attempt to be refused with one of the codes and to be audited; a violation is published too.

    ``reader`` is the admin on whose log it is: of the home tenant, unless another is given.
    """
    reader = reader or world.admin
    # Rows and events are collapsed by minute: an attempt shows in a new one.
    world.clock.advance(seconds=61)
    newest = await reader.audit(limit=1)
    audit_id, seq = newest[0]["audit_id"] if newest else "", await last_seq(reader)
    with pytest.raises(WeftlineError) as caught:
        await attempt
    error = caught.value
    assert error.code in codes, f"{error.code}: {error.message}"
    logged = await logged_since(reader, seq, audit_id)
    assert logged.rows, f"{error.code} is not on the audit log"
    if violation is not None:
        assert violation in logged.violations, f"{error.code} is no security event {violation}: {logged}"
    return error


async def last_seq(reader: Caller) -> int:
    return (await reader.call("events.read", wait_seconds=0))["next_after"]
