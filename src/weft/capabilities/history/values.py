"""How values of any line are shown, and how many of them one answer carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from weft.capabilities.history.line_ids import sort_of
from weft.kernel.json_input import encode_given, passed_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weft.capabilities.history.model import Version

# How much of the values an answer carries; the rest is read key by key.
SHOWN_BYTES = 262_144

PageSize = Annotated[int, msgspec.Meta(ge=1, le=1_000, description="At most this many.")]


def value_shown(line_id: str, text: str | None) -> Any:  # noqa: ANN401 - text, or the JSON it is
    """Return a value as it is shown, and can be sent back: a board's is text, all others are JSON."""
    return text if text is None or sort_of(line_id) == "board" else passed_on(text)


def value_kept(line_id: str, value: Any, field: str) -> str | None:  # noqa: ANN401 - any JSON
    """Return a value that was sent back as its line keeps it; None if it is none that a board can hold."""
    if sort_of(line_id) != "board":
        return encode_given(field, value).decode()
    return value if isinstance(value, str) else None


def with_room(versions: Iterable[Version]) -> Iterator[tuple[Version, bool]]:
    """Yield versions, each with whether its value still fits in the answer; the first ones go first."""
    room = SHOWN_BYTES
    for version in versions:
        size = 0 if version.value is None else len(version.value.encode())
        fits = size <= room
        room -= size if fits else 0
        yield version, fits
