"""The ``weft`` command: global options, and the list of commands, each loaded only when it is used."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, NamedTuple

import click

from weft.transports.cli.base import OrderedGroup
from weft.transports.cli.target import Target

if TYPE_CHECKING:
    from weft.kernel.operation import Operation


class _Entry(NamedTuple):
    """A command written by hand: the module of this package that defines it, and what it is for."""

    module: str
    summary: str


_WRITTEN = {
    "demo": _Entry("serve", "See a team of agents work together, in half a minute."),
    "serve": _Entry("serve", "Run the server: MCP and REST on one port."),
    "mcp": _Entry("serve", "Serve MCP over standard input and output, for an editor or agent."),
    "init": _Entry("init", "Connect Claude Code, Cursor or VS Code."),
    "doctor": _Entry("doctor", "Check this installation and say what to do."),
    "tenant": _Entry("tenants", "Make and list tenants, and say what each may have."),
    "gather": _Entry("formatters.search", "Gather what matters for a question into one text that fits."),
    "similar": _Entry("formatters.search", "Find what means nearly the same as something that was found."),
    "push": _Entry("push_pull", "Save what was learned to your persistent memory."),
    "pull": _Entry("push_pull", "Take your latest context into a session."),
    "export": _Entry("transfer", "Write a session, or a part of it, into one file."),
    "import": _Entry("transfer", "Take over what another Weft exported."),
    "db": _Entry("database", "Migrate, back up and restore the database."),
    "version": _Entry("doctor", "Show which Weft this is."),
}
_GROUPS = {
    "session": "Create, list, archive, inspect and delete sessions.",
    "board": "A session's shared working memory: read, write, history, snapshots.",
    "message": "What a session's agents say to each other, each seen by whom it is meant for.",
    "search": 'Find what you may see by meaning and by words: weft search "what you look for".',
    "knowledge": "Documents that are searched by meaning: add, watch, list, read; domains, sources and models.",
    "missing": "What is not known yet: report it, ask for it, say what resolved it.",
    "memory": "What you keep for yourself: global or for one session, with lifetimes.",
    "context": "What you are and know beyond a session: push, pull, read.",
    "history": "Versions of everything: log, diff, snapshots, rollback, branches, merges, retention.",
    "records": "What happened to context, as portable records: list, show, check.",
    "policy": "What may leave with an export, and by whose hand.",
    "bundle": "What export and import do, as text instead of files.",
    "events": "What happened, in order.",
    "webhook": "Events sent to addresses outside, signed and tried again.",
    "conventions": "The keys a domain's agents agree on.",
    "agent": "Agents and humans: who may do what.",
    "key": "API keys.",
    "token": "Tokens that expire.",
    "signing_key": "The secret that signs a tenant's tokens.",
    "audit": "Who did what, and what was refused.",
    "performance": "How fast and how busy the server is.",
}
# Groups of the registry that have commands written by hand as well, and the module that defines those.
_ADDED = {"records": "records", "knowledge": "knowledge_add"}
_SECTIONS = {
    "Start here": ("demo", "serve", "mcp", "init", "doctor"),
    "Work in sessions": (
        "session",
        "board",
        "message",
        "search",
        "gather",
        "similar",
        "knowledge",
        "missing",
        "memory",
        "records",
        "events",
        "conventions",
    ),
    "Keep and go back": ("push", "pull", "context", "history", "export", "import", "bundle"),
    "Say who may do what": ("agent", "key", "token", "signing-key", "policy", "webhook", "audit"),
    "Run an installation": ("tenant", "db", "performance", "version"),
}
_EXAMPLES = """\b
Examples:
  weft session create "Plan the launch" --session-id launch
  export WEFT_SESSION=launch
  weft board write goal "Ship on Friday"
  weft board write findings @findings.md
  weft board list-keys
  weft message add "Ready for review."
  weft knowledge add handbook docs/ --create
  weft search "How many days of vacation do I have?"
  weft memory set next_step "Ask Dana about the invoices"
  weft history log board:launch
  weft events read --after 0 --json
  weft --url https://weft.example.com board read goal

\b
Text is taken from a file with @FILE and from standard input with -.
Exit codes: 0 done, 1 refused, not found or not done, 2 misused, 3 forbidden, 4 unavailable.
Tab completion: eval "$(_WEFT_COMPLETE=bash_source weft)" (or zsh_source, fish_source).
"""


class Root(OrderedGroup):
    """Every command there is: those written by hand and a group for each part of the registry."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        known = [name for names in _SECTIONS.values() for name in names]
        derived = [name.replace("_", "-") for name in _operations()]
        return [name for name in dict.fromkeys([*known, *derived]) if name in _WRITTEN or name in derived]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name in _WRITTEN:
            module = import_module(f"weft.transports.cli.{_WRITTEN[cmd_name].module}")
            # A name that Python keeps for itself has an underscore behind it there.
            command: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
            return command
        operations = _operations().get(cmd_name.replace("-", "_"))
        if operations is None:
            return None
        from weft.transports.cli.generated import group_of  # noqa: PLC0415 - only for what is derived

        group = group_of(cmd_name, _summary(cmd_name), operations)
        added = import_module(f"weft.transports.cli.{_ADDED[cmd_name]}").COMMANDS if cmd_name in _ADDED else ()
        group.lead_with(added)
        return group

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        listed = {name for section in _SECTIONS.values() for name in section}
        sections = {**_SECTIONS, "More": tuple(name for name in names if name not in listed)}
        width = max(map(len, names))
        for title, members in sections.items():
            shown = [(f"{name:<{width}}", _summary(name)) for name in members if name in names]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)


def _operations() -> dict[str, list[Operation]]:
    from weft.app.registry import all_operations  # noqa: PLC0415 - serve, mcp and version do without

    groups: dict[str, list[Operation]] = {}
    for operation in all_operations():
        groups.setdefault(operation.group, []).append(operation)
    return groups


def _summary(name: str) -> str:
    if name in _WRITTEN:
        return _WRITTEN[name].summary
    return _GROUPS.get(name.replace("-", "_"), f"What can be done with {name.replace('-', ' ')}.")


@click.group(
    cls=Root,
    epilog=_EXAMPLES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--url", envvar="WEFT_URL", show_envvar=True, help="Ask a running server; otherwise the data folder.")
@click.option("--key", envvar="WEFT_API_KEY", show_envvar=True, help="The API key or token to act by.")
@click.option("--data-dir", envvar="WEFT_DATA_DIR", show_envvar=True, help="The data folder.  [default: ~/.weft]")
@click.option(
    "--database-url", envvar="WEFT_DATABASE_URL", show_envvar=True, help="A SQLite file or postgresql:// instead."
)
@click.option("--tenant", default="default", show_default=True, help="The tenant to act in, on the data folder.")
@click.option("--as", "principal", help="Who to act as, on the data folder.  [default: whose key it is, or else admin]")
@click.option("--turn", envvar="WEFT_TURN", show_envvar=True, help="The turn that what you do is part of, by its id.")
@click.option("--task", envvar="WEFT_TASK", show_envvar=True, help="The task that what you do is part of, by its id.")
@click.version_option(package_name="weft", message="%(prog)s %(version)s")
@click.pass_context
def weft(ctx: click.Context, /, **options: str | None) -> None:
    """Weft is the context layer for multi-agent systems.

    Agents share a board, a history and events over MCP, REST and Python. Every command below works on a running
    server (--url) or directly on the data folder, also while a server runs on it.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if _said(ctx, "data_dir") and not _said(ctx, "database_url"):
        options["database_url"] = ""
    ctx.obj = Target(
        url=options["url"],
        key=options["key"],
        data_dir=options["data_dir"],
        database_url=options["database_url"],
        tenant=options["tenant"] or "default",
        principal=options["principal"],
        turn=options["turn"],
        task=options["task"],
        traceparent=os.environ.get("TRACEPARENT"),
    )


def _said(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def main() -> None:
    """Run the command line."""
    # A refusal is reported by the command itself; only what should not happen is worth a line of log here.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("weft").setLevel(logging.ERROR)
    weft(prog_name="weft")
