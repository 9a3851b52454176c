"""``metadata.weftline``: what Weftline itself writes about a record, such as its author. Callers may not write it.

Readers of stored records never rely on its form: an older Weftline, or another one that exported the record, wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from weftline.records.model import ContextSourceRef
from weftline.records.refs import Digest, RecordPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.records.model import Record

ENGINE: Final = "weftline"


class PassageDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a source reference from Weftline carries. Callers cite with it, and resolution checks it."""

    passage_digest: Digest


def engine_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that Weftline wrote; none if there are none, or they do not have the form of fields."""
    native = metadata.get(ENGINE)
    return native if isinstance(native, dict) else {}


def claimed_paths(record: Record) -> Iterator[str]:
    """Yield the paths in a caller's record where it has metadata that only Weftline may write."""
    return _claimed(record, "")


def _claimed(value: object, path: str) -> Iterator[str]:
    if isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from _claimed(each, f"{path}[{place}]")
    elif isinstance(value, RecordPart):
        if _claims_engine_metadata(value):
            yield f"{path}.metadata.{ENGINE}"
        for name in value.__struct_fields__:
            yield from _claimed(getattr(value, name), f"{path}.{name}")


def _claims_engine_metadata(part: RecordPart) -> bool:
    metadata = getattr(part, "metadata", None)
    if not isinstance(metadata, dict) or ENGINE not in metadata:
        return False
    return not (isinstance(part, ContextSourceRef) and _is_passage_digest(metadata[ENGINE]))


def _is_passage_digest(native: object) -> bool:
    try:
        msgspec.convert(native, PassageDigest)
    except msgspec.ValidationError:
        return False
    return True
