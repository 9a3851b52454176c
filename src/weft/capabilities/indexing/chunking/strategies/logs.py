"""Logs: a record is a line that begins with a time or a level, with all that follows it."""

from __future__ import annotations

import re

from weft.capabilities.indexing.chunking.boundaries import LINE, Label, Outline
from weft.capabilities.indexing.chunking.timestamps import ISO_TIME, microseconds

_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b"
_SYSLOG = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ ]++\d{1,2}[ ]\d\d:\d\d:\d\d"
_ACCESS = r"\S++[ ]\S++[ ]\S++[ ]\[\d{1,2}/\w{3}/\d{4}:"
_RECORD = re.compile(rf"^[\[(<]?(?:(?P<time>{ISO_TIME})|{_SYSLOG}|{_LEVEL}|{_ACCESS})", re.MULTILINE)
_FEWEST_RECORDS = 4
_LEAST_SHARE = 0.3
# A line without a time of its own goes on with the record before it, as a stack trace does.
_RECORD_KIND = "record"


def looks_like_log(text: str) -> bool:
    """Say whether most lines that are not indented begin as records do."""
    lines = [line for line in text.split("\n") if line.strip() and not line[0].isspace()]
    records = sum(1 for line in lines if (found := _RECORD.match(line)) and not _is_said(line, found.end()))
    return records >= _FEWEST_RECORDS and records >= _LEAST_SHARE * len(lines)


def _is_said(line: str, at: int) -> bool:
    """Tell a time before a speaker's name from one before an entry."""
    return re.match(r"[\])>]?[ ](?!(?:TRACE|DEBUG|INFO|WARN|ERROR))[A-Z][\w ]{0,30}:[ ]", line[at:]) is not None


def outline_of_log(text: str) -> Outline:
    outline = Outline(labels=[Label(0, kind=_RECORD_KIND)])
    records = list(_RECORD.finditer(text))
    for match in records:
        outline.place(match.start(), LINE)
        if match["time"]:
            outline.labels.append(Label(match.start(), kind=_RECORD_KIND, timestamp=microseconds(match["time"])))
    return outline
