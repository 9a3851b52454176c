"""What an agent's definition says about its window: model, context size and when to compact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from weft.capabilities.history.model import LATEST
from weft.kernel.fields import Ordinal

if TYPE_CHECKING:
    from weft.capabilities.access.model import Principal
    from weft.capabilities.access.store import AccessStore
    from weft.capabilities.history.store import LineStore

Threshold = Annotated[
    float,
    msgspec.Meta(gt=0, le=1, description="Part of the limit from which the window should be compacted, such as 0.8."),
]


class CompactionSettings(msgspec.Struct, frozen=True):
    """When and how to compact."""

    strategy: str | None = None
    threshold: Threshold | None = None


class AgentSettings(msgspec.Struct, frozen=True):
    """The fields of a definition's ``config`` that windows use."""

    model: str | None = None
    model_max_tokens: Ordinal | None = None
    compaction: CompactionSettings = CompactionSettings()


_decoder = msgspec.json.Decoder(AgentSettings)


async def agent_settings(agent_id: str, lines: LineStore) -> AgentSettings:
    """Return the settings in an agent's definition; none if it has none, or if they are not of this form."""
    config = await lines.latest(f"agent:{agent_id}", "config", LATEST)
    if config is None or config.value is None or config.change.meta.outside:
        return AgentSettings()
    try:
        return _decoder.decode(config.value)
    except msgspec.MsgspecError:
        return AgentSettings()


async def compaction_settings(agent: Principal, lines: LineStore, access: AccessStore) -> CompactionSettings:
    """Return the compaction settings of an agent or, if it has none, of its nearest ancestor that has."""
    above: Principal | None = agent
    visited: set[str] = set()
    while above is not None and above.principal_id not in visited:
        visited.add(above.principal_id)
        found = (await agent_settings(above.principal_id, lines)).compaction
        if found != CompactionSettings():
            return found
        above = None if above.parent_id is None else await access.principal(above.parent_id)
    return CompactionSettings()
