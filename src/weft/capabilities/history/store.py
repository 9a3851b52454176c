"""What history needs of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.model import Commit, Head, Tag, Version


class LineStore(Protocol):
    """Lines, their commits and tags, and the values they name."""

    async def create(self, line_id: str) -> None:
        """Start an empty line."""
        ...

    async def lock(self, line_id: str) -> Head | None:
        """Return the head, keeping other writers of this line waiting until the transaction ends."""
        ...

    async def put_blob(self, blob_hash: bytes, content: str) -> None:
        """Keep a value under its hash; keeping it twice is keeping it once."""
        ...

    async def append(self, head: Head, commit: Commit, *, weight: int, next_expiry_at: int | None) -> Head:
        """Add a commit behind ``head`` and return the new head."""
        ...

    async def set_next_expiry(self, line_id: str, next_expiry_at: int | None) -> None:
        """Note when the next key of a line expires, where no commit does it."""
        ...

    async def last_life(self, line_id: str, key: str) -> int:
        """Return the number of the key's latest life, 0 if it never lived."""
        ...

    async def versions(self, line_id: str, key: str, life: int, limit: int) -> Sequence[Version]:
        """Return the changes of one life of a key, newest first."""
        ...

    async def state_at(self, line_id: str, seq: int) -> Sequence[Version]:
        """Return every key that was live right after commit ``seq``."""
        ...

    async def prune(self, line_id: str, key: str, keep: int) -> None:
        """Forget the values behind a key's newest ``keep``, unless a tag needs them; that they existed stays on record.

        Meant to be called every few versions: it looks at the next several only.
        """
        ...

    async def tag(self, line_id: str, tag: Tag) -> bool:
        """Name a moment; False if the label is taken."""
        ...

    async def tags(self, line_id: str) -> Sequence[Tag]:
        """Return all tags of a line, oldest first."""
        ...

    async def find_tag(self, line_id: str, label: str) -> Tag | None:
        """Return the tag with this label."""
        ...

    async def verify(self, line_id: str) -> str | None:
        """Recompute every hash; return what does not match, or None."""
        ...

    async def sweep(self) -> None:
        """Drop values that were in someone else's hands when they were last forgotten."""
        ...

    async def erase(self, line_id: str) -> None:
        """Remove a line with everything only it refers to."""
        ...
