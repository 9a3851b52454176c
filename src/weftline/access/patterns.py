"""Patterns of participants."""

from __future__ import annotations

from typing import Annotated

import msgspec

Pattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9_:*?-]+\Z",
        description="A participant's name with wildcards, such as subagent:review:*, or tree:ID, team:NAME.",
    ),
]
