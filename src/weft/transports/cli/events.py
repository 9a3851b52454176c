"""The log as a file: CloudEvents, one to a line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from weft.kernel.operation import Operation
    from weft.transports.cli.target import Target


def is_export(operation: Operation, options: dict[str, Any]) -> bool:
    """Tell whether a command asks for the log in the form in which others take it."""
    return operation.name == "events.read" and options["as_json"] and options["format"] == "cloudevents"


def export(target: Target, wanted: dict[str, Any]) -> None:
    """Print events one to a line: those of one answer, or, from a position on, all there are."""
    asyncio.run(_export(target, wanted))


async def _export(target: Target, wanted: dict[str, Any]) -> None:
    async with target.weft() as weft:
        while True:
            page = await weft.events.read(**wanted)
            for event in page.cloudevents:
                click.echo(msgspec.json.encode(event))
            if not page.cloudevents or "after" not in wanted:
                return
            wanted = {**wanted, "after": page.next_after}
