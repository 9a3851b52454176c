"""Secrets are not taken from the command line, where other users and the shell's history see them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest
from cli_support import CommandLine

from weftline.transports.cli.main import weftline
from weftline.transports.cli.text_params import Secret, Url

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "weftline.default.key_0.a-secret"
# Names that say secret, but are none: ids, counts, and the secrets that a command masks.
NOT_SECRET = {
    "key",
    "keys",
    "key_id",
    "token_id",
    "token_budget",
    "omit_secrets",
    "max_tokens",
    "summary_tokens",
    "tokenizer",
}
SAYS_SECRET = re.compile(r"secret|password|passphrase|credential|token|api_?key|\bkey\b|keys|bearer|auth")


def parameters(
    group: click.Group, ctx: click.Context, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    for each in group.params:
        yield path, each
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from parameters(command, ctx, (*path, name))
        else:
            yield from (((*path, name), each) for each in command.params)


def every_parameter() -> list[tuple[str, click.Parameter]]:
    return [(" ".join(path), each) for path, each in parameters(weftline, click.Context(weftline))]


def test_every_option_that_may_hold_a_secret_refuses_it_as_an_argument() -> None:
    """A new option with such a name is a Secret, or listed above as none."""
    suspect = {
        (path, each.name)
        for path, each in every_parameter()
        if each.name
        and SAYS_SECRET.search(each.name)
        and not isinstance(each.type, Secret)
        and not isinstance(each.type, (click.types.IntParamType, click.types.FloatParamType, click.types.BoolParamType))
        and not (path and each.name in NOT_SECRET)
    }
    assert suspect == set()
    secrets = {(path, each.name) for path, each in every_parameter() if isinstance(each.type, Secret)}
    assert {("", "key"), ("token issue", "api_key")} <= secrets
    assert any(name == "secret" for _, name in secrets)


def test_every_url_refuses_a_password_as_an_argument() -> None:
    urls = {(path, each.name): each for path, each in every_parameter() if each.name and each.name.endswith("url")}
    assert {("", "url"), ("", "database_url"), ("serve", "database_url"), ("init", "url")} <= urls.keys()
    assert {where for where, each in urls.items() if not isinstance(each.type, Url)} == set()


@pytest.mark.parametrize(
    "line",
    [
        ["--key", KEY, "session", "list"],
        [f"--key={KEY}", "session", "list"],
        ["--key", f"@@{KEY}", "session", "list"],
        ["token", "issue", "planner", "planner", KEY],
        ["knowledge", "add-source", "docs", "webhook", "--secret", KEY],
    ],
    ids=" ".join,
)
def test_a_secret_as_an_argument_is_refused_and_not_repeated(line: list[str], cli: CommandLine) -> None:
    refused = cli.run(*line, code=2)
    assert "visible to other users" in refused.output
    assert KEY not in refused.output


@pytest.mark.parametrize(
    ("option", "url"),
    [
        ("--database-url", "postgresql://weftline:a-secret@db.internal/weftline"),
        ("--database-url", "postgresql://weftline:a-secret@one.internal:5432,two.internal/weftline"),
        ("--database-url", "postgresql://weftline@db.internal/weftline?password=a-secret"),
        ("--database-url", "postgresql://weftline@db.internal/weftline?sslpassword=a-secret"),
        ("--url", "https://weftline:a-secret@weftline.internal"),
    ],
)
def test_a_password_in_a_url_is_refused_as_an_argument(option: str, url: str, cli: CommandLine) -> None:
    for line in ([option, url, "session", "list"], ["serve", "--database-url", url]):
        refused = cli.run(*line, code=2)
        assert "visible to other users" in refused.output
        assert "a-secret" not in refused.output
    if option == "--database-url":
        assert "WEFTLINE_DATABASE_URL_FILE" in refused.output


def test_secrets_come_from_a_variable_a_file_or_standard_input(cli: CommandLine) -> None:
    key = cli.json("agent", "create", "planner")["api_key"]
    file = cli.data / "key"
    file.write_text(f"{key}\n")
    assert cli.json("--key", f"@{file}", "agent", "capabilities")["agent_id"] == "planner"
    assert cli.json("--key", "-", "agent", "capabilities", stdin=f"{key}\n")["agent_id"] == "planner"
    cli.env["WEFTLINE_API_KEY"] = key
    assert cli.json("agent", "capabilities")["agent_id"] == "planner"
    # An empty key is none.
    assert cli.json("--key", "", "agent", "capabilities")["agent_id"] == "admin"


def test_a_secret_is_asked_for_at_a_terminal(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cli.json("agent", "create", "planner")["api_key"]
    asked: list[str] = []

    def prompt(text: str, **options: object) -> str:
        assert options["hide_input"]
        asked.append(text)
        return key

    monkeypatch.setattr("weftline.transports.cli.text_params.click.prompt", prompt)
    monkeypatch.setattr("weftline.transports.cli.text_params._is_terminal", lambda: True)
    assert cli.json("--key", "-", "agent", "capabilities")["agent_id"] == "planner"
    assert asked == ["Key"]
