"""The registry of tools: who may register what, limits, and its search index."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.access.grants import check_clearance
from weftline.indexing.collections.sql import CollectionStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import InvalidInput, PermissionDenied, QuotaExceeded
from weftline.kernel.identity import Actor, PrincipalKind
from weftline.kernel.ports import JobStore
from weftline.prompts.tools.catalogue import ToolCatalogue
from weftline.prompts.tools.definitions import (
    ToolToRegister,
    registered,
    searched_chunks,
    shown_text,
    with_shown_text,
)
from weftline.prompts.tools.model import (
    MAX_BYTES,
    MAX_TOOLS,
    TENANT,
    TOOLS,
    RegisteredTool,
    ToolNameTaken,
    ToolNotRegistered,
)
from weftline.prompts.tools.sql import ToolStore
from weftline.safety.trust.gate import ContentGate, IncomingContent
from weftline.safety.trust.model import Source
from weftline.search.session_indexing.cursor import VectorBacklog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
