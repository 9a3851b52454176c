"""Python clients give board values back with their Python types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client_support import WeftlineServer
from msgspec import UNSET

from support.json_values import VALUES, typed
from weftline import Weftline

pytestmark = pytest.mark.req("SC-03")


async def check(weftline: Any) -> None:
    session = (await weftline.session.create("values")).session_id
    for value in VALUES:
        await weftline.board.write(session, "state", value)
        assert typed((await weftline.board.read(session, "state")).value) == typed(value)
    listed = (await weftline.board.list_keys(session, values=True)).keys
    assert typed(listed[0].value) == typed(VALUES[-1])
    assert (await weftline.board.list_keys(session)).keys[0].value is UNSET


async def test_over_http(product: WeftlineServer, connect: Callable[..., Any]) -> None:
    async with connect(product.url, product.admin_key) as weftline:
        await check(weftline)


async def test_in_the_same_process(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline:
        await check(weftline)


def test_in_the_same_process_from_plain_code(tmp_path: Path) -> None:
    with Weftline.open_sync(tmp_path) as weftline:
        session = weftline.session.create("values").session_id
        for value in VALUES:
            weftline.board.write(session, "state", value)
            assert typed(weftline.board.read(session, "state").value) == typed(value)
