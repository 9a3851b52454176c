"""Dates in a text as ISO 8601: days, weeks, months and years; relative ones against the time of the text."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ISO_DAY = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:T[\d:.,+Z-]*)?\Z")
_ISO_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])\Z")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})\Z")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})\Z")
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th|\.)?\Z")
_YEAR = re.compile(r"(?:19|20)\d\d\Z")
_EARLIEST, _LATEST = 1900, 2100
_MONTH_NAMES = """
january jan januar|february feb februar|march mar märz|april apr|may mai|june jun juni|july jul juli|august aug|
september sep sept|october oct oktober okt|november nov|december dec dezember dez
"""
_MONTHS = {
    name: number
    for number, names in enumerate(_MONTH_NAMES.replace("\n", " ").split("|"), start=1)
    for name in names.split()
}
_WEEKDAY_NAMES = (
    "monday montag|tuesday dienstag|wednesday mittwoch|thursday donnerstag|friday freitag|saturday samstag|"
    "sunday sonntag"
)
_WEEKDAYS = {name: number for number, names in enumerate(_WEEKDAY_NAMES.split("|")) for name in names.split()}
_DAYS = {
    "today": 0,
    "tonight": 0,
    "tomorrow": 1,
    "yesterday": -1,
    "heute": 0,
    "gestern": -1,
    "vorgestern": -2,
    "übermorgen": 2,
}
_NEXT, _LAST, _THIS = frozenset({"next", "nächsten", "kommenden"}), frozenset({"last", "letzten"}), frozenset({"this"})
_DEADLINES = frozenset({"by", "until", "before", "due", "bis"})
_UNITS = {"day": 1, "days": 1, "week": 7, "weeks": 7}
_PERIODS = frozenset({"week", "month", "year"})
_NUMBER_WORDS = "one two three four five six seven eight nine ten"
_NUMBERS = {word: number for number, word in enumerate(_NUMBER_WORDS.split(), start=1)} | {"a": 1, "an": 1}
_MAX_OFFSET = 1_000
_PUNCTUATION = ".!?:,;"
_MICROS = 1_000_000
# Words that can begin a date: most tokens are none of them.
_RELATIVE = frozenset(_DAYS) | _NEXT | _LAST | _THIS | _DEADLINES | {"in", "ago"}


def dates_in(tokens: Sequence[str], timestamp: int | None) -> Iterator[str]:
    """Yield the dates of a tokenised text; relative ones only with its timestamp, in microseconds."""
    said_on = None if timestamp is None else datetime.fromtimestamp(timestamp / _MICROS, UTC).date()
    for index, token in enumerate(tokens):
        if token[0].isdigit():
            found = _numeric(token.rstrip(_PUNCTUATION))
        else:
            word = token.rstrip(_PUNCTUATION).casefold()
            if word in _MONTHS and token[0].isupper():
                found = _with_month(tokens, index, _MONTHS[word], said_on)
            elif said_on is not None and word in _RELATIVE:
                found = _relative(tokens, index, word, said_on)
            else:
                continue
        if found:
            yield found


def _numeric(token: str) -> str:
    if (match := _ISO_DAY.match(token)) is not None:
        return _day(int(match[1]), int(match[2]), int(match[3]))
    if (match := _ISO_MONTH.match(token)) is not None:
        return token if _is_year(int(match[1])) else ""
    if (match := _DOTTED.match(token)) is not None:
        return _day(int(match[3]), int(match[2]), int(match[1]))
    if (match := _SLASHED.match(token)) is not None:
        first, second = int(match[1]), int(match[2])
        # 3/4/2025 may be a day of March or of April.
        if first > len(set(_MONTHS.values())):
            return _day(int(match[3]), second, first)
        return _day(int(match[3]), first, second) if second > len(set(_MONTHS.values())) or first == second else ""
    return ""


def _with_month(tokens: Sequence[str], index: int, month: int, said_on: date | None) -> str:
    """Return the date around the name of a month: May 6, 2025; 6th of May; May 2025."""
    after = [_at(tokens, index + offset) for offset in (1, 2, 3)]
    before = _at(tokens, index - 2) if _at(tokens, index - 1) in {"of", "the"} else _at(tokens, index - 1)
    if _YEAR.match(after[0].rstrip(_PUNCTUATION)):
        year = int(after[0].rstrip(_PUNCTUATION))
        day = _DAY.match(before)
        return _day(year, month, int(day[1])) if day is not None else f"{year}-{month:02}"
    day = _DAY.match(after[0].rstrip(_PUNCTUATION)) or None
    if day is not None and not after[0][0].isdigit():
        day = None
    year_at = after[2] if after[1] == "," else after[1]
    if day is None:
        day, year_at = _DAY.match(before), after[1] if after[0] == "," else after[0]
    if day is None:
        return ""
    if _YEAR.match(year_at.rstrip(_PUNCTUATION)):
        return _day(int(year_at.rstrip(_PUNCTUATION)), month, int(day[1]))
    return "" if said_on is None else _nearest(said_on, month, int(day[1]))


def _relative(tokens: Sequence[str], index: int, word: str, said_on: date) -> str:
    following = _at(tokens, index + 1).rstrip(_PUNCTUATION)
    if word in _DAYS:
        return (said_on + timedelta(days=_DAYS[word])).isoformat()
    if following in _WEEKDAYS:
        return _weekday(word, _WEEKDAYS[following], said_on)
    if following in _PERIODS and word in _NEXT | _LAST | _THIS:
        return _period(following, 1 if word in _NEXT else -1 if word in _LAST else 0, said_on)
    if word == "in":
        return _offset(following, _at(tokens, index + 2).rstrip(_PUNCTUATION), 1, said_on)
    if word == "ago":
        return _offset(_at(tokens, index - 2), _at(tokens, index - 1), -1, said_on)
    return ""


def _weekday(word: str, weekday: int, said_on: date) -> str:
    """Return the coming weekday for next and deadlines, the past one for last, that of the same week for this."""
    ahead = (weekday - said_on.weekday()) % 7
    if word in _NEXT:
        days = ahead or 7
    elif word in _LAST:
        days = ahead - 7
    elif word in _THIS:
        days = weekday - said_on.weekday()
    elif word in _DEADLINES:
        days = ahead
    else:
        return ""
    return (said_on + timedelta(days=days)).isoformat()


def _period(period: str, step: int, said_on: date) -> str:
    if period == "week":
        year, week, _ = (said_on + timedelta(weeks=step)).isocalendar()
        return f"{year}-W{week:02}"
    if period == "year":
        return str(said_on.year + step)
    months = said_on.year * 12 + said_on.month - 1 + step
    return f"{months // 12}-{months % 12 + 1:02}"


def _offset(amount: str, unit: str, sign: int, said_on: date) -> str:
    number = int(amount) if amount.isascii() and amount.isdigit() and len(amount) < 5 else _NUMBERS.get(amount, 0)  # noqa: PLR2004
    if unit not in _UNITS or not 0 < number <= _MAX_OFFSET:
        return ""
    return (said_on + timedelta(days=sign * number * _UNITS[unit])).isoformat()


def _nearest(said_on: date, month: int, day: int) -> str:
    """Return the date of a day without a year that is nearest to when it was said."""
    candidates = [found for year in (-1, 0, 1) if (found := _date(said_on.year + year, month, day)) is not None]
    nearest = min(candidates, key=lambda found: abs(found - said_on), default=None)
    return "" if nearest is None else nearest.isoformat()


def _day(year: int, month: int, day: int) -> str:
    found = _date(year, month, day)
    return found.isoformat() if found is not None and _is_year(year) else ""


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _is_year(year: int) -> bool:
    return _EARLIEST <= year <= _LATEST


def _at(tokens: Sequence[str], index: int) -> str:
    return tokens[index].casefold() if 0 <= index < len(tokens) else ""
