"""Edits of requests: spans of bytes in place of others, each for a part of a conversation, and the same in every call.

An edit belongs to the digest of what it changes, and the how manieth of that digest it is. It is stored before the
request is forwarded, so that later calls, retries and branches get the same bytes, whoever forwards them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.models.language_models.request_spans import ToolResult, parts_digest, system_parts
from weftline.models.language_models.wire_forms import FORMS
from weftline.windows.conversations.handles import named_handles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw

    from weftline.models.language_models.content import WireForm
    from weftline.models.language_models.request_spans import SpannedRequest, TextRoom

# A result with fewer bytes is not shortened, whatever the settings.
_MIN_BYTES = 3_000
# The anchors of the system text, and of the note that full mode has stopped in a conversation.
SYSTEM, STOPPED = "system", "stopped"
# How anchors of results begin that something may be added to late.
LATE = "n"
_encode = msgspec.json.Encoder().encode


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is forwarded in place of a part of a request.

    ``texts``: other texts of a result, by their number; ``added``: a text at the end of the last one, of system text at
    its beginning. ``saved``: tokens that it saves, negative if it adds some. ``handles``: those of whole texts.
    ``prefix``: what stands for the first messages, as JSON; ``rewritten``: tokens behind it that lose their cache.
    """

    texts: dict[int, str] = {}
    added: str = ""
    saved: int = 0
    handles: tuple[str, ...] = ()
    prefix: str = ""
    rewritten: int = 0


class EditablePart(NamedTuple):
    """A part of a request that may have an edit, and by what that is found.

    ``result``: a result of a tool, or the texts of a message of the user as one; None for the system text.
    ``late_anchor``: that of what is added to the same result late.
    """

    anchor: str
    result: ToolResult | None
    is_new: bool
    late_anchor: str = ""


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


def editable_results(request: SpannedRequest) -> list[EditablePart]:
    """Return the results that are large enough, or whose calls name a handle.

    New are those after the last answer that no cache mark freezes: a mark before the newest message says that the
    client knows all before it to be cached.
    """
    first_new = max(request.first_new, request.last_mark + 1)
    occurrences: Counter[str] = Counter()
    found = []
    for result in request.results:
        is_asked = bool(named_handles(result.arguments))
        if not is_asked and sum(len(memoryview(text)) for text in result.texts) < _MIN_BYTES:
            continue
        if not result.texts and result.room is None:
            continue
        # What is opened depends on what the call asks for: ids of calls may come again.
        digest = result.digest
        if is_asked:
            digest = parts_digest(result.call_id.encode(), *result.texts, result.arguments)
        occurrences[digest] += 1
        late = _late_anchor(result) if result.texts else ""
        found.append(EditablePart(f"r{digest}.{occurrences[digest]}", result, result.message >= first_new, late))
    return found


def appendable_results(request: SpannedRequest) -> list[EditablePart]:
    """Return the results that something may have been added to late; only the newest one may get it."""
    first_new = max(request.first_new, request.last_mark + 1)
    found = {_late_anchor(result): result for result in reversed(request.results) if result.texts}
    newest = request.results[-1] if request.results else None
    is_newest = newest is not None and first_new <= newest.message == len(request.messages) - 1
    return [EditablePart(anchor, result, is_newest and result is newest) for anchor, result in found.items()]


def _late_anchor(result: ToolResult) -> str:
    digest = parts_digest(result.digest.encode(), result.arguments)
    return f"{LATE}{digest}"


def replaces_end(result: ToolResult | None, edit: Edit) -> bool:
    """Tell whether an edit replaces the last text of a result."""
    return result is not None and len(result.texts) - 1 in edit.texts


def with_end(edit: Edit, added: str) -> Edit:
    """Return an edit of texts with another text at the end of the last one."""
    last = max(edit.texts)
    return msgspec.structs.replace(edit, texts=edit.texts | {last: edit.texts[last] + added})


def editable_messages(request: SpannedRequest) -> list[EditablePart]:
    """Return the messages of the user, which memory may be added to; only the newest message may get a new edit."""
    with_results = {result.message for result in request.results}
    occurrences: Counter[str] = Counter()
    found = []
    for at, message in enumerate(request.messages):
        texts = message.texts if message.role == "user" and at not in with_results else ()
        if not texts:
            continue
        digest = parts_digest(*texts)
        occurrences[digest] += 1
        is_new = at == len(request.messages) - 1
        said = ToolResult(at, "", texts, is_error=False, arguments=b"")
        found.append(EditablePart(f"m{digest}.{occurrences[digest]}", said, is_new))
    return found


def system_part(request: SpannedRequest) -> EditablePart:
    """Return the system text, which may get a new edit in the first call of a conversation only."""
    return EditablePart(SYSTEM, None, request.first_new == 0)


def front_splice(request: SpannedRequest, text: str) -> Splice | None:
    """Return what puts a text in front of the system text, or makes it the system text; None if there is no place."""
    form, system = request.form, request.system
    if form == "openai_chat":
        first = request.messages[0] if request.messages else None
        if first is None or first.role != "system" or first.content is None:
            return Splice(_at(request.list_start), _encode({"role": "system", "content": text}) + b",")
        system = first.content
    if form == "gemini" and system is not None:
        system = system_parts(system)
        if system is None:
            return None
    if system is None:
        # In front of the other fields.
        start = request.body.find(b"{") + 1
        return Splice(_at(start), b"%b:%b," % (_encode(FORMS[form].system_field), _encode(_system(form, text))))
    place = request.span(system).start + 1
    match bytes(memoryview(system)[:1]):
        case b'"':
            return Splice(_at(place), _encode(f"{text}\n\n")[1:-1])
        case b"[":
            block = {"text": text} if form == "gemini" else {"type": "text", "text": text}
            is_empty = not bytes(memoryview(system)[1:-1]).strip()
            return Splice(_at(place), _encode(block) + (b"" if is_empty else b","))
        case _:
            return None


def _system(form: WireForm, text: str) -> object:
    return {"parts": [{"text": text}]} if form == "gemini" else text


def _at(place: int) -> slice:
    return slice(place, place)


def splices_of(request: SpannedRequest, result: ToolResult | None, edit: Edit) -> list[Splice]:
    """Return what an edit changes in a part."""
    if result is None:
        front = front_splice(request, edit.added)
        return [] if front is None else [front]
    texts = {number: result.texts[number] for number in edit.texts}
    splices = [Splice(request.span(raw), _encode(edit.texts[number])) for number, raw in texts.items()]
    if edit.added:
        if result.texts:
            splices.append(_appended(request, result.texts[-1], edit.added))
        elif result.room is not None:
            splices.append(_filled(request, result.room, edit.added.lstrip("\n")))
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


def _filled(request: SpannedRequest, room: TextRoom, added: str) -> Splice:
    """Return the splice that makes a text the content of a result without any."""
    span = request.span(room.place)
    content = b"%b%b%b" % (room.before, _encode(added), room.after)
    match bytes(memoryview(room.place)[:1]):
        case b"[":
            is_empty = not bytes(memoryview(room.place)[1:-1]).strip()
            return Splice(_at(span.stop - 1), content if is_empty else b"," + content)
        case b"{":
            is_empty = not bytes(memoryview(room.place)[1:-1]).strip()
            return Splice(_at(span.start + 1), content if is_empty else content + b",")
        case _:
            return Splice(span, content)
