"""Exports into files and imports from them: the same by every face."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from client_support import Product

from support.bundles import items, seal_of
from weft import Client, SyncClient, Weft
from weft.kernel.errors import NotFound, Rejected

pytestmark = pytest.mark.req("AC-14")


async def test_a_client_exports_from_a_server_and_imports_into_a_folder(product: Product, tmp_path: Path) -> None:
    async with Client(product.url, product.admin_key) as client:
        await client.session.create("to be moved", session_id="moving")
        await client.board.write("moving", "goal", "ship")
        file = io.BytesIO()
        told = await client.export_to(file, session_id="moving")
    assert (told.digest, told.bytes) == (seal_of(file.getvalue()), len(file.getvalue()))
    async with Weft.open(tmp_path) as weft:
        file.seek(0)
        made = await weft.import_from(file, expected_digest=told.digest)
        assert made.session_id == "moving"
        assert (await weft.board.read("moving", "goal")).value == "ship"
        back = io.BytesIO()
        await weft.export_to(back, session_id="moving", scope="handoff", recipient="b")
        assert set(items(back.getvalue())) == {"board:moving/goal/1.1"}


def test_a_blocking_client_does_the_same(product: Product) -> None:
    with SyncClient(product.url, product.admin_key) as client:
        client.session.create("to be moved", session_id="blocked")
        client.board.write("blocked", "goal", "ship")
        file = io.BytesIO()
        told = client.export_to(file, session_id="blocked")
        client.session.delete("blocked")
        file.seek(0)
        rehearsed = client.import_from(file, dry_run=True)
        file.seek(0)
        made = client.import_from(file, expected_digest=told.digest)
        assert (rehearsed.dry_run, made.dry_run) == (True, False)
        assert client.board.read("blocked", "goal").value == "ship"


async def refusals(weft: Any) -> None:
    with pytest.raises(NotFound):
        await weft.export_to(io.BytesIO(), session_id="nowhere")
    with pytest.raises(Rejected) as caught:
        await weft.import_from(io.BytesIO(b"{}\n"))
    assert (caught.value.code, caught.value.context["line"]) == ("BUNDLE_DAMAGED", 1)


async def test_refusals_are_the_errors_of_every_call(product: Product, tmp_path: Path) -> None:
    async with Client(product.url, product.admin_key) as client:
        await refusals(client)
    async with Weft.open(tmp_path) as weft:
        await refusals(weft)
