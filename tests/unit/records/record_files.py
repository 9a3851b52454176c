"""The example records in tests/data/records, and the expected errors of the invalid ones."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from jsonschema import Draft202012Validator, FormatChecker

from weftline.records.model import RECORD_TYPES, Record
from weftline.records.schemas import published_schema

FOLDER = Path(__file__).parents[2] / "data" / "records"


class Expected(NamedTuple):
    """The expected error of a file; ``beyond_schema``: JSON Schema cannot express the rule."""

    path: str
    reason: str
    beyond_schema: bool = False


VALID = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/valid-*.json"))
INVALID = {name: Expected(**error) for name, error in json.loads((FOLDER / "invalid.json").read_text("utf-8")).items()}


def type_of(name: str) -> str:
    return name.partition("/")[0]


def raw_records(name: str) -> list[dict[str, Any]]:
    """Return the records of a file as JSON; the file holds one record or a list."""
    content = json.loads((FOLDER / name).read_text("utf-8"))
    return content if isinstance(content, list) else [content]


def decoded(raw: dict[str, Any], record_type: str) -> Record:
    return msgspec.json.decode(json.dumps(raw), type=RECORD_TYPES[record_type])


@cache
def schema_validator(record_type: str) -> Draft202012Validator:
    return Draft202012Validator(published_schema(record_type), format_checker=FormatChecker())
