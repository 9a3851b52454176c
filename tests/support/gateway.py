"""Servers behind the gateway in tests: added and called by callers."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from support import mcp_upstream

if TYPE_CHECKING:
    from pathlib import Path

    from support.world import Caller

COMMAND = shlex.join([sys.executable, mcp_upstream.__file__])


class Upstream:
    """A file with what a server says about its tools, and one that it writes notes to."""

    def __init__(self, folder: Path) -> None:
        self._tools = folder / "tools.json"
        self.notes = folder / "notes"
        self.command = f"env UPSTREAM_TOOLS={self._tools} UPSTREAM_NOTES={self.notes} {COMMAND}"

    def say(self, **tools: str) -> None:
        self._tools.write_text(json.dumps(tools))


async def add(caller: Caller, name: str = "up", **fields: Any) -> Any:
    return await caller.call("gateway.add", name=name, **{"command": COMMAND} | fields)


async def call(caller: Caller, name: str, **arguments: Any) -> Any:
    return await caller.call("gateway.call", name=name, arguments=arguments)


async def text(caller: Caller, name: str, **arguments: Any) -> str:
    answer = await call(caller, name, **arguments)
    return answer["content"][0]["text"]
