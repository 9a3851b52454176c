"""Results of tools that the model proxy shortens: what is kept of long ones, and what their last line claims."""

from __future__ import annotations

import re

import msgspec
import pytest

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


def test_the_last_line_says_how_much_of_a_long_result_was_not_read() -> None:
    lines = log(4_000)
    short = shortened(lines)
    last = short.splitlines()[-1]
    kept = sum(line in short for line in lines)
    assert "in 4,000 lines" in last
    found = re.search(r"([\d,]+) log lines left out, ([\d,]+) of these without being read", last)
    assert found is not None
    assert found[1] == f"{4_000 - kept:,}"
    assert 500 < int(found[2].replace(",", "")) < 2_000


@pytest.mark.parametrize("length", [1_200, 6_000, 40_000])
@pytest.mark.parametrize(
    "odd",
    [
        "12:00:20 Anfrage 2000 abgewiesen, Regal 7 ist leer",
        "12:00:20 请求 2000 被拒绝 货架是空的",
        "12:00:20 request 2000 was served from shelf none",
    ],
)
def test_a_line_unlike_the_others_stays_wherever_it_stands(odd: str, length: int) -> None:
    lines = log(length)
    lines[length * 3 // 7] = odd
    assert odd in shortened(lines).split("\n")


def test_a_value_that_is_rare_in_its_column_stays() -> None:
    lines = [f"I/{'abc'[n % 3]}-{n % 17}: step {n * 7919 % 10_007} ended, code={0}" for n in range(2_000)]
    lines[900] = "E/b-9: step 4711 ended, code=0"
    lines[1_300] = "I/b-9: step 4712 ended, code=3"
    lines[1_500] = "I/b-9: step 99999999 ended, code=0"
    short = shortened(lines)
    assert [line in short for line in (lines[900], lines[1_300])] == [True, True]


@pytest.mark.parametrize("numbered", [False, True])
def test_a_long_file_keeps_its_outline_and_the_numbers_of_what_is_left_out(*, numbered: bool) -> None:
    lines = ['"""Orders."""', "import os"]
    for n in range(60):
        body = [f"    step_{n}_{m} = order.part({m})" for m in range(9)]
        lines += ["", f"def price_{n}(order: Order) -> int:", *body]
    lines += ["", "if __name__ == '__main__':", "    main()"]
    given = [f"{at:6}\u2192{line}" for at, line in enumerate(lines, 1)] if numbered else lines
    short = shortened(given).split("\n")
    assert [line for line in given if "def " in line and line not in short] == []
    assert short[:2] == given[:2]
    assert given[-1] in short
    gaps = [re.fullmatch(r"\[lines (\d+)-(\d+) left out\]", line) for line in short]
    left_out = [given[at - 1] for gap in gaps if gap for at in range(int(gap[1]), int(gap[2]) + 1)]
    assert len(left_out) > len(given) / 2
    assert not set(left_out) & set(short) - {""}


def test_an_odd_item_of_json_stays_however_long_the_list_is() -> None:
    items = [f'{{"id": {n}, "state": "ok", "shelf": "s{n % 90}", "price": 1.10}}' for n in range(9_000)]
    items[5_000] = '{"id": 5000, "state": "geplatzt", "shelf": "s7", "price": -0}'
    text = '{"items": [' + ",\n".join(items) + "]}"
    short = shortened([text])
    assert '"state":"geplatzt"' in short
    assert '"price":-0' in short
    found = re.search(r"([\d,]+) items left out, ([\d,]+) of these without being read", short)
    assert found is not None
    assert int(found[2].replace(",", "")) > 4_000
    pretty = msgspec.json.format(f"[{','.join(items[4_000:6_000])}]")
    assert '"geplatzt"' in shortened([pretty])


def test_json_keeps_its_values_as_they_were_written() -> None:
    values = [
        "1.10",
        "1e3",
        "1E+02",
        "-0",
        "12345678901234567890123",
        "0.1000",
        '"\\u00fc\\/x"',
        '"\u00fc"',
        "true",
        "null",
    ]
    fields = ",".join(f'"k{at}":{value}' for at, value in enumerate(values))
    escaped = r"\u00e9" * 3_000
    text = f'{{{fields},"k\\u00fc":1,"long":"{"y" * 20_000}","escaped":"{escaped}"}}'
    short = shortened([text]).split("\n")[0]
    assert short.startswith(f'{{{fields},"k\\u00fc":1,"long":"yyy')
    assert short.endswith('\\u00e9"}')
    assert "\u00e9" not in short
    assert set(msgspec.json.decode(short)) == set(msgspec.json.decode(text))


def test_a_text_in_json_is_shortened_by_its_lines() -> None:
    lines = log(1_000)
    lines[400] = "Regal 7 ist leer"
    short = shortened([msgspec.json.encode({"exit": 0, "stdout": "\n".join(lines), "stderr": ""}).decode()])
    value = msgspec.json.decode(short.split("\n")[0])
    assert lines[400] in value["stdout"].split("\n")
    assert lines[-1] in value["stdout"]
    assert (value["exit"], value["stderr"]) == (0, "")


def test_the_last_line_counts_what_is_missing_of_a_result_that_was_read() -> None:
    lines = log(600)
    short = shortened(lines)
    kept = sum(line in short for line in lines)
    assert f"{600 - kept:,} log lines left out" in short.splitlines()[-1]
