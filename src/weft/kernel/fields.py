"""Field types that many requests share."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weft.kernel.ids import NAME_PATTERN

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=NAME_PATTERN)]
# One line of text that every database keeps and every log can show.
ShortText = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
# The largest whole number that every JSON reader keeps exact.
LARGEST = 2**53
Reason = Annotated[ShortText | None, msgspec.Meta(description="Why, in a few words; the log shows it.")]
Step = Annotated[
    Name | None,
    msgspec.Meta(description="The workflow step this belongs to; what the last step left gets a snapshot of its own."),
]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
