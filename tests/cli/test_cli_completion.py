"""Tab completion of commands, options, session ids, agents, board keys and knowledge domains."""

from __future__ import annotations

import pytest
from cli_support import CommandLine

from support.forked_python import server_process


def completed(cli: CommandLine, *words: str, **env: str) -> dict[str, str]:
    """Return what fish would offer for the last word, with descriptions."""
    variables = {
        "_WEFTLINE_COMPLETE": "fish_complete",
        "COMP_WORDS": " ".join(["weftline", *words]),
        "COMP_CWORD": words[-1],
    }
    result = cli.process(**variables, **env)
    assert result.stderr == ""
    items = [line.removeprefix("plain,").partition("\t") for line in result.stdout.splitlines() if line]
    return {name: about for name, _, about in items}


@pytest.fixture
def filled(launch: CommandLine) -> CommandLine:
    launch.run("board", "write", "goal", "ship")
    launch.run("board", "write", "gate", "open")
    launch.run("agent", "create", "planner")
    launch.run("knowledge", "create-domain", "handbook", "--description", "How we work")
    return launch


CASES = [
    (("bo",), {"board"}),
    (("board", "list"), {"list-keys", "list-snapshots"}),
    (("board", "read", "--sess"), {"--session"}),
    (("session", "get", "la"), {"launch"}),
    (("board", "list-keys", "--session", "l"), {"launch"}),
    (("board", "read", "g"), {"goal", "gate"}),
    (("key", "list", "pl"), {"planner"}),
    (("--as", "pl"), {"planner"}),
    (("knowledge", "show-domain", "h"), {"handbook"}),
    (("knowledge", "add", "h"), {"handbook"}),
    (("search", "--dom"), {"--domain", "--domains"}),
]


@pytest.mark.parametrize(("words", "expected"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_names_are_completed_on_a_data_folder(filled: CommandLine, words: tuple[str, ...], expected: set[str]) -> None:
    assert expected <= set(completed(filled, *words))


def test_names_are_completed_with_descriptions(filled: CommandLine) -> None:
    assert completed(filled, "knowledge", "show-domain", "h") == {"handbook": "How we work"}


def test_names_are_completed_over_a_server(filled: CommandLine) -> None:
    key = filled.json("key", "create", "admin")["api_key"]
    with server_process(filled.data) as server:
        server_env = {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": key}
        assert set(completed(filled, "session", "get", "la", **server_env)) == {"launch"}
        assert set(completed(filled, "board", "read", "g", **server_env)) == {"goal", "gate"}


@pytest.mark.parametrize(
    "env",
    [
        {"WEFTLINE_URL": "http://127.0.0.1:9"},
        {"WEFTLINE_DATA_DIR": "/dev/null"},
        {"WEFTLINE_DATABASE_URL": "postgresql://127.0.0.1:9/x"},
    ],
    ids=["no server", "no folder", "no database"],
)
def test_completion_prints_no_errors(filled: CommandLine, env: dict[str, str]) -> None:
    assert completed(filled, "session", "get", "la", **env) == {}


def test_a_server_is_not_asked_for_names_of_a_data_folder(filled: CommandLine) -> None:
    """The command would be refused, so the server is not asked."""
    environment = {"WEFTLINE_URL": "http://127.0.0.1:9", "WEFTLINE_API_KEY": "x"}
    assert completed(filled, "--data-dir", str(filled.data), "session", "get", "la", **environment) == {}
    assert set(completed(filled, "--url", "''", "session", "get", "la", **environment)) == {"launch"}
