"""Who acts when nobody does: the system itself, inside one tenant."""

from __future__ import annotations

from weft.kernel.identity import Actor, Kind, Permission

_HIGHEST_CLEARANCE = 5


def system_actor(tenant: str) -> Actor:
    return Actor(
        tenant=tenant,
        principal_id="system",
        kind=Kind.HUMAN,
        agent_type="system",
        parent_is_agent=False,
        permissions=frozenset(Permission),
        clearance=_HIGHEST_CLEARANCE,
        epoch=0,
    )
