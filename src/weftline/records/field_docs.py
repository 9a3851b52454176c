"""Descriptions of record fields, published in the JSON Schemas. Keyed by name, as most names mean one thing."""

from __future__ import annotations

from typing import TypedDict

from weftline.kernel.data_files import JsonFile


class FieldDocs(TypedDict):
    """Descriptions by field, and by struct where a field means something else."""

    fields: dict[str, str]
    fields_by_type: dict[str, dict[str, str]]


field_docs = JsonFile("records/field_docs.json", FieldDocs)


def describe_field(kind: str, field: str) -> str:
    """Return the description of a field of a struct."""
    docs = field_docs()
    return docs["fields_by_type"].get(kind, {}).get(field) or docs["fields"][field]
