"""The records in tests/data/records: what is valid, what is not, and for which reason."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from jsonschema import Draft202012Validator, FormatChecker

from weft.capabilities.records.model import RECORD_TYPES, Record
from weft.capabilities.records.schemas import published_schema

FOLDER = Path(__file__).parents[2] / "data" / "records"


class Expected(NamedTuple):
    """Why a file is refused. What is ``beyond_schema`` is a rule that JSON Schema has no words for."""

    path: str
    reason: str
    beyond_schema: bool = False


VALID = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/valid-*.json"))
INVALID = {name: Expected(**told) for name, told in json.loads((FOLDER / "invalid.json").read_text("utf-8")).items()}


def type_of(name: str) -> str:
    return name.partition("/")[0]


def told_in(name: str) -> list[dict[str, Any]]:
    """Return the records of a file as JSON: of a list all, otherwise the one."""
    told = json.loads((FOLDER / name).read_text("utf-8"))
    return told if isinstance(told, list) else [told]


def decoded(told: dict[str, Any], record_type: str) -> Record:
    return msgspec.json.decode(json.dumps(told), type=RECORD_TYPES[record_type])


@cache
def schema_checker(record_type: str) -> Draft202012Validator:
    return Draft202012Validator(published_schema(record_type), format_checker=FormatChecker())
