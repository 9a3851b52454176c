"""Shorter results of tools for the model proxy: the same bytes for the same text, and a handle to the whole of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.kernel.ports import approximate_tokens
from weftline.windows.compaction.tool_outputs import lines_of, slim_output
from weftline.windows.conversations.edits import Edit
from weftline.windows.conversations.handles import handle_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.models.language_models.request_spans import ToolResult

# Part of the size from which results are shortened that a shortened one may have.
_TARGET_PART = 0.375
# What is saved at least, of its tokens.
_MIN_SAVED = 0.25


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
    slim = slim_output(text, round(trim_tokens * _TARGET_PART), approximate_tokens, wanted)
    missing = f"{slim.left_out or 'parts'} left out"
    if slim.unread:
        missing += f", {slim.unread:,} of these without being read: chosen were the beginning, the end, "
        missing += "what differs from the rest, and others evenly"
    short = f"{slim.text}\n{_note(text, missing, reading(handle_of(text)))}"
    return short if tokens - approximate_tokens(short) >= tokens * _MIN_SAVED else None


def _reading(handle: str) -> str:
    return f"name {handle} in the arguments of any tool, or {handle}:1-200 for these lines"


def _note(text: str, missing: str, reading: str) -> str:
    """Return the line that says what is missing, and how to read it."""
    lines = len(lines_of(text))
    return (
        f"[Weftline shortened this result of {len(text):,} characters in {lines:,} lines: {missing}. To read the "
        f"whole, {reading}.]"
    )
