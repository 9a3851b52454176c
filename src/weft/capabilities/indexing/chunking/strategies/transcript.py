"""Transcripts: windows of turns, with who speaks and when. WebVTT, SubRip, JSON lines, and ``Name: words``."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from weft.capabilities.indexing.chunking.boundaries import LINE, Label, Outline
from weft.capabilities.indexing.chunking.sentences import add_paragraphs, add_prose
from weft.capabilities.indexing.chunking.timestamps import ISO_TIME, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_FEWEST_TURNS = 4
_LEAST_SHARE = 0.6
_MOST_SPEAKERS_A_TURN = 0.75


def looks_like_transcript(text: str) -> bool:
    """Say whether most lines are turns, and some speaker has several."""
    lines = [line for line in text.split("\n") if line.strip()]
    speakers = Counter(match["name"] for line in lines if (match := _TURN.match(line)))
    turns = speakers.total()
    several = turns >= _FEWEST_TURNS and len(speakers) <= _MOST_SPEAKERS_A_TURN * turns
    return several and turns >= _LEAST_SHARE * len(lines)


def outline_of_transcript(text: str) -> Outline:
    turns = list(_cues(text)) or list(_spoken(text))
    return outline_of_turns(text, turns)


def outline_of_turns(text: str, turns: list[Label]) -> Outline:
    """Return the outline of a text whose turns are known; a long one is cut between its sentences."""
    outline = Outline(naming="range", labels=[Label(0), *turns])
    edges = [*(turn.start for turn in turns), len(text)]
    add_paragraphs(outline, text, 0, edges[0])
    for start, end in pairwise(edges):
        outline.place(start, LINE)
        add_prose(outline, text, start, end)
    return outline


def _spoken(text: str) -> Iterator[Label]:
    for match in _TURN.finditer(text):
        yield _label(match.start(), match["before"] or match["after"] or "", match["name"])


def _cues(text: str) -> Iterator[Label]:
    speaker = ""
    for match in _CUE.finditer(text):
        spoken = _CUE_SPEAKER.match(text, match.end())
        speaker = (spoken["voice"] or spoken["name"]) if spoken else speaker
        yield _label(match.start(), match["time"], speaker)


def _label(start: int, time: str, speaker: str) -> Label:
    timestamp = microseconds(time)
    clock = time if time and timestamp is None else ""
    return Label(start, (clock,) if clock else (), "turns", speaker.strip(), timestamp)
