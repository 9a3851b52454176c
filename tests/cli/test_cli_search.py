"""``weft search``: text and JSON output."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from cli_support import CommandLine

from support.forked_python import server_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.req("CE-F41"), pytest.mark.req("CE-A", part="Search")]
QUERY = "Which database did we choose?"
LATER = ("--since", "2099-01-01")


@pytest.fixture
def line(tmp_path: Path) -> Iterator[CommandLine]:
    """Return a command line on a server that has indexed a decision."""
    with server_process(tmp_path) as server:
        line = CommandLine(tmp_path / "unused", {"WEFT_URL": server.url, "WEFT_API_KEY": server.admin_key})
        line.run("session", "create", "Release 2.0", "--session-id", "release")
        line.run("board", "write", "decision", "We chose the database PostgreSQL.", "--session", "release")
        while not search_answer(line)["searched"]:
            time.sleep(0.2)
        yield line


def search_answer(line: CommandLine) -> Any:
    found: Any = line.json("search", "query", QUERY)
    return found


def test_an_unknown_search_command_is_the_query(line: CommandLine) -> None:
    output = line.run("search", QUERY).stdout
    assert "release, key decision" in output
    assert "  We chose the database PostgreSQL." in output
    assert "1 result of 1 chunk, confidence" in output
    assert search_answer(line)["results"][0]["key"] == "decision"


def test_no_results_print_a_message(line: CommandLine) -> None:
    output = line.run("search", QUERY, *LATER).stdout
    assert output.splitlines()[0] == "No results."
    assert "0 results of 0 chunks" in output


def test_get_context_and_find_similar_are_subcommands(line: CommandLine) -> None:
    context = line.run("search", "get-context", "--query", QUERY).stdout
    assert context.startswith("[1] session release, key decision, ")
    assert " of 2000 tokens" in context
    similar = line.run("search", "find-similar", "--text", "The database is PostgreSQL.").stdout
    assert "We chose the database PostgreSQL." in similar
