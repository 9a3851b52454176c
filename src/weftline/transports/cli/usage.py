"""``weftline usage export``: all pages of an export, written as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from weftline.kernel.operation import Operation
    from weftline.transports.cli.target import Target


def export(target: Target, operation: Operation, request: dict[str, Any]) -> None:
    while True:
        page: Any = target.call(operation, request)
        click.echo(page.content, nl=False)
        if page.next_cursor is None:
            return
        request["cursor"] = page.next_cursor
