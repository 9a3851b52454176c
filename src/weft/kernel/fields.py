"""Field types that many requests share."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weft.kernel.ids import NAME_PATTERN

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=NAME_PATTERN)]
ShortText = Annotated[str, msgspec.Meta(max_length=200)]
# The largest whole number that every JSON reader keeps exact.
LARGEST = 2**53
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
