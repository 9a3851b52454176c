"""JSON of answers. Large ones are encoded in slices: msgspec lets nothing else run until it is done."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A list or mapping with more items is encoded in slices of about this many bytes, which takes a fraction of a
# millisecond.
_MANY_ITEMS = 200
_SLICE_BYTES = 128 * 1024
_LARGE_TEXT = 4 * _SLICE_BYTES
encode = msgspec.json.Encoder().encode


async def encode_answer(answer: Any) -> bytes:  # noqa: ANN401 - a response of any operation
    """Encode an answer; yield to the event loop between the slices of a large one."""
    return encode(await sliced(answer))


def _is_large(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether a value, or a field of a response, has many items."""
    if isinstance(value, msgspec.Struct):
        return any(_is_large(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, str):
        return len(value) > _LARGE_TEXT
    return isinstance(value, list | dict | tuple) and len(value) > _MANY_ITEMS


async def sliced(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value whose large parts are encoded already, in slices."""
    if not _is_large(value):
        return value
    if isinstance(value, msgspec.Struct):
        large = {name: field for name in value.__struct_fields__ if _is_large(field := getattr(value, name))}
        return msgspec.structs.replace(value, **{name: await sliced(field) for name, field in large.items()})
    if isinstance(value, str):
        starts = range(0, len(value), _SLICE_BYTES)
        return msgspec.Raw(b'"%b"' % await _joined(encode(value[at : at + _SLICE_BYTES]) for at in starts))
    if isinstance(value, dict):
        items = iter(value.items())
        return msgspec.Raw(b"{%b}" % await _slices(lambda count: dict(islice(items, count))))
    members = iter(value)
    return msgspec.Raw(b"[%b]" % await _slices(lambda count: list(islice(members, count))))


async def _joined(texts: Iterable[bytes]) -> bytes:
    """Join encoded texts without their quotes."""
    parts: list[bytes] = []
    for text in texts:
        parts.append(text[1:-1])
        await asyncio.sleep(0)
    return b"".join(parts)


async def _slices(take: Callable[[int], dict[Any, Any] | list[Any]]) -> bytes:
    """Encode what ``take`` returns until it returns nothing, without the outer brackets."""
    encoded: list[bytes] = []
    count = _MANY_ITEMS
    while part := take(count):
        encoded.append(encode(part)[1:-1])
        count = max(1, min(2 * count, count * _SLICE_BYTES // len(encoded[-1])))
        await asyncio.sleep(0)
    return b",".join(encoded)
