"""Read access to a board, or to a branch of it, for one caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weftline.history.board_lines import line_of
from weftline.history.model import VersionPruned, line_name
from weftline.history.revisions import snapshots_of
from weftline.kernel.errors import MAX_COMPARED, InvalidInput, close_names
from weftline.kernel.identity import ANYONE
from weftline.state.board.branch_entries import BranchEntries
from weftline.state.board.model import KeyNotFound, check_key, check_value_size
from weftline.state.board.read_acl import later_acls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.history.model import Tag, Version
    from weftline.sessions.model import Session
    from weftline.state.board.model import Entry, EntryWithValue
    from weftline.state.board.service import Boards
    from weftline.state.board.store import EntryStore


@dataclass(slots=True)
class BoardView:
    """A board opened for reading."""

    boards: Boards
    session: Session
    branch: str | None
    now: int
    entries: EntryStore = field(init=False)

    def __post_init__(self) -> None:
        on_branch = self.branch is not None
        self.entries = BranchEntries(self.boards.lines, self.line_id) if on_branch else self.boards.entries

    @property
    def line_id(self) -> str:
        return line_name(line_of(self.session.session_id), self.branch)

    async def live(self) -> Sequence[Entry]:
        """Return every unexpired entry, also those that the caller may not read."""
        return [e for e in await self.entries.list(self.session.session_id) if e.lives_at(self.now)]

    async def read(self, keys: Sequence[str]) -> dict[str, EntryWithValue]:
        """Return the given keys that exist and that the caller may read."""
        for key in keys:
            check_key(key, namespaces=self.session.config.namespaces)
        found = await self.entries.read(self.session.session_id, keys)
        visible = {f.entry.key: f for f in found if f.entry.lives_at(self.now) and f.entry.readable(self.boards.actor)}
        for key, each in visible.items():
            if each.lost:
                raise VersionPruned(f"The value of '{key}' was pruned before the branch started.", key=key)
        if self.branch is None:
            for key in visible:
                self.boards.tally.note(self.boards.actor.tenant, self.session.session_id, key, self.now)
        return visible

    async def readable(self) -> Sequence[EntryWithValue]:
        """Return every unexpired entry that the caller may read, with its value."""
        entries = await self.entries.read_all(self.session.session_id)
        return [f for f in entries if f.entry.lives_at(self.now) and f.entry.readable(self.boards.actor)]

    async def missing(self, key: str) -> KeyNotFound:
        """Return the error for a missing key, with similar keys as alternatives."""
        readable = [entry.key for entry in (await self.live())[:MAX_COMPARED] if entry.readable(self.boards.actor)]
        where = "The board" if self.branch is None else f"The branch '{self.branch}' of the board"
        return KeyNotFound(
            f"{where} has no key '{key}'.",
            resource_type="key",
            resource_id=key,
            available_alternatives=close_names(key, readable),
        )

    def checked_tokens(self, value: str) -> int:
        """Return the size of a new value; raises ValueTooLarge."""
        tokens = self._count(value)
        check_value_size(tokens, self.session.config)
        return tokens

    def _count(self, value: str) -> int:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("value: not valid text (it holds half of a surrogate pair)", field="value") from error
        # An empty value counts as one token, so that a board of empty keys fills up too.
        return max(1, self.boards.counters.named(self.session.config.tokenizer)(value))

    async def snapshots(self) -> list[Tag]:
        return await snapshots_of(self.boards.lines, self.line_id)

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        """Return the versions that the caller may read: by their own ACL and by every later one of the key."""
        readable = [v for v in versions if self.boards.actor.matches(v.change.meta.readable_by or ANYONE)]
        later = await later_acls(self.boards.lines, self.line_id, readable)
        return [v for v, acls in zip(readable, later, strict=True) if all(map(self.boards.actor.matches, acls))]
