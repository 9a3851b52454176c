"""What cutting a text gives."""

from __future__ import annotations

from typing import Annotated

import msgspec

DEFAULT_TOKENS = 512
DEFAULT_OVERLAP = 64


class ChunkingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How texts are cut. Never more than half a chunk is repeated."""

    chunk_tokens: Annotated[int, msgspec.Meta(ge=32, le=8192, description="A chunk has at most this many tokens.")] = (
        DEFAULT_TOKENS
    )
    overlap_tokens: Annotated[
        int, msgspec.Meta(ge=0, le=4096, description="What each chunk repeats of the one before; below chunk_tokens.")
    ] = DEFAULT_OVERLAP


class TextSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a text: its characters from ``start`` to ``end``.

    ``heading`` is the path of headings, names or fields it stands under, joined by `` > ``. ``kind`` says what it is:
    prose, code, table, turns, record, page. ``speaker`` names those who speak in a transcript, joined by a comma;
    ``timestamp`` (microseconds) is when its first turn or record was, where the text says so.
    """

    start: int
    end: int
    tokens: int
    kind: str = "prose"
    heading: str = ""
    speaker: str = ""
    timestamp: int | None = None


class CodeSymbol(msgspec.Struct, frozen=True, gc=False):
    """A part of a program that has a name, such as a class or function, from ``start`` to ``end``."""

    start: int
    end: int
    name: str


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A document as text: what its pieces are measured in.

    ``title`` is its own, if it has one. ``names`` are the named parts of a program, outer ones before inner ones;
    empty where nobody could tell.
    """

    text: str
    media_type: str
    title: str = ""
    names: tuple[CodeSymbol, ...] = ()
