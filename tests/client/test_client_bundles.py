"""Export to files and import from files, by every client."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from client_support import WeftlineServer

from support.bundles import items, seal_of
from weftline import Client, SyncClient, Weftline
from weftline.kernel.errors import NotFound, Rejected

pytestmark = pytest.mark.req("AC-14")


async def test_a_client_exports_from_a_server_and_imports_into_a_folder(
    product: WeftlineServer, tmp_path: Path
) -> None:
    async with Client(product.url, product.admin_key) as client:
        await client.session.create("to be moved", session_id="moving")
        await client.board.write("moving", "goal", "ship")
        file = io.BytesIO()
        exported = await client.export_to(file, session_id="moving")
    assert (exported.digest, exported.bytes) == (seal_of(file.getvalue()), len(file.getvalue()))
    async with Weftline.open(tmp_path) as weftline:
        file.seek(0)
        made = await weftline.import_from(file, expected_digest=exported.digest)
        assert made.session_id == "moving"
        assert (await weftline.board.read("moving", "goal")).value == "ship"
        back = io.BytesIO()
        await weftline.export_to(back, session_id="moving", scope="handoff", recipient="b")
        assert set(items(back.getvalue())) == {"board:moving/goal/1.1"}


def test_a_blocking_client_exports_and_imports(product: WeftlineServer) -> None:
    with SyncClient(product.url, product.admin_key) as client:
        client.session.create("to be moved", session_id="blocked")
        client.board.write("blocked", "goal", "ship")
        file = io.BytesIO()
        exported = client.export_to(file, session_id="blocked")
        client.session.delete("blocked")
        file.seek(0)
        dry_run_result = client.import_from(file, dry_run=True)
        file.seek(0)
        made = client.import_from(file, expected_digest=exported.digest)
        assert (dry_run_result.dry_run, made.dry_run) == (True, False)
        assert client.board.read("blocked", "goal").value == "ship"


async def expect_errors(weftline: Any) -> None:
    with pytest.raises(NotFound):
        await weftline.export_to(io.BytesIO(), session_id="nowhere")
    with pytest.raises(Rejected) as caught:
        await weftline.import_from(io.BytesIO(b"{}\n"))
    assert (caught.value.code, caught.value.context["line"]) == ("BUNDLE_DAMAGED", 1)


async def test_export_and_import_errors_are_typed(product: WeftlineServer, tmp_path: Path) -> None:
    async with Client(product.url, product.admin_key) as client:
        await expect_errors(client)
    async with Weftline.open(tmp_path) as weftline:
        await expect_errors(weftline)
