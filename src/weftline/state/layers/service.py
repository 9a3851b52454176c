"""The layers of an agent's prompts: pinned per session, cached by line and version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from weftline.access.grants import is_descendant
from weftline.access.sql import AccessStore
from weftline.history.composite_lines import PartVersion
from weftline.history.lines import LineStore
from weftline.history.model import Head, VersionPruned, blob_hash
from weftline.history.signed_lists import LayerViolation
from weftline.history.three_way import state_by_key
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.identity import Actor
from weftline.kernel.ports import ValueCache
from weftline.safety.trust.model import TrustPolicies
from weftline.sessions.model import lock_active_session
from weftline.sessions.sql import SessionStore
from weftline.sessions.team_operations import may_see
from weftline.state.agent_context.model import DEFINITION, ContextLine
from weftline.state.agent_context.permissions import CriticalChange, CriticalUpdate, find_agent, find_readable
from weftline.state.agent_context.sql import CriticalEditStore
from weftline.state.agent_context.views import definition_of, persona_text
from weftline.state.layers.model import (
    PERSONA,
    PLATFORM,
    PLATFORM_RULES,
    PLATFORM_VERSION,
    TEXT,
    Layer,
    is_layer_line,
    level_of,
    line_of,
    name_of,
    team_layer,
    team_of,
)
from weftline.state.layers.prefix import sanitise
from weftline.state.layers.sql import LayerPin, LayerStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.history.model import Version
    from weftline.state.agent_context.views import AgentDefinition


# Storage ports of layers: their names, and the versions pinned in sessions.


class LayerTexts(ValueCache, Protocol):
    """Cache of layers by line and version."""


PLATFORM_LAYER = Layer.of(PLATFORM, "platform", PLATFORM_RULES, PLATFORM_VERSION)


class Layers(msgspec.Struct, frozen=True):
    """The layers that agents get, built for the caller of one operation."""

    actor: Actor
    access: AccessStore
    sessions: SessionStore
    lines: LineStore
    store: LayerStore
    critical: CriticalEditStore
    texts: LayerTexts
    clock: Clock
    policies: TrustPolicies

    async def for_agent(self, session_id: str, agent_id: str) -> Sequence[Layer]:
        """Return the layers of an agent's prompts in a session, lowest level first.

        The first use pins them and needs a write transaction; later ones read one row.
        """
        found = await self.pinned(session_id, agent_id)
        if found is not None:
            return found
        await lock_active_session(session_id, self.actor, self.sessions)
        # A concurrent first use may have pinned them before this one got the lock.
        pin = await self.store.find_pin(session_id, agent_id)
        versions = pin.versions if pin else await self.pin(session_id, agent_id, await self._definition(agent_id))
        return await self._layers(versions, await self._readable_teams(agent_id))

    async def pinned(self, session_id: str, agent_id: str) -> Sequence[Layer] | None:
        """Return the layers that a session has pinned for an agent; None before their first use."""
        await self._check_may_read(agent_id)
        pin = await self.store.find_pin(session_id, agent_id)
        return None if pin is None else await self._layers(pin.versions, await self._readable_teams(agent_id))

    async def current(self, agent_id: str) -> Sequence[Layer]:
        """Return the layers that an agent gets in a new session."""
        await self._check_may_read(agent_id)
        teams = await self._readable_teams(agent_id)
        return await self._layers(await self._current_versions(teams, await self._definition(agent_id)), teams)

    async def pin(self, session_id: str, agent_id: str, definition: PartVersion | None) -> Sequence[PartVersion]:
        """Pin the current layers and this definition in place of the previous ones; the session is locked."""
        teams = await self.teams_of(agent_id)
        versions = await self._current_versions(teams, definition or _empty(_definition_line(agent_id)))
        # A pull shows the definition: it is checked, like the layers, before anybody relies on it.
        await self._layers(versions, teams)
        await self.store.put_pin(LayerPin(session_id, agent_id, versions, to_micros(self.clock.now())))
        return versions

    async def critical_update(self, session_id: str, agent_id: str) -> CriticalUpdate | None:
        """Return the critical edits since the pinned versions; None if there are none or nothing is pinned."""
        await self._check_may_read(agent_id)
        pin = await self.store.find_pin(session_id, agent_id)
        versions = _of_teams(pin.versions, await self._readable_teams(agent_id)) if pin else ()
        edits = await self.critical.newer_than(versions)
        if not edits:
            return None
        pinned = {at.line: at for at in versions}
        return CriticalUpdate(changes=[CriticalChange.since(pinned[edit.line_id], edit) for edit in edits])

    async def _check_may_read(self, agent_id: str) -> None:
        """Raise AgentNotFound unless the agent is the caller, or one whose definition the caller may read."""
        if agent_id != self.actor.principal_id:
            await find_readable(agent_id, self.actor, self.access)

    async def _definition(self, agent_id: str) -> PartVersion:
        return await self._head(_definition_line(agent_id))

    async def teams_of(self, agent_id: str) -> AbstractSet[str]:
        """Return the teams that an agent is in now."""
        if agent_id == self.actor.principal_id:
            return self.actor.teams
        return (await self.access.memberships(await find_agent(agent_id, self.access))).teams

    async def _readable_teams(self, agent_id: str) -> AbstractSet[str]:
        return await readable_teams(agent_id, await self.teams_of(agent_id), self.actor, self.access)

    async def _current_versions(self, teams: AbstractSet[str], definition: PartVersion) -> tuple[PartVersion, ...]:
        names = ("tenant", *map(team_layer, sorted(teams)))
        return (*[await self._head(line_of(name)) for name in names], definition)

    async def _head(self, line_id: str) -> PartVersion:
        found = await self.lines.find(line_id)
        return _empty(line_id) if found is None else PartVersion(line_id, found.head.seq, found.head.hash.hex())

    async def _layers(self, versions: Iterable[PartVersion], teams: AbstractSet[str]) -> list[Layer]:
        layers = [await self._layer(at) for at in _of_teams(versions, teams) if at.seq > 0]
        has_platform = (await self.policies.current()).platform_layer
        return [*([PLATFORM_LAYER] if has_platform else ()), *(layer for layer in layers if layer.text)]

    async def _layer(self, at: PartVersion) -> Layer:
        # The commit hash is part of the key: a line may be deleted and created again under its name.
        key = (self.actor.tenant, at)
        found: Layer | None = self.texts.get(key)
        if found is None:
            state = await verified_state(self.lines, at)
            found = _defined_layer(at, state) if is_layer_line(at.line) else _persona(at, definition_of(state))
            self.texts.put(key, found, len(found.text) + 1)
        return found


async def readable_teams(agent_id: str, teams: AbstractSet[str], actor: Actor, access: AccessStore) -> AbstractSet[str]:
    """Return the teams of an agent whose guidelines the caller may read: as a member or admin, or from above it.

    Those above an agent assemble its prompts, which begin with all of its layers.
    """
    seen = {team for team in teams if may_see(actor, team)}
    if agent_id == actor.principal_id or seen == teams:
        return teams
    is_above = await is_descendant(actor.principal_id, await find_agent(agent_id, access), access)
    return teams if is_above else seen


async def verified_state(lines: LineStore, at: PartVersion) -> Mapping[str, Version]:
    """Return a version of a line; LayerViolation unless it has its hashes and its signature."""
    commit = await lines.commit_at(at.line, at.seq)
    state = state_by_key(await lines.state_at(at.line, at.seq))
    intact = commit is not None and commit.hash.hex() == at.hash
    for version in state.values():
        if version.value is None:
            raise VersionPruned(f"The {version.change.key} of version {at.seq} of '{at.line}' was pruned.")
        intact = intact and blob_hash(version.value) == version.change.blob_hash
    if not intact:
        raise _tampered(at, "is not as it was written", "altered")
    changes = [version.change for version in state.values()]
    if not await lines.is_signed(at.line, at.seq, bytes.fromhex(at.hash), changes):
        raise _tampered(at, "has no valid signature", "unsigned")
    return state


def _tampered(at: PartVersion, what: str, problem: str) -> LayerViolation:
    """Return the error for a stored version that nobody with the right to it has written. The caller only found it."""
    error = LayerViolation(
        f"Version {at.seq} of '{at.line}' {what}.",
        hint="Check it with `history.verify`; restore it from a backup, or define it anew in other words.",
        problem=problem,
        context_id=at.line,
    )
    error.violation = "tampering"
    return error


def _of_teams(versions: Iterable[PartVersion], teams: AbstractSet[str]) -> list[PartVersion]:
    """Return the versions without guidelines of other teams: those that the agent has left since they were pinned."""
    return [at for at in versions if (team := team_of(at.line)) is None or team in teams]


def _defined_layer(at: PartVersion, state: Mapping[str, Version]) -> Layer:
    name = name_of(at.line)
    text = sanitise(state[TEXT].value or "").strip() if TEXT in state else ""
    return Layer.of(level_of(name), name, text, at.seq, at.line)


def _persona(at: PartVersion, definition: AgentDefinition) -> Layer:
    text = sanitise(persona_text(definition.role, definition.system_prompt)).strip()
    return Layer.of(PERSONA, "persona", text, at.seq, at.line)


def _definition_line(agent_id: str) -> str:
    return ContextLine(agent_id, DEFINITION, None).line_id


def _empty(line_id: str) -> PartVersion:
    head = Head.of_new_line(line_id)
    return PartVersion(line_id, head.seq, head.hash.hex())
