"""Shorter results of tools for the model proxy: the same bytes for the same text, and a handle to the whole of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.kernel.ports import approximate_tokens
from weftline.windows.compaction.tool_outputs import slim_output
from weftline.windows.conversations.edits import Edit
from weftline.windows.conversations.handles import handle_of

if TYPE_CHECKING:
    from weftline.models.language_models.request_spans import ToolResult

# Part of the size from which results are shortened that a shortened one may have.
_TARGET_PART = 0.375
# What is saved at least, of its tokens.
_MIN_SAVED = 0.25
# Lines beyond this are chosen from the beginning and the end only: ranking a megabyte takes a quarter of a second.
# Of the lines between, those are read that tell of a failure. JSON is shortened as a whole up to a larger size.
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
        short = _shorten(text, trim_tokens)
        if short is not None:
            texts[number] = short
            whole.append(WholeText(handle_of(text), text))
            saved += approximate_tokens(text) - approximate_tokens(short)
    if not texts:
        return None
    return Shortened(Edit(texts=texts, saved=saved, handles=tuple(each.handle for each in whole)), tuple(whole))


def _shorten(text: str, trim_tokens: int) -> str | None:
    tokens = approximate_tokens(text)
    if tokens < trim_tokens:
        return None
    sample = _sample(text)
    slim = slim_output(sample, round(trim_tokens * _TARGET_PART), approximate_tokens)
    missing = f"{slim.left_out or 'parts'} left out" if sample is text else _SAMPLED
    short = f"{slim.text}\n{_note(text, missing)}"
    return short if tokens - approximate_tokens(short) >= tokens * _MIN_SAVED else None


def _sample(text: str) -> str:
    """Return a text; of one that is too long to be read as a whole, its beginning, failures and end."""
    limit = _MAX_JSON if text.lstrip()[:1] in {"{", "["} else _MAX_LINES
    if len(text) <= limit:
        return text
    head, tail = text[: _MAX_LINES // 2], text[-_MAX_LINES // 2 :]
    head, tail = head[: head.rfind("\n") + 1] or head, tail[tail.find("\n") + 1 :]
    return f"{head}{_failures(text, len(head), len(text) - len(tail))}{tail}"


def _failures(text: str, start: int, end: int) -> str:
    """Return the lines of a part that name an error or failure, as many as have room."""
    lines, room, reached = [], _MAX_LINES // 4, start
    for found in _FAILURE.finditer(text, start, end):
        if found.start() < reached:
            continue
        begin, reached = text.rfind("\n", start, found.start()) + 1, text.find("\n", found.end(), end) + 1
        line = text[max(begin, start) : reached or end]
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
        if not reached:
            break
    return "".join(lines)


def _note(text: str, missing: str) -> str:
    """Return the line that says what is missing, and how to read it."""
    handle, lines = handle_of(text), text.count("\n") + 1
    return (
        f"[Weftline shortened this result of {len(text):,} characters in {lines:,} lines: {missing}. To read the "
        f"whole, name {handle} in the arguments of any tool, or {handle}:1-200 for these lines.]"
    )
