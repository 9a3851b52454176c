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

from weftline.history.signed_lists import LayerViolation
from weftline.models.language_models.content import ConversationMessage, ToolCall, ToolDefinition
from weftline.models.language_models.wire_forms import FORMS
from weftline.state.layers.model import PLATFORM, Layer, text_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# Tags of Weftline in prompts: nothing but Weftline may open or close an element in the namespace ``weftline:``.
#
# Texts of others are sanitised before a prompt is assembled: a tag in any case, spacing, script or encoding becomes
# text.

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


_TAG = f"{NAMESPACE}layer"
_SECTION = re.compile(rf'<{_TAG} level="([0-9]+)" name="([^"]*)">\n(.*?)\n</{_TAG}>', re.DOTALL)


def render_layers(layers: Sequence[Layer]) -> str:
    """Return the prefix of a prompt: the same bytes for the same layers; without that of the platform, no tags."""
    if not has_platform(layers):
        return "\n\n".join(layer.text for layer in layers)
    return "\n".join(f'<{_TAG} level="{layer.level}" name="{layer.name}">\n{layer.text}\n</{_TAG}>' for layer in layers)


def has_platform(layers: Sequence[Layer]) -> bool:
    """Tell whether layers begin with that of the platform, which the tenant's policy may switch off."""
    return bool(layers) and layers[0].level == PLATFORM


def check_prefix(prompt_text: str, layers: Sequence[Layer]) -> None:
    """Raise LayerViolation unless a system prompt is these layers, in order and unaltered, and nothing else."""
    _check_layers(layers)
    prefix = render_layers(layers)
    if not prompt_text.startswith(prefix):
        raise _difference(prompt_text, layers)
    if EXACT.search(prompt_text, len(prefix)):
        raise imitated_tag()
    if len(prompt_text) > len(prefix):
        raise LayerViolation("Something was added to the layers of the prompt.", problem="added")


def sections_of(prompt_text: str) -> list[Layer]:
    """Return the layers that a prompt contains, in their order, without their versions."""
    return [Layer.of(int(level), name, text, 0) for level, name, text in _SECTION.findall(prompt_text)]


def check_sections(prompt_text: str) -> None:
    """Raise LayerViolation unless a system prompt is well-formed layers, in order: those of an earlier version."""
    sections = sections_of(prompt_text)
    if not has_platform(sections):
        raise _disorder(sections)
    check_prefix(prompt_text, sections)


def imitated_tag() -> LayerViolation:
    return LayerViolation("The prompt has a tag of Weftline in a text of others.", problem="imitated")


def _check_layers(layers: Sequence[Layer]) -> None:
    """Raise LayerViolation if the layers to compare with are not well-formed themselves."""
    levels = [layer.level for layer in layers]
    if levels != sorted(set(levels)):
        raise _disorder(layers)
    for layer in layers:
        if text_hash(layer.text) != layer.hash or EXACT.search(layer.text):
            raise _violation(layer, "altered")


def _disorder(layers: Sequence[Layer]) -> LayerViolation:
    levels = [layer.level for layer in layers]
    return LayerViolation("The layers are not complete and in order.", problem="order", levels=levels)


def _difference(prompt_text: str, layers: Sequence[Layer]) -> LayerViolation:
    """Return the error that names the first layer that is missing, misplaced or altered."""
    if not has_platform(layers):
        return LayerViolation("The prompt does not begin with its layers.", problem="altered")
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


# Data elements: the tags that enclose untrusted text in a prompt.
#
# The tags are the same for every text, so that provider caches hit. That is safe because the text is sanitised: it can
# neither close its element nor open another.

_DATA_TAG = f"{NAMESPACE}data"
_OPEN = re.compile(rf'<{_DATA_TAG}(?: [a-z]+="[^"<>\n]{{0,200}}")*+>\n')
_CLOSE = f"\n</{_DATA_TAG}>"
_NOT_IN_ATTRIBUTE = re.compile(r'["<>\s]+')
# Stands between all words of a text if the tenant's policy or the caller wants every word to be marked as data.
WORD_MARK = "\u02c6"
_BLANKS = re.compile(r"[^\S\n]+|(?<=\n)(?=[^\n])")


def data_element(text: str, source: str = "", *, suspect: bool = False, mark_words: bool = False) -> str:
    """Return a text as an element: ``source`` is where it is from, ``suspect`` marks what may contain an attack."""
    attributes = [
        f' source="{_NOT_IN_ATTRIBUTE.sub(" ", sanitise(source))}"' if source else "",
        ' suspect="injection"' if suspect else "",
        f' marked="{WORD_MARK} between all words"' if mark_words else "",
    ]
    return f"<{_DATA_TAG}{''.join(attributes)}>\n{element_text(text, mark_words=mark_words)}{_CLOSE}"


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
    native = message.native
    if message.form is not None:
        native = FORMS[message.form].change_texts(native, change)
    return structs.replace(message, content=change(message.content), native=native)


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
