"""The prompt prefix that layers make, and its check.

Order contract: inputs are sanitised before a prompt is assembled (``sanitise``), and its layers are checked afterwards,
before it is sent (``check_prefix``).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import structs

from weft.capabilities.language_models.model import ConversationMessage, ToolCall, ToolDefinition
from weft.capabilities.layers.model import PLATFORM, Layer, LayerViolation, text_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TAG = "weft:layer"
# A tag as layers are rendered; anything else that looks like one is neutralised by ``sanitise``.
_EXACT = re.compile(rf"</?{_TAG}", re.IGNORECASE)
_SECTION = re.compile(rf'<{_TAG} level="([0-9]+)" name="([^"]*)">\n(.*?)\n</{_TAG}>', re.DOTALL)
_NEUTRAL = "[quoted layer tag"
# Letters that look like those of the tag and that NFKC does not fold to them: Cyrillic, Greek, Armenian, Cherokee.
_LOOKALIKES = {
    "w": "\u0461\u051d\u03c9\u0561\u13b3\u13d4",
    "e": "\u0435\u0454\u04bd\u03b5\u13ac\u212e\u0415\u0395",
    "f": "\u0493\u017f\u03dd\u0584\u15b4\u03dc",
    "t": "\u0442\u03c4\u0422\u03a4\u13a2\u0565",
    "l": "\u04cf\u0456I1|\u0399\u0406\u04c0\u217c\u13de\u0140\u0142",
    "a": "\u0430\u03b1\u0410\u0391\u13aa\u0251",
    "y": "\u0443\u04af\u03b3\u0423\u04ae\u03a5\u13a9\u028f",
    "r": "\u0433\u0453\u13a1\u13d2\u0280",
    ":": "\u0589\u05c3\u0703\u16ec\u02d0\u2236\ua789\ufe13\ufe55\uff1a",
    "<": "\u2039\u3008\u27e8\ufe64\uff1c\u02c2\u1438\u276e\u276c\u3008\u300a\u00ab\u227a",
    "/": "\u2044\u2215\u2571\u29f8\uff0f",
}
_ESCAPED_BRACKET = r"&lt;?|&#0*60;?|&#x0*3c;?|\\u003c|\\x3c|%3c"
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
    r"\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*"
)


def render_layers(layers: Sequence[Layer]) -> str:
    """Return the prefix of a prompt: the same bytes for the same layers."""
    return "\n".join(f'<{_TAG} level="{layer.level}" name="{layer.name}">\n{layer.text}\n</{_TAG}>' for layer in layers)


def sanitise(text: str) -> str:
    """Neutralise everything in a text that opens or closes a layer, also in other scripts, encodings or spacing."""
    return _imitation().sub(_NEUTRAL, text) if any(sign in text for sign in _bracket_signs()) else text


def sanitise_json(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Neutralise layer tags in all texts of a JSON value, names of fields included."""
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, dict):
        return {sanitise(name): sanitise_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [sanitise_json(each) for each in value]
    return value


def sanitise_message(message: ConversationMessage) -> ConversationMessage:
    """Neutralise layer tags in a message, its tool calls and its native content."""
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
    """Neutralise layer tags in the definition of a tool."""
    return structs.replace(
        tool,
        name=sanitise(tool.name),
        description=sanitise(tool.description),
        input_schema=sanitise_json(tool.input_schema),
        native=sanitise_json(tool.native),
    )


def check_prefix(prompt_text: str, layers: Sequence[Layer]) -> None:
    """Raise LayerViolation unless the prompt begins with these layers, in order and unaltered, and has no other."""
    _check_layers(layers)
    prefix = render_layers(layers)
    if not prompt_text.startswith(prefix):
        raise _difference(prompt_text, layers)
    if _EXACT.search(prompt_text, len(prefix)):
        raise LayerViolation("The prompt has a layer tag after its layers.", problem="imitated")


def _check_layers(layers: Sequence[Layer]) -> None:
    """Raise LayerViolation if the layers to compare with are not well-formed themselves."""
    levels = [layer.level for layer in layers]
    if levels[:1] != [PLATFORM] or levels != sorted(set(levels)):
        raise LayerViolation("The layers are not complete and in order.", problem="order", levels=levels)
    for layer in layers:
        if text_hash(layer.text) != layer.hash or _EXACT.search(layer.text):
            raise _violation(layer, "altered")


def _difference(prompt_text: str, layers: Sequence[Layer]) -> LayerViolation:
    """Return the error that names the first layer that is missing, misplaced or altered."""
    found = [(int(level), name, text_hash(text)) for level, name, text in _SECTION.findall(prompt_text)]
    for place, layer in enumerate(layers):
        expected = (layer.level, layer.name, layer.hash)
        if found[place : place + 1] == [expected]:
            continue
        same_name = [each for each in found if each[:2] == expected[:2]]
        problem = "missing" if not same_name else "order" if expected in same_name else "altered"
        return _violation(layer, problem)
    return LayerViolation("The prompt does not begin with its layers.", problem="order")


def _violation(layer: Layer, problem: str) -> LayerViolation:
    words = {"missing": "is missing", "order": "is not in its place", "altered": "was altered"}
    return LayerViolation(
        f"The layer {layer.name} (level {layer.level}) {words[problem]}.",
        problem=problem,
        level=layer.level,
        layer=layer.name,
    )


@cache
def _bracket_signs() -> tuple[str, ...]:
    """Return what every opening of a tag has one of; looking for these is much faster than for the whole pattern."""
    return (*"<&\\%", *_folded_forms().get("<", ""), *_LOOKALIKES["<"])


@cache
def _imitation() -> re.Pattern[str]:
    """Return the pattern of a layer tag in any spelling that a reader may take for one."""
    folded = _folded_forms()
    letters = _INVISIBLE.join(_class_of(letter, folded) for letter in _TAG)
    bracket = f"(?:{_class_of('<', folded)}|{_ESCAPED_BRACKET})"
    slash = rf"(?:(?:{_class_of('/', folded)}|\\/|%2f|&#47;){_INVISIBLE})?"
    return re.compile(f"{bracket}{_INVISIBLE}{slash}{letters}", re.IGNORECASE)


def _class_of(letter: str, folded: dict[str, str]) -> str:
    return f"[{re.escape(letter + folded.get(letter, '') + _LOOKALIKES.get(letter, ''))}]"


def _folded_forms() -> dict[str, str]:
    """Return the characters that NFKC folds to each character of the tag."""
    wanted = {*_TAG, "<", "/"}
    forms: dict[str, str] = {}
    for character in _characters():
        plain = unicodedata.normalize("NFKC", character).casefold()
        if plain in wanted:
            forms[plain] = forms.get(plain, "") + character
    return forms


def _characters() -> Iterator[str]:
    return (chr(code) for first, last in _FOLDING_BLOCKS for code in range(first, last + 1))
