"""Global options: each one is used or refused by every command, and a flag beats the environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from weftline.app.authentication import Local
from weftline.transports import server
from weftline.transports.cli import generated
from weftline.transports.cli.global_options import DATA_FOLDER, EVERY, FLAGS, NONE
from weftline.transports.cli.main import weftline
from weftline.transports.cli.target import Target
from weftline.transports.cli.text_params import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli_support import CommandLine

    from weftline.kernel.operation import Operation
    from weftline.settings import Settings

pytestmark = pytest.mark.req("WX-08")

SERVER = "http://127.0.0.1:9"
# What each option does not go with on a server.
NOT_ON_A_SERVER = frozenset({"data_dir", "database_url", "tenant", "principal"})
# Commands that do not call operations, and the options that they use; every other command uses all of them.
USED = {
    "serve": DATA_FOLDER,
    "proxy": DATA_FOLDER | {"tenant", "principal"},
    "wrap": DATA_FOLDER | {"tenant", "principal"},
    "demo": DATA_FOLDER,
    "mcp": DATA_FOLDER | {"tenant", "principal", "turn", "task"},
    "init": DATA_FOLDER | {"tenant", "principal"},
    "doctor": EVERY - {"turn", "task"},
    "console": EVERY - {"turn", "task"},
    "version": NONE,
    "db migrate": DATA_FOLDER,
    "db status": DATA_FOLDER,
    "db backup": DATA_FOLDER,
    "db restore": DATA_FOLDER,
    "db sign": DATA_FOLDER,
    "tenant create": DATA_FOLDER,
    "tenant list": DATA_FOLDER,
    "tenant usage": DATA_FOLDER,
    "tenant plan": DATA_FOLDER,
    "tenant semantic-search": DATA_FOLDER,
    "hooks serve": EVERY,
    **{f"hooks {name}": NONE for name in ("status", "on", "off", "send")},
    "records validate": NONE,
    **{f"validate {name}": NONE for name in ("all", "quality", "push-pull", "isolation", "failures")},
}
VALUES = {"url": SERVER, "database_url": "x.db", "data_dir": "x", "principal": "planner", "key": "@/dev/null"}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its path."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def arguments_of(command: click.Command) -> list[str]:
    """Return values for the required parameters of a command."""
    given = []
    for param in command.params:
        if param.required:
            secret = "@/dev/null" if isinstance(param.type, Secret) else "1"
            value = param.type.choices[0] if isinstance(param.type, click.Choice) else secret
            given += [param.opts[0], str(value)] if isinstance(param, click.Option) else [str(value)]
    return given


class Reached(Exception):
    """The command got past its global options."""


@pytest.fixture
def _stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop every command as soon as its global options are accepted."""
    run = click.Command.invoke

    def stop(command: click.Command, ctx: click.Context) -> Any:
        if isinstance(command, click.Group):
            return run(command, ctx)
        raise Reached

    monkeypatch.setattr(click.Command, "invoke", stop)
    build, built = generated.command_for, {}

    def build_once(operation: Operation, name: str | None = None) -> click.Command:
        if operation.name not in built:
            built[operation.name] = build(operation, name)
        return built[operation.name]

    monkeypatch.setattr(generated, "command_for", build_once)


def flags(*names: str) -> list[str]:
    return [part for name in names for part in (FLAGS[name], VALUES.get(name, "1"))]


@pytest.mark.usefixtures("_stopped")
@pytest.mark.parametrize("env", [{}, {"WEFTLINE_URL": SERVER}], ids=["data folder", "server"])
def test_every_command_uses_or_refuses_every_global_option(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    wrong = []
    for path, command in dict(commands(weftline)).items():
        used = USED.get(" ".join(path), EVERY)
        if env and "url" in used:
            used -= NOT_ON_A_SERVER
        for name in FLAGS:
            line = [*flags(name), *path, *arguments_of(command)]
            if is_refused(line, FLAGS[name]) != (name not in used):
                wrong.append(line)
    assert wrong == []


def is_refused(line: list[str], flag: str) -> bool:
    try:
        weftline.main(line, prog_name="weftline", standalone_mode=False)
    except Reached:
        return False
    except click.UsageError as error:
        return flag in error.message
    raise AssertionError(f"{line} ended")


HAND_WRITTEN = {
    "push": ["key", "value"],
    "pull": ["--session", "launch"],
    "export": ["--session", "launch"],
    "import": [__file__],
    "knowledge add": ["handbook", __file__],
    "records resolve": ["source-1"],
    "validate compaction": ["--session", "s1"],
    "validate immutability": ["--session", "s1"],
    "validate tokens": ["--receipts"],
    "validate retrieval": ["--domain", "handbook"],
}


def test_every_command_that_accepts_all_options_hands_them_to_its_target(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is the only place that reads them."""
    seen: list[Target] = []

    def reach(target: Target, *_: Any, **__: Any) -> None:
        seen.append(target)
        raise Reached

    monkeypatch.setattr(Target, "call", reach)
    monkeypatch.setattr(Target, "weftline", reach)
    options = flags("data_dir", "tenant", "principal", "turn", "task")
    for path, command in commands(weftline):
        name = " ".join(path)
        if name in USED:
            continue
        yes = ["--yes"] if any(param.name == "yes" for param in command.params) else []
        seen.clear()
        result = cli.run(*options, *path, *HAND_WRITTEN.get(name, arguments_of(command)), *yes, code=1)
        assert isinstance(result.exception, Reached), (name, result.output)
        (target,) = seen
        assert (target.data_dir, target.tenant, target.principal) == ("x", "1", "planner"), name
        assert (target.turn, target.task) == ("1", "1"), name


def test_the_options_of_the_root_command_are_those_that_commands_check() -> None:
    own = {param.name for param in weftline.params} - {"version", "help"}
    assert own == set(FLAGS)


def target_of(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, *line: str) -> Target:
    """Return the target of a command."""
    seen = []
    monkeypatch.setattr(Target, "call", lambda target, *_: seen.append(target))
    monkeypatch.setattr("weftline.transports.cli.render.show", lambda *_, **__: None)
    cli.run(*line, "session", "list")
    return seen[0]


def test_a_flag_beats_the_environment(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cli.env = {
        "WEFTLINE_URL": SERVER,
        "WEFTLINE_API_KEY": "weftline.default.key_1.a",
        "WEFTLINE_DATABASE_URL": "other.db",
        "WEFTLINE_TURN": "1",
        "WEFTLINE_TASK": "1",
    }
    other = "http://127.0.0.1:10"
    file = tmp_path / "key"
    file.write_text("k")
    seen = target_of(cli, monkeypatch, "--url", other, "--key", f"@{file}", "--turn", "2", "--task", "2")
    assert (seen.url, seen.key, seen.turn, seen.task) == (other, "k", "2", "2")
    folder = target_of(cli, monkeypatch, "--url", "", "--data-dir", str(tmp_path))
    assert (folder.url, folder.settings().storage_url) == (None, str(tmp_path / "weftline.db"))
    assert target_of(cli, monkeypatch, "--url", "", "--database-url", "a.db").settings().storage_url == "a.db"
    by_owner = Local("default", "planner", by_owner=True)
    assert target_of(cli, monkeypatch, "--url", "", "--as", "planner").credential == by_owner
    assert target_of(cli, monkeypatch, "--url", "", "--tenant", "acme").credential == Local(
        "acme", "admin", by_owner=True
    )


@pytest.mark.parametrize(
    "line", [["--key", "@/dev/null", "--as", "planner"], ["--key", "@/dev/null", "--tenant", "acme"]]
)
def test_options_that_say_the_same_twice_exclude_each_other(line: list[str], cli: CommandLine) -> None:
    assert "exclude each other" in cli.run(*line, "session", "list", code=2).stderr


@pytest.mark.parametrize("option", sorted(NOT_ON_A_SERVER))
def test_an_option_of_the_data_folder_with_a_server_says_what_to_do(option: str, cli: CommandLine) -> None:
    both = cli.run("--url", SERVER, *flags(option), "session", "list", code=2).stderr
    assert f"--url and {FLAGS[option]} exclude each other" in both
    cli.env["WEFTLINE_URL"] = SERVER
    refused = cli.run(*flags(option), "session", "delete", "oops", "--yes", code=2).stderr
    assert f"WEFTLINE_URL is set, so this would call the server {SERVER}" in refused
    assert "Nothing was done." in refused
    assert f"weftline --url '' {' '.join(flags(option))} COMMAND" in refused
    assert f"leave out {FLAGS[option]}" in refused


def test_a_command_of_the_data_folder_says_so_if_a_server_is_set(cli: CommandLine) -> None:
    cli.env["WEFTLINE_URL"] = SERVER
    assert "works on the data folder" in cli.run("db", "migrate").stderr
    assert cli.run("--data-dir", str(cli.data), "db", "status").stderr == ""


@pytest.mark.parametrize(
    "line",
    [
        ["--data-dir", "a", "serve", "--data-dir", "b"],
        ["--database-url", "a.db", "serve", "--database-url", "b.db"],
        ["--as", "planner", "mcp", "--as", "admin"],
        ["--data-dir", "a", "demo", "--stay", "--data-dir", "b"],
    ],
)
def test_an_option_before_and_after_the_command_is_refused(line: list[str], cli: CommandLine) -> None:
    assert "is given twice" in cli.run(*line, code=2).stderr


@pytest.mark.parametrize(
    "line",
    [
        ["demo", "--data-dir", "a"],
        ["--data-dir", "a", "demo"],
        ["--data-dir", "a", "init", "cursor", "--url", SERVER],
        ["--as", "planner", "init", "cursor", "--url", SERVER],
        ["init", "cursor", "--url", SERVER, "--agent", "planner"],
        ["init", "cursor", "--print", "--replace"],
        ["export", "--session", "launch", "--json"],
        ["--as", "planner", "validate", "tokens"],
        ["--data-dir", "a", "validate", "retrieval"],
        ["validate", "quality", "--score", "a.csv"],
        ["validate", "quality", "--pairs", "a.jsonl"],
    ],
)
def test_an_option_that_has_no_effect_is_refused(line: list[str], cli: CommandLine) -> None:
    cli.run(*line, code=2)


def test_init_writes_the_agent_of_the_global_option(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.run("--as", "planner", "init", "cursor")
    assert '"planner"' in (tmp_path / ".cursor" / "mcp.json").read_text()


def test_a_passage_in_a_file_is_found_without_a_target(cli: CommandLine, tmp_path: Path) -> None:
    ref = {
        "schema_version": "0.1.0",
        "source_id": "s",
        "uri": "file:///plan.md",
        "source_kind": "file",
        "selector": {"type": "text_quote", "exact": "ship"},
    }
    (tmp_path / "ref.json").write_text(json.dumps(ref))
    (tmp_path / "plan.md").write_text("We ship.")
    line = ["records", "resolve", str(tmp_path / "ref.json"), "--against", str(tmp_path / "plan.md")]
    cli.run(*line)
    assert "does not use --as" in cli.run("--as", "planner", *line, code=2).stderr
    assert "--session has no effect" in cli.run(*line, "--session", "launch", code=2).stderr


@pytest.mark.parametrize(
    ("url", "problem", "advice"),
    [
        ("127.0.0.1:9220", "'127.0.0.1:9220' has no http:// or https://", "Give http://127.0.0.1:9220:"),
        ("localhost", "has no http:// or https://", "Give http://localhost:"),
        ("ftp://weftline", "begins with ftp://", "Give a URL such as http://127.0.0.1:8787:"),
        ("http://", "names no host", "Give a URL such as"),
        ("http://weftline:0", "has port 0", "Give a URL such as"),
        ("http://weftline:port", "host or port that is not valid", "Give a URL such as"),
        ("http://weftline/mcp", "is the URL for MCP clients", "Give http://weftline:"),
    ],
)
def test_a_wrong_url_says_what_is_wrong_and_what_to_type(url: str, problem: str, advice: str, cli: CommandLine) -> None:
    stderr = cli.run("--url", url, "session", "list", code=1).stderr
    assert problem in stderr
    assert f"Hint: {advice}" in stderr
    assert "--url" in stderr
    assert "WEFTLINE_URL" in stderr


def test_a_password_in_a_url_is_not_repeated(cli: CommandLine) -> None:
    assert "me:secret" not in cli.run("--url", "http://me:secret@weftline", "session", "list", code=2).output
    cli.env["WEFTLINE_URL"] = "http://me:secret@weftline"
    assert "secret" not in cli.run("session", "list", code=1).output


def test_a_key_that_is_not_of_the_data_folder_says_where_it_comes_from(cli: CommandLine) -> None:
    cli.run("session", "create", "Plan")
    cli.env["WEFTLINE_API_KEY"] = "weftline.default.key_0.x"
    stderr = cli.run("session", "list", code=3).stderr
    assert "WEFTLINE_API_KEY or --key @FILE" in stderr
    assert "--as" in stderr


def test_a_server_says_that_its_folder_replaces_a_database_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[Settings] = []
    monkeypatch.setattr(server, "serve", started.append)
    monkeypatch.setenv("WEFTLINE_DATABASE_URL", "postgresql://production/weftline")
    said = CliRunner().invoke(weftline, ["serve", "--port", "0", "--data-dir", str(tmp_path)])
    assert "WEFTLINE_DATABASE_URL is set but not used" in said.stderr
    assert started[0].storage_url == str(tmp_path / "weftline.db")
