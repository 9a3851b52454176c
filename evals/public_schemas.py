"""Weftline's records by the public schemas of Agent Context, and the public examples by Weftline's schemas.

The public schemas cover ten of the thirteen types. The tests have a table of them, which is compared with the files
here. Then all example records of the tests, and the export of a session with every record type, are validated. For each
public example: whether Weftline accepts it, whether the public schema does, and if Weftline does not, why.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator, FormatChecker

from evals.results import Row
from weftline import Weftline
from weftline.records.model import RECORD_TYPES
from weftline.records.schemas import published_schema
from weftline.records.validation import check_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TESTS = Path("tests")
_FOLDER = "agentcontext"
# File names of schemas that differ from the record type.
_FILES = {
    "context_envelope": "context-envelope",
    "context_surface": "context-surface",
    "context_item": "context-item",
    "missing_context": "missing-context",
}
# Not added with records.add: missing context has its own operation, and a session is its own surface.
_NOT_ADDED = ("missing_context", "context_surface")
_MAX_REASON = 80

TypedRecord = tuple[str, dict[str, Any]]


def public_schemas(folder: Path | None) -> Iterator[Row]:
    place = _public_folder(folder)
    if place is None:
        print("No public schemas of Agent Context found next to the evaluation data.")
        return
    table = runpy.run_path(str(_TESTS / "support" / "public_schemas.py"))
    schemas = {name: _public_schema(place, name) for name in table["PUBLIC"]}
    same = [name for name, schema in schemas.items() if _normalised(schema) == table["public_schema"](name)]
    yield _row("table", len(same), len(list(place.glob("*.schema.json"))), "schemas equal to the table of the tests")
    examples, exported = list(_valid_examples()), asyncio.run(_exported())
    yield _accepted("examples_of_tests", examples, schemas)
    yield _accepted("export", exported, schemas)
    yield _row("export_types", len({kind for kind, _ in exported}), 13, "record types in the export")
    yield from _public_examples(place, schemas)


def _public_folder(folder: Path | None) -> Path | None:
    public = (folder.parent if folder else Path("../shared")) / _FOLDER
    return public if public.is_dir() else None


def _public_schema(place: Path, name: str) -> dict[str, Any]:
    file = _FILES.get(name) or name.removeprefix("context_").replace("_", "-")
    schema: dict[str, Any] = json.loads((place / f"agentcontext-{file}.schema.json").read_text("utf-8"))
    return schema


def _normalised(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an equivalent schema without names and with sorted lists, for comparison."""
    return {key: _sorted(value) for key, value in schema.items() if key not in {"$schema", "$id", "title"}}


def _sorted(part: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    if isinstance(part, dict):
        return {key: _sorted(value) for key, value in part.items()}
    return sorted(part) if isinstance(part, list) else part


def _valid_examples() -> Iterator[TypedRecord]:
    for path in sorted((_TESTS / "data" / "records").glob("*/valid-*.json")):
        content = json.loads(path.read_text("utf-8"))
        yield from ((path.parent.name, record) for record in (content if isinstance(content, list) else [content]))


async def _exported() -> list[TypedRecord]:
    """Return the records of the export of a session with board changes, a message and every type of record."""
    with tempfile.TemporaryDirectory() as folder:
        async with Weftline.open(folder) as weftline:
            await weftline.session.create("Try the export", session_id="launch")
            for value in ("Ship on Friday.", "Ship on Monday."):
                await weftline.board.write("launch", "plan", value)
            await weftline.board.delete("launch", "plan")
            await weftline.message.add("launch", "Ready for review.")
            await weftline.records.add(list(_records_to_add()), session_id="launch")
            await weftline.missing.report("launch", question="Which invoice is open?", severity="high")
            bundle = (await weftline.bundle.export(session_id="launch")).bundle or ""
    entries = [json.loads(line)["entry"] for line in bundle.splitlines()]
    return [(entry["type"], entry["record"]) for entry in entries if entry["kind"] == "record"]


def _records_to_add() -> Iterator[dict[str, Any]]:
    """Yield the examples of the tests that records.add accepts, each with a unique id."""
    for number, (kind, record) in enumerate(_valid_examples()):
        if kind not in _NOT_ADDED:
            yield {**record, RECORD_TYPES[kind].id_field: f"example-{number}"}


def _accepted(name: str, records: Iterable[TypedRecord], schemas: dict[str, Any]) -> Row:
    """Count the records that both the public schema of their type and Weftline's accept."""
    covered = [(kind, record) for kind, record in records if kind in schemas]
    valid = sum(
        _is_valid(record, schemas[kind]) and _is_valid(record, published_schema(kind)) for kind, record in covered
    )
    return _row(name, valid, len(covered), "records valid by the public schema and by Weftline's")


def _is_valid(record: dict[str, Any], schema: dict[str, Any]) -> bool:
    return Draft202012Validator(schema, format_checker=FormatChecker()).is_valid(record)


def _public_examples(place: Path, schemas: dict[str, Any]) -> Iterator[Row]:
    accepted = by_public_schema = 0
    for path in sorted((place / "examples").glob("*.json")):
        document = path.read_bytes()
        kind = next(name for name in schemas if RECORD_TYPES[name].id_field in json.loads(document))
        ours, theirs = check_document(document).problems, _is_valid(json.loads(document), schemas[kind])
        accepted, by_public_schema = accepted + (not ours), by_public_schema + theirs
        verdict = f"refused: {ours[0].path} {ours[0].reason}"[:_MAX_REASON] if ours else "accepted"
        yield Row(f"public_schemas.example.{path.stem}", float(not ours), verdict, float(theirs), None, None)
    name, unit = "public_schemas.public_examples", "public examples Weftline accepts; baseline: their own schemas"
    yield Row(name, accepted, unit, by_public_schema, "their own schemas'", met=accepted >= by_public_schema)


def _row(name: str, value: int, expected: int, unit: str) -> Row:
    return Row(f"public_schemas.{name}", value, unit, expected, f"all {expected}", value == expected)
