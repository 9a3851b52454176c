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
        while not search_answer(line)["results"]:
            time.sleep(0.2)
        yield line


def search_answer(line: CommandLine) -> Any:
    found: Any = line.json("search", QUERY)
    return found


def test_results_are_printed_with_source_score_and_ref(line: CommandLine) -> None:
    output = line.run("search", QUERY).stdout
    assert "release, key decision" in output
    assert "  We chose the database PostgreSQL." in output
    assert "1 result, confidence" in output
    assert "lexical" not in output
    result = search_answer(line)["results"][0]
    assert result["key"] == "decision"
    explained = line.run("search", QUERY, "--explain").stdout
    assert "1 result of 1 chunk, confidence" in explained
    assert "lexical" in explained
    assert "We chose the database PostgreSQL." in line.run("records", "show", result["ref"]).stdout
    assert "exact" in line.run("records", "resolve", result["ref"]).stdout


@pytest.mark.req("WX-06")
def test_any_word_can_be_searched(line: CommandLine) -> None:
    words = ("context", "query", "get-context", "find-similar", "similar", "list")
    for word in words:
        line.run("board", "write", f"about_{word.replace('-', '_')}", f"Notes on {word}.", "--session", "release")
    for word in words:
        found = line.json("search", word, "--low-confidence")
        while found.get("pending"):
            time.sleep(0.5)
            found = line.json("search", word, "--low-confidence")
        assert found["results"][0]["text"] == f"Notes on {word}."


@pytest.mark.req("WX-06")
def test_no_results_print_what_to_do(line: CommandLine) -> None:
    output = line.run("search", QUERY, *LATER).stdout
    assert output.splitlines()[0] == (
        "No results. Perhaps not answered here: try other words, or low_confidence: true."
    )
    assert "0 results, confidence 0.00" in output


def test_get_context_and_similar_are_commands(line: CommandLine) -> None:
    context = line.run("get-context", QUERY).stdout
    assert context.startswith("[1] session release, key decision, ")
    assert " tokens with citations" in context
    ref = search_answer(line)["results"][0]["ref"]
    assert "We chose the database PostgreSQL." in line.run("get-context", "--ref", ref).stdout
    while not line.json("similar", "--text", "The database is PostgreSQL.")["results"]:
        # Its vector is computed in the background.
        time.sleep(0.5)
    similar = line.run("similar", "--text", "The database is PostgreSQL.").stdout
    assert "We chose the database PostgreSQL." in similar
    assert "0 results" in line.run("similar", ref).stdout


@pytest.mark.req("CE-F14")
def test_entities_are_listed(line: CommandLine) -> None:
    line.run("board", "write", "owner", "Ada owns src/app.py.", "--session", "release")
    while search_answer(line).get("pending"):
        pass
    assert line.json("entities", "--type", "file")["entities"][0]["value"] == "src/app.py"
    output = line.run("entities", "--query", "ada").stdout
    assert output.split()[:3] == ["1", "person", "Ada"]
    assert line.run("entities", "--query", "nobody").stdout.strip() == "No entities."
