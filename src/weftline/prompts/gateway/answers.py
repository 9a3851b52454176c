"""Answers of servers behind the gateway: their texts, which pass the gate, and shorter ones in place of long ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from weftline.kernel.ports import approximate_tokens
from weftline.prompts.gateway.model import ToolAnswer
from weftline.windows.compaction.tool_outputs import references
from weftline.windows.conversations.handles import handle_of
from weftline.windows.conversations.shortened_results import shorten_text

# What a process reads of one answer; images and other data count, too.
MAX_ANSWER_BYTES = 16 * 2**20
# More names say little about which lines matter.
_MAX_WANTED = 50
_encode = msgspec.json.Encoder().encode


class ShortAnswer(NamedTuple):
    """An answer whose texts were shortened, and the whole of them under its handle."""

    answer: ToolAnswer
    handle: str
    whole: str


def texts_of(answer: ToolAnswer) -> dict[str, bool]:
    """Return the texts of an answer that a model would read, and whether each is JSON."""
    found = {text: False for _, text in _text_parts(answer)}
    if answer.structured is not None:
        found.setdefault(_encoded(answer.structured), True)
    return found


def with_texts(answer: ToolAnswer, passed: Mapping[str, str]) -> ToolAnswer:
    """Return an answer with other texts in the place of its own."""
    if all(text == shown for text, shown in passed.items()):
        return answer
    content = []
    for each in answer.content:
        shown = {**each, "text": passed[each["text"]]} if isinstance(each.get("text"), str) else each
        resource = shown.get("resource")
        if isinstance(resource, dict) and isinstance(resource.get("text"), str):
            shown = {**shown, "resource": {**resource, "text": passed[resource["text"]]}}
        content.append(shown)
    structured = answer.structured
    if structured is not None:
        structured = msgspec.json.decode(passed[_encoded(structured)], type=dict[str, Any])
    return ToolAnswer(content, structured, answer.is_error)


def bounded(answer: ToolAnswer) -> ToolAnswer:
    """Return an answer, or in the place of one that is too large an error for the model."""
    size = len(_encode((answer.content, answer.structured)))
    if size <= MAX_ANSWER_BYTES:
        return answer
    text = (
        f"The tool was called, and its answer of {size / 2**20:,.1f} MiB was dropped: at most "
        f"{MAX_ANSWER_BYTES // 2**20} MiB are taken. Ask for less of it."
    )
    return ToolAnswer([{"type": "text", "text": text}], None, is_error=True)


def is_short(answer: ToolAnswer, max_tokens: int) -> bool:
    """Return whether an answer is certainly short enough: a token has at least one character."""
    characters = sum(len(text) + len(uri) + 2 for uri, text in _text_parts(answer))
    return characters + len(_encode(answer.structured)) < max_tokens


def shorten_answer(answer: ToolAnswer, max_tokens: int, arguments: Mapping[str, Any]) -> ShortAnswer | None:
    """Return an answer with the part of its texts that matters; None if it is short enough.

    Texts are shortened as one, so that many of them are as bounded as a long one. What the arguments of the call name
    stays first.
    """
    texts = [f"{uri}\n{text}" if uri else text for uri, text in _text_parts(answer)]
    if answer.structured is not None and not _is_shown(answer.structured, texts):
        texts.append(_encoded(answer.structured))
    whole = "\n".join(texts)
    if approximate_tokens(whole) < max_tokens:
        return None
    named = list(dict.fromkeys(references(_encoded(arguments))))[:_MAX_WANTED]
    short = shorten_text(whole, max_tokens, _reading, frozenset(named))
    if short is None:
        return None
    others = [each for each in answer.content if not any(each is part for part in _parts_with_text(answer))]
    content = [{"type": "text", "text": short}, *others]
    return ShortAnswer(ToolAnswer(content, None, answer.is_error), handle_of(whole), whole)


def _reading(handle: str) -> str:
    return (
        f"call proxied_conversations.open through weftline_tools with the handle {handle}, and with first_line and "
        "last_line for some lines"
    )


def _parts_with_text(answer: ToolAnswer) -> list[dict[str, Any]]:
    return [
        each
        for each in answer.content
        if isinstance(each.get("text"), str)
        or (isinstance(each.get("resource"), dict) and isinstance(each["resource"].get("text"), str))
    ]


def _text_parts(answer: ToolAnswer) -> list[tuple[str, str]]:
    """Return the texts of an answer, each with the URI of its resource, if it is one."""
    found = []
    for each in _parts_with_text(answer):
        if isinstance(each.get("text"), str):
            found.append(("", each["text"]))
        resource = each.get("resource")
        if isinstance(resource, dict) and isinstance(resource.get("text"), str):
            found.append((str(resource.get("uri", "")), resource["text"]))
    return found


def _is_shown(structured: Mapping[str, Any], texts: list[str]) -> bool:
    """Tell whether one of the texts is the structured content as JSON, as servers send it for older clients."""
    for text in texts:
        try:
            if msgspec.json.decode(text) == structured:
                return True
        except msgspec.MsgspecError:
            continue
    return False


def _encoded(structured: Mapping[str, Any]) -> str:
    return _encode(structured).decode()
