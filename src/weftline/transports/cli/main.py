"""The ``weftline`` command: global options and the list of commands.

Help and completion import no operation and no storage: each command is loaded when it is used.
"""

from __future__ import annotations

import os
from importlib import import_module
from keyword import iskeyword
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from weftline.transports.cli.base import OrderedGroup
from weftline.transports.cli.command_names import TOP_LEVEL, command_table
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.global_options import set_target
from weftline.transports.cli.text_params import Secret, Url


class _HandWritten(NamedTuple):
    """Hand-written command: its module in this package, and its summary."""

    module: str
    summary: str


_HAND_WRITTEN = {
    "demo": _HandWritten("serve", "Watch a team of agents work together for half a minute."),
    "console": _HandWritten("console", "Open the console in the browser, signed in."),
    "serve": _HandWritten("serve", "Run the server: MCP and REST on one port."),
    "proxy": _HandWritten("serve", "Forward the model calls of your agents, and show what each costs."),
    "wrap": _HandWritten("serve", "Start a program with a model proxy of its own."),
    "mcp": _HandWritten("serve", "Serve MCP over standard input and output, for an editor or agent."),
    "init": _HandWritten("init", "Connect Claude Code, Codex, Cursor, Gemini CLI, opencode or VS Code."),
    "hooks": _HandWritten("hooks", "Record what coding agents do, and tell them what others know: on, off, status."),
    "doctor": _HandWritten("doctor", "Check this installation and suggest fixes."),
    "validate": _HandWritten("validate", "Measure what Weftline promises against its targets."),
    "tenant": _HandWritten("tenants", "Create and list tenants, set their plans, and show what they use."),
    "push": _HandWritten("push_pull", "Save knowledge to your persistent memory."),
    "pull": _HandWritten("push_pull", "Pull your persistent memory into a session."),
    "export": _HandWritten("transfer", "Export a session, or a part of it, to a file."),
    "import": _HandWritten("transfer", "Import a file that weftline export wrote."),
    "db": _HandWritten("database", "Migrate, back up and restore the database."),
    "version": _HandWritten("doctor", "Show the version."),
}
_TOP_LEVEL_SUMMARIES = {
    "compact": "Compact a long conversation: summaries and key facts in place of older events.",
    "search": "Search everything you may see, by keywords and by meaning.",
    "get-context": "Gather one text for a prompt within a token budget.",
    "similar": "Find passages similar to a search result or a text.",
    "entities": "List people, projects, files and other entities in what you may see.",
    "inbox": "Read messages addressed to you, and acknowledge them.",
}
_GROUPS = {
    "session": "Create, list, archive, inspect and delete sessions.",
    "board": "Shared key-value state of a session: read, write, history, snapshots.",
    "message": "Messages between the agents of a session, and their search.",
    "knowledge": "Knowledge domains: documents, sources, indexing and embedding models.",
    "missing": "Missing context: report it, request it, resolve it.",
    "memory": "Your private key-value memory: global or per session, with expiry.",
    "context": "Prompts for model calls: ingest, assemble, emit-metrics. Also persistent memory: push, pull.",
    "pin": "Items that are part of every prompt: add, remove, list.",
    "window": "Conversations of agents, with token limits: events, budgets, sharing, checkpoints.",
    "compaction": "Shorter views of long conversations: show, expand, key facts, drop.",
    "conversation": "Calls through the model proxy: what it may change, what it left out, what that saved.",
    "advise": "What would make prompts smaller or cheaper, tried on earlier calls: list, show, try.",
    "receipt": "What each assembled prompt contains, omits and saves: show, list, replay, savings.",
    "usage": "What model calls cost, by agent, team, session, model or time: report, export.",
    "layer": "Texts that begin every prompt: rules of the tenant, of teams and of agents.",
    "gateway": "MCP servers behind Weftline: their tools for all agents, by one endpoint.",
    "guardrail": "Rules about what callers may not do: list, test, check.",
    "alerts": "What operators should look at: overloaded windows, unused context, budgets, quotas.",
    "history": "Versions of everything: log, diff, snapshots, rollback, branches, merges, retention.",
    "records": "Portable records of what happened to context: list, show, validate.",
    "policy": "Export policies: what an export may contain, and who may use it.",
    "bundle": "Export and import as JSON instead of files.",
    "events": "The event log.",
    "webhook": "Signed delivery of events to URLs, with retries.",
    "conventions": "Board key conventions of a domain.",
    "agent": "Agents and humans, their roles and permissions.",
    "team": "Teams of agents and humans: members, shared memory, guidelines.",
    "key": "API keys.",
    "token": "Tokens that expire.",
    "signing-key": "The secret that signs a tenant's tokens.",
    "audit": "The audit log: calls and denials.",
    "performance": "Latency, load and cache metrics of the server.",
    "approval": "Calls that wait for a human: list, show, approve, reject.",
    "budget": "Limits of what a tenant, a team or an agent spends in a day or month: set, list, delete.",
    "plan": "Limits of the tenant's plan, and what is used of them.",
    "tools": "Tools of your runtime: register them, and choose the few that a task needs. Also MCP tools of Weftline.",
    "step": "Steps of a task, each with the tools that it allows.",
    "trust": "What was derived from a source: trace it, or delete all of it.",
}
_SECTIONS = {
    "Start here": ("demo", "console", "serve", "proxy", "wrap", "mcp", "init", "hooks", "doctor"),
    "Work in sessions": (
        "session",
        "board",
        "message",
        "inbox",
        "context",
        "receipt",
        "advise",
        "window",
        "compact",
        "compaction",
        "conversation",
        "layer",
        "search",
        "get-context",
        "similar",
        "entities",
        "knowledge",
        "missing",
        "memory",
        "pin",
        "records",
        "events",
        "conventions",
        "tools",
        "step",
    ),
    "Save and restore": ("push", "pull", "history", "export", "import", "bundle"),
    "Manage access": (
        "agent",
        "team",
        "guardrail",
        "approval",
        "trust",
        "key",
        "token",
        "signing-key",
        "policy",
        "webhook",
        "audit",
    ),
    "Operate": ("tenant", "plan", "db", "usage", "budget", "alerts", "performance", "validate", "version"),
}
_EXAMPLES = """\b
Examples:
  weftline session create "Plan the launch" --session-id launch
  export WEFTLINE_SESSION=launch
  weftline board write goal "Ship on Friday"
  weftline board write findings @findings.md
  weftline board list-keys
  weftline message add "Ready for review."
  weftline knowledge add handbook docs/ --create
  weftline search "How many days of vacation do I have?"
  weftline context ingest '[{"event_id": "q1", "content": "Who signs off?"}]'
  weftline context assemble "Who signs off?" --token-budget 2000
  weftline receipt list
  weftline memory set next_step "Ask Dana about the invoices"
  weftline history log board:launch
  weftline events read --after 0 --json
  weftline --url https://weftline.example.com board read goal

\b
Text can come from a file (@FILE) or from standard input (-).
Exit codes: 0 success, 1 failure, 2 usage error, 3 forbidden, 4 unavailable.
Tab completion: eval "$(_WEFTLINE_COMPLETE=bash_source weftline)" (or zsh_source, fish_source).
"""


class Root(OrderedGroup):
    """Top-level group: hand-written commands, and a group for each operation group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        sections = [name for names in _SECTIONS.values() for name in names]
        existing = {*_HAND_WRITTEN, *TOP_LEVEL, *command_table()}
        return [name for name in dict.fromkeys([*sections, *command_table()]) if name in existing]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name in _HAND_WRITTEN:
            module = import_module(f"weftline.transports.cli.{_HAND_WRITTEN[cmd_name].module}")
            # A Python keyword gets an underscore as the name of its function.
            command: click.Command = getattr(
                module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name.replace("-", "_")
            )
            return command
        if cmd_name not in {*TOP_LEVEL, *command_table()}:
            return None
        from weftline.transports.cli.generated import (  # noqa: PLC0415 - hand-written commands do without
            group_of,
            top_level_command,
        )

        return top_level_command(cmd_name) if cmd_name in TOP_LEVEL else group_of(cmd_name, _summary(cmd_name))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=_summary(name)) for name in names), *options]

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


def _summary(name: str) -> str:
    if name in _HAND_WRITTEN:
        return _HAND_WRITTEN[name].summary
    if name in TOP_LEVEL:
        return _TOP_LEVEL_SUMMARIES[name]
    return _GROUPS[name]


@click.group(
    cls=Root,
    epilog=_EXAMPLES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--url",
    type=Url(),
    envvar="WEFTLINE_URL",
    show_envvar=True,
    help="Server to call instead of using the data folder; '' for none.",
)
@click.option(
    "--key",
    type=Secret(),
    envvar="WEFTLINE_API_KEY",
    show_envvar=True,
    metavar="@FILE",
    help="File with the API key or token; - for standard input or a prompt.",
)
@click.option("--data-dir", envvar="WEFTLINE_DATA_DIR", show_envvar=True, help="Data folder.  [default: ~/.weftline]")
@click.option(
    "--database-url",
    type=Url(),
    envvar="WEFTLINE_DATABASE_URL",
    show_envvar=True,
    help="SQLite file or postgresql:// URL without a password instead.",
)
@click.option("--tenant", default="default", show_default=True, help="Tenant, on the data folder.")
@click.option(
    "--as",
    "principal",
    shell_complete=complete_name,
    help="Agent to act as, on the data folder.  [default: owner of the key, or admin]",
)
@click.option("--turn", envvar="WEFTLINE_TURN", show_envvar=True, help="Turn id to record with each change.")
@click.option("--task", envvar="WEFTLINE_TASK", show_envvar=True, help="Task id to record with each change.")
@click.version_option(package_name="weftline", message="%(prog)s %(version)s")
@click.pass_context
def weftline(ctx: click.Context, /, **options: str | None) -> None:
    """Weftline is the context layer for multi-agent systems.

    Agents share a board, messages, knowledge, history and events over MCP, REST and Python. Commands work on a running
    server (--url) or directly on the data folder, also while a server uses it. These options may also follow the
    command. An option beats a variable; an option that a command would ignore is an error.
    """
    del options
    _quiet_logging()
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    set_target(ctx)


def _quiet_logging() -> None:
    """Log errors only: a command reports a refusal itself."""
    import logging  # noqa: PLC0415 - help and completion log nothing

    logging.basicConfig(format="%(message)s")
    logging.getLogger("weftline").setLevel(logging.ERROR)


def main() -> None:
    """Run the command line."""
    weftline(prog_name="weftline")
