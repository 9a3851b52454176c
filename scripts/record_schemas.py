"""JSON Schemas of all record types as shipped in the package."""

from __future__ import annotations

import json

from weftline.records.schemas import SCHEMAS, all_schemas, schema_path


def schema_files() -> dict[str, str]:
    """Return the text of each schema by path."""
    return {
        f"src/weftline/{SCHEMAS}/{schema_path(name)}": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in all_schemas().items()
    }
