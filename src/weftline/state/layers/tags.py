"""Tags of Weftline in prompts: nothing but Weftline may open or close an element in the namespace ``weftline:``.

Texts of others are sanitised before a prompt is assembled: a tag in any case, spacing, script or encoding becomes text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import structs

from weftline.models.language_models.model import ConversationMessage, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = "weftline:"
NEUTRAL = "[quoted weftline tag:"
# A tag as Weftline itself writes them.
EXACT = re.compile(rf"</?{NAMESPACE}", re.IGNORECASE)
# Letters that look like those of a tag and that NFKC does not fold to them: Cyrillic, Greek, Armenian, Cherokee.
_LOOKALIKES = {
    "w": "\u0461\u051d\u03c9\u0561\u13b3\u13d4",
    "e": "\u0435\u0454\u04bd\u03b5\u13ac\u212e\u0415\u0395",
    "f": "\u0493\u017f\u03dd\u0584\u15b4\u03dc",
    "t": "\u0442\u03c4\u0422\u03a4\u13a2\u0565",
    ":": "\u0589\u05c3\u0703\u16ec\u02d0\u2236\ua789\ufe13\ufe55\uff1a",
    "<": "\u2039\u3008\u27e8\ufe64\uff1c\u02c2\u1438\u276e\u276c\u3008\u300a\u00ab\u227a",
    "/": "\u2044\u2215\u2571\u29f8\uff0f",
}
# Every escape and the bracket itself begin with one of these.
_OPENING_SIGNS = "<&\\%"
# Blocks whose compatibility forms fold to ASCII letters: modifiers, sub- and superscripts, letterlike, enclosed,
# presentation and full-width forms, mathematical and enclosed alphanumerics.
_FOLDING_BLOCKS = (
    (0x02B0, 0x02FF),
    (0x1D00, 0x1DBF),
    (0x2070, 0x218F),
    (0x2460, 0x24FF),
    (0xFB00, 0xFB4F),
    (0xFE10, 0xFE6F),
    (0xFF00, 0xFFEF),
    (0x1D400, 0x1D7FF),
    (0x1F100, 0x1F1FF),
)
# White space, control and format characters, combining marks and fillers: nothing that a reader sees between letters.
_INVISIBLE = (
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u0300-\u036f\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u1ab0-\u1aff"
    r"\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\u2800\u3164\ufe00-\ufe0f\ufe20-\ufe2f\ufeff"
    r"\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*+"
)
# Characters that nobody sees but that models read: tag characters outside the flags that are written with them, and
# runs of variation selectors. Both can carry a whole hidden text.
_HIDDEN = re.compile(
    r"(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f)"
    r"|[\U000e0000-\U000e007f]+|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}"
)
# What every hidden text has one of.
_HIDDEN_SIGNS = re.compile(r"[\ufe00-\ufe0f\U000e0000-\U000e01ef]")


def sanitise(text: str) -> str:
    """Neutralise everything in a text that opens or closes an element of Weftline, and remove text that nobody sees."""
    if not text.isascii() and _HIDDEN_SIGNS.search(text):
        text = _HIDDEN.sub(lambda found: found[1] or "", text)
    return _imitation().sub(NEUTRAL, text) if imitates(text) else text


def imitates(text: str) -> bool:
    """Tell whether a text has what a reader may take for a tag of Weftline."""
    if text.isascii() and not any(sign in text for sign in _OPENING_SIGNS):
        return False
    match = _imitation().match
    return any(match(text, found.start()) for found in _openings().finditer(text))


def sanitise_json(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Neutralise tags in all texts of a JSON value, names of fields included."""
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, dict):
        return {sanitise(name): sanitise_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [sanitise_json(each) for each in value]
    return value


def sanitise_message(message: ConversationMessage) -> ConversationMessage:
    """Neutralise tags in a message, its tool calls and its native content."""
    if message.name is None and not message.tool_calls and message.native is None:
        return structs.replace(message, content=sanitise(message.content))
    return structs.replace(
        message,
        content=sanitise(message.content),
        name=None if message.name is None else sanitise(message.name),
        tool_calls=tuple(
            ToolCall(call.call_id, sanitise(call.name), sanitise(call.arguments)) for call in message.tool_calls
        ),
        native=sanitise_json(message.native),
    )


def sanitise_tool(tool: ToolDefinition) -> ToolDefinition:
    """Neutralise tags in the definition of a tool."""
    return structs.replace(
        tool,
        name=sanitise(tool.name),
        description=sanitise(tool.description),
        input_schema=sanitise_json(tool.input_schema),
        native=sanitise_json(tool.native),
    )


def texts_of(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield all texts of a JSON value, names of fields included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from texts_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_of(each)


@cache
def _openings() -> re.Pattern[str]:
    """Return the pattern of what a tag may begin with: looking for it first is much faster than for whole tags."""
    return re.compile(f"[{re.escape(_OPENING_SIGNS + _folded_forms().get('<', '') + _LOOKALIKES['<'])}]")


@cache
def _imitation() -> re.Pattern[str]:
    """Return the pattern of a tag in any spelling that a reader may take for one."""
    letters = _INVISIBLE.join(_spellings(letter) for letter in NAMESPACE)
    bracket = rf"(?:{_spellings('<')}|&(?:amp;)*+lt;?)"
    slash = rf"(?:(?:{_spellings('/')}|\\/){_INVISIBLE})?"
    return re.compile(f"{bracket}{_INVISIBLE}{slash}{letters}", re.IGNORECASE)


def _spellings(letter: str) -> str:
    """Return the pattern of a character, its lookalikes and its escapes in HTML, JSON and URLs."""
    code = f"{ord(letter):x}"
    forms = re.escape(letter + _folded_forms().get(letter, "") + _LOOKALIKES.get(letter, ""))
    escapes = rf"&(?:amp;)*+#(?:0*+{ord(letter)}|x0*+{code});?|\\{{1,4}}(?:u00|x){code}|%(?:25)*+{code}"
    return f"(?:[{forms}]|{escapes})"


@cache
def _folded_forms() -> dict[str, str]:
    """Return the characters that NFKC folds to each character of a tag."""
    wanted = {*NAMESPACE, "<", "/"}
    forms: dict[str, str] = {}
    for first, last in _FOLDING_BLOCKS:
        for character in map(chr, range(first, last + 1)):
            plain = unicodedata.normalize("NFKC", character).casefold()
            if plain in wanted:
                forms[plain] = forms.get(plain, "") + character
    return forms
