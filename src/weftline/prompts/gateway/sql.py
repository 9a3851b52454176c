"""Servers of the gateway and their tools in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.patterns import decode_patterns, encode_patterns
from weftline.kernel.transaction import SqlStore
from weftline.prompts.gateway.model import GatewayTool, McpServer, ServerSettings, ToolText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Row

_SERVER = (
    "SELECT name, kind, target, variables, agents, settings, added_by, added_at FROM gateway_servers WHERE tenant = $1"
)
_TOOL = "SELECT name, server, definition, approved, state, reason FROM gateway_tools WHERE tenant = $1"
_ADD = """
INSERT INTO gateway_servers (tenant, name, kind, target, variables, agents, settings, added_by, added_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_PUT = """
INSERT INTO gateway_tools (tenant, name, server, tool, definition, approved, state, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant, name)
DO UPDATE SET definition = excluded.definition, approved = excluded.approved, state = excluded.state,
              reason = excluded.reason
"""


class GatewayStore(SqlStore):
    """The gateway of the transaction's tenant."""

    async def servers(self) -> Sequence[McpServer]:
        return [_server(row) for row in await self._tx.all(f"{_SERVER} ORDER BY name", self._tenant)]

    async def server(self, name: str) -> McpServer | None:
        row = await self._tx.one(f"{_SERVER} AND name = $2", self._tenant, name)
        return None if row is None else _server(row)

    async def add(self, server: McpServer) -> None:
        await self._tx.run(
            _ADD,
            self._tenant,
            server.name,
            server.kind,
            server.target,
            msgspec.json.encode(server.variables).decode(),
            encode_patterns(server.agents),
            msgspec.json.encode(server.settings).decode(),
            server.added_by,
            server.added_at,
        )

    async def remove(self, name: str) -> None:
        """Remove a server with its tools."""
        await self._tx.run("DELETE FROM gateway_tools WHERE tenant = $1 AND server = $2", self._tenant, name)
        await self._tx.run("DELETE FROM gateway_servers WHERE tenant = $1 AND name = $2", self._tenant, name)

    async def tools(self, server: str | None = None) -> Sequence[GatewayTool]:
        """Return the tools of one server or of all, by name."""
        if server is None:
            rows = await self._tx.all(f"{_TOOL} ORDER BY name", self._tenant)
        else:
            rows = await self._tx.all(f"{_TOOL} AND server = $2 ORDER BY name", self._tenant, server)
        return [_tool(row) for row in rows]

    async def put(self, tool: GatewayTool) -> None:
        definition = msgspec.json.encode(tool.text).decode()
        parts = (tool.name, tool.server, tool.text.name, definition, tool.approved, tool.state, tool.reason)
        await self._tx.run(_PUT, self._tenant, *parts)

    async def remove_tool(self, name: str) -> None:
        await self._tx.run("DELETE FROM gateway_tools WHERE tenant = $1 AND name = $2", self._tenant, name)


def _server(row: Row) -> McpServer:
    name, kind, target, variables, agents, settings, added_by, added_at = row
    return McpServer(
        name=name,
        kind=kind,
        target=target,
        variables=msgspec.json.decode(variables, type=dict[str, str]),
        agents=decode_patterns(agents),
        settings=msgspec.json.decode(settings, type=ServerSettings),
        added_by=added_by,
        added_at=added_at,
    )


def _tool(row: Row) -> GatewayTool:
    name, server, definition, approved, state, reason = row
    return GatewayTool(
        name=name,
        server=server,
        text=msgspec.json.decode(definition, type=ToolText),
        approved=approved,
        state=state,
        reason=reason,
    )
