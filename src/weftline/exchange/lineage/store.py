"""Storage port of lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# Two keys with a shorter value, such as "done" or true, have it by chance.
MIN_COPIED_BYTES = 20


class Derivation(NamedTuple):
    """An item of which a version names a source as what it was derived from; both without version."""

    source: str
    item: str
    at: int


class DerivedSummary(NamedTuple):
    """A recorded summary that names an item, in one version, among its sources."""

    source: str
    summary_id: str
    at: int


class StoredVersion(NamedTuple):
    """A version of a key that holds a value, with the time and author of its commit."""

    line_id: str
    key: str
    incarnation: int
    version: int
    seq: int
    at: int
    by: str
    blob_hash: bytes

    @property
    def item(self) -> str:
        return f"{self.line_id}/{self.key}"


class SentPrompt(NamedTuple):
    """A prompt that was assembled for an agent, with the hashes of its items."""

    receipt_id: str
    session_id: str
    agent_id: str
    at: int
    items: bytes


class LineageStore(Protocol):
    """Derivations, copies and prompts of the transaction's tenant."""

    async def derived_from(self, sources: Iterable[str]) -> Sequence[Derivation]:
        """Return what declares one of these sources."""
        ...

    async def summaries_of(self, item_ids: Iterable[str]) -> Sequence[DerivedSummary]:
        """Return the recorded summaries of these items, oldest first."""
        ...

    async def versions(self, line_id: str, key: str) -> Sequence[StoredVersion]:
        """Return the versions of a key on its own line whose values are stored, oldest first."""
        ...

    async def copies(self, blob_hashes: Iterable[bytes], since: int, limit: int) -> Sequence[StoredVersion]:
        """Return versions of any line with one of these values, oldest first; not of values that many keys have."""
        ...

    async def prompts(self, agent_id: str | None, since: tuple[int, str], limit: int) -> Sequence[SentPrompt]:
        """Return prompts after a time and receipt id, in order, of one agent or of all."""
        ...

    async def next_prompt_at(self, session_id: str, agent_id: str, after: int) -> int | None:
        """Return when the next prompt of a window was assembled."""
        ...

    async def erase_values(self, versions: Sequence[StoredVersion]) -> int:
        """Remove values of versions from history, as pruning does; hashes and metadata stay. Return the freed bytes."""
        ...

    async def erase_prompt_texts(self, item: str, receipt_ids: Iterable[str]) -> int:
        """Delete the stored texts of the blocks of these prompts that contain an item; return how many."""
        ...
