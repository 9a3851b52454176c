"""Results of tools that the model proxy shortens: what is kept of long ones, and what their last line claims."""

from __future__ import annotations

import msgspec

from weftline.models.language_models.request_spans import ToolResult
from weftline.windows.conversations.shortened_results import shorten_result

LINE = "12:00:{second:02} request {number} was served from shelf {shelf}"


def log(length: int) -> list[str]:
    return [LINE.format(second=number % 60, number=number, shelf=number % 90) for number in range(length)]


def shortened(lines: list[str]) -> str:
    text = "\n".join(lines)
    raw = msgspec.Raw(msgspec.json.encode(text))
    found = shorten_result(ToolResult(0, "call_1", (raw,), is_error=False, arguments=b"{}"), 4_000)
    assert found is not None
    assert [whole.text for whole in found.whole] == [text]
    short: str = found.edit.texts[0]
    return short


def test_a_line_that_names_an_error_stays_wherever_it_stands_in_a_long_result() -> None:
    lines = log(4_000)
    lines[2_000] = "12:00:20 request 2000: java.io.IOException: no space left on volume 7"
    lines[2_400] = "tests/orders/test_rounding.py::test_half_cents FAILED"
    short = shortened(lines)
    assert lines[2_000] in short
    assert lines[2_400] in short
    assert lines[-1] in short


def test_the_last_line_says_that_not_all_of_a_long_result_was_read() -> None:
    """Counts in such a text are of what was read, so its last line must not pass them off as those of the whole."""
    last = shortened(log(4_000)).splitlines()[-1]
    assert "in 4,000 lines" in last
    assert "only its beginning, its end and lines that name an error were read" in last
    assert "left out" not in last


def test_the_last_line_counts_what_is_missing_of_a_result_that_was_read() -> None:
    lines = log(600)
    short = shortened(lines)
    kept = sum(line in short for line in lines)
    assert f"{600 - kept:,} log lines left out" in short.splitlines()[-1]
