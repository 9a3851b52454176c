"""Destructive commands: marked in the registry, confirmed first, and they say what they removed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest

from weftline.app.registry import all_operations
from weftline.kernel.operation import Effect, RateClass, Request, Success, operation
from weftline.transports.cli import base
from weftline.transports.cli.generated import command_for

if TYPE_CHECKING:
    from cli_support import CommandLine

# Words of operations that take something away.
TAKES_AWAY = re.compile(
    r"\b(delete|remove|revoke|rotate|prune|purge|erase|clear|cancel|drop|forget|unpin|unroute)", re.IGNORECASE
)
# Those that can be undone or lose nothing, and ask because others work with what they replace or take away.
ASKS = {
    *("history.rollback", "board.restore_snapshot", "window.restore", "context.copy", "session.archive"),
    *("board.delete", "session.remove_members", "team.remove_member", "step.remove", "tools.remove"),
    "history.clear_retention",
}
# Those that take something away that another call brings back.
UNDONE_BY = {
    "board.delete": "history.rollback",
    "history.clear_retention": "history.set_retention",
    "pin.remove": "pin.add",
    "session.remove_members": "session.add_members",
    "step.remove": "step.define",
    "team.remove_member": "team.add_member",
    "tools.remove": "tools.register",
    "window.pop": "history.rollback",
    "window.unroute": "window.route",
    "compaction.drop": "context.compact",
}


def takes_away(name: str, summary: str) -> bool:
    return bool(TAKES_AWAY.search(name.replace("_", " ").replace(".", " ")) or TAKES_AWAY.match(summary))


@pytest.mark.req("WX-08")
def test_every_operation_that_takes_something_away_is_marked_or_undone_by_another() -> None:
    """A new one fails here until it is destructive or has an inverse."""
    operations = {each.name: each for each in all_operations()}
    marked = {name for name, each in operations.items() if each.destructive}
    found = {name for name, each in operations.items() if takes_away(name, each.summary)}
    deletes = {name for name, each in operations.items() if each.route.method == "DELETE"}
    changing = {name for name in found | deletes if operations[name].effect is not Effect.READ}
    assert changing - marked == set(UNDONE_BY)
    assert set(UNDONE_BY.values()) <= operations.keys()
    assert {"session.delete", "key.revoke", "history.prune", "memory.delete"} <= marked


def test_an_operation_that_deletes_must_state_whether_it_is_destructive() -> None:
    async def run(request: Request) -> Success:
        del request
        return Success()

    define = operation(
        "board.erase",
        tool="erase",
        http="DELETE /v1/all",
        permission=None,
        rate=RateClass.BOARD,
        effect=Effect.WRITE,
    )
    with pytest.raises(ValueError, match="state whether it is destructive"):
        define(run)


@pytest.mark.req("WX-08")
def test_every_command_that_destroys_or_replaces_has_the_option_yes_and_no_other_has() -> None:
    for each in all_operations():
        options = {param.name for param in command_for(each).params}
        assert ("yes" in options) == (each.destructive or each.name in ASKS), each.name


def any_of(param: click.Parameter) -> str:
    return str(param.type.choices[0]) if isinstance(param.type, click.Choice) else "1"


@pytest.mark.req("WX-08")
def test_without_a_terminal_every_destructive_command_needs_yes(launch: CommandLine) -> None:
    """The database is not even opened."""
    destructive = [each for each in all_operations() if each.destructive]
    assert destructive
    for each in destructive:
        required = [param for param in command_for(each).params if param.required]
        ids = [
            part
            for param in required
            for part in ([param.opts[0], "1"] if param.opts[0][0] == "-" else [any_of(param)])
        ]
        if "dry_run" in each.request.__struct_fields__:
            ids.append("--no-dry-run")
        command = f"{each.group} {each.verb}".replace("_", "-").split()
        refused = launch.json(*command, *ids, code=1)
        assert refused["code"] == "CONFIRMATION_NEEDED", each.name
        assert "cannot be undone" in refused["error"]
        assert str(launch.data) in refused["error"]
        assert "--yes" in refused["suggestions"][0]


@pytest.mark.req("WX-08")
def test_a_dry_run_asks_nothing(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "Ship")
    shown = launch.json("trust", "forget", "board:launch/goal", "a test")
    assert shown["dry_run"] is True
    assert launch.json("board", "read", "goal")["value"] == "Ship"


@pytest.mark.req("WX-08")
def test_every_destructive_command_says_what_it_removed() -> None:
    for each in all_operations():
        if each.destructive:
            assert each.verb.partition("_")[0] in base._DONE or each.name == "trust.forget", each.name


@pytest.fixture
def _interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "interactive", lambda: True)


@pytest.mark.usefixtures("_interactive")
def test_irreversible_commands_ask_for_confirmation(launch: CommandLine) -> None:
    assert "Are you sure?" in launch.run("session", "delete", "launch", code=1, stdin="n\n").stderr
    launch.run("session", "get", "launch")
    launch.run("session", "delete", "launch", stdin="y\n")
    launch.run("session", "get", "launch", code=1)


@pytest.fixture
def shared(launch: CommandLine) -> CommandLine:
    """Return a command line on a session in which two agents have windows."""
    for agent in ("planner", "critic"):
        launch.run("agent", "create", agent)
        launch.run("window", "create", "-s", "launch", "--agent-id", agent)
    return launch


@pytest.mark.req("MW-12")
@pytest.mark.usefixtures("_interactive")
def test_deleting_a_session_that_others_use_asks_and_names_them(shared: CommandLine) -> None:
    asked = shared.run("session", "delete", "launch", code=1, stdin="y\nn\n").stderr
    assert "critic: 1 window; planner: 1 window" in asked
    shared.run("session", "get", "launch")
    shared.run("session", "delete", "launch", stdin="y\ny\n")
    shared.run("session", "get", "launch", code=1)


@pytest.mark.req("MW-12")
def test_without_a_terminal_deleting_a_session_that_others_use_needs_force(shared: CommandLine) -> None:
    refused = shared.run("session", "delete", "launch", "--yes", code=1).stderr
    assert "SESSION_IN_USE" in refused
    assert "critic: 1 window; planner: 1 window" in refused
    shared.run("session", "delete", "launch", "--force", "--yes")
    shared.run("session", "get", "launch", code=1)


@pytest.mark.usefixtures("_interactive")
@pytest.mark.parametrize("command", [["session", "delete", "launch"], ["signing-key", "rotate"]])
def test_yes_skips_the_confirmation(command: list[str], launch: CommandLine) -> None:
    assert launch.run(*command, "--yes").stderr == ""


@pytest.mark.usefixtures("_interactive")
def test_revoking_a_key_asks_for_confirmation(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    [key] = launch.json("key", "list", "planner")["keys"]
    launch.run("key", "revoke", key["key_id"], code=1, stdin="n\n")
    launch.run("key", "revoke", key["key_id"], stdin="y\n")


@pytest.mark.req("WX-08")
@pytest.mark.usefixtures("_interactive")
def test_the_question_names_what_is_removed_and_where(launch: CommandLine) -> None:
    asked = launch.run("session", "delete", "launch", code=1, stdin="n\n").stderr
    assert f"This cannot be undone: session launch, on the data folder {launch.data}. Are you sure?" in asked


@pytest.mark.req("WX-08")
def test_a_destructive_command_says_what_it_removed(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    [key] = launch.json("key", "list", "planner")["keys"]
    assert launch.run("key", "revoke", key["key_id"], "--yes").stdout == f"Revoked key {key['key_id']}.\n"
    launch.run("memory", "set", "phase", "two")
    assert launch.run("memory", "delete", "phase", "--yes").stdout.startswith("Deleted memory phase")
    launch.run("knowledge", "create-domain", "handbook")
    gone = launch.run("knowledge", "delete-domain", "handbook", "--yes").stdout
    assert gone == "Deleted domain handbook.\ndocuments: 0\n"
    assert launch.run("session", "delete", "launch", "--yes").stdout == "Deleted session launch.\n"
    assert launch.run("signing-key", "rotate", "--yes").stdout == "Replaced signing key.\n"


def test_deleting_a_board_entry_asks_though_history_has_it(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "Ship")
    refused = launch.json("board", "delete", "goal", code=1)
    assert refused["code"] == "CONFIRMATION_NEEDED"
    assert "deletes the key for everyone, and keeps its history: board launch goal" in refused["error"]
    assert "Ship" in launch.run("board", "read", "goal").stdout
    launch.run("board", "delete", "goal", "--yes")
    launch.run("history", "rollback", "board:launch", "1", "--yes")
    assert "Ship" in launch.run("board", "read", "goal").stdout
