"""Event log as CloudEvents in NDJSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from weftline.kernel.operation import Operation
    from weftline.transports.cli.target import Target


def is_export(operation: Operation, options: dict[str, Any]) -> bool:
    """Return whether the command requests CloudEvents as JSON."""
    return operation.name == "events.read" and options["as_json"] and options["format"] == "cloudevents"


def export(target: Target, request: dict[str, Any]) -> None:
    """Print one event per line: one page, or with ``after`` all pages up to the end of the log."""
    asyncio.run(_export(target, request))


async def _export(target: Target, request: dict[str, Any]) -> None:
    async with target.weftline(reads=True) as weftline:
        while True:
            page = await weftline.events.read(**request)
            for event in page.cloudevents:
                click.echo(msgspec.json.encode(event))
            if not page.cloudevents or "after" not in request:
                return
            request = {**request, "after": page.next_after}
