"""Registered tools, steps and selections in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.transaction import SqlStore, batches, placeholders
from weftline.prompts.tools.model import RecordedSelection, RegisteredTool, RegistrySize, StepDefinition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from weftline.kernel.transaction import Row

_TOOL = """
SELECT owner, name, description, input_schema, examples, server, tokens, bytes, registered_by, registered_at
FROM registered_tools
"""
_SIZE = "SELECT COUNT(*), COALESCE(SUM(tokens), 0), COALESCE(SUM(bytes), 0) FROM registered_tools WHERE tenant = $1"
_BY_NAME = f"{_TOOL} WHERE tenant = $1 AND name IN ({placeholders(2)}) ORDER BY name, owner"
_PUT_TOOL = """
INSERT INTO registered_tools
    (tenant, owner, name, description, input_schema, examples, server, tokens, bytes, registered_by, registered_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (tenant, owner, name) DO UPDATE SET description = excluded.description,
    input_schema = excluded.input_schema, examples = excluded.examples, server = excluded.server,
    tokens = excluded.tokens, bytes = excluded.bytes, registered_by = excluded.registered_by,
    registered_at = excluded.registered_at
"""
_PUT_STEP = """
INSERT INTO steps (tenant, owner, name, description, tools, defined_by, defined_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, owner, name) DO UPDATE SET description = excluded.description, tools = excluded.tools,
    defined_by = excluded.defined_by, defined_at = excluded.defined_at
"""
_PUT_SELECTION = """
INSERT INTO tool_selections (tenant, session_id, agent_id, task_digest, step, tools, selected_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, session_id, agent_id) DO UPDATE SET task_digest = excluded.task_digest, step = excluded.step,
    tools = excluded.tools, selected_at = excluded.selected_at
"""
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_lists = msgspec.json.Decoder(tuple[tuple[str, ...], tuple[str, ...]]).decode
_schema = msgspec.json.Decoder(dict).decode


class ToolStore(SqlStore):
    """Registered tools of the transaction's tenant. ``owners`` are those whose tools a caller sees."""

    async def lock(self) -> None:
        """Let no other transaction register tools or define steps of the tenant until this one ends."""
        await self._tx.run("SELECT 1 FROM tenants WHERE tenant = $1 {for_update}", self._tenant)

    async def size(self, owners: Collection[str] | None, names: Collection[str] | None = None) -> RegistrySize:
        """Return the size of the tools of some owners, or of the tenant; only of these names if given."""
        if names is not None:
            found = await self.find(owners or (), names)
            return RegistrySize(len(found), sum(tool.tokens for tool in found), sum(tool.bytes for tool in found))
        if owners is None:
            row = await self._tx.one(_SIZE, self._tenant)
            return RegistrySize() if row is None else RegistrySize(*map(int, row))
        sizes = [await self._tx.one(f"{_SIZE} AND owner = $2", self._tenant, owner) for owner in sorted(owners)]
        sums = [sum(int(row[column]) for row in sizes if row is not None) for column in range(3)]
        return RegistrySize(*sums)

    async def find(self, owners: Collection[str], names: Collection[str]) -> Sequence[RegisteredTool]:
        """Return tools by name, in order; of several with one name the tenant's, else the first by owner."""
        found = [
            row for batch in batches(sorted(set(names))) for row in await self._tx.all(_BY_NAME, self._tenant, *batch)
        ]
        return _first_of_each_name(map(_tool, found), owners)

    async def page(self, owners: Collection[str], after: str, limit: int) -> Sequence[RegisteredTool]:
        """Return tools after a name, in order, each name once."""
        rows = [
            row
            for owner in sorted(owners)
            for row in await self._tx.all(
                f"{_TOOL} WHERE tenant = $1 AND owner = $2 AND name > $3 ORDER BY name LIMIT $4",
                self._tenant,
                owner,
                after,
                limit,
            )
        ]
        found = sorted(map(_tool, rows), key=lambda tool: (tool.name.encode(), tool.owner))
        return _first_of_each_name(found, owners)[:limit]

    async def names_of(self, owner: str, server: str) -> Sequence[str]:
        """Return the names of an owner's tools of a server."""
        rows = await self._tx.all(
            "SELECT name FROM registered_tools WHERE tenant = $1 AND owner = $2 AND server = $3 ORDER BY name",
            self._tenant,
            owner,
            server,
        )
        return [row[0] for row in rows]

    async def put(self, tool: RegisteredTool) -> None:
        await self._tx.run(
            _PUT_TOOL,
            self._tenant,
            tool.owner,
            tool.name,
            tool.description,
            msgspec.json.encode(tool.input_schema).decode(),
            msgspec.json.encode(tool.examples).decode(),
            tool.server,
            tool.tokens,
            tool.bytes,
            tool.registered_by,
            tool.registered_at,
        )

    async def remove(self, owner: str, name: str) -> bool:
        """Remove a tool; False if there is none."""
        row = await self._tx.one(
            "DELETE FROM registered_tools WHERE tenant = $1 AND owner = $2 AND name = $3 RETURNING 1",
            self._tenant,
            owner,
            name,
        )
        return row is not None


class StepStore(SqlStore):
    """Steps of the transaction's tenant."""

    async def visible(self, owners: Collection[str]) -> Sequence[StepDefinition]:
        """Return the steps of some owners by name; of several with one name the tenant's, else the first by owner."""
        rows = await self._tx.all(
            "SELECT owner, name, description, tools, defined_by, defined_at FROM steps WHERE tenant = $1",
            self._tenant,
        )
        found = sorted(map(_step, rows), key=lambda step: (step.name.encode(), step.owner))
        return list({step.name: step for step in reversed(found) if step.owner in owners}.values())[::-1]

    async def count(self) -> int:
        row = await self._tx.one("SELECT COUNT(*) FROM steps WHERE tenant = $1", self._tenant)
        return 0 if row is None else int(row[0])

    async def put(self, step: StepDefinition) -> None:
        await self._tx.run(
            _PUT_STEP,
            self._tenant,
            step.owner,
            step.name,
            step.description,
            msgspec.json.encode(step.tools).decode(),
            step.defined_by,
            step.defined_at,
        )

    async def remove(self, owner: str, name: str) -> bool:
        """Remove a step; False if there is none."""
        row = await self._tx.one(
            "DELETE FROM steps WHERE tenant = $1 AND owner = $2 AND name = $3 RETURNING 1", self._tenant, owner, name
        )
        return row is not None


class SelectionStore(SqlStore):
    """The last selection of each agent, by session; the session is empty outside of sessions."""

    async def find(self, session_id: str, agent_id: str) -> RecordedSelection | None:
        row = await self._tx.one(
            "SELECT task_digest, step, tools FROM tool_selections "
            "WHERE tenant = $1 AND session_id = $2 AND agent_id = $3",
            self._tenant,
            session_id,
            agent_id,
        )
        return None if row is None else RecordedSelection(row[0], row[1], *_lists(row[2]))

    async def latest(self, agent_id: str, session_id: str | None = None) -> RecordedSelection | None:
        """Return the newest selection of an agent: of a session, if one is given."""
        of_session = "" if session_id is None else "AND session_id = $3 "
        row = await self._tx.one(
            "SELECT task_digest, step, tools FROM tool_selections "  # noqa: S608 - our own
            f"WHERE tenant = $1 AND agent_id = $2 {of_session}ORDER BY selected_at DESC LIMIT 1",
            self._tenant,
            agent_id,
            *([] if session_id is None else [session_id]),
        )
        return None if row is None else RecordedSelection(row[0], row[1], *_lists(row[2]))

    async def chosen_since(self, at: int) -> dict[str, int]:
        """Return the agents that tools were chosen for since a time, and when last."""
        rows = await self._tx.all(
            "SELECT agent_id, MAX(selected_at) FROM tool_selections WHERE tenant = $1 AND selected_at >= $2 "
            "GROUP BY agent_id",
            self._tenant,
            at,
        )
        return {str(agent_id): int(selected_at) for agent_id, selected_at in rows}

    async def put(self, session_id: str, agent_id: str, selection: RecordedSelection, now: int) -> None:
        lists = msgspec.json.encode((selection.loaded, selection.named)).decode()
        await self._tx.run(
            _PUT_SELECTION, self._tenant, session_id, agent_id, selection.task_digest, selection.step, lists, now
        )


def _first_of_each_name(tools: Iterable[RegisteredTool], owners: Collection[str]) -> list[RegisteredTool]:
    """Return the first tool of each name that one of these owners has. The owner of the tenant's, '', comes first."""
    found: dict[str, RegisteredTool] = {}
    for tool in tools:
        if tool.owner in owners:
            found.setdefault(tool.name, tool)
    return list(found.values())


def _tool(row: Row) -> RegisteredTool:
    owner, name, description, schema, examples, *rest = row
    return RegisteredTool(owner, name, description, _schema(schema), _names(examples), *rest)


def _step(row: Row) -> StepDefinition:
    owner, name, description, tools, *rest = row
    return StepDefinition(owner, name, description, _names(tools), *rest)
