"""Trust of what a call brings along for its prompt and no gate has seen: task, tools, questions, added turns, fields.

The task is of the caller, who may give it: what is found in it is recorded, and refused if the policy is to block.
Definitions of tools come from others, but are written in the imperative: only the strict bar leaves one out.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.kernel.operation import SubmittedText
from weftline.prompts.assembly.prompt_trust import ItemTrust
from weftline.safety.trust.model import Source, Trust, source_of
from weftline.state.layers.data_elements import contents, with_texts
from weftline.state.layers.tags import texts_of
from weftline.windows.admission import submitted_texts
from weftline.windows.model import EventDraft

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.exchange.missing_context.model import Gap
    from weftline.kernel.identity import Actor
    from weftline.models.language_models.model import ConversationMessage, ToolDefinition
    from weftline.safety.trust.scanner import ContentScanner, Verdicts

_encode = msgspec.json.Encoder().encode


class RequestTrust(NamedTuple):
    """What looks like an attack: the task, tools by name, and open questions by id."""

    task: ItemTrust | None
    tools: Mapping[str, ItemTrust]
    gaps: Mapping[str, ItemTrust]


async def request_trust(
    scanner: ContentScanner, actor: Actor, task: str, tools: Sequence[ToolDefinition], gaps: Sequence[Gap]
) -> RequestTrust:
    """Scan the task, tools and open questions of a call."""
    own = SubmittedText(task)
    of_tools = {tool.name: SubmittedText(_encode(tool).decode(), data=True) for tool in tools}
    of_gaps = {gap.record.missing_id: SubmittedText(gap.record.question) for gap in gaps}
    verdicts = await scanner.prepare(actor, [own, *of_tools.values(), *of_gaps.values()])
    found = _trust(verdicts, own)
    return RequestTrust(
        None if found is None else found._replace(source=source_of(actor)),
        _suspicious(verdicts, of_tools),
        _suspicious(verdicts, of_gaps),
    )


def _suspicious(verdicts: Verdicts, texts: Mapping[str, SubmittedText]) -> dict[str, ItemTrust]:
    """Return which texts look like an attack, by their names."""
    judged = {name: _trust(verdicts, text, data_in_doubt=True) for name, text in texts.items()}
    return {name: trust for name, trust in judged.items() if trust is not None}


async def turns_trust(
    scanner: ContentScanner, actor: Actor, turns: Sequence[ConversationMessage]
) -> dict[int, ItemTrust]:
    """Return which turns that a runtime adds to its prompt look like an attack, by their place."""
    texts = [submitted_texts(EventDraft(event_id="added", message=_unwrapped(turn))) for turn in turns]
    verdicts = await scanner.prepare(actor, chain.from_iterable(texts))
    found = {
        place: [trust for text in each if (trust := _trust(verdicts, text)) is not None]
        for place, each in enumerate(texts)
    }
    of_caller = source_of(actor)
    return {
        place: worst if worst.source is Source.TOOL else worst._replace(source=of_caller)
        for place, each in found.items()
        if each and (worst := min(each, key=lambda trust: trust.in_doubt))
    }


async def fields_trust(scanner: ContentScanner, actor: Actor, fields: Mapping[str, Any]) -> dict[str, ItemTrust]:
    """Return which fields that a runtime adds to its prompt look like an attack, by name.

    Schemas and their descriptions are written in the imperative, as tools are: they are judged like those.
    """
    joined = {name: "\n".join(texts_of({name: value})) for name, value in fields.items()}
    texts = {name: SubmittedText(text, data=True) for name, text in joined.items() if " " in text}
    found = _suspicious(await scanner.prepare(actor, texts.values()), texts)
    return {name: trust._replace(source=source_of(actor)) for name, trust in found.items()}


def _unwrapped(turn: ConversationMessage) -> ConversationMessage:
    """Return a turn with the texts inside of its data elements: a result is scanned as it was returned."""
    return with_texts(turn, lambda text: "\n".join(contents(text) or [text]))


def _trust(verdicts: Verdicts, text: SubmittedText, *, data_in_doubt: bool = False) -> ItemTrust | None:
    detection = verdicts[text.text, text.data].detection
    if not detection.flagged:
        return None
    in_doubt = not detection.strict and (data_in_doubt or not text.data)
    return ItemTrust(Source.TOOL if text.data else Source.AGENT, Trust.SUSPICIOUS, in_doubt)
