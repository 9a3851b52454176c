"""Settings of an agent in definitions and layers: model, context size, and those that it inherits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from weftline.history.model import LATEST
from weftline.kernel.fields import Ordinal
from weftline.state.agent_context.settings import (
    CompactionSettings,
    InheritedSettings,
    ProxySettings,
    ResolvedCompaction,
    ResolvedProxy,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.access.model import Principal
    from weftline.access.sql import AccessStore
    from weftline.history.lines import LineStore
    from weftline.kernel.ports import CacheKey

T = TypeVar("T")
S = TypeVar("S", bound=InheritedSettings)

# The key of a layer that holds its compaction settings.
COMPACTION = "compaction"
_PROXY = "proxy"
_CONFIG = "config"
_TENANT_LAYER = "layer:tenant"


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
_text = msgspec.json.Decoder(str)
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def agent_settings(agent_id: str, lines: LineStore) -> AgentSettings:
    """Return the settings in an agent's definition; none if it has none, or if they are not of this form."""
    return _decoded(_settings, await _value(f"agent:{agent_id}", _CONFIG, lines)) or AgentSettings()


async def agent_config(agent_id: str, lines: LineStore) -> dict[str, Any]:
    """Return the whole configuration in an agent's definition."""
    return _decoded(_config, await _value(f"agent:{agent_id}", _CONFIG, lines)) or {}


async def defined_texts(agent_id: str, lines: LineStore) -> tuple[str | None, str | None]:
    """Return role and system prompt in an agent's definition."""
    role, prompt = [await _value(f"agent:{agent_id}", key, lines) for key in ("role", "system_prompt")]
    return _decoded(_text, role), _decoded(_text, prompt)


async def compaction_settings(agent_id: str, lines: LineStore, access: AccessStore) -> ResolvedCompaction:
    """Return the compaction settings of an agent."""
    found = await inherited_settings([agent_id], COMPACTION, CompactionSettings, lines, access)
    return ResolvedCompaction.of(found[agent_id])


async def proxy_settings(agent_id: str, lines: LineStore, access: AccessStore) -> ResolvedProxy:
    """Return what the model proxy may change in the calls of an agent."""
    found = await inherited_settings([agent_id], _PROXY, ProxySettings, lines, access)
    return ResolvedProxy.of(found[agent_id])


async def inherited_settings(
    agent_ids: Sequence[str], name: str, kind: type[S], lines: LineStore, access: AccessStore
) -> dict[str, S]:
    """Return the settings of this name of agents, by id, in few statements for many agents.

    Each field is that of the agent's definition, else of the nearest ancestor that has it, else of its teams by name,
    else of the tenant.
    """
    agents = [*(await access.find_principals(agent_ids)).values()]
    memberships = await access.memberships_of(agents)
    above = await _ancestors(agents, access)
    owners = {each.principal_id: [each.principal_id, *above[each.parent_id]] for each in agents}
    teams = {agent_id: sorted(memberships[agent_id].teams) for agent_id in owners}
    configs = await _values([f"agent:{each}" for chain in owners.values() for each in chain], _CONFIG, lines)
    layers = await _values([_TENANT_LAYER, *(_team_layer(team) for own in teams.values() for team in own)], name, lines)
    parts = {line_id: _part(text, name, kind) for line_id, text in configs.items()}
    parts |= {line_id: _part(text, None, kind) for line_id, text in layers.items()}
    found = dict.fromkeys(agent_ids, kind())
    for agent_id, chain in owners.items():
        own = (f"agent:{each}" for each in chain)
        for line_id in (*own, *map(_team_layer, teams[agent_id]), _TENANT_LAYER):
            if line_id in parts:
                found[agent_id] = found[agent_id].over(parts[line_id])
    return found


async def _ancestors(agents: Sequence[Principal], access: AccessStore) -> dict[str | None, list[str]]:
    """Return the ids of the principals above agents, the nearest first, by parent."""
    found: dict[str | None, list[str]] = {None: []}
    for agent in agents:
        if agent.parent_id not in found:
            found[agent.parent_id] = [each.principal_id for each in await access.ancestors(agent.principal_id)]
    return found


def _team_layer(team: str) -> str:
    return f"layer:team:{team}"


def _part(text: str, name: str | None, kind: type[S]) -> S:
    """Return settings of their own key, or those of a name in a definition's configuration."""
    part = text if name is None else (_decoded(_parts, text) or {}).get(name)
    return _decoded(_decoder(kind), part) or kind()


@cache
def _decoder(kind: type[S]) -> msgspec.json.Decoder[S]:
    return msgspec.json.Decoder(kind)


async def _value(line_id: str, key: str, lines: LineStore) -> str | None:
    found = await lines.latest(line_id, key, LATEST)
    return None if found is None or found.change.meta.outside else found.value


async def _values(line_ids: Sequence[str], key: str, lines: LineStore) -> dict[str, str]:
    """Return the current value of a key in each line that has one."""
    found = await lines.latest_in_lines(line_ids, key)
    return {
        line_id: version.value
        for line_id, version in found.items()
        if version.value is not None and not version.change.meta.outside
    }


def _decoded(decoder: msgspec.json.Decoder[T], text: str | msgspec.Raw | None) -> T | None:
    """Return a decoded value; None if there is none or it is not of this form, such as one of a restored version."""
    try:
        return None if text is None else decoder.decode(text)
    except msgspec.MsgspecError:
        return None
