"""``weftline agent disable`` and ``enable``: the kill switch of an agent and everything below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weftline.transports.cli.base import JSON, Command
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.render import show

if TYPE_CHECKING:
    from weftline.transports.cli.target import Target

_AGENT = click.argument("agent_id", help="Agent or human.", shell_complete=complete_name)


@click.command(cls=Command, params=[JSON])
@_AGENT
@click.pass_obj
def disable(target: Target, agent_id: str, *, as_json: bool) -> None:
    """Disable an agent and everything below it at once: keys, tokens, streams, subscriptions and webhooks end.

    What they wrote stays. 'weftline agent enable' enables exactly these again.
    """
    _set(target, agent_id, disabled=True, as_json=as_json)


@click.command(cls=Command, params=[JSON])
@_AGENT
@click.pass_obj
def enable(target: Target, agent_id: str, *, as_json: bool) -> None:
    """Enable an agent again, with everything that was disabled with it."""
    _set(target, agent_id, disabled=False, as_json=as_json)


def _set(target: Target, agent_id: str, *, disabled: bool, as_json: bool) -> None:
    from weftline.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    answer = target.call(all_operations()["agent.update"], {"agent_id": agent_id, "disabled": disabled})
    show(answer, as_json=as_json)


COMMANDS: tuple[click.Command, ...] = (disable, enable)
