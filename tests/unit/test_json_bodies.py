"""Large JSON bodies: counted in steps, bounded, and decoded in turn."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.app import json_bodies
from weftline.app.json_bodies import MAX_VALUES, JsonBodies, _count_values
from weftline.kernel.errors import ContentTooLarge, ServerBusy
from weftline.kernel.identity import Actor, PrincipalKind

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab,[{"\\', max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('a,"\\', max_size=5), inner, max_size=5),
    max_leaves=30,
)


def actor(name: str) -> Actor:
    return Actor(
        tenant="acme",
        principal_id=name,
        kind=PrincipalKind.AGENT,
        agent_type="t",
        parent_is_agent=False,
        permissions=frozenset(),
        clearance=1,
        epoch=1,
    )


def marks(value: Any) -> int:
    """Return the separators and opening brackets of a value."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(0, len(value) - 1) + sum(map(marks, inner))
    return 0


@given(value=VALUES, step=st.integers(1, 50))
def test_values_are_counted_whatever_texts_contain(value: Any, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bodies, "_STEP_BYTES", step)
        assert asyncio.run(_count_values(json.dumps(value).encode())) == 1 + marks(value)


@pytest.mark.parametrize("item", [b"[]", b"{}", b"1", b'"x"', b"[" * 900 + b"]" * 900])
async def test_a_body_of_many_values_is_refused_undecoded(item: bytes) -> None:
    body = b'{"a":[' + b",".join([item] * (4_000_000 // (len(item) + 1))) + b"]}"
    with pytest.raises(ContentTooLarge) as refused:
        await JsonBodies().decode(msgspec.json.decode, body, actor("a"))
    assert refused.value.context["limit_values"] == MAX_VALUES


async def test_a_long_text_is_decoded_at_once() -> None:
    body = json.dumps({"text": 'a, [b], {"c"} \\ ' * 200_000}).encode()
    decoded = await asyncio.wait_for(JsonBodies().decode(msgspec.json.decode, body, actor("a")), 60)
    assert decoded == json.loads(body)


async def test_bodies_of_one_caller_do_not_keep_another_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_bodies, "_VALUE_SECONDS", 0.000_001)
    bodies, order = JsonBodies(), []
    body = json.dumps(list(range(20_000))).encode()

    async def decode(name: str) -> None:
        await bodies.decode(msgspec.json.decode, body, actor(name))
        order.append(name)

    greedy = [asyncio.create_task(decode("greedy")) for _ in range(6)]
    await asyncio.sleep(0)
    await asyncio.wait_for(decode("other"), 60)
    assert order.count("greedy") <= 3
    await asyncio.gather(*greedy)


async def test_too_many_waiting_bodies_of_one_caller_are_refused() -> None:
    bodies = JsonBodies()
    body = json.dumps(list(range(90_000))).encode()
    calls = [asyncio.create_task(bodies.decode(msgspec.json.decode, body, actor("a"))) for _ in range(12)]
    done, waiting = await asyncio.wait(calls, timeout=60, return_when=asyncio.FIRST_EXCEPTION)
    assert any(isinstance(call.exception(), ServerBusy) for call in done if not call.cancelled())
    for call in waiting:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
