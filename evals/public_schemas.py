"""Whether Weft's records are valid by the public schemas of Agent Context, and the public examples by ours.

The public schemas cover ten of the thirteen types. Tests know them by a table of their own, which is held against the
files here; then all example records of the tests and the export of a session that tells of every type are checked.
Of each public example: whether Weft accepts it, beside whether the public schema does, and if not, why.
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
from weft import Weft
from weft.capabilities.records.model import RECORD_TYPES
from weft.capabilities.records.schemas import published_schema
from weft.capabilities.records.validation import check_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TESTS = Path("tests")
_FOLDER = "agentcontext"
# What the schemas are called, where that is not the type of record.
_FILES = {
    "context_envelope": "context-envelope",
    "context_surface": "context-surface",
    "context_item": "context-item",
    "missing_context": "missing-context",
}
# Recorded by operations of their own, or not at all: a session is its own surface.
_OWN_WAYS = ("missing_context", "context_surface")
_SHOWN = 80

Told = tuple[str, dict[str, Any]]


def public_schemas(folder: Path | None) -> Iterator[Row]:
    place = _public_folder(folder)
    if place is None:
        print("No public schemas of Agent Context here; they are looked for beside the evaluation data.")
        return
    table = runpy.run_path(str(_TESTS / "unit" / "records" / "public_shapes.py"))
    schemas = {name: _public_schema(place, name) for name in table["PUBLIC"]}
    same = [name for name, schema in schemas.items() if _nameless(schema) == table["public_schema"](name)]
    yield _row("table", len(same), len(list(place.glob("*.schema.json"))), "schemas the table of the tests equals")
    examples, exported = list(_valid_examples()), asyncio.run(_exported())
    yield _accepted("examples_of_tests", examples, schemas)
    yield _accepted("export", exported, schemas)
    yield _row("export_types", len({kind for kind, _ in exported}), 13, "record types the export has")
    yield from _public_examples(place, schemas)


def _public_folder(folder: Path | None) -> Path | None:
    beside = folder.parent if folder else Path("../shared")
    return beside / _FOLDER if (beside / _FOLDER).is_dir() else None


def _public_schema(place: Path, name: str) -> dict[str, Any]:
    file = _FILES.get(name) or name.removeprefix("context_").replace("_", "-")
    schema: dict[str, Any] = json.loads((place / f"agentcontext-{file}.schema.json").read_text("utf-8"))
    return schema


def _nameless(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without what it is called, and with lists in order: it accepts the same."""
    return {key: _sorted(value) for key, value in schema.items() if key not in {"$schema", "$id", "title"}}


def _sorted(part: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    if isinstance(part, dict):
        return {key: _sorted(value) for key, value in part.items()}
    return sorted(part) if isinstance(part, list) else part


def _valid_examples() -> Iterator[Told]:
    for path in sorted((_TESTS / "data" / "records").glob("*/valid-*.json")):
        told = json.loads(path.read_text("utf-8"))
        yield from ((path.parent.name, record) for record in (told if isinstance(told, list) else [told]))


async def _exported() -> list[Told]:
    """Return the records of an export: of a session that was worked in, and told every type of record."""
    with tempfile.TemporaryDirectory() as folder:
        async with Weft.open(folder) as weft:
            await weft.session.create("Try the export", session_id="launch")
            for value in ("Ship on Friday.", "Ship on Monday."):
                await weft.board.write("launch", "plan", value)
            await weft.board.delete("launch", "plan")
            await weft.message.add("launch", "Ready for review.")
            await weft.records.add(list(_told_to_weft()), session_id="launch")
            await weft.missing.report("launch", question="Which invoice is open?", severity="high")
            bundle = (await weft.bundle.export(session_id="launch")).bundle or ""
    entries = [json.loads(line)["entry"] for line in bundle.splitlines()]
    return [(entry["type"], entry["record"]) for entry in entries if entry["kind"] == "record"]


def _told_to_weft() -> Iterator[dict[str, Any]]:
    """Yield examples of the tests, each under an id of its own and none under one that Weft gives."""
    for number, (kind, record) in enumerate(_valid_examples()):
        if kind not in _OWN_WAYS:
            yield {**record, RECORD_TYPES[kind].id_field: f"example-{number}"}


def _accepted(name: str, told: Iterable[Told], schemas: dict[str, Any]) -> Row:
    """Count the records that the public schema of their type and our own accept."""
    known = [(kind, record) for kind, record in told if kind in schemas]
    fine = sum(_fits(record, schemas[kind]) and _fits(record, published_schema(kind)) for kind, record in known)
    return _row(name, fine, len(known), "records valid by the public schema and by ours")


def _fits(record: dict[str, Any], schema: dict[str, Any]) -> bool:
    return Draft202012Validator(schema, format_checker=FormatChecker()).is_valid(record)


def _public_examples(place: Path, schemas: dict[str, Any]) -> Iterator[Row]:
    accepted = by_themselves = 0
    for path in sorted((place / "examples").glob("*.json")):
        document = path.read_bytes()
        kind = next(name for name in schemas if RECORD_TYPES[name].id_field in json.loads(document))
        ours, theirs = check_document(document).problems, _fits(json.loads(document), schemas[kind])
        accepted, by_themselves = accepted + (not ours), by_themselves + theirs
        said = f"refused: {ours[0].path} {ours[0].reason}"[:_SHOWN] if ours else "accepted"
        yield Row(f"public_schemas.example.{path.stem}", float(not ours), said, float(theirs), None, None)
    name, unit = "public_schemas.public_examples", "public examples Weft accepts; baseline: their own schemas"
    yield Row(name, accepted, unit, by_themselves, "their own schemas'", met=accepted >= by_themselves)


def _row(name: str, value: int, wanted: int, unit: str) -> Row:
    return Row(f"public_schemas.{name}", value, unit, wanted, f"all {wanted}", value == wanted)
