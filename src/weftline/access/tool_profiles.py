"""Tool profiles: which tools an MCP client sees listed. A tool that is not listed still answers when it is called.

Steps (``steps``) are the access rule: what is not in a step is refused.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypedDict

import msgspec

from weftline.kernel.data_files import JsonFile
from weftline.kernel.errors import Rejected

DEFAULT, FULL = "default", "full"


class _Profiles(TypedDict):
    """The default list, and groups of tools by name."""

    default: list[str]
    groups: dict[str, list[str]]


_profiles = JsonFile("access/tool_profiles.json", _Profiles)
# The tools most agents need, in the order of the list; shown with a short description and their main fields.
DEFAULT_TOOLS = _profiles()["default"]
# Groups of tools, by name; every tool is in at least one.
GROUPS = _profiles()["groups"]
PROFILES = (DEFAULT, FULL, *GROUPS)

ToolsField = Annotated[
    Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None,
    msgspec.Meta(
        description="Tool profile: the tools that MCP clients with this key see listed, such as full or "
        "board,messages. Default: the server's setting.",
    ),
]


class UnknownToolProfile(Rejected):
    """No tool profile has this name."""

    code = "UNKNOWN_TOOL_PROFILE"
    hint = f"Use one of these names, or several separated by commas: {', '.join(PROFILES)}."


class ToolProfile(NamedTuple):
    """Tools to list: ``lean`` ones in a short form, ``whole`` ones with all fields; ``everything`` lists every tool."""

    everything: bool
    lean: frozenset[str]
    whole: frozenset[str]


def parse_tool_profile(names: str) -> ToolProfile:
    """Return the profile of a name, or of several separated by commas."""
    given = [name.strip() for name in names.split(",")]
    unknown = next((name for name in given if name not in PROFILES), None)
    if unknown is not None:
        raise UnknownToolProfile(f"There is no tool profile named '{unknown[:100]}'.", profiles=list(PROFILES))
    return ToolProfile(
        everything=FULL in given,
        lean=frozenset(DEFAULT_TOOLS if DEFAULT in given else ()),
        whole=frozenset(tool for name in given for tool in GROUPS.get(name, ())),
    )
