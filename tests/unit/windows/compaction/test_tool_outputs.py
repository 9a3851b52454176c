"""Shorter results of tools: what stays of tables, logs, JSON, stack traces, code and commands."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.processor_time import at_most
from weftline.kernel.ports import approximate_tokens
from weftline.windows.compaction.tool_outputs import references, slim_output

_LEVELS = ["INFO", "DEBUG"]


def slim(text: str, tokens: int = 120, *wanted: str) -> str:
    return slim_output(text, tokens, approximate_tokens, frozenset(wanted)).text


def table(rows: int = 300) -> str:
    lines = ["| order | customer | amount |", "|---|---|---|"]
    lines += [f"| A{at:04} | c{at % 7} | {at * 37 % 500 + 20}.50 |" for at in range(rows)]
    lines[200] = "| A0198 | c2 | 98000.00 |"
    lines[210] = "| A0208 | c5 | -3.00 |"
    return "\n".join(lines)


def test_a_short_result_stays_as_it_is() -> None:
    assert slim("a,b\n1,2", 10) == "a,b\n1,2"


def test_a_table_keeps_its_header_its_first_rows_and_its_extremes() -> None:
    text = slim(table())
    lines = text.splitlines()
    assert lines[:4] == [
        "| order | customer | amount |",
        "|---|---|---|",
        "| A0000 | c0 | 20.50 |",
        "| A0001 | c1 | 57.50 |",
    ]
    assert "| A0198 | c2 | 98000.00 |" in lines
    assert "| A0208 | c5 | -3.00 |" in lines
    assert lines[-1] == "| A0299 | c5 | 83.50 |"
    assert "rows like these left out]" in text
    assert approximate_tokens(text) <= 130


def test_a_row_that_was_referred_to_later_stays() -> None:
    assert "A0123" not in slim(table())
    assert "| A0123 |" in slim(table(), 120, "A0123")


def test_left_out_rows_are_counted() -> None:
    slimmed = slim_output("id,size,name\n" + "\n".join(f"{at},{at},n{at}" for at in range(217)), 60, approximate_tokens)
    shown = [line for line in slimmed.text.splitlines() if line[0].isdigit()]
    left_out = 217 - len(shown)
    assert f"[{left_out} rows like these left out]" in slimmed.text
    assert slimmed.left_out == f"{left_out} rows"


def test_a_log_keeps_each_kind_of_error_once_its_beginning_and_its_end() -> None:
    lines = [
        f"2026-03-02 10:{at // 60:02}:{at % 60:02} {_LEVELS[at % 2]} request {at} served in {at} ms"
        for at in range(600)
    ]
    lines[100] = "2026-03-02 10:01:40 ERROR connection to db-7 refused"
    lines[300] = "2026-03-02 10:05:00 ERROR connection to db-9 refused"
    lines[400] = "2026-03-02 10:06:40 WARN pool is nearly exhausted"
    text = slim("\n".join(lines), 150)
    assert "db-7 refused" in text
    assert "pool is nearly exhausted" in text
    assert lines[0] in text
    assert lines[-1] in text
    assert "log lines like these left out]" in text


def test_a_stack_trace_keeps_the_error_and_the_frames_next_to_it() -> None:
    frames = [f'  File "/app/layer{at}.py", line {at}, in call{at}\n    return call{at + 1}()' for at in range(40)]
    trace = "\n".join(["Traceback (most recent call last):", *frames, "KeyError: 'tenant_42'"])
    text = slim(trace, 100)
    assert text.startswith("Traceback (most recent call last):")
    assert "KeyError: 'tenant_42'" in text.splitlines()
    assert "layer39.py" in text
    assert "lines of the trace left out]" in text


def test_code_keeps_its_signatures() -> None:
    body = "\n".join(f"    step_{at} = compute({at})" for at in range(60))
    code = f"import os\n\ndef load(path: str) -> Rows:\n{body}\n\nclass Importer:\n    def run(self) -> None:\n{body}\n"
    text = slim(code, 60)
    assert "def load(path: str) -> Rows:" in text
    assert "class Importer:" in text
    assert "    def run(self) -> None:" in text
    assert "lines of code left out]" in text


def test_command_output_keeps_failures_and_the_summary() -> None:
    lines = [f"tests/test_{at}.py::test_case PASSED" for at in range(200)]
    lines[77] = "tests/test_77.py::test_case FAILED - AssertionError: 3 != 4"
    text = slim("\n".join(["collected 200 items", *lines, "1 failed, 199 passed in 4.20s"]), 80)
    assert "AssertionError: 3 != 4" in text
    assert "1 failed, 199 passed in 4.20s" in text
    assert "lines left out]" in text


def test_json_keeps_its_fields_the_first_the_last_and_the_extreme_items() -> None:
    items = [{"id": f"u{at}", "score": at * 7 % 100, "name": f"user {at}"} for at in range(217)]
    items[50]["score"] = 9_999
    items[90] = {"id": "u90", "error": "quota exceeded"}
    slimmed = slim_output(json.dumps({"total": 217, "ratio": 1.50, "items": items}), 150, approximate_tokens)
    value = json.loads(slimmed.text)
    assert value["total"] == 217
    ids = [item["id"] for item in value["items"] if isinstance(item, dict)]
    assert {"u0", "u50", "u90", "u216"} <= set(ids)
    assert f"[{217 - len(ids)} items like these left out]" in value["items"]
    assert slimmed.left_out == f"{217 - len(ids)} items"


def test_numbers_in_json_are_written_as_they_were() -> None:
    text = '{"price": 1.50, "big": 12345678901234567890123, "text": "' + "x" * 2_000 + '"}'
    assert '"price":1.50' in slim(text, 60)
    assert "12345678901234567890123" in slim(text, 60)


def test_an_item_of_json_that_was_referred_to_later_stays() -> None:
    text = json.dumps([{"id": f"u{at}", "name": "x" * 20} for at in range(200)])
    assert "u131" not in slim(text, 60)
    assert '"u131"' in slim(text, 60, "u131")


def test_a_long_line_loses_its_middle_and_says_so() -> None:
    text = slim("start " + "x" * 5_000 + " end", 60)
    assert text.startswith("start ")
    assert text.endswith(" end")
    assert "characters left out]" in text


def test_references_are_names_numbers_paths_and_addresses() -> None:
    found = set(references("See A0123 in src/app.py, max_size is 40960, not the usual words, or fooBar."))
    assert found == {"A0123", "src/app.py", "max_size", "40960", "fooBar"}


@given(st.text(max_size=4_000), st.integers(1, 200))
def test_any_text_is_shortened_without_an_error(text: str, tokens: int) -> None:
    slimmed = slim_output(text, tokens, approximate_tokens)
    assert slimmed.left_out or slimmed.text.split() == text.split()


@pytest.mark.parametrize("text", ["[" * 5_000, '{"a":' * 3_000, "[1, 2" * 500, "{}" * 2_000])
def test_broken_or_deep_json_is_shortened_as_text(text: str) -> None:
    assert "left out" in slim(text, 50)


def test_very_long_lines_are_judged_by_their_beginning() -> None:
    lines = [f"2026-03-02 10:00:{at:02} INFO " + "payload " * 60_000 for at in range(4)]
    with at_most(4):
        text = slim("\n".join([*lines, "2026-03-02 10:01:00 ERROR disk is full"]), 200)
        assert "ERROR disk is full" in text
