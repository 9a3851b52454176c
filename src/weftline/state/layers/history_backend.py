"""History backend of layers: layer:tenant and layer:team:NAME. Only humans with the clearance change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from weftline.access.grants import check_clearance
from weftline.access.sql import AccessStore
from weftline.access.teams import TeamNotFound
from weftline.history.commits import record
from weftline.history.line_kinds import EditProof, LineKind
from weftline.history.lines import LineStore
from weftline.history.model import (
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Head,
    VersionPruned,
    blob_hash,
    no_line,
)
from weftline.history.store import Rule
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, SelfModification
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import ANYONE, PERMISSION, TEAM, Actor, Permission, PrincipalKind
from weftline.kernel.outbox import Outbox
from weftline.safety.guardrails.model import MAX_BYTES
from weftline.safety.trust.gate import ContentGate
from weftline.sessions.team_operations import Teams, may_see
from weftline.state.layers.model import (
    CLEARANCES,
    KEYS,
    MAX_TEXT_BYTES,
    READER_CLEARANCE,
    RULE_KEYS,
    TEXT,
    level_of,
    line_of,
    name_of,
    team_of,
)
from weftline.state.layers.sql import LayerStore, erase_layer_pins

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.line_kinds import CommitMeta
    from weftline.history.model import Version


class LayerLines(msgspec.Struct, frozen=True):
    """Opens the lines of layers."""

    actor: Actor
    access: AccessStore
    lines: LineStore
    layers: LayerStore
    teams: Teams
    outbox: Outbox
    clock: Clock
    gate: ContentGate

    async def to_read(self, line_id: str) -> OpenLayer:
        found = await self.lines.find(line_of(name_of(line_id)))
        if found is None or not may_read_layer(self.actor, team_of(line_id)):
            raise no_line(line_id, denied=found is not None)
        return OpenLayer(found.head)

    async def to_write(self, line_id: str) -> LockedLayer:
        await self.to_read(line_id)
        return await self.to_define(name_of(line_id))

    async def to_forget(self, line_id: str) -> NoReturn:
        """Refuse: layers hold no content of agents."""
        raise no_line(line_id)

    async def to_define(self, name: str) -> LockedLayer:
        """Lock a layer for a caller who may change it; a new one is created. A team must exist."""
        proof = check_may_change(self.actor, name)
        line_id = line_of(name)
        team = team_of(line_id)
        if team is not None:
            await self.teams.lock(team)
        head = await self.lines.lock(line_id)
        if head is None:
            # A concurrent creator waits here, and then finds the line.
            await self.lines.create(line_id)
            await self.layers.add(name)
            head = await self.lines.lock(line_id) or Head.of_new_line(line_id)
        return LockedLayer(self, name, head, proof)

    async def check_rollback(self, line_id: str) -> None:
        check_clearance(self.actor, CLEARANCES[level_of(name_of(line_id))], "A rollback")

    async def expire(self, line_id: str, limit: int) -> bool:
        """Layers do not expire."""
        del line_id, limit
        return False

    async def check_size(self, line_id: str, key: str, text: str) -> None:
        del line_id
        check_part_size(key, len(text.encode()))

    async def check_switch(self, before: str, after: str) -> None:
        """Let everybody who may read a branch switch to it."""
        del before, after

    async def pin_referenced(self, line_id: str) -> None:
        """Sessions pin the versions they use themselves."""


def check_part_size(key: str, size: int) -> None:
    limit = MAX_TEXT_BYTES if key == TEXT else MAX_BYTES
    if size > limit:
        raise ContentTooLarge(f"{key}: a layer has at most {limit} bytes of it", field=key, limit_bytes=limit)


@dataclass(frozen=True, slots=True)
class OpenLayer:
    """The line of a layer, opened to read."""

    head: Head

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return [*versions]


@dataclass(slots=True)
class LockedLayer:
    """The line of a layer, locked until the transaction ends."""

    service: LayerLines
    name: str
    head: Head
    proof: EditProof

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        return [*versions]

    async def apply(self, state: Mapping[str, Version | None], commit_meta: CommitMeta) -> Head:
        texts: dict[str, str | None] = {}
        for key, version in state.items():
            if key not in KEYS:
                raise InvalidInput(f"{key[:100]}: a layer has only the keys {', '.join(KEYS)}", field=TEXT)
            if version is not None and version.value is None:
                raise VersionPruned(f"The {key} of that version was pruned.", key=key)
            texts[key] = version.value if version else None
        await self.write(texts, commit_meta)
        return self.head

    async def announce(self, event_type: EventType, subject: str, data: Mapping[str, object]) -> None:
        await self._publish(event_type, subject, data)

    async def note_branches(self, change: int) -> None:
        """Reject branches: every prompt of the tenant has the same layers."""
        del change
        raise InvalidInput("context_id: a layer cannot be branched", field="context_id")

    async def write(
        self, texts: Mapping[str, str | None], commit_meta: CommitMeta, *, critical: bool = False
    ) -> list[str]:
        """Set or remove values as one new version, and return the keys that changed.

        All but the text hold for the next call of every process: they are part of the access epoch.
        """
        changes = [change for key, text in texts.items() if (change := await self._change(key, text)) is not None]
        if not changes:
            return []
        previous = self.head.seq
        await self._commit(changes, texts, commit_meta)
        changed = [change.key for change in changes]
        if RULE_KEYS & set(changed):
            await self.service.access.advance_epoch()
        data = {"context_id": self.head.line_id, "previous_version": previous, "version": self.head.seq}
        await self._publish("layer.defined", self.name, data | {"changed": changed, "critical": critical})
        return changed

    async def _change(self, key: str, text: str | None) -> Change | None:
        """Return the change of a key; None if it has this value already."""
        current = await self.service.lines.latest(self.head.line_id, key, self.head.seq)
        if text is None:
            if current is None:
                return None
            change = current.change
            return Change(key, change.incarnation, change.version, ChangeKind.DELETE, None, ChangeMeta())
        if current is not None and current.change.blob_hash == blob_hash(text):
            return None
        size = len(text.encode())
        check_part_size(key, size)
        if current is not None:
            incarnation, number = current.change.incarnation, current.change.version + 1
        else:
            incarnation, number = (await self.service.lines.last_number(self.head.line_id, key)).incarnation + 1, 1
        return Change(key, incarnation, number, ChangeKind.WRITE, blob_hash(text), ChangeMeta(size=size))

    async def _commit(
        self, changes: Sequence[Change], texts: Mapping[str, str | None], commit_meta: CommitMeta
    ) -> None:
        lines, actor = self.service.lines, self.service.actor
        for change in changes:
            text = texts[change.key]
            if text is not None:
                await lines.put_blob(blob_hash(text), text)
        weight = sum(change.meta.size for change in await self._after(changes))
        commit = Commit(
            line_id=self.head.line_id,
            seq=self.head.seq + 1,
            author=Author(actor.participant, actor.principal_id),
            committed_at=to_micros(self.service.clock.now()),
            reason=commit_meta.reason,
            step=commit_meta.step,
            changes=tuple(sorted(changes, key=lambda change: change.key)),
            merged=commit_meta.merged,
        )
        self.head = await record(lines, self.head, commit, weight=weight, proof=self.proof)

    async def _after(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes with those of the keys that stay as they are."""
        changed = {change.key for change in changes}
        state = await self.service.lines.state_at(self.head.line_id, self.head.seq, values=False)
        return [*changes, *(version.change for version in state if version.change.key not in changed)]

    async def _publish(self, event_type: EventType, subject: str, data: Mapping[str, object]) -> None:
        """Publish an event: everyone has the tenant's layer; that of a team is for its members and admins."""
        team = team_of(line_of(self.name))
        event = NewEvent(
            type=event_type,
            session_id=None,
            subject=subject,
            actor=self.service.actor.participant,
            readable_by=ANYONE if team is None else (f"{TEAM}{team}", f"{PERMISSION}{Permission.ADMIN}"),
            data=dict(data),
        )
        await self.service.outbox.publish(event)


def may_read_layers(actor: Actor) -> bool:
    """Tell whether the caller may read layers with their history; its own current ones it may always show."""
    return actor.is_admin or actor.clearance >= READER_CLEARANCE


def may_read_layer(actor: Actor, team: str | None) -> bool:
    """Tell whether the caller may read the layer of the tenant, or of a team, with its history."""
    return may_read_layers(actor) and (team is None or may_see(actor, team))


def check_may_change(actor: Actor, name: str) -> EditProof:
    """Return the proof that the caller is a human with the clearance for this layer; raise otherwise."""
    forbid_agents({"layer": name}, actor)
    check_clearance(actor, CLEARANCES[level_of(name)], f"Changing the layer {name}")
    return EditProof(line_of(name), actor.principal_id)


def forbid_agents(raw: Mapping[str, Any], actor: Actor) -> None:
    """Raise SelfModification for an agent that is about to change a layer, whatever its permissions."""
    if actor.kind is PrincipalKind.AGENT:
        raise SelfModification(
            "An agent cannot change layers: they bind it and others.",
            hint="Ask a human with the clearance to change it with `layer.define`.",
            related=("context_layers",),
            layer=str(raw.get("layer"))[:120],
        )


async def _check_edit(actor: Actor, line_id: str, access: AccessStore) -> None:
    del access
    check_may_change(actor, name_of(line_id))


LAYER = LineKind(
    prefix="layer",
    names=("level", "team?"),
    backend=LayerLines,
    values="text",
    signed=True,
    check_edit=_check_edit,
    retention={"layer": Rule(None, None)},
    write_errors=(SelfModification, TeamNotFound),
    size_errors=(ContentTooLarge,),
    edited_by=("layer.define",),
    erase_session=erase_layer_pins,
)
