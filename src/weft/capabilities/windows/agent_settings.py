"""Settings of an agent in definitions and layers: model, context size, and those that it inherits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from weft.capabilities.agent_context.compaction_settings import CompactionSettings, ResolvedCompaction
from weft.capabilities.agent_context.inherited_settings import InheritedSettings
from weft.capabilities.history.model import LATEST
from weft.kernel.fields import Ordinal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.access.model import Principal
    from weft.capabilities.access.store import AccessStore
    from weft.capabilities.history.store import LineStore
    from weft.kernel.ports import CacheKey

T = TypeVar("T")
S = TypeVar("S", bound=InheritedSettings)

# The key of a layer that holds its compaction settings.
COMPACTION = "compaction"
_CONFIG = "config"


class AgentSettings(msgspec.Struct, frozen=True):
    """The fields of a definition's ``config`` that windows use."""

    model: str | None = None
    model_max_tokens: Ordinal | None = None


class SettingsCache(Protocol):
    """Cache of the compaction settings of agents, by tenant, agent and epoch of the tenant's access rules."""

    def get(self, key: CacheKey) -> ResolvedCompaction | None: ...

    def put(self, key: CacheKey, value: ResolvedCompaction, weight: int = 1) -> None: ...


_settings = msgspec.json.Decoder(AgentSettings)
_config = msgspec.json.Decoder(dict[str, Any])
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def agent_settings(agent_id: str, lines: LineStore) -> AgentSettings:
    """Return the settings in an agent's definition; none if it has none, or if they are not of this form."""
    return _decoded(_settings, await _value(f"agent:{agent_id}", _CONFIG, lines)) or AgentSettings()


async def agent_config(agent_id: str, lines: LineStore) -> dict[str, Any]:
    """Return the whole configuration in an agent's definition."""
    return _decoded(_config, await _value(f"agent:{agent_id}", _CONFIG, lines)) or {}


async def compaction_settings(agent_id: str, lines: LineStore, access: AccessStore) -> ResolvedCompaction:
    """Return the compaction settings of an agent."""
    found = await inherited_settings([agent_id], COMPACTION, CompactionSettings, lines, access)
    return ResolvedCompaction.of(found[agent_id])


async def inherited_settings(
    agent_ids: Sequence[str], name: str, kind: type[S], lines: LineStore, access: AccessStore
) -> dict[str, S]:
    """Return the settings of this name of agents, by id; what they inherit from the same owner is read once.

    Each field is that of the agent's definition, else of the nearest ancestor that has it, else of its teams by name,
    else of the tenant.
    """
    agents = [agent for each in agent_ids if (agent := await access.principal(each)) is not None]
    memberships = await access.memberships_of(agents)
    above: dict[str | None, Sequence[Principal]] = {}
    known: dict[str, S] = {}

    async def of_owner(line_id: str, key: str) -> S:
        if line_id not in known:
            known[line_id] = _part(await _value(line_id, key, lines), name if key == _CONFIG else None, kind)
        return known[line_id]

    found = dict.fromkeys(agent_ids, kind())
    for agent in agents:
        if agent.parent_id not in above:
            above[agent.parent_id] = await access.ancestors(agent.principal_id)
        owners = [agent, *above[agent.parent_id]]
        teams = sorted(memberships[agent.principal_id].teams)
        settings = found[agent.principal_id]
        for owner in owners:
            settings = settings.over(await of_owner(f"agent:{owner.principal_id}", _CONFIG))
        for layer in (*(f"layer:team:{team}" for team in teams), "layer:tenant"):
            settings = settings.over(await of_owner(layer, name))
        found[agent.principal_id] = settings
    return found


def _part(text: str | None, name: str | None, kind: type[S]) -> S:
    """Return settings of their own key, or those of a name in a definition's configuration."""
    part = text if name is None else (_decoded(_parts, text) or {}).get(name)
    return _decoded(_decoder(kind), part) or kind()


@cache
def _decoder(kind: type[S]) -> msgspec.json.Decoder[S]:
    return msgspec.json.Decoder(kind)


async def _value(line_id: str, key: str, lines: LineStore) -> str | None:
    found = await lines.latest(line_id, key, LATEST)
    return None if found is None or found.change.meta.outside else found.value


def _decoded(decoder: msgspec.json.Decoder[T], text: str | msgspec.Raw | None) -> T | None:
    """Return a decoded value; None if there is none or it is not of this form, such as one of a restored version."""
    try:
        return None if text is None else decoder.decode(text)
    except msgspec.MsgspecError:
        return None
