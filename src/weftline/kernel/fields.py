"""Field types that many requests share, and new ids: random where they must not be guessable, else time-ordered."""

from __future__ import annotations

import re
import secrets
import time
from typing import Annotated, Any

import msgspec

# Names are used in paths, keys and URIs: no separators, no dots, nothing that a shell or file system interprets.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z"
_NAME = re.compile(NAME_PATTERN)
# As the Model Context Protocol names tools.
TOOL_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}\Z"


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None


def new_session_id() -> str:
    return f"session_{secrets.token_hex(8)}"


def new_id(prefix: str) -> str:
    """Return an unguessable id, such as a key id or a token id."""
    return f"{prefix}_{secrets.token_hex(8)}"


def new_ordered_id() -> str:
    """Return an id that sorts by creation time and never repeats."""
    return f"{time.time_ns():016x}{secrets.token_hex(6)}"


ONE_LINE = r"^[^\x00-\x1f\x7f]*\Z"
# What a text must be to match a pattern, in the words of an error message.
PATTERN_FORMS = {
    NAME_PATTERN: "letters, digits, '_' and '-', beginning with a letter or digit",
    ONE_LINE: "one line without control characters",
    r"^[^\x00-\x1f\x7f]+\Z": "one line without control characters",
    r"^[^\x00]*\Z": "text without NUL characters",
    r"^[^\x00]+\Z": "text without NUL characters",
    r"^[^\x00-\x20\x7f]+\Z": "text without spaces and control characters",
    r"^[^\x00-\x20\x7f-\x9f]+\Z": "text without spaces and control characters",
    r"^[!-~]+\Z": "printable ASCII without spaces",
    r"^[ -~]+\Z": "printable ASCII",
    r"^(tenant|team:[A-Za-z0-9][A-Za-z0-9_-]{0,99})\Z": "'tenant', or 'team:' and the name of a team",
    r"^(tenant|(team|agent):[A-Za-z0-9][A-Za-z0-9_-]{0,99})\Z": "'tenant', 'team:' and a team, or 'agent:' and an id",
    r"^(team|user):[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z": "'team:' and a team's name, or 'user:' and a human's id",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[1-9][0-9]{0,17}\Z": "a session's id, '/' and a message's id, such as s1/12",
    r"^(public|private|agent_only|admin_only|team:[A-Za-z0-9][A-Za-z0-9_-]{0,99})\Z": "a visibility, or a team's",
    TOOL_NAME_PATTERN: "letters, digits, '_', '-', '.' and '/', beginning with a letter, digit or '_'",
    r"^[0-9a-f]{16}\Z": "16 hexadecimal digits",
    r"^[0-9a-f]{32}\Z": "32 hexadecimal digits",
    r"^sha256:[0-9a-f]{64}\Z": "'sha256:' and 64 hexadecimal digits",
}

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=NAME_PATTERN)]
# Stored by every database and shown in every log.
ShortText = Annotated[str, msgspec.Meta(max_length=200, pattern=ONE_LINE)]
# Larger integers lose precision in JSON readers that use doubles.
MAX_INT = 2**53
Reason = Annotated[ShortText | None, msgspec.Meta(description="Why, in a few words; shown in the log.")]
Step = Annotated[
    Name | None,
    msgspec.Meta(description="The workflow step this belongs to; a new step first takes a snapshot."),
]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=MAX_INT)]


# Cells of CSV files that people open in spreadsheet programs.

# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def harmless_cell(cell: Any) -> Any:  # noqa: ANN401 - a cell
    """Return a cell that no spreadsheet computes: text that looks like a formula gets an apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
