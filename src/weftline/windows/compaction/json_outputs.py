"""Shorter JSON: every field keeps its name; long lists keep their first and last items, extremes and errors.

What stays is written as it was: values are spans of the source, so that 1.50, -0 and escapes do not change.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw

from weftline.windows.compaction.unusual_lines import unlikeness, unusual_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weftline.kernel.ports import TokenCounter

    # Shortens a text of several lines to about so many tokens.
    TextReducer = Callable[[str, int], str]

_MORE = "..."
# How many items of a list and characters of a text stay, from generous to strict.
_STEPS = ((12, 600), (6, 300), (4, 160), (3, 80), (2, 48), (1, 32))
_MAX_FIELDS = 40
# A text with at least so many lines, and this part of the whole JSON, is shortened by its lines.
_MIN_LINES, _MAIN_PART = 20, 0.5
# Items of a list beyond so many characters are judged by a sample.
_MAX_JUDGED = 131_072
_MAX_UNUSUAL, _MIN_UNUSUAL = 5, 1.0
# Errors in a larger part of the items are what these items are about.
_COMMON = 0.3
_WANTED, _ERRONEOUS, _UNUSUAL, _END, _EXTREME, _REST = range(6)
_ERROR = re.compile(r"(?i)\b(?:error|exception|fail(?:ed|ure)?|fatal|critical|denied|refused|timeout|invalid)\b")


class SlimJson(NamedTuple):
    """Shortened JSON, and what is not in it. ``unread``: items that were not compared with the others."""

    text: str
    left_out: str
    unread: int = 0


class _Lines(NamedTuple):
    """A text that was shortened by its lines, as JSON."""

    source: str
    left_out: int


class _Clipped(NamedTuple):
    """A long text, as its source, of which only so many characters are shown."""

    source: str
    most: int

    @property
    def head(self) -> int:
        return self.most * 3 // 4

    @property
    def tail(self) -> int:
        return self.most // 4

    def write(self) -> str:
        """Return it as JSON, with the escapes that it had."""
        note = f" [{self.left_out:,} characters left out] "
        if "\\" not in self.source:
            return f"{self.source[: self.head + 1]}{note}{self.source[-self.tail - 1 :]}"
        text = msgspec.json.decode(self.source)
        return json.dumps(f"{text[: self.head]}{note}{text[-self.tail :]}", ensure_ascii=self.source.isascii())

    @property
    def left_out(self) -> int:
        length = len(self.source) - 2 if "\\" not in self.source else len(msgspec.json.decode(self.source))
        return length - self.head - self.tail


class _List(NamedTuple):
    """Items that stay, each with its rank, and how many others there are. ``names``: those of an object's fields."""

    items: list[tuple[float, Any]]
    left_out: int = 0
    unread: int = 0
    names: tuple[str, ...] | None = None


_list = msgspec.json.Decoder(list[Raw])
_object = msgspec.json.Decoder(dict[str, Raw])
_any = msgspec.json.Decoder()


def slim_json(
    text: str,
    target_tokens: int,
    count: TokenCounter,
    wanted: frozenset[str],
    reduce_text: TextReducer | None = None,
) -> SlimJson | None:
    """Shorten JSON to about the target; None if the text is not an object or a list."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    reader = _Reader(wanted, reduce_text, target_tokens, len(text))
    try:
        value = reader.read(msgspec.json.decode(text, type=Raw))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    written = ""
    for items, characters in _STEPS:
        value = _slim(value, items, characters)
        written = _written(value)
        if count(written) <= target_tokens:
            break
    return SlimJson(written, _left_out(value), _unread(value))


class _Reader:
    """Reads what stays of JSON: of long lists only the items that are worth it."""

    def __init__(
        self, wanted: frozenset[str], reduce_text: TextReducer | None, target_tokens: int, length: int
    ) -> None:
        self._wanted = wanted
        self._reduce_text = reduce_text
        self._target = target_tokens
        self._main = length * _MAIN_PART

    def read(self, raw: Raw) -> Any:  # noqa: ANN401 - any JSON
        match bytes(memoryview(raw)[:1]):
            case b"[":
                return self._read_list("", _list.decode(raw))
            case b"{":
                return self._read_object(raw)
            case b'"' if len(memoryview(raw)) > self._main and self._reduce_text is not None:
                return self._read_text(raw, self._reduce_text)
            case _:
                return bytes(raw).decode()

    def _read_text(self, raw: Raw, reduce_text: TextReducer) -> Any:  # noqa: ANN401 - likewise
        text = msgspec.json.decode(raw, type=str)
        if text.count("\n") < _MIN_LINES:
            return bytes(raw).decode()
        short = reduce_text(text, self._target * 3 // 4)
        written = json.dumps(short, ensure_ascii=bytes(raw).isascii())
        return _Lines(written, max(len(text) - len(short), 0))

    def _read_object(self, raw: Raw) -> Any:  # noqa: ANN401 - likewise
        fields = _object.decode(raw)
        source = bytes(raw)
        names = [_name(name, source) for name in fields]
        if len(fields) <= _MAX_FIELDS * 2:
            items = [(0.0, self.read(each)) for each in fields.values()]
            return _List(items, names=tuple(names))
        return self._read_list(names, list(fields.values()), tuple(fields))

    def _read_list(self, written: Sequence[str], raws: Sequence[Raw], names: Sequence[str] | None = None) -> Any:  # noqa: ANN401 - likewise
        """Return the items to keep at most, with ranks."""
        ranks, unread = self._ranks(raws, names or [""] * len(raws))
        most = _MAX_FIELDS if names is not None else _STEPS[0][0] + 1
        kept = _best(ranks, min(len(raws), most))
        items = [(ranks[at], self.read(raws[at])) for at in kept]
        kept_names = None if names is None else tuple(written[at] for at in kept)
        return _List(items, len(raws) - len(kept), unread, kept_names)

    def _ranks(self, raws: Sequence[Raw], names: Sequence[str]) -> tuple[list[float], int]:
        """Return the rank of each item, and how many of them were not read."""
        ranks = [float(_REST)] * len(raws)
        judged = list(range(len(raws)))
        sources = [bytes(raw).decode() for raw in raws]
        if sum(map(len, sources)) > _MAX_JUDGED:
            judged = unusual_sample(sources, _MAX_JUDGED, sorted(self._wanted))
        values = [_any.decode(raws[at]) for at in judged]
        scores = unlikeness([sources[at] for at in judged]) if len(judged) >= _MIN_LINES else [0.0] * len(judged)
        for at in _extremes(values):
            ranks[judged[at]] = _EXTREME
        for at in (0, len(raws) - 1) if raws else ():
            ranks[at] = _END
        unusual = sorted((-score, at) for at, score in enumerate(scores) if score >= _MIN_UNUSUAL)
        if len(unusual) <= len(judged) // 2:
            for score, at in unusual[:_MAX_UNUSUAL]:
                ranks[judged[at]] = _below(_UNUSUAL, -score)
        errors = [at for at, value in enumerate(values) if _has_error(value)]
        for at in errors if len(errors) <= max(len(judged) * _COMMON, 3) else ():
            ranks[judged[at]] = _below(_ERRONEOUS, scores[at])
        if self._wanted:
            for at, value in enumerate(values):
                if _mentions(names[judged[at]], value, self._wanted):
                    ranks[judged[at]] = _WANTED
        return ranks, len(raws) - len(judged)


def _below(rank: int, score: float) -> float:
    """Return a rank that is better the higher a score is, and still behind the ranks before it."""
    return rank - min(score, 98) / 99


def _best(ranks: Sequence[float], most: int) -> list[int]:
    """Return the positions to keep, in order."""
    return sorted(sorted(range(len(ranks)), key=lambda at: (ranks[at], at))[: max(most, 1)])


def _name(name: str, source: bytes) -> str:
    """Return the name of a field as the source writes it."""
    plain = json.dumps(name, ensure_ascii=False)
    if name.isascii() and "/" not in name and "\\" not in plain:
        return plain
    escaped = json.dumps(name)
    return next((each for each in (plain, escaped, plain.replace("/", "\\/")) if each.encode() in source), plain)


def _slim(value: Any, items: int, characters: int) -> Any:  # noqa: ANN401 - any JSON
    """Shorten a value by one step. Steps follow each other: what was left out before stays so."""
    if isinstance(value, _List):
        kept = list(range(len(value.items)))
        if value.names is None and len(kept) > items + 1 - bool(value.left_out):
            kept = _best([rank for rank, _ in value.items], items)
        return value._replace(
            items=[(value.items[at][0], _slim(value.items[at][1], items, characters)) for at in kept],
            left_out=value.left_out + len(value.items) - len(kept),
        )
    if isinstance(value, _Clipped):
        return _Clipped(value.source, characters)
    if isinstance(value, str) and value[:1] == '"' and len(value) > characters * 2 + 2:
        return _Clipped(value, characters)
    return value


def _written(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a value as JSON, with notes in the judged of what was left out."""
    if isinstance(value, _List):
        parts = [_written(each) for _, each in value.items]
        note = f'"[{value.left_out:,} {_items(value.left_out)} like these left out]"'
        if value.names is None:
            shown = [*parts[:-1], note, *parts[-1:]] if value.left_out else parts
            return f"[{','.join(shown)}]"
        fields = [f"{name}:{part}" for name, part in zip(value.names, parts, strict=True)]
        return "{" + ",".join([*fields, *([f'"{_MORE}":{note}'] if value.left_out else [])]) + "}"
    if isinstance(value, _Clipped):
        return value.write()
    return value.source if isinstance(value, _Lines) else str(value)


def _items(number: int) -> str:
    return "items" if number > 1 else "item"


def _left_out(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return what is missing from a value in words."""
    items, characters = _missing_items(value), _missing_characters(value)
    parts = [f"{items:,} {_items(items)}"] if items else []
    return " and ".join([*parts, *([f"{characters:,} characters"] if characters else [])])


def _extremes(values: Sequence[Any]) -> set[int]:
    """Return the items with the smallest and largest number of each field."""
    numbers: dict[str, list[tuple[float, int]]] = {}
    for at, value in enumerate(values):
        fields: Iterable[tuple[str, Any]] = value.items() if isinstance(value, dict) else (("", value),)
        for name, each in fields:
            if type(each) in {int, float}:
                numbers.setdefault(name, []).append((each, at))
    found: set[int] = set()
    for each in numbers.values():
        if len(each) > 1 and [value for value, _ in each] != sorted(value for value, _ in each):
            found |= {min(each)[1], max(each)[1]}
    return found


def _mentions(name: str, value: Any, wanted: frozenset[str]) -> bool:  # noqa: ANN401 - any JSON
    if name in wanted:
        return True
    if isinstance(value, dict):
        return any(_mentions(key, each, wanted) for key, each in value.items() if not isinstance(each, dict | list))
    return (value if isinstance(value, str) else str(value)) in wanted


def _has_error(value: Any) -> bool:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return _ERROR.search(value[:2_000]) is not None
    if isinstance(value, dict):
        return any(
            (isinstance(each, str) and _ERROR.search(each[:200])) or (each and key in {"error", "errors", "exception"})
            for key, each in value.items()
        )
    return False


def _missing_items(value: Any) -> int:  # noqa: ANN401 - any JSON
    return value.left_out + sum(_missing_items(each) for _, each in value.items) if isinstance(value, _List) else 0


def _missing_characters(value: Any) -> int:  # noqa: ANN401 - any JSON
    if isinstance(value, _List):
        return sum(_missing_characters(each) for _, each in value.items)
    return value.left_out if isinstance(value, _Clipped | _Lines) else 0


def _unread(value: Any) -> int:  # noqa: ANN401 - any JSON
    return value.unread + sum(_unread(each) for _, each in value.items) if isinstance(value, _List) else 0
