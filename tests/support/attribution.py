"""Fields of answers and events that say who did something, and the agents they lead to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from weftline.kernel.identity import principal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SAYS_WHO = re.compile(r"(\w+_)?(by|author|sender|actor|agent|agent_?id|principal|principal_id|participant)")
# These look like it, but hold ACLs, methods, records, facts and groups.
_OTHER = frozenset(
    {
        "readable_by",
        "writable_by",
        "referenced_by",
        "matched_by",
        "found_by",
        "superseded_by",
        "was_generated_by",
        "by",
    }
)
SYSTEM = "system"


def fields_that_say_who(names: Iterable[str]) -> set[str]:
    """Return the names of fields that hold a participant name or the id of a principal."""
    return {name for name in names if _SAYS_WHO.fullmatch(name)} - _OTHER


def named_agents(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each field that says who in an answer, and the id of the principal it leads to."""
    if isinstance(value, dict):
        for name, part in value.items():
            where = f"{path}.{name}"
            if isinstance(part, str) and fields_that_say_who([name]):
                yield where, principal_of(part)
            else:
                yield from named_agents(part, where)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from named_agents(part, path)
