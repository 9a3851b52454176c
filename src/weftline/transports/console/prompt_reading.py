"""A prompt as a person reads it: its turns in order, each with its parts, and the answer that followed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.prompts.assembly.receipts import digest_of
from weftline.state.layers.prefix import sections_of
from weftline.transports.console.item_links import item_link
from weftline.transports.console.side_by_side import as_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from weftline.prompts.assembly.receipt_operations import ReceiptShown
    from weftline.prompts.assembly.receipts import ReceiptBlock
    from weftline.windows.views import WindowEventView

    Messages = Sequence[Mapping[str, Any]]

# A block has few messages: an answer with its tool calls and their results.
_MESSAGES_OF_A_BLOCK = 64
_SPEAKERS = {
    "layer": "System",
    "pins": "Pinned",
    "summary": "Summary of earlier turns",
    "retrieved": "Passages found for the task",
    "board": "Board of the session",
    "missing": "Open questions",
    "task": "Task",
}
_ROLES = {"user": "User", "assistant": "Assistant", "tool": "Tool result", "system": "System", "developer": "Developer"}
_HEADING = re.compile(r"^\[(.+)\]$", re.MULTILINE)
_OWN_HEADING = re.compile(r"\A#{1,6} +(.+)$", re.MULTILINE)
_PATH = " > "
_DATA = re.compile(r"\A<weftline:data[^>]*>\n?(.*?)\n?</weftline:data>\Z", re.DOTALL)
# Tags of Weftline in contents are neutralised when a prompt is made, so these are its own.
_LAYER_TAG = re.compile(r'<weftline:layer[^>]*name="([^"]*)"[^>]*>')
_TAG_LINE = re.compile(r"^</?weftline:(?:data|layer)[^>]*>\n?", re.MULTILINE)


class PromptPart(NamedTuple):
    """A part of a turn: a passage, a board entry, a layer, or all that was said."""

    text: str
    title: str | None = None
    ref: str | None = None
    link: str | None = None


class PromptTurn(NamedTuple):
    """A block of the prompt, as who said what. ``number`` is its place in the prompt, ``role`` that of its message."""

    number: int
    block: ReceiptBlock
    role: str
    speaker: str
    parts: list[PromptPart]
    is_new: bool


class PromptAnswer(NamedTuple):
    """What the agent said next in its conversation."""

    text: str
    at: datetime
    author: str


def block_messages(blocks: Sequence[ReceiptBlock], messages: Messages) -> dict[str, Messages]:
    """Return the messages of each block by its id. A block has as many as give its recorded digest."""
    found: dict[str, Messages] = {}
    at = 0
    for block in blocks:
        for end in range(at + 1, min(len(messages), at + _MESSAGES_OF_A_BLOCK) + 1):
            if digest_of(messages[at:end]).hex() == block.digest:
                found[block.block_id] = messages[at:end]
                at = end
                break
        else:
            return found
    return found


def block_texts(found: Mapping[str, Messages]) -> dict[str, str]:
    return {block_id: "\n\n".join(map(text_of, messages)) for block_id, messages in found.items()}


def readable(text: str) -> str:
    """Return the text of a block as a person reads it: without the tags around data, layers by their names."""
    return _TAG_LINE.sub("", _LAYER_TAG.sub(r"[\1]", text)).rstrip("\n")


def item_texts(turns: Iterable[PromptTurn]) -> dict[str, str]:
    """Return the texts of the items that are in a prompt, by ref."""
    texts = {}
    for turn in turns:
        for part in turn.parts:
            ref = part.ref or next(iter(turn.block.items), None)
            if ref is not None and (part.ref or len(turn.block.items) == 1):
                texts[ref] = part.text
    return texts


def text_of(message: Mapping[str, Any]) -> str:
    calls = [f"{call['name']}({call['arguments']})" for call in message.get("tool_calls", ())]
    text = "\n".join([message["content"], *calls] if message.get("content") else calls)
    return text or as_text(message.get("native", ""))


def turns_of(receipt: ReceiptShown, found: Mapping[str, Messages], kept: int, start: int, end: int) -> list[PromptTurn]:
    """Return some of the turns of a prompt; the first ``kept`` blocks were in the previous prompt as well."""
    turns = []
    for number, block in enumerate(receipt.blocks[start:end], start + 1):
        messages = found.get(block.block_id, ())
        role = str(messages[0]["role"]) if messages else "user"
        turns.append(
            PromptTurn(
                number,
                block,
                "system" if block.kind == "layer" else role if block.kind in {"conversation", "task"} else "data",
                speaker_of(block, found),
                list(_parts(block, messages, receipt.documents)),
                is_new=number > kept > 0,
            )
        )
    return turns


def speaker_of(block: ReceiptBlock, found: Mapping[str, Messages]) -> str:
    """Return who says a block: the role of its message, or where it is from."""
    messages = found.get(block.block_id, ())
    role = str(messages[0]["role"]) if messages else "user"
    return _SPEAKERS.get(block.kind) or _ROLES.get(role, role)


def _parts(block: ReceiptBlock, messages: Messages, documents: Mapping[str, str]) -> Iterator[PromptPart]:
    if block.kind == "layer":
        text = "\n\n".join(map(text_of, messages))
        layers = sections_of(text)
        if not layers:
            # The tenant's policy has switched tags off.
            yield PromptPart(text)
        for layer in layers:
            ref = next((ref for ref in block.items if ref in {f"layer:{layer.name}", layer.name}), None)
            yield PromptPart(layer.text, layer.name, ref, None if ref is None else item_link(ref))
    elif block.spans and len(messages) == 1:
        yield from _passages(block.spans, text_of(messages[0]), documents)
    else:
        for message in messages:
            data = _DATA.match(text := text_of(message))
            yield PromptPart(text if data is None else data[1])


def _passages(spans: Mapping[str, tuple[int, int]], text: str, documents: Mapping[str, str]) -> Iterator[PromptPart]:
    """Yield the items of a block; a heading in brackets is that of all passages up to the next one."""
    title, at = None, 0
    for ref, (start, end) in sorted(spans.items(), key=lambda span: span[1]):
        titles = _HEADING.findall(text[at:start])
        shown = text[start:end].strip()
        own = _OWN_HEADING.match(shown)
        if titles:
            title = titles[-1]
        elif title is not None and own is not None:
            # Sections of a document that follow each other have the heading of the first.
            title = f"{title.partition(_PATH)[0]}{_PATH}{own[1]}"
        at = end
        yield PromptPart(shown, _title_of(ref) or title or ref, ref, item_link(documents.get(ref, ref)))


def _title_of(ref: str) -> str | None:
    """Return the title of an item that has one of its own; None of a passage, which its heading names."""
    line, _, key = ref.partition("/")
    if line.startswith(("board:", "memory:", "context:")):
        return key
    return f"Message {key}" if line.startswith("message:") else None


def answer_in(
    events: Iterable[WindowEventView], after: datetime, before: datetime | None = None
) -> PromptAnswer | None:
    """Return what the agent said first after a prompt was made, and before its next one."""
    for event in events:
        if event.role != "assistant" or not event.content or event.redacted or event.at <= after:
            continue
        return PromptAnswer(event.content, event.at, event.author) if before is None or event.at < before else None
    return None


class TriedItem(NamedTuple):
    """An item of a prompt that was planned again: whether it ``stays``, is ``left out`` or would be ``added``."""

    ref: str
    link: str | None
    title: str
    text: str | None
    change: str


def tried_items(turns: Iterable[PromptTurn], removed: Sequence[str], gained: Sequence[str]) -> list[TriedItem]:
    """Return the items of a prompt in order, with their texts, and then those that it would gain."""
    out = set(removed)
    items = []
    for turn in turns:
        known = {part.ref: part for part in turn.parts if part.ref is not None}
        for ref in turn.block.items if turn.block.kind != "layer" else ():
            part = known.get(ref) or (turn.parts[0] if len(turn.parts) == 1 else None)
            items.append(
                TriedItem(
                    ref,
                    (part and part.link) or item_link(ref),
                    (part and part.title) or turn.speaker,
                    None if part is None else part.text,
                    "left out" if ref in out else "stays",
                )
            )
    return items + [TriedItem(ref, item_link(ref), ref, None, "added") for ref in gained]
