"""Storage ports of registered tools, steps and selections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weftline.prompts.tools.model import RecordedSelection, RegisteredTool, RegistrySize, StepDefinition


class ToolStore(Protocol):
    """Registered tools of the transaction's tenant. ``owners`` are those whose tools a caller sees."""

    async def lock(self) -> None:
        """Let no other transaction register tools or define steps of the tenant until this one ends."""
        ...

    async def size(self, owners: Collection[str] | None, names: Collection[str] | None = None) -> RegistrySize:
        """Return the size of the tools of some owners, or of the tenant; only of these names if given."""
        ...

    async def find(self, owners: Collection[str], names: Collection[str]) -> Sequence[RegisteredTool]:
        """Return tools by name, in order; of several with one name the tenant's, else the first by owner."""
        ...

    async def page(self, owners: Collection[str], after: str, limit: int) -> Sequence[RegisteredTool]:
        """Return tools after a name, in order, each name once."""
        ...

    async def names_of(self, owner: str, server: str) -> Sequence[str]:
        """Return the names of an owner's tools of a server."""
        ...

    async def put(self, tool: RegisteredTool) -> None: ...

    async def remove(self, owner: str, name: str) -> bool:
        """Remove a tool; False if there is none."""
        ...


class StepStore(Protocol):
    """Steps of the transaction's tenant."""

    async def visible(self, owners: Collection[str]) -> Sequence[StepDefinition]:
        """Return the steps of some owners by name; of several with one name the tenant's, else the first by owner."""
        ...

    async def count(self) -> int: ...

    async def put(self, step: StepDefinition) -> None: ...

    async def remove(self, owner: str, name: str) -> bool:
        """Remove a step; False if there is none."""
        ...


class SelectionStore(Protocol):
    """The last selection of each agent, by session; the session is empty outside of sessions."""

    async def find(self, session_id: str, agent_id: str) -> RecordedSelection | None: ...

    async def put(self, session_id: str, agent_id: str, selection: RecordedSelection, now: int) -> None: ...
