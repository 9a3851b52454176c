"""Diff: entries that differ between two versions of one or two contexts, with a text diff of their values."""

from __future__ import annotations

import asyncio
import difflib
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weft.capabilities.history.composite_lines import entries_apart
from weft.capabilities.history.fields import ContextId, own_transactions_read
from weft.capabilities.history.line_kinds import is_composite
from weft.capabilities.history.log import READ_ERRORS
from weft.capabilities.history.model import Point, Version
from weft.capabilities.history.revisions import HEAD, VersionName
from weft.capabilities.history.service import History, visible_state
from weft.capabilities.history.three_way import same_content
from weft.kernel.identity import Actor
from weft.kernel.operation import Request, Response
from weft.kernel.ports import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.capabilities.history.line_backend import VersionReader
    from weft.capabilities.history.three_way import State


_MAX_CHARACTERS = 20_000
_MAX_LINES = 500
_MAX_LINES_PER_RESPONSE = 5_000


class CompareVersions(Request):
    """Two versions, of one context or of two."""

    context_id: ContextId
    from_version: VersionName
    to_version: VersionName = HEAD
    other_context_id: Annotated[
        ContextId | None, msgspec.Meta(description="Context of to_version; default: the same context.")
    ] = None
    text: Annotated[bool, msgspec.Meta(description="Include a line by line diff of the values.")] = True


class KeyDiff(Response):
    """A key that differs. ``diff`` is a unified diff of its value; ``no_diff`` is the reason if there is none."""

    key: str
    from_version: int | None = None
    to_version: int | None = None
    author: str | None = None
    diff: str | None = None
    no_diff: str | None = None


class Differences(Response, kw_only=True, omit_defaults=False):
    """Entries that differ between two versions."""

    from_context_id: str
    from_version: int
    to_context_id: str
    to_version: int
    added: list[KeyDiff]
    removed: list[KeyDiff]
    modified: list[KeyDiff]


@own_transactions_read("history.diff", action="diff", http="GET /v1/history/{context_id}/diff", errors=READ_ERRORS)
async def compare_versions(request: CompareVersions, actor: Actor, transactions: Transactions[History]) -> Differences:
    """Compare two versions: added, removed and modified entries, with a diff of their values."""
    sides = await transactions.read(actor, lambda history: _sides(request, history), heavy=True)
    # Text diffs are CPU work: keep them off the event loop.
    return await asyncio.to_thread(_compare, request, *sides)


class _Side(msgspec.Struct, frozen=True):
    """One side of the comparison."""

    point: Point
    state: dict[str, Version]


async def _sides(request: CompareVersions, history: History) -> tuple[_Side, _Side]:
    line = await history.to_read(request.context_id)
    other = line if request.other_context_id is None else await history.to_read(request.other_context_id)
    one, two = await history.resolve(line, request.from_version), await history.resolve(other, request.to_version)
    before, after = await _entries(history, one, two, values=request.text)
    before, after = await visible_states(line, before, other, after)
    return _Side(one, before), _Side(two, after)


async def visible_states(line: VersionReader, before: State, other: VersionReader, after: State) -> tuple[State, State]:
    """Return two states without the keys hidden in one of them, which would look added or removed."""
    shown_before, shown_after = await visible_state(line, before), await visible_state(other, after)
    hidden = (before.keys() - shown_before.keys()) | (after.keys() - shown_after.keys())
    return _without(shown_before, hidden), _without(shown_after, hidden)


def differing(
    before: State, after: State, same: Callable[[Version | None, Version | None], bool] = same_content
) -> list[tuple[Version | None, Version | None]]:
    """Return old and new version of each key that differs, by key. None: the key does not exist there."""
    pairs = [(before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())]
    return [(old, new) for old, new in pairs if not same(old, new)]


async def _entries(history: History, one: Point, two: Point, *, values: bool) -> tuple[State, State]:
    """Return the entries that may differ; of composite lines, those of their parts."""
    if not (is_composite(one.line_id) and is_composite(two.line_id)):
        return await history.states(one, two, values=values)
    before, after = await history.states(one, two, values=True)
    return await entries_apart(history.lines, before, after, values=values)


def _compare(request: CompareVersions, before: _Side, after: _Side) -> Differences:
    texts = _TextDiffs() if request.text else None
    pairs = differing(before.state, after.state)
    shown = [(old, new, _key_diff(old, new, texts)) for old, new in pairs]
    return Differences(
        from_context_id=request.context_id,
        from_version=before.point.seq,
        to_context_id=request.other_context_id or request.context_id,
        to_version=after.point.seq,
        added=[diff for old, _, diff in shown if old is None],
        removed=[diff for _, new, diff in shown if new is None],
        modified=[diff for old, new, diff in shown if old and new],
    )


def _key_diff(old: Version | None, new: Version | None, texts: _TextDiffs | None) -> KeyDiff:
    diff = _TextDiff(None) if texts is None else _text_diff(old, new, texts)
    return KeyDiff(
        key=next(version.change.key for version in (old, new) if version),
        from_version=old.change.version if old else None,
        to_version=new.change.version if new else None,
        author=new.author if new else None,
        diff=diff.text,
        no_diff=diff.why_none,
    )


def _text_diff(old: Version | None, new: Version | None, texts: _TextDiffs) -> _TextDiff:
    if old is not None and new is not None and old.change.blob_hash == new.change.blob_hash:
        return _TextDiff(None, "The value is the same; its ACL, expiry or metadata changed.")
    lost = next((version for version in (old, new) if version is not None and not _is_text(version)), None)
    return _TextDiff(None, _why_no_text(lost)) if lost else texts.between(_value(old), _value(new))


def _is_text(version: Version) -> bool:
    return version.value is not None and not version.change.meta.outside


def _why_no_text(version: Version) -> str:
    if version.change.meta.outside:
        return "A value is in object storage; read the key at both versions."
    return "A value was pruned."


def _value(version: Version | None) -> str | None:
    return None if version is None else version.value


def _without(state: Mapping[str, Version], keys: set[str]) -> State:
    return {key: version for key, version in state.items() if key not in keys}


class _TextDiff(NamedTuple):
    """A unified diff, or the reason why there is none."""

    text: str | None
    why_none: str | None = None


class _TextDiffs:
    """Text diffs of one response, limited in total size."""

    def __init__(self) -> None:
        self._room = _MAX_LINES_PER_RESPONSE

    def between(self, before: str | None, after: str | None) -> _TextDiff:
        """Return the diff of two values; None: no value."""
        old, new = (before or "").splitlines(), (after or "").splitlines()
        if max(len(before or ""), len(after or "")) > _MAX_CHARACTERS:
            return _TextDiff(None, f"A value is longer than {_MAX_CHARACTERS} characters.")
        if max(len(old), len(new)) > _MAX_LINES:
            return _TextDiff(None, f"A value has more than {_MAX_LINES} lines.")
        self._room -= len(old) + len(new)
        if self._room < 0:
            return _TextDiff(None, "The response would be too long; compare fewer versions, or read the key.")
        # The first two lines of a unified diff name the files.
        return _TextDiff("\n".join([*difflib.unified_diff(old, new, lineterm="")][2:]))
