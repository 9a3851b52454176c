"""Settings of an agent's window in definitions and layers: model, context size, and when and how to compact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from weft.capabilities.agent_context.compaction_settings import CompactionSettings, ResolvedCompaction
from weft.capabilities.history.model import LATEST
from weft.kernel.fields import Ordinal

if TYPE_CHECKING:
    from weft.capabilities.access.store import AccessStore
    from weft.capabilities.history.store import LineStore
    from weft.kernel.ports import CacheKey

T = TypeVar("T")

# The key of a layer that holds its compaction settings.
COMPACTION = "compaction"


class AgentSettings(msgspec.Struct, frozen=True):
    """The fields of a definition's ``config`` that windows use."""

    model: str | None = None
    model_max_tokens: Ordinal | None = None


class _CompactionPart(msgspec.Struct, frozen=True):
    compaction: CompactionSettings = CompactionSettings()


class SettingsCache(Protocol):
    """Cache of the compaction settings of agents, by tenant, agent and epoch of the tenant's access rules."""

    def get(self, key: CacheKey) -> ResolvedCompaction | None: ...

    def put(self, key: CacheKey, value: ResolvedCompaction, weight: int = 1) -> None: ...


_settings = msgspec.json.Decoder(AgentSettings)
_compaction_part = msgspec.json.Decoder(_CompactionPart)
_compaction = msgspec.json.Decoder(CompactionSettings)


async def agent_settings(agent_id: str, lines: LineStore) -> AgentSettings:
    """Return the settings in an agent's definition; none if it has none, or if they are not of this form."""
    return _decoded(_settings, await _config(agent_id, lines)) or AgentSettings()


async def compaction_settings(agent_id: str, lines: LineStore, access: AccessStore) -> ResolvedCompaction:
    """Return the compaction settings of an agent.

    Each field is that of its definition, else of the nearest ancestor that has it, else of its teams by name, else of
    the tenant, else the default.
    """
    agent = await access.principal(agent_id)
    if agent is None:
        return ResolvedCompaction()
    found = CompactionSettings()
    for owner in (agent, *await access.ancestors(agent_id)):
        part = _decoded(_compaction_part, await _config(owner.principal_id, lines))
        found = found if part is None else found.over(part.compaction)
    teams = (await access.memberships(agent)).teams
    for layer in (*(f"layer:team:{team}" for team in sorted(teams)), "layer:tenant"):
        found = found.over(_decoded(_compaction, await _value(layer, COMPACTION, lines)) or CompactionSettings())
    return ResolvedCompaction.of(found)


async def _config(agent_id: str, lines: LineStore) -> str | None:
    return await _value(f"agent:{agent_id}", "config", lines)


async def _value(line_id: str, key: str, lines: LineStore) -> str | None:
    found = await lines.latest(line_id, key, LATEST)
    return None if found is None or found.change.meta.outside else found.value


def _decoded(decoder: msgspec.json.Decoder[T], text: str | None) -> T | None:
    """Return a decoded value; None if there is none or it is not of this form, such as one of a restored version."""
    try:
        return None if text is None else decoder.decode(text)
    except msgspec.MsgspecError:
        return None
