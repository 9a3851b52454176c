"""The tools for a task: the few that fit it, in a stable order, the same until the task changes.

Provider caches begin with the tools, so a list that changes from call to call costs more than it saves. An agent keeps
its list while it contains the best tools for what it does.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.identity import Actor
from weftline.kernel.ports import Transactions
from weftline.prompts.tools.catalogue import RankedTool, ToolCatalogue
from weftline.prompts.tools.definitions import definition, definition_tokens, portable_names
from weftline.prompts.tools.model import LOADED, NAMED, RecordedSelection, RegistrySize
from weftline.prompts.tools.registry import visible_owners
from weftline.prompts.tools.sql import SelectionStore, ToolStore
from weftline.search.task_queries import task_queries
from weftline.sessions.model import find_session
from weftline.sessions.store import SessionStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.models.language_models.model import ToolDefinition

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
