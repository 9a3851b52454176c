"""An unknown field of a request is named with the field that was probably meant, never with itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from weftline.kernel.errors import InvalidInput
from weftline.kernel.json_input import invalid_input


class Text(msgspec.Struct, tag="text", forbid_unknown_fields=True):
    """One form of an object."""

    value: str


class Link(msgspec.Struct, tag="link", forbid_unknown_fields=True):
    """Another one, without that field."""

    uri: str
    valid: bool = True


class Write(msgspec.Struct, forbid_unknown_fields=True):
    """Request with either form."""

    part: Text | Link
    session_id: str = ""


def refusal(raw: dict[str, Any]) -> InvalidInput:
    with pytest.raises(msgspec.ValidationError) as problem:
        msgspec.convert(raw, Write)
    return invalid_input(Write, "write", str(problem.value), raw)


@pytest.mark.parametrize(
    ("raw", "end"),
    [
        (
            {"part": {"type": "text", "value": ""}, "session": "s1"},
            "unknown field `session`; did you mean `session_id`?",
        ),
        ({"part": {"type": "text", "valu": ""}}, "unknown field `valu`; did you mean `value`?"),
        ({"part": {"type": "link", "uri": "", "value": ""}}, "unknown field `value`"),
    ],
)
def test_the_field_that_was_meant_is_named(raw: dict[str, Any], end: str) -> None:
    assert refusal(raw).message.endswith(end)
