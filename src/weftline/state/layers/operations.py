"""Operations on layers: define, show those of an agent, list all."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from weftline.access.grants import needs_clearance
from weftline.access.model import AgentId, AgentNotFound
from weftline.access.teams import TeamNotFound
from weftline.history.line_kinds import CommitMeta
from weftline.history.model import LATEST, VersionConflict
from weftline.history.revisions import last_change
from weftline.history.signed_lists import LayerViolation
from weftline.kernel.clock import from_micros, to_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied, QuotaExceeded, SelfModification
from weftline.kernel.fields import Count, Reason, Step
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, Success, operation
from weftline.safety.guardrails.model import MAX_GUARDRAILS, Guardrail, InvalidGuardrail, KnownActions
from weftline.safety.guardrails.rules import GuardrailDefinitions, compile_guardrails, indented_json
from weftline.safety.trust.gate import GATE_ERRORS
from weftline.safety.trust.model import DEFAULT_POLICY, TrustPolicy
from weftline.sessions.model import SessionId, SessionNotFound, find_session
from weftline.state.agent_context.permissions import CriticalUpdate
from weftline.state.agent_context.settings import AlertSettings, CompactionSettings, ProxySettings
from weftline.state.agent_context.sql import CriticalEdit, CriticalEditStore
from weftline.state.layers.history_backend import LayerLines, forbid_agents, may_read_layer, may_read_layers
from weftline.state.layers.model import (
    ALERTS,
    CLEARANCES,
    COMPACTION,
    GUARDRAILS,
    MAX_TEXT_BYTES,
    POLICY,
    PROXY,
    READER_CLEARANCE,
    TENANT,
    TEXT,
    LayerName,
    level_of,
    line_of,
    team_of,
)
from weftline.state.layers.service import Layers
from weftline.state.layers.sql import LayerStore

if TYPE_CHECKING:
    from weftline.state.layers.history_backend import LockedLayer
    from weftline.state.layers.model import Layer
    from weftline.state.layers.sql import ListedLayer

_operation = partial(operation, tool="context_layers")


class DefineLayer(Request):
    """Layer, and what of it to set."""

    layer: LayerName
    text: Annotated[
        Annotated[str, msgspec.Meta(max_length=MAX_TEXT_BYTES, pattern=r"^[^\x00]*\Z")] | None,
        msgspec.Meta(description="The text; empty: remove it; omitted: leave it."),
    ] = None
    guardrails: Annotated[
        Annotated[list[Guardrail], msgspec.Meta(max_length=MAX_GUARDRAILS)] | None,
        msgspec.Meta(description="Rules about what callers may not do; replaces the whole list."),
    ] = None
    policy: Annotated[
        TrustPolicy | None,
        msgspec.Meta(description="Trust policy, of the tenant only; replaces all of it."),
    ] = None
    compaction: Annotated[
        CompactionSettings | None,
        msgspec.Meta(description="When and how windows are compacted; replaces all of it."),
    ] = None
    alerts: Annotated[
        AlertSettings | None,
        msgspec.Meta(description="When calls of agents become an alert; replaces all of it."),
    ] = None
    proxy: Annotated[
        ProxySettings | None,
        msgspec.Meta(description="What the model proxy may change in calls of agents; replaces all of it."),
    ] = None
    if_version: Annotated[
        Count | None,
        msgspec.Meta(description="Expected version of the layer (0: none yet); VERSION_CONFLICT if it differs."),
    ] = None
    critical: Annotated[
        bool, msgspec.Meta(description="Tell agents in running sessions to pull this version at once.")
    ] = False
    reason: Reason = None
    step: Step = None


class LayerDefined(Success, kw_only=True):
    """The new version. Running sessions get its text with their next pull; the rest holds at once."""

    on_record = ("previous_version", "version", "changed")

    layer: str
    context_id: str
    previous_version: int
    version: int
    hash: str
    changed: list[str]
    critical: bool


class ShowLayers(Request):
    """Agent and session whose layers to show."""

    agent_id: Annotated[AgentId | None, msgspec.Meta(description="The agent; by default yourself.")] = None
    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Show the versions of this session; else the current ones.")
    ] = None


class LayerInfo(Response, kw_only=True, omit_defaults=False):
    """One layer. ``hash`` is the SHA-256 of its text, ``context_id`` its line; the platform has none."""

    level: int
    layer: str
    context_id: str | None
    version: int
    hash: str
    text: str


class LayersShown(Response, kw_only=True, omit_defaults=False):
    """The layers of an agent's prompts, lowest level first. ``pinned``: the session keeps these until the next pull."""

    agent_id: str
    session_id: str | None
    pinned: bool
    layers: list[LayerInfo]
    critical_update: CriticalUpdate | None


class ListLayers(Request):
    """Page of layers."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000, description="Maximum number of layers.")] = 200
    cursor: Annotated[LayerName | None, msgspec.Meta(description="next_cursor of the previous page.")] = None


class LayerListed(Response, kw_only=True, omit_defaults=False):
    """A layer that has been defined, without its text; ``size`` in bytes, 0 if it was removed."""

    layer: str
    level: int
    context_id: str
    version: int
    hash: str
    size: int
    defined_by: str
    defined_at: datetime


class LayerList(Response, omit_defaults=False):
    """Layers by name; ``next_cursor`` is set while there are more."""

    layers: list[LayerListed]
    next_cursor: str | None


async def _compile(request: DefineLayer, actions: KnownActions, actor: Actor) -> None:
    await compile_guardrails(request.guardrails or (), actions, actor)


@_operation(
    "layer.define",
    action="define",
    http="PUT /v1/layers/{layer}",
    permission=Permission.WRITE,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.HUMANS,
    requires=needs_clearance(min(CLEARANCES.values()), "Changing layers"),
    forbids=forbid_agents,
    prepare=_compile,
    audited=True,
    off_record=("text", "guardrails", "policy", "compaction", "alerts", "proxy"),
    errors=(
        *(
            PermissionDenied,
            SelfModification,
            TeamNotFound,
            VersionConflict,
            ContentTooLarge,
            InvalidGuardrail,
            QuotaExceeded,
        ),
        *GATE_ERRORS,
    ),
    session=SessionUse.NONE,
)
async def define_layer(
    request: DefineLayer, lines: LayerLines, critical: CriticalEditStore, definitions: GuardrailDefinitions
) -> LayerDefined:
    """Set the policies of the tenant or the guidelines of a team, which begin the prompts of all their agents.

    For humans only: clearance 5 for the tenant; clearance 3 for a team, as a member or admin. Running sessions keep
    their version of the text until a pull; everything else holds from the next call.
    """
    texts = await _texts(request, definitions)
    line = await lines.to_define(request.layer)
    previous = line.head.seq
    await _check_version(line, request.if_version)
    reason = await lines.gate.admit_note("reason", request.reason)
    meta = CommitMeta(reason or "define", request.step)
    changed = await line.write(texts, meta, critical=request.critical)
    if GUARDRAILS in changed:
        await definitions.forget_others(request.layer, request.guardrails or ())
    head = line.head
    if request.critical and head.seq > 0:
        marked_at = to_micros(lines.clock.now())
        await critical.mark(CriticalEdit(head.line_id, head.seq, lines.actor.participant, marked_at))
    return LayerDefined(
        layer=request.layer,
        context_id=head.line_id,
        previous_version=previous,
        version=head.seq,
        hash=head.hash.hex(),
        changed=changed,
        critical=request.critical,
    )


async def _texts(request: DefineLayer, definitions: GuardrailDefinitions) -> dict[str, str | None]:
    """Return the values of the given fields, checked; None removes one."""
    texts: dict[str, str | None] = {}
    if request.text is not None:
        texts[TEXT] = request.text.strip() or None
    if request.guardrails is not None:
        texts[GUARDRAILS] = await definitions.checked(level_of(request.layer), request.guardrails)
    if request.policy is not None:
        if level_of(request.layer) != TENANT:
            raise InvalidInput("policy: only the layer tenant has a trust policy", field="policy")
        texts[POLICY] = None if request.policy == DEFAULT_POLICY else indented_json(request.policy)
    if request.compaction is not None:
        texts[COMPACTION] = None if request.compaction == CompactionSettings() else indented_json(request.compaction)
    if request.alerts is not None:
        texts[ALERTS] = None if request.alerts == AlertSettings() else indented_json(request.alerts)
    if request.proxy is not None:
        texts[PROXY] = None if request.proxy == ProxySettings() else indented_json(request.proxy)
    if not texts:
        raise InvalidInput(
            "text: give a text, guardrails, a policy, or compaction, alert or proxy settings", field="text"
        )
    return texts


@_operation(
    "layer.show",
    action="show",
    http="GET /v1/context/layers",
    permission=None,
    rate=RateClass.MEMORY,
    effect=Effect.READ,
    errors=(AgentNotFound, SessionNotFound, LayerViolation),
)
async def show_layers(request: ShowLayers, layers: Layers) -> LayersShown:
    """Show the layers that begin your prompts, or those of an agent you may edit: level, version, hash and text.

    Guidelines of teams that you may not see are left out.
    """
    agent_id = request.agent_id or layers.actor.principal_id
    pinned, update = None, None
    if request.session_id is not None:
        session = await find_session(request.session_id, layers.actor, layers.sessions)
        pinned = await layers.pinned(session.session_id, agent_id)
        update = await layers.critical_update(session.session_id, agent_id)
    shown = await layers.current(agent_id) if pinned is None else pinned
    return LayersShown(
        agent_id=agent_id,
        session_id=request.session_id,
        pinned=pinned is not None,
        layers=[_info(layer) for layer in shown],
        critical_update=update,
    )


def check_reader(actor: Actor) -> None:
    """Raise unless the caller may read layers with their history."""
    if not may_read_layers(actor):
        raise PermissionDenied(
            f"Reading all layers needs clearance {READER_CLEARANCE} or the permission admin.",
            hint="Show your own layers with `layer.show`.",
            related=("context_layers",),
        )


@_operation(
    "layer.list",
    action="list",
    http="GET /v1/layers",
    permission=Permission.READ,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
    requires=check_reader,
    errors=(PermissionDenied,),
    session=SessionUse.NONE,
)
async def list_layers(request: ListLayers, actor: Actor, layers: LayerStore) -> LayerList:
    """List the layers of the tenant and of your teams, without their texts. For clearance 3 and for admins."""
    page = await _readable_page(request, actor, layers)
    shown = page[: request.limit]
    return LayerList(
        layers=[_listed(layer) for layer in shown],
        next_cursor=shown[-1].name if len(page) > len(shown) else None,
    )


async def _readable_page(request: ListLayers, actor: Actor, layers: LayerStore) -> list[ListedLayer]:
    """Return the next layers that the caller may read, and one more than asked for if there are more."""
    found: list[ListedLayer] = []
    cursor = request.cursor or ""
    while len(found) <= request.limit:
        page = await layers.page(cursor, request.limit + 1)
        found += [layer for layer in page if may_read_layer(actor, team_of(line_of(layer.name)))]
        if len(page) <= request.limit:
            break
        cursor = page[-1].name
    return found


async def _check_version(line: LockedLayer, expected: int | None) -> None:
    if expected is not None and expected != line.head.seq:
        raise VersionConflict(
            f"The layer is at version {line.head.seq}, not {expected}.",
            hint="Read it with `history.state`, merge your change, and retry with if_version at its version.",
            related=("context_history", "context_layers"),
            current_version=line.head.seq,
            expected_version=expected,
            **await _changes_since(line, expected),
        )


async def _changes_since(line: LockedLayer, version: int) -> dict[str, Any]:
    """Return who changed a layer after a version, and how, if the caller may read it."""
    lines, line_id = line.service.lines, line.head.line_id
    latest = await lines.latest(line_id, TEXT, LATEST)
    if latest is None or not may_read_layer(line.service.actor, team_of(line_id)):
        return {}
    return last_change(latest, await lines.latest(line_id, TEXT, version) if version < line.head.seq else None)


def _info(layer: Layer) -> LayerInfo:
    return LayerInfo(
        level=layer.level,
        layer=layer.name,
        context_id=layer.line_id,
        version=layer.version,
        hash=layer.hash,
        text=layer.text,
    )


def _listed(layer: ListedLayer) -> LayerListed:
    return LayerListed(
        layer=layer.name,
        level=level_of(layer.name),
        context_id=line_of(layer.name),
        version=layer.version,
        hash=layer.hash.hex(),
        size=layer.size,
        defined_by=layer.author,
        defined_at=from_micros(layer.committed_at),
    )
