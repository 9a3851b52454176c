"""The registry of tools: who may register what, limits, and its search index."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from weftline.access.grants import check_clearance
from weftline.indexing.sql import CollectionStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import InvalidInput, PermissionDenied, QuotaExceeded
from weftline.kernel.identity import Actor, PrincipalKind
from weftline.kernel.job_store import JobStore
from weftline.kernel.ports import Transactions
from weftline.prompts.tools.catalogue import RankedTool, ToolCatalogue
from weftline.prompts.tools.model import (
    LOADED,
    MAX_BYTES,
    MAX_TOOLS,
    NAMED,
    TENANT,
    TOOLS,
    RecordedSelection,
    RegisteredTool,
    RegistrySize,
    ToolNameTaken,
    ToolNotRegistered,
    ToolToRegister,
    definition,
    definition_tokens,
    portable_names,
    registered,
    searched_chunks,
    shown_text,
    with_shown_text,
)
from weftline.prompts.tools.sql import SelectionStore, ToolStore
from weftline.safety.trust.gate import ContentGate, IncomingContent
from weftline.safety.trust.model import Source
from weftline.search.session_cursor import VectorBacklog
from weftline.search.task_queries import task_queries
from weftline.sessions.model import find_session
from weftline.sessions.sql import SessionStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.models.language_models.content import ToolDefinition


# Steps and tools of the whole tenant are for humans with this clearance.
_CLEARANCE = 3
_OWN_PREFIX = "weftline_"


class Registration(NamedTuple):
    """What registering changed: names by what happened to them."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int


class ToolRegistry(msgspec.Struct, frozen=True):
    """Registers and removes the tools of runtimes, in one transaction of a caller."""

    actor: Actor
    tools: ToolStore
    collections: CollectionStore
    jobs: JobStore
    gate: ContentGate
    catalogue: ToolCatalogue
    clock: Clock

    async def register(
        self, given: Mapping[str, ToolToRegister], owner: str, server: str, *, complete: bool
    ) -> Registration:
        """Add or replace tools; with ``complete``, remove the server's others. All of them or none."""
        await self.tools.lock()
        await self._check_names(owner, given)
        known = {tool.name: tool for tool in await self.tools.find({owner}, given)}
        now = to_micros(self.clock.now())
        wanted = [
            registered(
                await self._admitted(name, each, known.get(name)),
                owner=owner,
                name=name,
                server=server,
                registered_by=self.actor.principal_id,
                now=now,
            )
            for name, each in given.items()
        ]
        new = [tool for tool in wanted if not _is_same(tool, known.get(tool.name))]
        others = await self.tools.names_of(owner, server) if complete else []
        removed = sorted(set(others) - given.keys())
        await self._store(owner, new, removed, [tool.name for tool in new if tool.name in known])
        return Registration(
            added=[tool.name for tool in new if tool.name not in known],
            changed=[tool.name for tool in new if tool.name in known],
            removed=removed,
            unchanged=len(wanted) - len(new),
        )

    async def remove(self, name: str, owner: str) -> None:
        await self.tools.lock()
        if not await self.tools.remove(owner, name):
            raise ToolNotRegistered(f"You have registered no tool '{name}'.", resource_type="tool", resource_id=name)
        await self.collections.remove_item(TOOLS, owner, name)

    async def _check_names(self, owner: str, names: Iterable[str]) -> None:
        """Refuse names of tools of Weftline and of those registered above: calls could be redirected otherwise."""
        own = {_folded(name) for name in self.catalogue.own_names()}
        for name in names:
            if _folded(name) in own or _folded(name).startswith(_OWN_PREFIX):
                raise ToolNameTaken(f"'{name}' is the name of a tool of Weftline.", name=name)
        above = visible_owners(self.actor) - {owner} if owner != TENANT else frozenset[str]()
        taken = await self.tools.find(above, list(names)) if above else []
        if taken:
            raise ToolNameTaken(f"'{taken[0].name}' is registered for more than your tree.", name=taken[0].name)

    async def _admitted(self, name: str, tool: ToolToRegister, known: RegisteredTool | None) -> ToolToRegister:
        """Return a definition as the content gate lets it pass; one that is stored already passed it before."""
        if known is not None and tool == ToolToRegister(
            description=known.description, input_schema=known.input_schema, examples=known.examples
        ):
            return tool
        text = shown_text(tool)
        content = IncomingContent(kind="tool", item=name, text=text, source=Source.TOOL)
        passed = (await self.gate.admit(content)).text
        return tool if passed == text else with_shown_text(tool, passed)

    async def _store(
        self, owner: str, new: Sequence[RegisteredTool], removed: Sequence[str], replaced: Sequence[str]
    ) -> None:
        # Locked before the collection, as by the job that embeds.
        backlog = await VectorBacklog.held(self.jobs)
        for name in [*removed, *replaced]:
            await self.collections.remove_item(TOOLS, owner, name)
        for name in removed:
            await self.tools.remove(owner, name)
        for tool in new:
            await self.tools.put(tool)
        await self._check_room()
        chunks = [chunk for tool in new for chunk in searched_chunks(tool)]
        numbers = await self.collections.add(TOOLS, chunks, {})
        # Also where there is nothing to embed, so that the job is not left empty.
        await backlog.extend(self.jobs, {TOOLS: numbers[0]} if numbers else {})

    async def _check_room(self) -> None:
        size = await self.tools.size(None)
        if size.tools > MAX_TOOLS or size.bytes > MAX_BYTES:
            raise QuotaExceeded(
                f"A tenant can register {MAX_TOOLS:,} tools with {MAX_BYTES // 2**20} MiB of definitions; this would "
                "exceed it.",
                hint="Remove tools that are no longer used with `tools.remove`.",
                limit_tools=MAX_TOOLS,
                limit_bytes=MAX_BYTES,
            )


def visible_owners(actor: Actor) -> frozenset[str]:
    """Return whose tools and steps a caller has: the tenant's, its own and those of the principals above it."""
    return frozenset({TENANT, actor.principal_id, *actor.ancestors})


def owner_for(actor: Actor, sharing: str | None) -> str:
    """Return the owner of what a caller registers or defines; raises PermissionDenied if it may not."""
    is_human = actor.kind is PrincipalKind.HUMAN
    default = "tenant" if is_human and actor.clearance >= _CLEARANCE else "tree"
    if (sharing or default) == "tree":
        return actor.principal_id
    if not is_human:
        raise PermissionDenied(
            "An agent can do this only for itself and the agents below it.",
            hint="Leave out shared_with, or ask a human with clearance 3.",
        )
    check_clearance(actor, _CLEARANCE, "What holds for the whole tenant", who="a human")
    return TENANT


def _folded(name: str) -> str:
    """Return a name as a model may confuse it with others."""
    return name.casefold().replace("-", "_").replace("/", ".")


def _is_same(tool: RegisteredTool, known: RegisteredTool | None) -> bool:
    return (
        known is not None
        and msgspec.structs.replace(known, registered_at=tool.registered_at, registered_by=tool.registered_by) == tool
    )


def check_unique(names: Sequence[str]) -> None:
    """Refuse a list that defines a tool twice."""
    repeated = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if repeated is not None:
        raise InvalidInput(f"tools: '{repeated}' is defined twice", field="tools")


# The tools for a task: the few that fit it, in a stable order, the same until the task changes.
#
# Provider caches begin with the tools, so a list that changes from call to call costs more than it saves. An agent
# keeps its list while it contains the best tools for what it does.

# A list stays as it is while it has this many of the best tools for the task.
_MUST_HAVE = 5


class SelectionRequest(NamedTuple):
    """The task to choose tools for, and for whom.

    ``own``: also among tools of Weftline. ``include``: tools to load in any case.
    """

    task: str
    agent_id: str
    session_id: str | None = None
    own: bool = False
    include: tuple[str, ...] = ()


class ToolSelection(NamedTuple):
    """Chosen tools by name, further names, and the tokens of everything that could have been loaded.

    ``kept``: the list of the previous call. ``registered``: the names of tools as registered, if a provider would not
    take them.
    """

    tools: tuple[ToolDefinition, ...]
    named: tuple[str, ...]
    available: int
    available_tokens: int
    loaded_tokens: int
    kept: bool
    registered: dict[str, str]

    @property
    def saved_tokens(self) -> int:
        return max(0, self.available_tokens - self.loaded_tokens)


class SelectionMetrics(Protocol):
    """Counts what selections save."""

    def count_tool_tokens(self, available: int, loaded: int) -> None:
        """Add the tokens of all tools that could have been loaded, and of those that were."""
        ...


class SelectionStores(msgspec.Struct, frozen=True):
    """What choosing needs of a transaction."""

    actor: Actor
    tools: ToolStore
    selections: SelectionStore
    sessions: SessionStore


class ToolSelector(msgspec.Struct, frozen=True):
    """Chooses the tools for tasks."""

    transactions: Transactions[SelectionStores]
    catalogue: ToolCatalogue
    metrics: SelectionMetrics
    clock: Clock

    async def select(self, actor: Actor, request: SelectionRequest) -> ToolSelection:
        """Return the tools for a task; the last ones if they still fit it."""
        owners, step_names = visible_owners(actor), actor.step_tools if actor.step is not None else None
        last, size = await self.transactions.read(actor, partial(_known, owners, step_names, request))
        own = {view.name: view for view in self.catalogue.own_tools(actor)} if request.own else {}
        selection, kept = await self._choose(actor, request, last, size, own)
        if last is None or selection != last:
            now = to_micros(self.clock.now())
            await self.transactions.write(actor, partial(_record, request, selection, now))
        found = await self.transactions.read(
            actor, lambda stores: stores.tools.find(owners, [name for name in selection.loaded if name not in own])
        )
        tools = [*map(definition, found), *(own[name] for name in selection.loaded if name in own)]
        names = portable_names([tool.name for tool in tools])
        registered = {portable: name for name, portable in names.items() if portable != name}
        tools = [msgspec.structs.replace(tool, name=names[tool.name]) for tool in tools]
        own_tokens = sum(map(_tokens, own.values()))
        chosen = ToolSelection(
            tools=tuple(sorted(tools, key=lambda tool: tool.name)),
            named=selection.named,
            available=size.tools + len(own),
            available_tokens=size.tokens + own_tokens,
            loaded_tokens=sum(map(_tokens, tools)),
            kept=kept,
            registered=registered,
        )
        self.metrics.count_tool_tokens(chosen.available_tokens, chosen.loaded_tokens)
        return chosen

    async def _choose(
        self,
        actor: Actor,
        request: SelectionRequest,
        last: RecordedSelection | None,
        size: RegistrySize,
        own: Iterable[str],
    ) -> tuple[RecordedSelection, bool]:
        """Return the selection for a task, and whether it is the last one."""
        digest, step = _digest(request), actor.step or ""
        if last is not None and last.step != step:
            last = None
        names = frozenset(own)
        is_full = last is not None and len(last.loaded) >= min(LOADED, size.tools + len(names))
        if last is not None and is_full and last.task_digest == digest:
            return last, True
        best = await self._best(actor, request.task, size, names)
        fitting = [each.name for each in best if each.fits]
        if last is not None and {*fitting[:_MUST_HAVE], *request.include} <= {*last.loaded}:
            return msgspec.structs.replace(last, task_digest=digest), True
        loaded = list(dict.fromkeys([*await self._included(actor, request, names), *fitting]))[:LOADED]
        named = {each.name for each in best}.difference(loaded)
        return RecordedSelection(digest, step, tuple(sorted(loaded)), tuple(sorted(named))), False

    async def _best(self, actor: Actor, task: str, size: RegistrySize, own: frozenset[str]) -> Sequence[RankedTool]:
        """Return the tools for a task, best first; all of them fit if they are few."""
        if size.tools + len(own) > LOADED:
            return await self.catalogue.rank(actor, "\n".join(task_queries(task).texts), LOADED + NAMED, own=own)
        every = [*await self.transactions.read(actor, partial(_every_name, actor)), *sorted(own)]
        hidden = await self.catalogue.hidden(actor)
        return [RankedTool(name, fits=True) for name in every if name not in hidden]

    async def _included(self, actor: Actor, request: SelectionRequest, own: frozenset[str]) -> Sequence[str]:
        """Return the tools that must be in the list, as far as the caller has them."""
        wanted = [name for name in request.include if actor.may_call(name)]
        if not wanted:
            return []
        found = await self.transactions.read(actor, lambda stores: stores.tools.find(visible_owners(actor), wanted))
        known = {tool.name for tool in found}.difference(await self.catalogue.hidden(actor)) | own
        return [name for name in wanted if name in known]


async def _every_name(actor: Actor, stores: SelectionStores) -> list[str]:
    owners = visible_owners(actor)
    if actor.step is not None:
        return [tool.name for tool in await stores.tools.find(owners, actor.step_tools)]
    return [tool.name for tool in await stores.tools.page(owners, "", LOADED)]


def _tokens(tool: ToolDefinition) -> int:
    return definition_tokens(tool.name, tool.description, tool.input_schema)


async def _known(
    owners: frozenset[str], names: frozenset[str] | None, request: SelectionRequest, stores: SelectionStores
) -> tuple[RecordedSelection | None, RegistrySize]:
    if request.session_id is not None:
        await find_session(request.session_id, stores.actor, stores.sessions)
    last = await stores.selections.find(request.session_id or "", request.agent_id)
    return last, await stores.tools.size(owners, names)


async def _record(request: SelectionRequest, selection: RecordedSelection, now: int, stores: SelectionStores) -> None:
    if request.session_id is not None and await stores.sessions.find(request.session_id) is None:
        # The session was deleted meanwhile.
        return
    await stores.selections.put(request.session_id or "", request.agent_id, selection, now)


def _digest(request: SelectionRequest) -> str:
    """Return what identifies a task: white space and case do not."""
    task = " ".join(request.task.casefold().split())
    parts = [task, *sorted(request.include), str(request.own)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
