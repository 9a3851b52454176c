"""The public package ``weftline.records``."""

from __future__ import annotations

import subprocess
import sys

import pytest

import weftline.records
from weftline.records import resolve, source_ref, validate
from weftline.records.model import RECORD_TYPES
from weftline.records.refs import Mapping, Selector

pytestmark = pytest.mark.req("AC-12")


def test_every_public_name_can_be_imported() -> None:
    for name in weftline.records.__all__:
        assert getattr(weftline.records, name) is not None, name


def test_every_record_selector_and_mapping_can_be_imported_by_name() -> None:
    kinds = [*RECORD_TYPES.values(), *Selector.__args__, *Mapping.__args__]
    assert {kind.__name__ for kind in kinds} <= set(weftline.records.__all__)


def test_importing_records_loads_no_database_server_or_parser() -> None:
    program = "import sys, weftline.records; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"apsw", "asyncpg", "click", "lxml", "mcp", "starlette", "uvicorn", "weftline.app"} & set(loaded)


def test_records_are_validated_and_passages_resolved_without_a_server() -> None:
    ref = source_ref("s", "file:///plan", "Ship on Friday.", start=0, end=4, source_kind="file")
    assert resolve(ref, "Ship on Friday.").outcome == "exact"
    assert validate('{"item_id": "i"}')[0].path == "$.schema_version"
