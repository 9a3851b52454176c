"""Size of native content beyond what is counted as text: fields that only its provider knows."""

from __future__ import annotations

from typing import Any

# Fields of the wire forms. Their names cost no tokens, nor do short values of those that only name something.
_FIELDS = frozenset(
    {
        *("role", "type", "id", "status", "name", "content", "text", "refusal", "annotations", "index", "is_error"),
        *("tool_calls", "function", "arguments", "input", "output", "call_id", "tool_call_id", "tool_use_id"),
        *("image_url", "url", "detail", "source", "media_type", "data", "file", "file_data", "filename"),
        *("input_audio", "format"),
    }
)
_NAMING = frozenset(
    {"role", "type", "id", "status", "call_id", "tool_call_id", "tool_use_id", "media_type", "detail", "format"}
)
_MAX_NAME = 128


def native_characters(value: Any, field: str = "") -> int:  # noqa: ANN401 - JSON of a provider
    """Return the characters of native content that a provider may count, media included."""
    if isinstance(value, str):
        return 0 if field in _NAMING and len(value) <= _MAX_NAME else len(value)
    if isinstance(value, dict):
        names = sum(len(name) for name in value if name not in _FIELDS)
        return names + sum(native_characters(each, name) for name, each in value.items())
    if isinstance(value, list | tuple):
        return sum(native_characters(each, field) for each in value)
    return 0 if value is None or isinstance(value, bool) else len(str(value))
