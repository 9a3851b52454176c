"""Division of a message into units: sentences, list items, table rows, pieces of JSON, lines of code and logs."""

from __future__ import annotations

import hashlib
import re
import threading
import unicodedata
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from weftline.indexing.chunking.model import sentence_ends
from weftline.windows.compaction.facts.values import MONTHS, normal_values
from weftline.windows.compaction.model import FactKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weftline.encoder.classifier import TextClassifier


# Longer units are cut: nobody writes such a sentence.
MAX_UNIT = 400
# A longer run without white space is encoded data.
_MAX_RUN = 2_000
_FENCE = re.compile(r"[ \t]{0,8}(?:```|~~~)")
_MARKER = re.compile(r"[\s>]*(?:[-*+\u2022]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+|#{1,6}\s+)?")
_BORDER = re.compile(r"[\s|:+=-]*\Z")
# The dot of an ordinal ends no sentence: 12. Mai.
_ORDINAL = re.compile(r"\b\d{1,2}\.\s+\Z")
_ORDINAL_LENGTH = 5
_MONTH = re.compile("(?:" + "|".join(MONTHS) + r")\b", re.IGNORECASE)
_JSON_BREAK = re.compile(r"(?<=[}\]]),\s*(?=[{\[])|(?<=[\d\"}\]el]),\s*(?=\")")
_JSON_LINE = re.compile(r"\s*[\[{]|\s*\"[^\"\n]{1,80}\"\s*:")
_LOG_LINE = re.compile(
    r"\s*\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE|CRITICAL)\b|"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d)"
)


class Unit(NamedTuple):
    """A part of a message. ``is_data``: of JSON, a table or a log. ``header``: that of its table."""

    text: str
    is_code: bool = False
    is_data: bool = False
    header: str = ""


def units_of(text: str) -> Iterator[Unit]:
    """Yield the units of a message in order."""
    is_code, header = False, ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not line or line.isspace():
            header = ""
        elif _is_fence(line):
            is_code = not is_code
        elif is_code:
            yield from _pieces(line.strip(), is_code=True)
        elif not line.lstrip().startswith("|"):
            header = ""
            yield from _units_of_line(line)
        elif _is_header(lines, number):
            header = line
        elif not _BORDER.match(line):
            yield from _pieces(line.strip(), is_data=True, header=header)


def _is_fence(line: str) -> bool:
    return ("`" in line or "~" in line) and _FENCE.match(line) is not None


def _is_header(lines: Sequence[str], number: int) -> bool:
    """Tell whether a row of a table is its header: a border follows."""
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return "-" in following and following.lstrip().startswith("|") and _BORDER.match(following) is not None


def _units_of_line(line: str) -> Iterator[Unit]:
    if _JSON_LINE.match(line):
        yield from _json_units(line)
    elif _LOG_LINE.match(line):
        yield from _pieces(line.strip(), is_data=True)
    else:
        yield from _sentences(line)


def _sentences(line: str) -> Iterator[Unit]:
    marker = _MARKER.match(line)
    start = marker.end() if marker is not None else 0
    for end, _ in sentence_ends(line, start, len(line)):
        if _ORDINAL.search(line, max(start, end - _ORDINAL_LENGTH), end) and _MONTH.match(line, end):
            continue
        yield from _pieces(line[start:end].strip())
        start = end
    yield from _pieces(line[start:].strip())


def _json_units(line: str) -> Iterator[Unit]:
    """Yield the objects of a line of JSON, or its fields if they are long."""
    if len(line) <= MAX_UNIT // 2:
        yield Unit(line.strip(), is_data=True)
        return
    start = 0
    for match in _JSON_BREAK.finditer(line):
        # Small neighbours stay together, so that a field keeps its object.
        if match.start() - start >= MAX_UNIT // 4:
            yield from _pieces(line[start : match.start()].strip(), is_data=True)
            start = match.end()
    yield from _pieces(line[start:].strip(), is_data=True)


def _pieces(text: str, *, is_code: bool = False, is_data: bool = False, header: str = "") -> Iterator[Unit]:
    """Yield a unit, in pieces if it is too long; runs without white space are left out."""
    start = 0
    while len(text) - start > MAX_UNIT:
        end = text.rfind(" ", start + MAX_UNIT // 2, start + MAX_UNIT)
        if end < 0:
            end = text.find(" ", start + MAX_UNIT, start + _MAX_RUN)
            if end < 0:
                gap = text.find(" ", start + _MAX_RUN)
                if gap < 0:
                    return
                start = gap + 1
                continue
        yield Unit(text[start:end], is_code, is_data, header)
        start = end + 1
    if start < len(text):
        yield Unit(text[start:], is_code, is_data, header)


# Forms in which a text is searched for facts.
#
# The plain form keeps case and numbers and undoes typography: Unicode forms, quotation marks, dashes, markdown, white
# space. The normal form also folds case and writes numbers, quantities and dates in one way.

_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe00-\ufe0f]")
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        # A dash between clauses joins no words.
        "\u2014": " - ",
        "\u2026": "...",
    }
)
# Emphasis and code; headings, quotations, list marks and table borders.
_EMPHASIS = re.compile(r"(?=[`*_])(?:`{1,3}|(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w))")
_BLOCK_MARK = re.compile(r"^[ \t]{0,20}(?:#{1,6}[ ]|>[ ]?|[-+*\u2022][ ](?:\[[ xX]\][ ])?)|\|", re.MULTILINE)

# A text without any of these characters has none of those.
_MARKDOWN = re.compile(r"[`*_#>|+\u2022-]")


def plain_form(text: str) -> str:
    """Return a text without typography and markdown; case, numbers and lines stay."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_TYPOGRAPHY)
    if _MARKDOWN.search(text) is not None:
        text = _EMPHASIS.sub("", _BLOCK_MARK.sub(" ", text))
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))


def normal_form(text: str) -> str:
    """Return the form in which statements are compared."""
    return "\n".join(map(normal_values, plain_form(text).split("\n"))).casefold()


def normal_line(text: str) -> str:
    """Return the normal form of a text as one line."""
    return one_line(normal_form(text))


def one_line(text: str) -> str:
    """Return a text with all its white space as single spaces."""
    return " ".join(text.split())


# Labels before a statement: ``Decision: ...``, ``"owner": "..."``, ``| Deadline | ... |``, in prose and in data.

_LABELS = {
    FactKind.DECISION: (
        "decision|decided|final decision|consensus|resolution|verdict|agreed|entscheidung|beschluss|décision|"
        "decisión|acuerdo"
    ),
    FactKind.CONSTRAINT: (
        "constraint|hard constraint|rule|limitation|einschränkung|vorgabe|regel|contrainte|règle|restricción|regla"
    ),
    FactKind.REQUIREMENT: "requirement|req|acceptance|must have|acceptance criterion|acceptance criteria|anforderung|"
    "exigence|requisito",
    FactKind.PREFERENCE: "preference|user preference|prefers|präferenz|préférence|preferencia",
    FactKind.OPEN_QUESTION: (
        "open question|open questions|open issue|unresolved|unknown|tbd|offene frage|question ouverte|pregunta abierta"
    ),
    FactKind.BLOCKER: "blocker|blocked|stuck|blocked by|blocked on|impediment|blockiert durch|bloquant|blocage|bloqueo",
    FactKind.OWNER: (
        "owner|assignee|assigned to|assigned_to|responsible|dri|verantwortlich|zuständig|responsable|"
        "encargado|encargada"
    ),
    FactKind.DEADLINE: (
        "deadline|due|due date|due_date|due by|due_by|target date|frist|fällig|fällig am|échéance|date limite|"
        "fecha límite|plazo|vencimiento"
    ),
    FactKind.COMMITMENT: "action item|commitment|promise|next step|zusage|engagement|compromiso",
}
# The longest word of each label: a text without one of these has no label.
LABEL_WORDS = frozenset(
    max(re.split(r"[_ ]", label), key=len) for listed in _LABELS.values() for label in listed.split("|")
)
_GROUPS = "|".join(f"(?P<{kind.value}>{listed})" for kind, listed in _LABELS.items())
_LABEL = re.compile(
    rf"(?:^|[\s\"'*_|{{,>#/(\[-])(?:{_GROUPS})(?:\s?\(\w{{1,20}}\))?[\"'*_]{{0,3}}"
    r"(?:\s?[:=|]|\s[\u2013\u2014-]\s)"
    r"[\s\"'*_]{0,4}(?P<value>[^\s\"'|].{0,300})",
    re.IGNORECASE,
)
_HEADER = re.compile(rf"^[\s*_]{{0,4}}(?:{_GROUPS})[\s*_]{{0,4}}$", re.IGNORECASE)
_MARKS = (":", "=", "|", " - ", "\u2013", "\u2014")
_NOTHING = frozenset({"null", "none", "false", "true", "n/a", "na", "-", "[]", "{}", "unknown", "unassigned"})
_VALUE_END = re.compile(r"[\"'*|},\]]")


class Labelled(NamedTuple):
    """The kind that a label names, and the value after it."""

    kind: FactKind
    value: str


def label_in(text: str, words: set[str]) -> Labelled | None:
    """Return the label of a unit and its value, None for most."""
    if LABEL_WORDS.isdisjoint(words) or not any(mark in text for mark in _MARKS):
        return None
    for match in _LABEL.finditer(text):
        value = _VALUE_END.split(match["value"], maxsplit=1)[0].strip()
        if value.casefold() not in _NOTHING and any(map(str.isalnum, value)):
            return Labelled(_kind(match), match["value"].strip())
    return None


def header_kind(header: str) -> FactKind | None:
    """Return the kind that a column of a table's header names: that of its first such column."""
    for cell in header.strip().strip("|").split("|"):
        match = _HEADER.match(cell)
        if match is not None:
            return _kind(match)
    return None


def _kind(match: re.Match[str]) -> FactKind:
    return next(kind for kind in _LABELS if match[kind.value] is not None)


# What sentences state, read by the included classifier: kinds of statements, answers to questions, replacements.
#
# Slow to load: numpy and the weights are imported with the first sentence.

T = TypeVar("T")

# In the order of the classifier; the first is everything that states nothing.
_KINDS = (
    None,
    FactKind.DECISION,
    FactKind.COMMITMENT,
    FactKind.CONSTRAINT,
    FactKind.REQUIREMENT,
    FactKind.OPEN_QUESTION,
    FactKind.FACT,
)
# A sentence that states something with less than this probability is talk.
_LEAST = 0.04
# Maximum tokens of the neighbouring sentences that the classifier reads in one pass.
_WINDOW_TOKENS = 158
_START, _END = 101, 102
_REMEMBERED = 50_000
_ANSWERS, _REPLACES = 0.99, 0.95


class Statement(NamedTuple):
    """The kind of a sentence, and the probability that it states anything at all."""

    kind: FactKind
    probability: float


class _Memory(Generic[T]):
    """What was read, by the event and its text: a window is compacted again and again as it grows.

    A caller who wants to tell by the time that another one stored a text must know the session, the agent, the event
    and the text already.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, T] = OrderedDict()

    def get(self, texts: Sequence[str], read: Callable[[], T]) -> T:
        """Return what was found in these texts, or else what ``read`` finds."""
        key = hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        found = read()
        with self._lock:
            self._found[key] = found
            if len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
        return found


_read: _Memory[list[Statement | None]] = _Memory()
_compared: _Memory[tuple[float, float]] = _Memory()


def read_statements(item_id: str, sentences: Sequence[str]) -> list[Statement | None]:
    """Return what each sentence of an event states; None for those that state nothing."""
    if not sentences:
        return []
    return _read.get((item_id, *sentences), lambda: _statements(_classifier(), sentences))


def answers(item_id: str, question: str, reply: str) -> bool:
    """Tell whether a reply answers a question of an event; in doubt it does not."""
    return _pair(item_id, question, reply)[0] >= _ANSWERS


def replaces(item_id: str, later: str, earlier: str) -> bool:
    """Tell whether a statement of an event takes the place of an earlier one; in doubt both stand."""
    return _pair(item_id, earlier, later)[1] >= _REPLACES


def _pair(item_id: str, first: str, second: str) -> tuple[float, float]:
    return _compared.get((item_id, first, second), lambda: _classifier().pair(first, second))


def _classifier() -> TextClassifier:
    from weftline.encoder.classifier import CLASSIFIER  # noqa: PLC0415 - slow to import

    return CLASSIFIER.get()


def _statements(classifier: TextClassifier, sentences: Sequence[str]) -> list[Statement | None]:
    found: list[Statement | None] = []
    window: list[int] = [_START]
    spans: list[tuple[int, int]] = []
    for sentence in sentences:
        tokens = classifier.tokens(sentence)[:_WINDOW_TOKENS] or [_END]
        if len(window) + len(tokens) > _WINDOW_TOKENS and spans:
            found += _of_window(classifier, window, spans)
            window, spans = [_START], []
        spans.append((len(window), len(window) + len(tokens)))
        window += tokens
    return found + (_of_window(classifier, window, spans) if spans else [])


def _of_window(classifier: TextClassifier, window: list[int], spans: list[tuple[int, int]]) -> list[Statement | None]:
    found: list[Statement | None] = []
    for nothing, *shares in classifier.kinds([*window, _END], spans).tolist():
        kind = _KINDS[1 + shares.index(max(shares))]
        is_stated = kind is not None and 1 - nothing >= _LEAST
        found.append(Statement(kind, 1 - nothing) if is_stated and kind is not None else None)
    return found
