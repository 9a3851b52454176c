"""Edits of requests: spans of bytes in place of others, each for a part of a conversation, and the same in every call.

An edit belongs to the digest of what it changes, and the how manieth of that digest it is. It is stored before the
request is forwarded, so that later calls, retries and branches get the same bytes, whoever forwards them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.windows.conversations.handles import named_handles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw

    from weftline.models.language_models.request_spans import SpannedRequest, ToolResult

# A result with fewer bytes is not shortened, whatever the settings.
_MIN_BYTES = 3_000
_DIGEST_BYTES = 12
_encode = msgspec.json.Encoder().encode


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is forwarded in place of a part of a request.

    ``texts``: other texts of a result, by their number; ``added``: a text at the end of the last one. ``saved``: tokens
    that it saves, negative if it adds some. ``handles``: those of whole texts.
    """

    texts: dict[int, str] = {}
    added: str = ""
    saved: int = 0
    handles: tuple[str, ...] = ()


class EditableResult(NamedTuple):
    """A result of a tool that may have an edit, and by what that is found."""

    anchor: str
    result: ToolResult
    is_new: bool


class Splice(NamedTuple):
    """Bytes in place of a span of a body."""

    span: slice
    content: bytes


_decoder = msgspec.json.Decoder(Edit)


def decode_edit(stored: str) -> Edit | None:
    """Return a stored edit; None for what was forwarded whole."""
    return _decoder.decode(stored) if stored else None


def encode_edit(edit: Edit | None) -> str:
    return "" if edit is None else _encode(edit).decode()


def editable_results(request: SpannedRequest) -> list[EditableResult]:
    """Return the results that are large enough, or whose calls name a handle.

    New are those after the last answer that no cache mark freezes: a mark before the newest message says that the
    client knows all before it to be cached.
    """
    first_new = max(request.first_new, request.last_mark + 1)
    occurrences: Counter[str] = Counter()
    found = []
    for result in request.results:
        is_asked = bool(named_handles(result.arguments))
        if not result.texts or not (is_asked or sum(len(memoryview(text)) for text in result.texts) >= _MIN_BYTES):
            continue
        digest = _digest(result.call_id.encode(), *(bytes(text) for text in result.texts))
        occurrences[digest] += 1
        found.append(EditableResult(f"r{digest}.{occurrences[digest]}", result, result.message >= first_new))
    return found


def result_splices(request: SpannedRequest, result: ToolResult, edit: Edit) -> list[Splice]:
    """Return what an edit changes in a result."""
    texts = {number: result.texts[number] for number in edit.texts}
    splices = [Splice(request.span(raw), _encode(edit.texts[number])) for number, raw in texts.items()]
    if edit.added:
        splices.append(_appended(request, result.texts[-1], edit.added))
    return splices


def edited_body(body: bytes, splices: Iterable[Splice]) -> bytes:
    """Return a body with other bytes in these spans, which do not overlap."""
    parts, reached = [], 0
    for splice in sorted(splices, key=lambda each: (each.span.start, each.span.stop)):
        if splice.span.start < reached:
            raise ValueError("two edits of a request overlap")
        parts += [body[reached : splice.span.start], splice.content]
        reached = splice.span.stop
    return b"".join([*parts, body[reached:]])


def _appended(request: SpannedRequest, text: Raw, added: str) -> Splice:
    """Return the splice that adds to the end of a JSON string."""
    end = request.span(text).stop - 1
    return Splice(slice(end, end), _encode(added)[1:-1])


def _digest(*parts: bytes) -> str:
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        state.update(b"%d:" % len(part))
        state.update(part)
    return state.hexdigest()
