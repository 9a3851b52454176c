"""What a server says about its tools, compared with what was approved: new, changed, poisoned or gone.

Approved tools are registered, so that agents find them, steps name them and tasks get the few they need, like the tools
of a runtime.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from weftline.access.sql import AccessStore
from weftline.kernel.errors import ContentTooLarge, InvalidInput
from weftline.kernel.operation import SubmittedText
from weftline.prompts.gateway.model import GatewayTool, tool_name
from weftline.prompts.gateway.sql import GatewayStore
from weftline.prompts.tools.model import TENANT, ToolNotRegistered, ToolToRegister, cleaned, portable_names, shown_text
from weftline.prompts.tools.registry import ToolRegistry
from weftline.safety.trust.gate import ContentBlocked, ContentQuarantined, IncomingContent
from weftline.safety.trust.model import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.prompts.gateway.model import ToolText

_CHANGED = "its definition changed after it was approved"
_NEW = "the server added it after it was approved"


class GatewayRegistry(msgspec.Struct, frozen=True):
    """Compares and registers the tools of servers, in one transaction."""

    store: GatewayStore
    tools: ToolRegistry
    access: AccessStore

    async def compare(self, server: str, said: Sequence[ToolText], *, first: bool = False) -> Sequence[GatewayTool]:
        """Store what a server says now and return all of its tools; on first sight what is harmless is approved."""
        known = {tool.text.name: tool for tool in await self.store.tools(server)}
        portable = portable_names([tool_name(server, text.name) for text in said])
        current = []
        for text in said:
            tool = await self._judge(server, portable[tool_name(server, text.name)], text, known.get(text.name))
            if first and tool.state == "held":
                tool = replace(tool, approved=text.digest, state="approved", reason="")
            current.append(tool)
        changed = [tool for tool in current if known.get(tool.text.name) != tool]
        gone = [tool for name, tool in known.items() if name not in {text.name for text in said}]
        for tool in gone:
            await self.store.remove_tool(tool.name)
        await self._publish(server, changed, gone)
        return current

    async def approve(self, server: str, tools: Iterable[GatewayTool]) -> Sequence[GatewayTool]:
        """Approve definitions as they are now. What looks like an attack is refused or held by the gate."""
        approved = [replace(tool, approved=tool.text.digest, state="approved", reason="") for tool in tools]
        await self._publish(server, approved, [])
        return approved

    async def remove(self, server: str) -> None:
        tools = await self.store.tools(server)
        await self.store.remove(server)
        await self._publish(server, [], tools)

    async def _judge(self, server: str, name: str, text: ToolText, known: GatewayTool | None) -> GatewayTool:
        digest = text.digest
        approved = known.approved if known is not None else ""
        if known is not None and known.text == text and (known.state == "approved") == (approved == digest):
            return known
        tool = GatewayTool(name=name, server=server, text=text, approved=approved, state="held")
        if approved == digest:
            return replace(tool, state="approved")
        problem = await self._problem(name, text)
        if problem:
            return replace(tool, state="quarantined", reason=problem)
        return replace(tool, reason=_CHANGED if approved else _NEW)

    async def _problem(self, name: str, text: ToolText) -> str:
        """Return why agents may not see a definition, empty if they may."""
        try:
            shown = shown_text(definition(name, text))
            content = IncomingContent(kind="tool", item=name, text=shown, source=Source.TOOL)
            await self.tools.gate.admit(content)
        except (ContentQuarantined, ContentBlocked, ContentTooLarge, InvalidInput) as error:
            return error.message
        return ""

    async def _publish(self, server: str, changed: Sequence[GatewayTool], gone: Sequence[GatewayTool]) -> None:
        """Store changed tools, and register those that agents may call and no others."""
        for tool in changed:
            await self.store.put(tool)
        usable = {tool.name: definition(tool.name, tool.text) for tool in changed if tool.state == "approved"}
        if usable:
            await self.tools.register(usable, TENANT, server, complete=False)
        for tool in [*gone, *(tool for tool in changed if tool.state != "approved")]:
            with suppress(ToolNotRegistered):
                await self.tools.remove(tool.name, TENANT)
        if changed or gone:
            # Lists of tools follow from access rules, and are compared when these change.
            await self.access.advance_epoch()


def definition(name: str, text: ToolText) -> ToolToRegister:
    """Return a definition without invisible characters and imitations of layers."""
    return cleaned(name, text.description, text.input_schema)


def texts(server: str, said: Iterable[ToolText]) -> Iterable[SubmittedText]:
    """Yield what the gate will check, so that it can be scanned before the transaction."""
    for text in said:
        with suppress(InvalidInput, ContentTooLarge):
            yield SubmittedText(shown_text(definition(tool_name(server, text.name), text)), data=True)
