"""``weft get-context`` and ``weft similar``: short forms of two search operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli.base import JSON, Command
from weft.transports.cli.completion import complete_name
from weft.transports.cli.formatters.search import render_context, render_similar
from weft.transports.cli.render import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.transports.cli.target import Target

_DOMAIN = click.option("--domain", shell_complete=complete_name, help="Search only this knowledge domain.")
_SESSION = click.option(
    "--session", "-s", "session_id", shell_complete=complete_name, help="Search only this session, and documents."
)


@click.command(cls=Command, params=[JSON])
@click.argument("query", help="Question or words to search for.")
@click.option("--max-tokens", type=click.IntRange(16, 200_000), help="Token budget of the text.  [default: 2000]")
@_DOMAIN
@_SESSION
@click.pass_obj
def get_context(target: Target, /, *, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - options of several types
    """Build a context text for a question within a token budget: the best passages with their surroundings."""
    show(_call(target, "search.get_context", options), as_json=as_json, formatter=render_context)


@click.command(cls=Command, params=[JSON])
@click.argument("chunk_id", help="chunk_id of a search result, such as domain:handbook/42.")
@click.option("--top-k", type=click.IntRange(1, 100), help="Maximum results.  [default: 10]")
@_DOMAIN
@_SESSION
@click.pass_obj
def similar(target: Target, /, *, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - options of several types
    """Find passages similar to a search result."""
    show(_call(target, "search.find_similar", options), as_json=as_json, formatter=render_similar)


def _call(target: Target, operation: str, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the answer
    from weft.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    request = {name: value for name, value in options.items() if value is not None}
    return target.call(all_operations()[operation], request)
