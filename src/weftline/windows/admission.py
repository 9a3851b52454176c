"""Passes the texts of window events through the content gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.safety.trust.gate import IncomingContent, submitted
from weftline.safety.trust.model import Source, joined_label
from weftline.safety.trust.scanner import masked
from weftline.windows.model import category_of, quoted_message

if TYPE_CHECKING:
    from weftline.kernel.operation import SubmittedText
    from weftline.models.language_models.model import ConversationMessage
    from weftline.safety.redaction.masker import DetectorCategory
    from weftline.safety.trust.gate import ContentGate, HeldContent
    from weftline.safety.trust.model import TrustLabel
    from weftline.windows.model import EventDraft, WindowEvent

# Parts of native messages that hold the result of a tool, in all wire forms.
_RESULT_PARTS = ('"tool_result"', '"function_call_output"', '"functionResponse"', '"toolResult"')
# What policies let the gate mask in a text, together or one of them.
_MASKED: tuple[tuple[DetectorCategory, ...], ...] = (("secrets",), ("pii",), ("secrets", "pii"))
_encode = msgspec.json.Encoder().encode


class AdmittedDraft(NamedTuple):
    """A draft with the texts to store, and their label. ``held``: why prompts may not have it."""

    draft: EventDraft
    label: TrustLabel | None
    held: tuple[HeldContent, ...]


async def admit_draft(draft: EventDraft, gate: ContentGate) -> AdmittedDraft:
    """Pass every text of a message through the gate: what a tool returned has the source tool.

    What was said is recorded whatever it says: a text that looks like an attack is held by its label.
    """
    source = _source(draft.message)
    texts, names = _texts(draft.message), _names(draft)
    contents = [IncomingContent("window_event", draft.event_id, text, source, draft.derived_from) for text in texts]
    contents += [IncomingContent("window_event", draft.event_id, name, source) for name in names]
    contents += [] if draft.reason is None else [IncomingContent("reason", draft.event_id, draft.reason)]
    admitted = [await gate.record(content) for content in contents]
    label = joined_label([each.label for each in admitted])
    if label is not None:
        draft = _with_texts(draft, [each.text for each in admitted[: len(texts)]])
        if draft.reason is not None:
            draft = structs.replace(draft, reason=admitted[-1].text)
    return AdmittedDraft(draft, label, tuple(each.held for each in admitted if each.held is not None))


def is_recorded(event: WindowEvent, draft: EventDraft, *, quoted: bool) -> bool:
    """Tell whether an event as it is read is what a draft says: unchanged, with values masked, or redacted since.

    ``quoted``: an instruction may also be the data that it is for its reader.
    """
    if event.redacted:
        return True
    if event.message.role != draft.message.role:
        if not (quoted and draft.message.role == "system"):
            return False
        draft = structs.replace(draft, message=quoted_message(draft.message))
    elif event.category is not category_of(draft):
        return False
    if event.message == draft.message:
        return True
    texts = _texts(draft.message)
    return event.trust is not None and any(
        event.message == _with_texts(draft, [masked(text, values) for text in texts]).message for values in _MASKED
    )


def submitted_texts(draft: EventDraft) -> list[SubmittedText]:
    """Return the texts of a draft, for the scan before the transaction."""
    source = _source(draft.message)
    reason = [] if draft.reason is None else [submitted(draft.reason)]
    return reason + [
        submitted(text, source=source, derived_from=draft.derived_from)
        for text in (*_texts(draft.message), *_names(draft))
        if text
    ]


def _texts(message: ConversationMessage) -> list[str]:
    """Return content, arguments of calls and the native form, as JSON."""
    native = [] if message.native is None else [_encode(message.native).decode()]
    return [message.content, *(call.arguments for call in message.tool_calls), *native]


def _names(draft: EventDraft) -> list[str]:
    """Return names and references of an event, which prompts may show."""
    message = draft.message
    calls = [name for call in message.tool_calls for name in (call.name, call.call_id)]
    given = [message.name, message.tool_call_id, *calls, *draft.references, *draft.source_refs]
    return [name for name in given if name and " " in name]


def _with_texts(draft: EventDraft, texts: list[str]) -> EventDraft:
    message = draft.message
    content, *rest = texts
    native = None if message.native is None else msgspec.json.decode(rest.pop())
    calls = tuple(
        structs.replace(call, arguments=arguments) for call, arguments in zip(message.tool_calls, rest, strict=True)
    )
    message = structs.replace(message, content=content, tool_calls=calls, native=native)
    return structs.replace(draft, message=message)


def _source(message: ConversationMessage) -> Source | None:
    """Return tool for the results of tools; the caller itself for everything else, whatever role it claims."""
    if message.role == "tool":
        return Source.TOOL
    if message.native is not None:
        native = _encode(message.native).decode()
        if any(part in native for part in _RESULT_PARTS):
            return Source.TOOL
    return None
