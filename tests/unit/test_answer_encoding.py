"""Large answers are encoded in slices, with the same result."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.kernel.operation import Response
from weftline.transports import answer_json
from weftline.transports.answer_json import encode_answer


class Item(Response):
    """An item of an answer."""

    name: str
    note: str | None = None


class Nested(Response):
    """A part of an answer."""

    items: list[Item] = msgspec.field(default_factory=list)


class Answer(Response):
    """An answer with everything that may be large."""

    title: str
    items: list[Item] = msgspec.field(default_factory=list)
    by_name: dict[str, Any] = msgspec.field(default_factory=dict)
    pair: tuple[int, ...] = ()
    nested: Nested | None = None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.text(),
    st.lists(st.text()),
    st.dictionaries(st.text(), JSON),
    st.lists(st.integers(-(2**40), 2**40)),
)
def test_slices_give_the_same_json(title: str, names: list[str], by_name: dict[str, Any], pair: list[int]) -> None:
    items = [Item(name=name, note=name or None) for name in names]
    answer = Answer(title=title, items=items, by_name=by_name, pair=tuple(pair), nested=Nested(items=items))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answer_json, "_MANY_ITEMS", 1)
        patched.setattr(answer_json, "_SLICE_BYTES", 3)
        patched.setattr(answer_json, "_LARGE_TEXT", 2)
        assert asyncio.run(encode_answer(answer)) == msgspec.json.encode(answer)


async def test_others_run_between_the_slices() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    answer = Answer(title="x" * 2_000_000, items=[Item(name="name" * 100) for _ in range(5_000)])
    assert msgspec.json.decode(await encode_answer(answer), type=Answer) == answer
    counting.cancel()
    assert turns > 20


async def test_a_small_answer_is_encoded_at_once() -> None:
    answer = Answer(title="small", items=[Item(name="one")])
    assert await encode_answer(answer) == msgspec.json.encode(answer)
