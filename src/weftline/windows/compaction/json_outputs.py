"""Shorter JSON: every field keeps its name; long lists keep their first and last items, extremes and errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.kernel.ports import TokenCounter

_MORE = "..."
# How many items of a list and characters of a text stay, from generous to strict.
_STEPS = ((12, 600), (6, 300), (4, 160), (3, 80), (2, 48), (1, 32))
_MAX_FIELDS = 40
_ERROR = re.compile(r"(?i)\b(?:error|exception|fail(?:ed|ure)?|fatal|critical|denied|refused|timeout|invalid)\b")


class SlimJson(NamedTuple):
    """Shortened JSON, and what is not in it."""

    text: str
    left_out: str


class _LeftOut(NamedTuple):
    """In the place of items of a list."""

    items: int


class _Clipped(NamedTuple):
    """A long text of which only so many characters are shown."""

    text: str
    most: int

    def __str__(self) -> str:
        head, tail = self.text[: self.most * 3 // 4], self.text[-(self.most // 4) :]
        return f"{head} [{self.left_out:,} characters left out] {tail}"

    @property
    def left_out(self) -> int:
        return len(self.text) - self.most * 3 // 4 - self.most // 4


def _as_written(number: str) -> msgspec.Raw:
    """Keep a number as it is written: 1.50 must not become 1.5."""
    return msgspec.Raw(number.encode())


_decoder = msgspec.json.Decoder(float_hook=_as_written)
_encoder = msgspec.json.Encoder(order=None)


def slim_json(text: str, target_tokens: int, count: TokenCounter, wanted: frozenset[str]) -> SlimJson | None:
    """Shorten JSON to about the target; None if the text is not an object or a list."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value = _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    written = ""
    for items, characters in _STEPS:
        value = _slim(value, items, characters, wanted)
        written = _encoder.encode(_shown(value)).decode()
        if count(written) <= target_tokens:
            break
    return SlimJson(written, _left_out(value))


def _slim(value: Any, items: int, characters: int, wanted: frozenset[str]) -> Any:  # noqa: ANN401 - any JSON
    """Shorten a value by one step. Steps follow each other: what was left out before stays so."""
    if isinstance(value, dict):
        return {name: _slim(each, items, characters, wanted) for name, each in _fields(value, wanted).items()}
    if isinstance(value, list):
        return [_slim(item, items, characters, wanted) for item in _items(value, items, wanted)]
    if isinstance(value, _Clipped):
        return _Clipped(value.text, characters)
    if isinstance(value, str) and len(value) > characters * 2:
        return _Clipped(value, characters)
    return value


def _fields(value: dict[str, Any], wanted: frozenset[str]) -> dict[str, Any]:
    """Return the fields that stay: all, unless the object is a large table by key."""
    if len(value) <= _MAX_FIELDS * 2:
        return value
    names = list(value)
    kept = [names[at] for at in _best(names, list(value.values()), _MAX_FIELDS, wanted)]
    return {name: value[name] for name in kept} | {_MORE: _LeftOut(len(names) - len(kept))}


def _items(value: list[Any], most: int, wanted: frozenset[str]) -> list[Any]:
    """Return the items of a list that stay, with a note for the others before the last."""
    before = sum(item.items for item in value if isinstance(item, _LeftOut))
    whole = [item for item in value if not isinstance(item, _LeftOut)]
    if len(whole) <= most + 1:
        return value
    kept = _best([""] * len(whole), whole, most, wanted)
    shown = [whole[at] for at in kept]
    return [*shown[:-1], _LeftOut(before + len(whole) - len(kept)), shown[-1]]


def _left_out(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return what is missing from a value in words."""
    items, characters = _missing_items(value), _missing_characters(value)
    parts = [f"{items:,} {'items' if items > 1 else 'item'}"] if items else []
    return " and ".join([*parts, *([f"{characters:,} characters"] if characters else [])])


def _best(names: Sequence[str], values: Sequence[Any], most: int, wanted: frozenset[str]) -> list[int]:
    """Return the positions to keep, in order: referred to, errors, the first, the last, extremes, then the next."""
    last = len(values) - 1
    ranks = dict.fromkeys(_extremes(values), 3)
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        if _mentions(name, value, wanted):
            ranks[at] = 0
        elif _has_error(value):
            ranks[at] = 1
    for at in (0, last):
        ranks[at] = min(ranks.get(at, 2), 2)
    order = sorted(range(len(values)), key=lambda at: (ranks.get(at, 4), at))
    return sorted(order[: max(most, 1)])


def _extremes(values: Sequence[Any]) -> set[int]:
    """Return the items with the smallest and largest number of each field."""
    numbers: dict[str, list[tuple[float, int]]] = {}
    for at, value in enumerate(values):
        fields = value.items() if isinstance(value, dict) else (("", value),)
        for name, each in fields:
            number = _number(each)
            if number is not None:
                numbers.setdefault(name, []).append((number, at))
    found: set[int] = set()
    for each in numbers.values():
        if len(each) > 1 and [value for value, _ in each] != sorted(value for value, _ in each):
            found |= {min(each)[1], max(each)[1]}
    return found


def _number(value: Any) -> float | None:  # noqa: ANN401 - any JSON
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return float(bytes(value)) if isinstance(value, msgspec.Raw) else None


def _mentions(name: str, value: Any, wanted: frozenset[str]) -> bool:  # noqa: ANN401 - any JSON
    if not wanted:
        return False
    if name in wanted:
        return True
    if isinstance(value, dict):
        return any(_mentions(key, each, wanted) for key, each in value.items() if not isinstance(each, dict | list))
    return (value if isinstance(value, str) else str(_plain(value))) in wanted


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    return bytes(value).decode() if isinstance(value, msgspec.Raw) else value


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
    if isinstance(value, _LeftOut):
        return value.items
    return sum(map(_missing_items, _children(value)))


def _missing_characters(value: Any) -> int:  # noqa: ANN401 - any JSON
    if isinstance(value, _Clipped):
        return value.left_out
    return sum(map(_missing_characters, _children(value)))


def _children(value: Any) -> Iterable[Any]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _shown(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a value with notes in the places of what was left out."""
    if isinstance(value, _LeftOut):
        return f"[{value.items:,} {'items' if value.items > 1 else 'item'} like these left out]"
    if isinstance(value, _Clipped):
        return str(value)
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value
