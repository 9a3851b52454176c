"""Text output: aligned tables, fitted to a terminal, complete in a pipe, control characters escaped."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import click
import pytest

from support import forked_python
from weftline.kernel.operation import Response
from weftline.models.operations import BudgetInfo
from weftline.transports.cli.render import render, row, table

if TYPE_CHECKING:
    from cli_support import CommandLine


class _Item(Response):
    key: str
    at: datetime
    note: str | None = None


class _Items(Response):
    items: list[_Item]
    total: int


class _Pair(Response):
    key: str
    ours: _Item | None
    theirs: _Item | None
    only: _Items | None = None


_TIMESTAMP = datetime(2026, 7, 1, 12, 30, 15, 999, tzinfo=UTC)


def test_a_list_becomes_a_table_without_its_empty_columns() -> None:
    text = render(_Items(items=[_Item(key="goal", at=_TIMESTAMP), _Item(key="b", at=_TIMESTAMP)], total=2))
    assert click.unstyle(text).splitlines() == [
        "total: 2",
        "",
        "items:",
        "  key   at",
        "  goal  2026-07-01 12:30:15Z",
        "  b     2026-07-01 12:30:15Z",
    ]


def test_a_timestamp_out_of_range_in_local_time_is_shown_in_utc() -> None:
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    assert "0001-01-01T00:00:00+14:00" in render(_Items(items=[_Item(key="goal", at=first)], total=1))


def test_an_empty_list_prints_a_message() -> None:
    assert click.unstyle(render(_Items(items=[], total=0))).splitlines() == ["items: none", "total: 0"]


def test_nested_answers_do_not_overwrite_each_other() -> None:
    cells = row(_Pair(key="k", ours=_Item(key="a", at=_TIMESTAMP), theirs=_Item(key="b", at=_TIMESTAMP, note="late")))
    assert list(cells) == ["key", "ours_key", "ours_at", "ours_note", "theirs_key", "theirs_at", "theirs_note", "only"]
    assert (cells["key"], cells["ours_key"], cells["theirs_key"]) == ("k", "a", "b")


def test_a_nested_column_is_not_prefixed_if_its_name_is_unique() -> None:
    assert list(row(_Pair(key="k", ours=None, theirs=None, only=_Items(items=[], total=2))))[-2:] == ["items", "total"]


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print to a terminal of 40 columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")


@pytest.mark.req("WX-08")
@pytest.mark.usefixtures("_terminal")
def test_ids_are_never_shortened_and_other_columns_respect_columns() -> None:
    rows = [{"session_id": "session_a1b2c3d4e5f60718", "purpose": "Find out why orders became slow"}]
    assert click.unstyle(table(rows)).splitlines() == [
        "session_id                purpose",
        "session_a1b2c3d4e5f60718  Find out wh…",
    ]


@pytest.mark.usefixtures("_terminal")
def test_names_are_narrowed_before_values_and_times_stay() -> None:
    rows = [{"value_size_tokens": "6", "written_by": "human:ana", "written_at": "2026-07-01 12:30:15Z"}]
    assert click.unstyle(table(rows)).splitlines() == [
        "valu…  written_…  written_at",
        "6      human:ana  2026-07-01 12:30:15Z",
    ]


@pytest.mark.req("WX-08")
@pytest.mark.usefixtures("_terminal")
def test_rows_that_cannot_fit_become_blocks() -> None:
    rows = [{"agent_id": f"agent_{number}", **dict.fromkeys("abcd", "x" * 9)} for number in range(2)]
    assert click.unstyle(table(rows)).splitlines() == [
        "agent_id: agent_0",
        *[f"{name}:        xxxxxxxxx" for name in "abcd"],
        "",
        "agent_id: agent_1",
        *[f"{name}:        xxxxxxxxx" for name in "abcd"],
    ]


@pytest.mark.usefixtures("_terminal")
def test_wide_characters_take_two_columns() -> None:
    lines = click.unstyle(table([{"key": "k", "value": "漢字" * 20, "z": "é"}])).splitlines()
    assert lines[1] == "k    漢字漢字漢字漢字漢字漢字漢字…   é"


@pytest.mark.usefixtures("_terminal")
def test_a_wrapped_column_loses_nothing() -> None:
    detail = "the search index lags up to 3000 events and nothing new is found"
    lines = click.unstyle(table([{"check": "Index", "detail": detail}], wrapped="detail")).splitlines()
    assert " ".join(line.removeprefix("Index").strip() for line in lines[1:]) == detail
    assert all(len(line) <= 40 for line in lines)


@pytest.mark.req("WX-08")
def test_a_pipe_gets_full_columns_whatever_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "word " * 29 + "word" in table([{"key": "goal", "value": "word " * 30}])


def test_a_table_fits_the_terminal_by_shortening_its_widest_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((40, 20)))
    lines = table([{"key": "goal", "value": "word " * 30}]).splitlines()
    assert len(lines[-1]) == 38
    assert lines[-1].endswith("…")


def test_a_table_in_a_pipe_is_complete() -> None:
    assert table([{"key": "goal", "value": "x" * 500}]).endswith("x" * 500)


def test_control_characters_are_escaped(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "-", stdin="red \x1b[31m alert \x9b2J\nnext line")
    shown = launch.run("board", "read", "goal").stdout
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "red \\x1b[31m alert \\x9b2J\n" in shown


@pytest.mark.parametrize(
    "hiding", ["\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\u2028", "\ufeff", "\u3164", "\U000e0041"]
)
def test_characters_that_hide_or_turn_a_text_are_escaped(hiding: str) -> None:
    shown = render(_Items(items=[_Item(key=f"invoice{hiding}fdp.exe", at=_TIMESTAMP)], total=1))
    assert hiding not in shown
    assert f"invoice\\u{ord(hiding):04x}fdp.exe" in shown


def test_letters_and_their_joiners_are_shown_as_they_are() -> None:
    text = "שלום \u0645\u06cc\u200c\u062e 👩\u200d💻 naïve"
    assert text in render(_Items(items=[_Item(key=text, at=_TIMESTAMP)], total=1))


def test_a_pipe_gets_no_colours(launch: CommandLine) -> None:
    assert "\x1b" not in launch.run("session", "list").stdout


def test_no_color_is_honoured_on_a_terminal(launch: CommandLine) -> None:
    pty = pytest.importorskip("pty")
    assert b"\x1b[" in _output_on_a_terminal(pty, launch)
    launch.env["NO_COLOR"] = "1"
    assert b"\x1b[" not in _output_on_a_terminal(pty, launch)


def _output_on_a_terminal(pty: object, cli: CommandLine) -> bytes:
    program = [forked_python.python(), "-m", "weftline", "session", "list"]
    child, terminal = pty.fork()  # type: ignore[attr-defined]
    if child == 0:
        os.execve(program[0], program, {**os.environ, "WEFTLINE_DATA_DIR": str(cli.data), "TERM": "xterm", **cli.env})
    shown = b""
    try:
        while piece := os.read(terminal, 65_536):
            shown += piece
    except OSError:
        pass  # raised when the other end of the pseudo-terminal closes
    finally:
        os.waitpid(child, 0)
        os.close(terminal)
    return shown


def test_the_soft_limit_of_a_budget_is_a_part_and_no_time() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    budget = BudgetInfo(
        subject="tenant",
        period="day",
        tokens=300,
        cost=None,
        at_limit="warn",
        warn_at=0.8,
        tree_share=None,
        agent_share=None,
        shares=(),
        state="within",
        used_tokens=0,
        used_cost=0.0,
        calls=0,
        unpriced_calls=0,
        starts_at=at,
        resets_at=at,
        set_by="human:admin",
        set_at=at,
    )
    assert "warn_at:        0.8\n" in click.unstyle(render(budget))
