"""Which sources of a compaction or summary have changed since it was made."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from weftline.history.model import LATEST
from weftline.records.model import ContextCompaction, ContextSummary
from weftline.records.record_ids import COMPACTION, SummaryId, VersionId, parse_item_id
from weftline.sessions.recorder import id_of_ref
from weftline.windows.redacted_events import redacted_items, redactions_of_items

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.exchange.record_log.lookup import RecordLookup
    from weftline.history.store import LineStore
    from weftline.records.model import Record

_OWN = "Prompts contain these sources instead of the summary. Compact the window again with context.compact."
_RECORDED = "Summarise the current versions and add the result as a new record with records.add."


def refresh_hint(record: Record) -> str:
    """Return what to do about a record whose sources have changed."""
    is_own = SummaryId.parse(record.id) is not None or record.id.startswith(COMPACTION)
    return _OWN if is_own else _RECORDED


async def stale_sources(record: Record, look: RecordLookup) -> list[str]:
    """Return the sources that were changed, removed or redacted since, of those that the caller may read."""
    if not isinstance(record, ContextCompaction | ContextSummary):
        return []
    names = dict.fromkeys(map(id_of_ref, record.source_item_refs))
    sources = [each.ref.id for each in await look.records([*map(parse_item_id, names)]) if each is not None]
    versions = {source: version for source in sources if (version := VersionId.parse(source)) is not None}
    stale = await _replaced(versions, look.finder.lines)
    redactions = await redactions_of_items(sources, look.finder.records)
    stale |= set(redacted_items(sources, redactions))
    return [source for source in sources if source in stale]


async def _replaced(versions: Mapping[str, VersionId], lines: LineStore) -> set[str]:
    """Return the versions that are not the current ones of their keys."""
    by_line: dict[str, set[str]] = defaultdict(set)
    for version in versions.values():
        by_line[version.line_id].add(version.key)
    current: set[str] = set()
    for line_id, keys in by_line.items():
        for each in await lines.latest_of_each(line_id, sorted(keys), LATEST):
            current.add(str(VersionId(line_id, each.change.key, each.change.incarnation, each.change.version)))
    return versions.keys() - current
