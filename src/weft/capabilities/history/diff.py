"""What differs between any two moments of any two lines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec

from weft.capabilities.history.composite_lines import entries_apart, is_whole_context
from weft.capabilities.history.line_ids import TOOL, ContextId
from weft.capabilities.history.log import READ_ERRORS
from weft.capabilities.history.model import Point, Version
from weft.capabilities.history.revisions import HEAD, VersionName
from weft.capabilities.history.service import History, seen
from weft.capabilities.history.text_diff import TextDiff, TextDiffs
from weft.capabilities.history.three_way import same_content
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.capabilities.history.three_way import State


class CompareVersions(Request):
    """Two moments: of one line, or of two."""

    context_id: ContextId
    from_version: VersionName
    to_version: VersionName = HEAD
    other_context_id: Annotated[
        ContextId | None, msgspec.Meta(description="The line that to_version belongs to; the same if left out.")
    ] = None
    text: Annotated[bool, msgspec.Meta(description="With a line by line diff of what values say.")] = True


class KeyDiff(Response):
    """A key that differs. ``diff`` is a unified diff of its value; ``no_diff`` says why there is none."""

    key: str
    from_version: int | None = None
    to_version: int | None = None
    author: str | None = None
    diff: str | None = None
    no_diff: str | None = None


class Differences(Response, kw_only=True, omit_defaults=False):
    """What changed between two moments."""

    from_context_id: str
    from_version: int
    to_context_id: str
    to_version: int
    added: list[KeyDiff]
    removed: list[KeyDiff]
    modified: list[KeyDiff]


@operation(
    "history.diff",
    tool=TOOL,
    action="diff",
    http="GET /v1/history/{context_id}/diff",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
    errors=READ_ERRORS,
)
async def compare_versions(request: CompareVersions, actor: Actor, errands: Transactions[History]) -> Differences:
    """Compare any two versions: which entries were added, removed and modified, and what their values say now."""
    apart = await errands.read(actor, lambda timelines: _apart(request, timelines), heavy=True)
    # Comparing texts takes time that nobody else should have to wait for.
    return await asyncio.to_thread(_compared, request, *apart)


class _Side(msgspec.Struct, frozen=True):
    """One of two moments that are compared."""

    point: Point
    state: dict[str, Version]


async def _apart(request: CompareVersions, timelines: History) -> tuple[_Side, _Side]:
    line = await timelines.to_read(request.context_id)
    other = line if request.other_context_id is None else await timelines.to_read(request.other_context_id)
    one, two = await timelines.moment(line, request.from_version), await timelines.moment(other, request.to_version)
    before, after = await _entries(timelines, one, two, values=request.text)
    shown_before, shown_after = await seen(line, before), await seen(other, after)
    # A key that is hidden on one side would look as if it had come or gone.
    hidden = (before.keys() - shown_before.keys()) | (after.keys() - shown_after.keys())
    return _Side(one, _without(shown_before, hidden)), _Side(two, _without(shown_after, hidden))


async def _entries(timelines: History, one: Point, two: Point, *, values: bool) -> tuple[State, State]:
    """Return what may differ; of a whole context the entries of its parts, not where the parts stand."""
    if not (is_whole_context(one.line_id) and is_whole_context(two.line_id)):
        return await timelines.states(one, two, values=values)
    before, after = await timelines.states(one, two, values=True)
    return await entries_apart(timelines.lines, before, after, values=values)


def _compared(request: CompareVersions, before: _Side, after: _Side) -> Differences:
    keys = sorted(before.state.keys() | after.state.keys())
    texts = TextDiffs() if request.text else None
    differing = [
        (old, new, _key_diff(key, old, new, texts))
        for key in keys
        if not same_content(old := before.state.get(key), new := after.state.get(key))
    ]
    return Differences(
        from_context_id=request.context_id,
        from_version=before.point.seq,
        to_context_id=request.other_context_id or request.context_id,
        to_version=after.point.seq,
        added=[diff for old, _, diff in differing if old is None],
        removed=[diff for _, new, diff in differing if new is None],
        modified=[diff for old, new, diff in differing if old is not None and new is not None],
    )


def _key_diff(key: str, old: Version | None, new: Version | None, texts: TextDiffs | None) -> KeyDiff:
    text, why_none = None, None
    if texts is not None:
        text, why_none = _text_diff(old, new, texts)
    return KeyDiff(
        key=key,
        from_version=old.change.version if old else None,
        to_version=new.change.version if new else None,
        author=new.author if new else None,
        diff=text,
        no_diff=why_none,
    )


def _text_diff(old: Version | None, new: Version | None, texts: TextDiffs) -> TextDiff:
    if old is not None and new is not None and old.change.blob_hash == new.change.blob_hash:
        return TextDiff(None, "The value is the same; what belongs to it changed.")
    lost = next((version for version in (old, new) if version is not None and not _is_text(version)), None)
    return TextDiff(None, _why_no_text(lost)) if lost else texts.between(_value(old), _value(new))


def _is_text(version: Version) -> bool:
    return version.value is not None and not version.change.meta.outside


def _why_no_text(version: Version) -> str:
    if version.change.meta.outside:
        return "A value is kept outside the database; read the key at both versions."
    return "A value was pruned."


def _value(version: Version | None) -> str | None:
    return None if version is None else version.value


def _without(state: Mapping[str, Version], keys: set[str]) -> dict[str, Version]:
    return {key: version for key, version in state.items() if key not in keys}
