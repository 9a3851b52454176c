"""Diff: entries that differ between two versions of one or two contexts, with a text diff of their values."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import structs

from weftline.history.composite_lines import entries_apart
from weftline.history.line_kinds import is_composite, kind_of
from weftline.history.log import READ_ERRORS
from weftline.history.model import Point, Version
from weftline.history.object_storage import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer, Staging
from weftline.history.revisions import HEAD, ContextId, VersionName, own_transactions_read
from weftline.history.service import History, visible_state
from weftline.history.text_diff import DiffBudget, text_diff
from weftline.history.three_way import same_content
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Request, Response
from weftline.kernel.ports import Transactions
from weftline.kernel.thread_pools import TEXT_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weftline.history.line_kinds import VersionReader
    from weftline.history.three_way import State


# A larger value is not compared, so that a comparison needs little memory; texts in object storage are fetched.
_MAX_BYTES = 2**20
_MAX_FETCHED = 32
_MAX_FETCHES_AT_ONCE = 4
# About a second of work, and 25,000 tokens of text, for one response.
_MAX_STEPS = 1_000_000
_MAX_CHARACTERS = 100_000
# Endings of media types that are text, such as application/ld+json.
_TEXT_SUFFIXES = ("json", "xml", "yaml", "toml", "javascript", "sql")


class CompareVersions(Request):
    """Two versions, of one context or of two."""

    context_id: ContextId
    from_version: VersionName
    to_version: VersionName = HEAD
    other_context_id: Annotated[
        ContextId | None, msgspec.Meta(description="Context of to_version; default: the same context.")
    ] = None
    text: Annotated[bool, msgspec.Meta(description="Include a line by line diff of the values.")] = True
    words: Annotated[
        bool, msgspec.Meta(description="Mark the changed words instead of lines, as [-removed-] and {+added+}.")
    ] = False


class KeyDiff(Response):
    """A key that differs. ``diff`` is a unified diff of its value; ``no_diff`` is the reason if there is none.

    ``omitted_lines`` is the number of lines of the diff that did not fit.
    """

    key: str
    from_version: int | None = None
    to_version: int | None = None
    author: str | None = None
    diff: str | None = None
    no_diff: str | None = None
    omitted_lines: int = 0


class Differences(Response, kw_only=True, omit_defaults=False):
    """Entries that differ between two versions."""

    from_context_id: str
    from_version: int
    to_context_id: str
    to_version: int
    added: list[KeyDiff]
    removed: list[KeyDiff]
    modified: list[KeyDiff]


@own_transactions_read(
    "history.diff", heavy=True, action="diff", http="GET /v1/history/{context_id}/diff", errors=READ_ERRORS
)
async def compare_versions(
    request: CompareVersions, actor: Actor, transactions: Transactions[History], staging: Staging
) -> Differences:
    """Compare two versions: added, removed and modified entries, with a diff of their values."""
    sides = await transactions.read(actor, lambda history: _sides(request, history), heavy=True)
    pairs = differing(sides[0].state, sides[1].state)
    objects = await _fetch(pairs, actor.tenant, staging) if request.text else {}
    # Text diffs are CPU work: keep them off the event loop.
    return await TEXT_THREADS.run(_compare, request, *sides, pairs, objects)


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


class _NoText(NamedTuple):
    """Why a value cannot be compared as text."""

    reason: str


# Versions of a key on both sides; None: it does not exist there.
_Pair = tuple[Version | None, Version | None]
_Objects = dict[str, bytes | _NoText]


async def _fetch(pairs: Sequence[_Pair], tenant: str, staging: Staging) -> _Objects:
    """Fetch the text values of differing keys from object storage, by path."""
    versions = [version for pair in pairs if not _same_value(*pair) for version in pair if version is not None]
    outside = [version for version in versions if version.change.meta.outside and version.value is not None]
    wanted = {
        pointer.object: pointer
        for version in outside
        if (pointer := Pointer.decode(version.value or "")) and _why_no_text(version, pointer.size) is None
    }
    some = list(wanted.values())[:_MAX_FETCHED]
    free = asyncio.Semaphore(_MAX_FETCHES_AT_ONCE)

    async def fetched(pointer: Pointer) -> bytes | _NoText:
        async with free:
            try:
                return await staging.fetch(tenant, pointer)
            except (ObjectStorageUnavailable, ObjectMissing, ObjectDamaged) as error:
                return _NoText(f"A value could not be read: {error.message}")

    contents = await asyncio.gather(*map(fetched, some))
    return dict(zip((pointer.object for pointer in some), contents, strict=True))


def _compare(
    request: CompareVersions, before: _Side, after: _Side, pairs: Sequence[_Pair], objects: _Objects
) -> Differences:
    texts = _TextDiffs(request, objects) if request.text else None
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
    diff = KeyDiff(
        key=next(version.change.key for version in (old, new) if version),
        from_version=old.change.version if old else None,
        to_version=new.change.version if new else None,
        author=new.author if new else None,
    )
    return diff if texts is None else texts.add_to(diff, old, new)


def _same_value(old: Version | None, new: Version | None) -> bool:
    return old is not None and new is not None and old.change.blob_hash == new.change.blob_hash


def _why_no_text(version: Version, size: int) -> _NoText | None:
    """Return why a value is not compared, as far as that is known without reading it."""
    media_type = version.change.meta.media_type
    if media_type is not None and not _is_text_type(media_type):
        return _NoText(f"A value is not text but {media_type[:100]}.")
    if size > _MAX_BYTES:
        return _NoText(f"A value has more than {_MAX_BYTES} bytes; read the key at both versions.")
    return None


def _is_text_type(media_type: str) -> bool:
    kind = media_type.lower()
    return kind.startswith("text/") or kind.endswith(_TEXT_SUFFIXES)


def _shown_text(line_id: str, stored: str, media_type: str | None = None) -> str:
    """Return a stored value as lines of text: a string as it is, other JSON indented."""
    if kind_of(line_id).is_text(media_type):
        return stored
    return msgspec.json.decode(stored, type=str) if stored.startswith('"') else msgspec.json.format(stored, indent=2)


def _without(state: Mapping[str, Version], keys: set[str]) -> State:
    return {key: version for key, version in state.items() if key not in keys}


class _TextDiffs:
    """Text diffs of one response, which share a limit of work and of size."""

    def __init__(self, request: CompareVersions, objects: _Objects) -> None:
        self._before_id = request.context_id
        self._after_id = request.other_context_id or request.context_id
        self._words = request.words
        self._objects = objects
        self._budget = DiffBudget(_MAX_STEPS, _MAX_CHARACTERS)

    def add_to(self, diff: KeyDiff, old: Version | None, new: Version | None) -> KeyDiff:
        """Return the difference of a key with the diff of its values, or with the reason why it has none."""
        if _same_value(old, new):
            return structs.replace(diff, no_diff="The value is the same; its type, ACL, expiry or metadata changed.")
        before, after = self._text(self._before_id, old), self._text(self._after_id, new)
        for side in (before, after):
            if isinstance(side, _NoText):
                return structs.replace(diff, no_diff=side.reason)
        if self._budget.characters <= 0:
            why = "The response would be too long; compare fewer versions, or read the key."
            return structs.replace(diff, no_diff=why)
        made = text_diff(str(before), str(after), self._budget, words=self._words)
        return structs.replace(diff, diff=made.text, omitted_lines=made.omitted_lines)

    def _text(self, line_id: str, version: Version | None) -> str | _NoText:
        """Return the value of a version as text."""
        if version is None:
            return ""
        if version.value is None:
            return _NoText("A value was pruned.")
        outside = Pointer.decode(version.value) if version.change.meta.outside else None
        why = _why_no_text(version, len(version.value) if outside is None else outside.size)
        if why is not None:
            return why
        if outside is None:
            return _shown_text(line_id, version.value, version.change.meta.media_type)
        content = self._objects.get(outside.object, _NoText("Too many values are in object storage; read the key."))
        return content if isinstance(content, _NoText) else self._decoded(line_id, version, content)

    def _decoded(self, line_id: str, version: Version, content: bytes) -> str | _NoText:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return _NoText("A value is not text in UTF-8.")
        return text if version.change.meta.media_type is not None else _shown_text(line_id, text)
