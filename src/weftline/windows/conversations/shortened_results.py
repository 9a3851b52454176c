"""Shorter results of tools for the model proxy: the same bytes for the same text, and a handle to the whole of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.kernel.ports import approximate_tokens
from weftline.windows.compaction.tool_outputs import lines_of, slim_output
from weftline.windows.conversations.edits import Edit
from weftline.windows.conversations.handles import handle_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.models.language_models.request_spans import ToolResult

# Part of the size from which results are shortened that a shortened one may have.
_TARGET_PART = 0.375
# What is saved at least, of its tokens.
_MIN_SAVED = 0.25
# Lines beyond this are chosen from the beginning and the end only: ranking a megabyte takes a quarter of a second.
# Of the lines between, those are read that tell of a failure, or name what is wanted. JSON is shortened as a whole up
# to a larger size.
_MAX_LINES, _MAX_JSON = 65_536, 262_144

_SAMPLED = "only its beginning, its end and lines that name an error were read, and counts above are of these"
_FAILURE = re.compile(r"error|fail|exception|traceback|fatal|panic|critical", re.IGNORECASE)


class WholeText(NamedTuple):
    """A text that is to be kept whole, by its handle."""

    handle: str
    text: str


class Shortened(NamedTuple):
    """The edit of a result, and the texts that it leaves out something of."""

    edit: Edit
    whole: tuple[WholeText, ...]


def shorten_result(result: ToolResult, trim_tokens: int) -> Shortened | None:
    """Shorten the large texts of a result; None if that saves too little."""
    texts, whole, saved = {}, [], 0
    for number in range(len(result.texts)):
        try:
            text = result.decoded(number)
        except msgspec.MsgspecError:
            continue
        short = shorten_text(text, trim_tokens, _reading)
        if short is not None:
            texts[number] = short
            whole.append(WholeText(handle_of(text), text))
            saved += approximate_tokens(text) - approximate_tokens(short)
    if not texts:
        return None
    return Shortened(Edit(texts=texts, saved=saved, handles=tuple(each.handle for each in whole)), tuple(whole))


def shorten_text(
    text: str, trim_tokens: int, reading: Callable[[str], str], wanted: frozenset[str] = frozenset()
) -> str | None:
    """Return a shorter text that ends with how to read the whole of it; None if that saves too little.

    ``reading`` says that in words, of a handle. ``wanted``: names and numbers whose lines stay first.
    """
    tokens = approximate_tokens(text)
    if tokens < trim_tokens:
        return None
    sample = _sample(text, wanted)
    slim = slim_output(sample, round(trim_tokens * _TARGET_PART), approximate_tokens, wanted)
    missing = f"{slim.left_out or 'parts'} left out" if sample is text else _SAMPLED
    short = f"{slim.text}\n{_note(text, missing, reading(handle_of(text)))}"
    return short if tokens - approximate_tokens(short) >= tokens * _MIN_SAVED else None


def _sample(text: str, wanted: frozenset[str]) -> str:
    """Return a text; of one that is too long to be read as a whole, its beginning, what tells most, and its end."""
    limit = _MAX_JSON if text.lstrip()[:1] in {"{", "["} else _MAX_LINES
    if len(text) <= limit:
        return text
    head, tail = text[: _MAX_LINES // 2], text[-_MAX_LINES // 2 :]
    head, tail = head[: head.rfind("\n") + 1] or head, tail[tail.find("\n") + 1 :]
    middle = slice(len(head), len(text) - len(tail))
    spans = {*_lines_with(_FAILURE, text, middle)}
    if wanted:
        spans |= {*_lines_with(re.compile("|".join(map(re.escape, sorted(wanted)))), text, middle)}
    return f"{head}{''.join(text[start:end] for start, end in sorted(spans))}{tail}"


def _lines_with(pattern: re.Pattern[str], text: str, part: slice) -> Iterator[tuple[int, int]]:
    """Yield where the lines of a part are that match, as many as have room."""
    room, reached = _MAX_LINES // 4, part.start
    for found in pattern.finditer(text, part.start, part.stop):
        if found.start() < reached:
            continue
        begin = max(text.rfind("\n", part.start, found.start()) + 1, part.start)
        reached = text.find("\n", found.end(), part.stop) + 1 or part.stop
        room -= reached - begin
        if room < 0:
            return
        yield begin, reached


def _reading(handle: str) -> str:
    return f"name {handle} in the arguments of any tool, or {handle}:1-200 for these lines"


def _note(text: str, missing: str, reading: str) -> str:
    """Return the line that says what is missing, and how to read it."""
    lines = len(lines_of(text))
    return (
        f"[Weftline shortened this result of {len(text):,} characters in {lines:,} lines: {missing}. To read the "
        f"whole, {reading}.]"
    )
