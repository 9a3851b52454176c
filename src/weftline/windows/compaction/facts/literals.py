"""Literals of a text: identifiers, quantities, dates, paths, URLs, code symbols and quotations, as they are written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.entities import URL, entity_of_token
from weftline.windows.compaction.facts.values import DATE, WORDS_OF_NUMBERS, quantities_in, quantities_in_words
from weftline.windows.compaction.model import FactKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Longer tokens are encoded data.
MAX_LITERAL = 200
_SIGN = re.compile(r"[\d_/\\@`\"#\u201c\u201e\u00ab\u2018]")
_JOINED = re.compile(r"[a-z][A-Z]|\.[A-Za-z]")
_WORD = re.compile(r"[a-z]+")
_CODE_SPAN = re.compile(r"`([^`\n]{2,160})`")
_QUOTE = re.compile(
    r"\"([^\"\n]{2,120})\"|\u201c([^\u201c\u201d\n]{2,120})\u201d|\u201e([^\u201e\u201c\u201d\n]{2,120})[\u201c\u201d]|"
    r"\u00ab\s?([^\u00ab\u00bb\n]{2,120}?)\s?\u00bb|(?<![\w])'([^'\n]{2,80})'(?![\w])"
)
_TIME = re.compile(
    r"(?<![\w:.])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?:[ ]?[ap]\.?m\b)?(?![\w:])|\b\d{1,2}[ ]?[ap]m\b"
)
# A number that a word names: port 5432, PIN 4821, room 12.
_NAMED_NUMBER = re.compile(
    r"\b(?:port|pin|code|room|extension|version|line|order|ticket|invoice|account|case|number|nr|no|issue|build|gate|"
    r"flight|zip|pr|table|id|batch|lot|apartment|suite|unit|platform|kunde|auftrag|rechnung|commande|facture|pedido|"
    r"factura)\.?[ ]?[:#=]?[ ]?#?(\d[\w.-]{0,30}\w|\d)(?![\w])",
    re.IGNORECASE,
)
# A setting and its value: timeout=30, max_connections: 200, retries = 5.
_SETTING = re.compile(
    r"(?<![\w.])[A-Za-z_][\w.-]{1,60}[\"']?[ ]?(?:=|:[ ])[ ]?[\"']?-?\d[\d.,]{0,20}(?:[a-zA-Z%]{1,4})?(?![\w])"
)
# A number that something is said to be: the retry count is 270.
_STATED = re.compile(
    r"\b(?:is|are|was|were|equals|beträgt|ist|sind|est|sont|es|son) (?:now |set to |still |jetzt |maintenant |ahora )?"
    r"(\d[\d.,]{0,20}\d)(?![\w%€$£°]|[./:-]\d| ?[^\W\d_])",
    re.IGNORECASE,
)
_DEFINED = re.compile(r"\b(?:def|class|function|func|fn|interface|struct|CREATE TABLE)\s{1,4}([A-Za-z_]\w{2,80})")
_TOKEN = re.compile(r"[^\s,;\"(){}\[\]<>|=*\u201c\u201d\u201e\u00ab\u00bb\u2014`]{2,400}")
_KINDS = {
    "file": FactKind.PATH,
    "identifier": FactKind.IDENTIFIER,
    "agent": FactKind.IDENTIFIER,
    "email": FactKind.IDENTIFIER,
    "url": FactKind.URL,
    "person": FactKind.IDENTIFIER,
}
# Codes that no other rule knows: fra-2, db-eu-3.internal, E1234, 0x80070005.
_CODE_LIKE = re.compile(
    r"(?=[^\d]{1,60}\d)[A-Za-z]\w{0,40}(?:[-_.:][\w]{1,40}){1,10}\Z|[A-Z]{1,8}\d[A-Z0-9]{2,20}\Z|0x[0-9a-fA-F]{4,40}\Z"
)
_SYMBOL = re.compile(r"[A-Za-z_$][\w$.:]*(?:\(\))?\Z")
_EDGES = ".,;:!?'\"\u2019\u2018\u2026"
_BLANK = " "
# The beginning of a range such as 30-60 seconds, and what a quantity is per: 58 mg/dL.
_RANGE = re.compile(r"\d[\d.,]{0,20}[-\u2013]\Z")
_PER = re.compile(r"/[A-Za-z]{1,6}\b")
_MAX_RANGE = 22


class Literal(NamedTuple):
    """A literal at its place in a text."""

    kind: FactKind
    text: str
    start: int
    end: int


def literals_in(text: str, *, is_code: bool = False, is_data: bool = False) -> list[Literal]:
    """Return the literals of a short text, such as a sentence or a line, in order.

    ``is_data``: a line of JSON, a table or a log, in which quotation marks and names in code mean nothing.
    """
    if not _SIGN.search(text) and not _JOINED.search(text):
        return list(_quantities_in_words(text)) if not is_code else []
    found: list[Literal] = []
    text = _taken(text, URL, _url, found)
    if is_code:
        text = _taken(text, _DEFINED, _group(FactKind.SYMBOL), found)
        found += (each for each in _tokens(text) if each.kind is FactKind.PATH)
        return sorted(found, key=lambda each: each.start)
    text = _taken(text, _CODE_SPAN, _code_span, found)
    text = _taken(text, DATE, _whole(FactKind.DATE), found)
    if not is_data:
        text = _taken(text, _QUOTE, _quote, found)
    text = _taken(text, _SETTING, _whole(FactKind.QUANTITY), found)
    text = _taken(text, _NAMED_NUMBER, _whole(FactKind.IDENTIFIER), found)
    text = _taken(text, _TIME, _whole(FactKind.DATE), found)
    if any(map(str.isdigit, text)):
        amounts = [_amount(text, quantity.start, quantity.end) for quantity in quantities_in(text) if quantity.unit]
        text = _blanked(text, amounts)
        found += amounts
        text = _taken(text, _STATED, _group(FactKind.QUANTITY), found)
    found += _quantities_in_words(text)
    found += (each for each in _tokens(text) if not is_data or each.kind is not FactKind.SYMBOL)
    return sorted(found, key=lambda each: each.start)


def _quantities_in_words(text: str) -> Iterator[Literal]:
    if not WORDS_OF_NUMBERS.isdisjoint(_WORD.findall(text.lower())):
        for quantity in quantities_in_words(text):
            yield Literal(FactKind.QUANTITY, text[quantity.start : quantity.end], quantity.start, quantity.end)


def _amount(text: str, start: int, end: int) -> Literal:
    """Return a quantity with the beginning of its range and what it is per."""
    beginning = _RANGE.search(text, max(0, start - _MAX_RANGE), start)
    per = _PER.match(text, end)
    start, end = beginning.start() if beginning is not None else start, per.end() if per is not None else end
    return Literal(FactKind.QUANTITY, text[start:end], start, end)


def _taken(
    text: str, pattern: re.Pattern[str], read: Callable[[re.Match[str]], Literal | None], found: list[Literal]
) -> str:
    """Add what a pattern finds, and return the text with blanks in its place."""
    taken = [literal for match in pattern.finditer(text) if (literal := read(match)) is not None]
    found += taken
    return _blanked(text, taken)


def _blanked(text: str, literals: list[Literal]) -> str:
    for literal in literals:
        text = text[: literal.start] + _BLANK * (literal.end - literal.start) + text[literal.end :]
    return text


def _whole(kind: FactKind) -> Callable[[re.Match[str]], Literal | None]:
    return lambda match: Literal(kind, match[0].rstrip(_EDGES), match.start(), match.end())


def _group(kind: FactKind) -> Callable[[re.Match[str]], Literal | None]:
    return lambda match: Literal(kind, match[1], match.start(1), match.end(1))


def _url(match: re.Match[str]) -> Literal | None:
    url = match[0].rstrip(_EDGES + ")]")
    return Literal(FactKind.URL, url, match.start(), match.end()) if len(url) <= MAX_LITERAL * 2 else None


def _code_span(match: re.Match[str]) -> Literal | None:
    span = match[1].strip()
    if len(span) < 2:  # noqa: PLR2004 - a letter is no symbol
        return None
    entity = entity_of_token(span) if _BLANK not in span else None
    kind = _KINDS.get(entity.type, FactKind.SYMBOL) if entity is not None else FactKind.SYMBOL
    if kind is FactKind.IDENTIFIER and _is_symbol(span):
        kind = FactKind.SYMBOL
    if kind is FactKind.SYMBOL and not _SYMBOL.match(span):
        kind = FactKind.QUOTE
    return Literal(kind, span, match.start(), match.end())


def _quote(match: re.Match[str]) -> Literal | None:
    quoted = next(group for group in match.groups() if group is not None).strip()
    if not any(map(str.isalnum, quoted)):
        return None
    return Literal(FactKind.QUOTE, quoted, match.start(), match.end())


def _tokens(text: str) -> Iterator[Literal]:
    for match in _TOKEN.finditer(text):
        token = match[0]
        if (token.isalpha() and (token.islower() or token.istitle() or token.isupper())) or len(token) > MAX_LITERAL:
            continue
        entity = entity_of_token(token)
        if entity is None or entity.type not in _KINDS:
            if _CODE_LIKE.match(bare := token.strip(_EDGES)):
                yield Literal(FactKind.IDENTIFIER, bare, match.start(), match.end())
            continue
        # The entity has a normal spelling; the literal is what was written.
        value = entity.value if entity.value in token else token.strip(_EDGES)
        kind = _KINDS[entity.type]
        if kind is FactKind.IDENTIFIER and _is_symbol(value):
            kind = FactKind.SYMBOL
        yield Literal(kind, value, match.start(), match.end())


def _is_symbol(value: str) -> bool:
    """Tell whether an identifier is a name in code, such as retry_count, rather than an id."""
    return value.isidentifier() and not any(map(str.isdigit, value))
