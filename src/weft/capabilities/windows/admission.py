"""Passes the texts of window events through the content gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.trust.gate import IncomingContent, submitted
from weft.capabilities.trust.model import Source

if TYPE_CHECKING:
    from weft.capabilities.language_models.model import ConversationMessage
    from weft.capabilities.trust.gate import ContentGate
    from weft.capabilities.trust.model import TrustLabel
    from weft.capabilities.windows.model import EventDraft
    from weft.kernel.operation import SubmittedText

# Parts of native messages that hold the result of a tool, in all wire forms.
_RESULT_PARTS = ('"tool_result"', '"function_call_output"', '"functionResponse"', '"toolResult"')
_encode = msgspec.json.Encoder().encode


class AdmittedDraft(NamedTuple):
    """A draft with the texts to store, and their label."""

    draft: EventDraft
    label: TrustLabel | None


async def admit_draft(draft: EventDraft, gate: ContentGate) -> AdmittedDraft:
    """Pass every text of a message through the gate: what a tool returned has the source tool.

    An instruction is none of its business: who may give one is checked, and others read it as content.
    """
    if _is_instruction(draft):
        return AdmittedDraft(draft, None)
    source = _source(draft.message)
    contents = [
        IncomingContent("window_event", draft.event_id, text, source, draft.derived_from)
        for text in _texts(draft.message)
    ]
    for name in _names(draft):
        await gate.admit(IncomingContent("window_event", draft.event_id, name, source))
    texts, label = await gate.admit_together(contents)
    return AdmittedDraft(draft if label is None else _with_texts(draft, texts), label)


def submitted_texts(draft: EventDraft) -> list[SubmittedText]:
    """Return the texts of a draft, for the scan before the transaction."""
    if _is_instruction(draft):
        return []
    source = _source(draft.message)
    return [
        submitted(text, source=source, derived_from=draft.derived_from)
        for text in (*_texts(draft.message), *_names(draft))
        if text
    ]


def _is_instruction(draft: EventDraft) -> bool:
    is_marked = draft.message.role == "system" or draft.category == "SYSTEM"
    return is_marked and _source(draft.message) is None


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
