"""Warnings that anyone can cause do not fill the log."""

from __future__ import annotations

import logging

from weftline.transports.logs import RepeatFilter


def record(level: int, message: str, at: float, code: str = "A") -> logging.LogRecord:
    made = logging.LogRecord("weftline.audit", level, "", 0, message, (), None)
    made.created, made.fields = at, {"code": code}
    return made


def test_equal_warnings_of_a_minute_are_limited_and_counted() -> None:
    repeats = RepeatFilter()
    passed = [repeats.filter(record(logging.WARNING, "refused", 600.0 + number / 100)) for number in range(500)]
    assert passed == [True] * 60 + [False] * 440
    assert repeats.filter(record(logging.WARNING, "refused", 601.0, code="B"))
    assert repeats.filter(record(logging.ERROR, "refused", 601.0))
    later = record(logging.WARNING, "refused", 660.0)
    assert repeats.filter(later)
    assert later.__dict__["fields"] == {"code": "A", "left_out": 440}
    again = record(logging.WARNING, "refused", 720.0)
    assert repeats.filter(again)
    assert again.__dict__["fields"] == {"code": "A"}
