"""``weftline search``: text and JSON output."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from cli_support import CommandLine
from click import unstyle

from support.forked_python import server_process
from weftline.jobs import session_indexing
from weftline.search.operations import SearchResponse, SimilarResponse
from weftline.search.results import PassageInfo
from weftline.transports.cli.formatters.search import render_search, render_similar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.req("CE-F41"), pytest.mark.req("CE-A")]
QUERY = "Which database did we choose?"
LATER = ("--since", "2099-01-01")


@pytest.fixture
def line(tmp_path: Path) -> Iterator[CommandLine]:
    """Return a command line on a server that has indexed a decision."""
    with server_process(tmp_path) as server:
        line = CommandLine(tmp_path / "unused", {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": server.admin_key})
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


SMALL_TALK = "The weather was fine, and so was the lunch of the day. " * 12
TALK = "Das Wetter war schön, und das Essen war es auch. " * 12
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
BARRIER = "The barrier of the garage opens with the code 7319."


def printed(text: str, query: str) -> list[str]:
    """Return the texts that a search and a search for similar passages print for a passage."""
    result = PassageInfo(source="board", ref="sessions/1", score=0.8, text=text, key="notes", timestamp=NOON)
    found = SearchResponse(results=[result], confidence=0.8), SimilarResponse(results=[result])
    outputs = render_search(query, found[0]), render_similar(query, found[1])
    return [" ".join(unstyle(each).partition("key notes")[2].partition("sessions/1")[0].split()) for each in outputs]


@pytest.mark.parametrize(
    ("before", "answer", "after", "query"),
    [
        (SMALL_TALK, BARRIER, SMALL_TALK, "Which code opens the barrier?"),
        (SMALL_TALK, BARRIER, "", "barrier codes"),
        (TALK, "Die Schranke der Tiefgarage öffnet der Code 7319.", TALK, "Welcher Code öffnet die Schranke?"),
        ("今日は天気の話をまた長くしました。" * 40, "港の予算が承認されました。", "", "港の予算"),
    ],
    ids=["in the middle", "at the end", "in German", "in Japanese"],
)
def test_the_part_of_a_result_that_matches_is_printed(before: str, answer: str, after: str, query: str) -> None:
    for shown in printed(f"{before}{answer} {after}".strip(), query):
        # Lines of an unspaced script may end anywhere.
        assert answer.replace(" ", "") in shown.replace(" ", "")
        assert shown.startswith(f"…{before[:8]}")
        assert shown.endswith("…" if after else answer[-3:])
        assert 250 < len(shown) <= 400


def test_a_result_that_matches_by_meaning_only_is_printed_from_its_beginning() -> None:
    for shown in printed(f"My physician prescribed pills. {SMALL_TALK}", "a doctor and medicine"):
        assert shown.startswith("My physician prescribed pills. The weather")
        assert shown.endswith("…")


def test_a_short_result_is_printed_whole() -> None:
    assert printed(f"Ask Ana.\n\n{BARRIER}", "code") == [f"Ask Ana. {BARRIER}"] * 2


def test_a_search_prints_what_matches_and_its_json_has_the_whole_text(launch: CommandLine) -> None:
    text = f"{SMALL_TALK}{BARRIER}"
    launch.run("board", "write", "notes", text)
    assert "The barrier of the garage opens" in launch.run("search", "barrier code").stdout
    assert launch.json("search", "barrier code")["results"][0]["text"] == text


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
    assert output.splitlines()[0] == ("No results. Perhaps not answered here: try other words, or --low-confidence.")
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
    head, row, *_ = output.splitlines()
    assert head.split() == ["entity", "passages", "last_mentioned"]
    assert row.split()[:2] == ["person:Ada", "1"]
    assert line.run("entities", "--query", "nobody").stdout.strip() == "No entities."


def test_results_of_the_named_session_do_not_repeat_it(line: CommandLine) -> None:
    output = line.run("search", QUERY, "--session", "release").stdout
    assert "  key decision" in output
    assert "None" not in output


@pytest.mark.req("CE-F12")
def test_pins_are_listed_as_a_table(line: CommandLine) -> None:
    added = line.run("pin", "add", "--session", "release", "--key", "decision").stdout
    assert added.startswith("Pinned: release, key decision, ")
    head, row, _, total = line.run("pin", "list", "--session", "release").stdout.splitlines()
    assert head.split() == ["item", "tokens", "pinned_by", "pinned_at", "text"]
    assert row.startswith("release, key decision  ")
    assert total.endswith("at most 4000 for each session or memory")
    line.run("pin", "remove", "--session", "release", "--key", "decision")
    assert line.run("pin", "list", "--session", "release").stdout.strip() == "No pins."


@pytest.mark.req("CE-F11")
def test_a_command_on_the_data_folder_finds_what_any_principal_wrote_before_it(tmp_path: Path) -> None:
    line = CommandLine(tmp_path / "data", {})
    for name in ("planner", "analysis"):
        line.run("agent", "create", name)
    line.run("team", "create", "research")
    for name in ("planner", "analysis"):
        line.run("team", "add-member", "research", name)
    line.run("--as", "planner", "push", "citations", "Cite the page, not only the book.", "--owner", "team:research")
    output = line.run("--as", "analysis", "search", "cite the page").stdout
    assert "memory of team:research, key citations" in output
    assert "not indexed yet" not in output


def test_a_prompt_contains_what_commands_before_it_wrote(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("message", "add", "Tomas owns the price cache.")
    assembled = launch.run("--as", "planner", "context", "assemble", "Who owns the price cache?").stdout
    assert "Tomas owns the price cache." in assembled


def test_a_log_that_was_never_indexed_is_searched_to_its_beginning(
    launch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long log is indexed from its end on, and a command ends before a server would have read the rest."""
    monkeypatch.setattr(session_indexing, "EVENT_BATCH_SIZE", 3)
    launch.run("message", "add", "The zebra owns the price cache.")
    for number in range(5):
        launch.run("message", "add", f"Nothing new, number {number}.")
    assert "zebra" in launch.run("search", "zebra").stdout


def test_nothing_waits_for_an_index_that_is_off(launch: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.env["WEFTLINE_SESSION_INDEXING"] = "off"
    launch.run("message", "add", "Tomas owns the price cache.")

    def waited(*_: object) -> None:
        raise AssertionError("waited for an index that is off")

    monkeypatch.setattr(session_indexing.SessionIndexing, "index_next", waited)
    launch.run("search", "price cache")
    launch.run("context", "assemble", "Who owns the price cache?")
