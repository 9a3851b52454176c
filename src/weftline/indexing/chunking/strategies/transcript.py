"""Transcripts: split between turns, with speakers and times. WebVTT, SubRip, JSON lines, and ``Name: words``."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from weftline.indexing.chunking.model import LINE, Label, Outline
from weftline.indexing.chunking.sentences import add_paragraphs, add_sentences
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

ISO_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?"
_CLOCK = r"(?:\d{1,3}:)?\d{1,2}:\d\d(?:[.,]\d{1,3})?"
_TIME = rf"(?:{ISO_TIME}|{_CLOCK})"
_NAME = r"[^\W\d_][\w .,'\u2019&/-]{0,39}?"
_TURN = re.compile(
    rf"^[ \t]*+(?:[\[(<]?(?P<before>{_TIME})[\])>]?[ \t]*+(?:[-\u2013][ \t]*+)?+)?"
    rf"\**+(?P<name>{_NAME}(?:[ ]\([^()\n]{{1,30}}\))?)"
    rf"(?:[ \t]++[\[(]?(?P<after>{_TIME})[\])]?)?\**+[ \t]*+:\**+(?!//)(?=\s)",
    re.MULTILINE,
)
_CUE = re.compile(rf"^(?:[^\n]*+\n)??(?P<time>{_CLOCK})[ \t]++-->[ \t]++{_CLOCK}[^\n]*+\n?", re.MULTILINE)
_CUE_SPEAKER = re.compile(rf"<v(?:\.[^ >\n]*+)?[ ](?P<voice>[^>\n]{{1,60}})>|(?P<name>{_NAME}):\s")
_MIN_TURNS = 4
_MIN_SHARE = 0.6
_MAX_SPEAKERS_PER_TURN = 0.75
_ISO = re.compile(ISO_TIME)
_MILLISECONDS = 10**11


def looks_like_transcript(text: str) -> bool:
    """Return whether most lines are turns, and speakers recur."""
    lines = [line for line in text.split("\n") if line.strip()]
    speakers = Counter(match["name"] for line in lines if (match := _TURN.match(line)))
    turns = speakers.total()
    recurring = turns >= _MIN_TURNS and len(speakers) <= _MAX_SPEAKERS_PER_TURN * turns
    return recurring and turns >= _MIN_SHARE * len(lines)


def outline_of_transcript(text: str) -> Outline:
    turns = list(_cues(text)) or list(_turns(text))
    return outline_of_turns(text, turns)


def outline_of_turns(text: str, turns: list[Label]) -> Outline:
    """Return the outline of known turns; a long one is split between its sentences."""
    outline = Outline(heading_style="range", labels=[Label(0), *turns])
    edges = [*(turn.start for turn in turns), len(text)]
    add_paragraphs(outline, text, 0, edges[0])
    for start, end in pairwise(edges):
        outline.add_boundary(start, LINE)
        add_sentences(outline, text, start, end)
    return outline


def _turns(text: str) -> Iterator[Label]:
    for match in _TURN.finditer(text):
        yield _label(match.start(), match["before"] or match["after"] or "", match["name"])


def _cues(text: str) -> Iterator[Label]:
    speaker = ""
    for match in _CUE.finditer(text):
        match_speaker = _CUE_SPEAKER.match(text, match.end())
        speaker = (match_speaker["voice"] or match_speaker["name"]) if match_speaker else speaker
        yield _label(match.start(), match["time"], speaker)


def _label(start: int, time: str, speaker: str) -> Label:
    timestamp = microseconds(time)
    clock = time if time and timestamp is None else ""
    return Label(start, (clock,) if clock else (), "turns", speaker.strip(), timestamp)


def microseconds(value: object) -> int | None:
    """Parse a time to microseconds since 1970, as UTC if it has no zone; None if it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _of_number(value)
    if not isinstance(value, str) or not _ISO.fullmatch(value.strip()):
        return None
    try:
        timestamp = datetime.fromisoformat(value.strip().replace(",", "."))
        return to_micros(timestamp.replace(tzinfo=timestamp.tzinfo or UTC))
    except (ValueError, InvalidInput):
        return None


def _of_number(number: float) -> int | None:
    """Parse seconds or milliseconds since 1970; smaller numbers have another epoch."""
    if not 10**9 <= number < 10**13:
        return None
    return int(number * 1000) if number >= _MILLISECONDS else int(number * 1_000_000)
