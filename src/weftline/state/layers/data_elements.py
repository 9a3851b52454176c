"""Data elements: the tags that enclose untrusted text in a prompt.

The tags are the same for every text, so that provider caches hit. That is safe because the text is sanitised: it can
neither close its element nor open another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import structs

from weftline.models.language_models.content import TEXT_FIELDS
from weftline.state.layers.tags import NAMESPACE, imitates, sanitise

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.models.language_models.model import ConversationMessage

_TAG = f"{NAMESPACE}data"
_OPEN = re.compile(rf'<{_TAG}(?: [a-z]+="[^"<>\n]{{0,200}}")*+>\n')
_CLOSE = f"\n</{_TAG}>"
_NOT_IN_ATTRIBUTE = re.compile(r'["<>\s]+')
# Stands between all words of a text if the tenant's policy or the caller wants every word to be marked as data.
WORD_MARK = "\u02c6"
# Blocks of Anthropic's form that have blocks of their own.
_NESTING = frozenset({"tool_result", "search_result"})
_BLANKS = re.compile(r"[^\S\n]+|(?<=\n)(?=[^\n])")


def data_element(text: str, source: str = "", *, suspect: bool = False, mark_words: bool = False) -> str:
    """Return a text as an element: ``source`` is where it is from, ``suspect`` marks what may contain an attack."""
    attributes = [
        f' source="{_NOT_IN_ATTRIBUTE.sub(" ", sanitise(source))}"' if source else "",
        ' suspect="injection"' if suspect else "",
        f' marked="{WORD_MARK} between all words"' if mark_words else "",
    ]
    return f"<{_TAG}{''.join(attributes)}>\n{element_text(text, mark_words=mark_words)}{_CLOSE}"


def element_text(text: str, *, mark_words: bool = False) -> str:
    """Return a text as it is inside of its element."""
    return _words_marked(text) if mark_words else sanitise(text)


def data_message(
    message: ConversationMessage, source: str = "", *, suspect: bool = False, mark_words: bool = False
) -> ConversationMessage:
    """Return a message whose texts are data elements, in the place that its wire form has for them."""

    def element(text: str) -> str:
        return data_element(text, source, suspect=suspect, mark_words=mark_words) if text else ""

    return with_texts(message, element)


def with_texts(message: ConversationMessage, change: Callable[[str], str]) -> ConversationMessage:
    """Return a message with its texts changed, in its content and in its native form; everything else stays."""
    return structs.replace(message, content=change(message.content), native=_native(message.native, change))


def contents(text: str) -> list[str] | None:
    """Return the texts of the data elements that a text consists of; None if it is anything else."""
    found: list[str] = []
    position = 0
    while position < len(text):
        opening = _OPEN.match(text, position)
        # The text of an element may be empty: its last line break is then that of the opening tag.
        end = -1 if opening is None else text.find(_CLOSE, opening.end())
        if opening is None or end < 0:
            return None
        found.append(text[opening.end() : end])
        position = end + len(_CLOSE)
        position += text.startswith("\n", position)
    return found


def is_data(text: str) -> bool:
    """Tell whether a text is one or more data elements, and nothing in them imitates a tag."""
    found = contents(text)
    return found is not None and not any(map(imitates, found))


def _words_marked(text: str) -> str:
    return sanitise(_BLANKS.sub(WORD_MARK, text.replace(WORD_MARK, "")))


def _native(native: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON in a wire form
    """Return a message or result in its wire form with its texts changed."""
    if not isinstance(native, dict):
        return native
    return {name: _texts(value, change) if name in {"content", "output"} else value for name, value in native.items()}


def _texts(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - likewise
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_block(each, change) for each in value]
    return value


def _block(block: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - likewise
    if not isinstance(block, dict):
        return block
    field = TEXT_FIELDS.get(str(block.get("type", "")))
    if field is not None and isinstance(block.get(field), str):
        return {**block, field: change(block[field])}
    if block.get("type") in _NESTING:
        return _native(block, change)
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "text":
        return {**block, "source": {**source, "data": _texts(source.get("data"), change)}}
    return block
