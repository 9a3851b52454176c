"""Reference model of history: states are dictionaries, ancestors are found commit by commit.

It is independent of how history is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    State = dict[str, "Entry"]
    Place = tuple["Line", int]


class Entry(NamedTuple):
    """The value of a key, its expiry time, and the commit that wrote it."""

    value: str
    expires_at: float | None = None
    line: Line | None = None
    seq: int = 0

    @property
    def content(self) -> tuple[str, float | None]:
        return self.value, self.expires_at

    def is_live_at(self, now: float) -> bool:
        return self.expires_at is None or self.expires_at > now


@dataclass(frozen=True)
class Commit:
    """Changes of keys (None: deleted), and the point that was merged."""

    at: float
    changes: Mapping[str, Entry | None]
    merged: Place | None = None


@dataclass(eq=False)
class Line:
    """A line of commits; a branch starts at a version of another line."""

    name: str
    base: Place | None = None
    commits: dict[int, Commit] = field(default_factory=dict)
    # Versions with a tag, and values that retention has removed.
    named: dict[str, int] = field(default_factory=dict)
    pruned: set[tuple[str, int]] = field(default_factory=set)
    deleted: bool = False

    @property
    def first(self) -> int:
        return self.base[1] if self.base else 0

    @property
    def head(self) -> int:
        return self.first + len(self.commits)

    def owner(self, seq: int) -> Line:
        """Return the line that holds a commit of this line's past."""
        return self.base[0].owner(seq) if self.base and seq <= self.first else self

    def commit_at(self, seq: int) -> Commit | None:
        return self.owner(seq).commits.get(seq)

    def add(self, commit: Commit) -> None:
        self.commits[self.head + 1] = commit

    def state_at(self, seq: int) -> State:
        """Return the state right after a commit."""
        commit = self.commit_at(seq)
        return {
            key: entry for key, entry in self._state_with_expired(seq).items() if commit and entry.is_live_at(commit.at)
        }

    def present(self, now: float) -> State:
        """Return the current state without expired entries."""
        return {key: entry for key, entry in self._state_with_expired(self.head).items() if entry.is_live_at(now)}

    def _state_with_expired(self, seq: int) -> State:
        state = self.base[0]._state_with_expired(min(seq, self.first)) if self.base else {}
        for number in range(self.first + 1, seq + 1):
            for key, entry in self.commits[number].changes.items():
                if entry is None:
                    state.pop(key, None)
                else:
                    state[key] = entry._replace(line=self, seq=number)
        return state

    def expired(self, now: float) -> set[str]:
        return {key for key, entry in self._state_with_expired(self.head).items() if not entry.is_live_at(now)}

    @staticmethod
    def is_pruned(key: str, entry: Entry) -> bool:
        return entry.line is not None and (key, entry.seq) in entry.line.pruned

    def changes_of(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each key of the line's own commits with the commits that changed it."""
        keys = {key for commit in self.commits.values() for key in commit.changes}
        for key in keys:
            yield key, [seq for seq, commit in self.commits.items() if key in commit.changes]


def ancestors(place: Place) -> set[Place]:
    """Return a commit and its ancestors, also through merges of lines that still exist."""
    found: set[Place] = set()
    waiting = [place]
    while waiting:
        line, seq = waiting.pop()
        owner = line.owner(seq)
        if seq == 0 or (owner, seq) in found:
            continue
        found.add((owner, seq))
        waiting.append((owner, seq - 1))
        merged = owner.commits[seq].merged
        if merged is not None and not merged[0].deleted:
            waiting.append(merged)
    return found


def merge_bases(one: Place, other: Place) -> set[Place]:
    """Return the best common ancestors: those that are no ancestor of another one."""
    both = ancestors(one) & ancestors(other)
    before = {earlier for place in both for earlier in ancestors(place) - {place}}
    return both - before


def three_way(base: State, ours: State, theirs: State) -> tuple[dict[str, Entry | None], set[str]]:
    """Return what to take over from their side, and the keys that both sides changed."""
    taken: dict[str, Entry | None] = {}
    conflicts = set()
    for key in {*base, *ours, *theirs}:
        then, here, there = (side[key].content if key in side else None for side in (base, ours, theirs))
        if there in (then, here):
            continue
        if here == then:
            taken[key] = theirs.get(key)
        else:
            conflicts.add(key)
    return taken, conflicts


def prune(lines: list[Line], versions: int) -> int:
    """Remove values with at least ``versions`` newer ones, unless a tag, a branch or the head needs them."""
    removed = 0
    for line in lines:
        protected = {*line.named.values(), *(other.first for other in lines if other.base and other.base[0] is line)}
        for key, seqs in line.changes_of():
            writes = [seq for seq in seqs if line.commits[seq].changes[key] is not None]
            for seq in writes[:-versions]:
                following = min(later for later in seqs if later > seq)
                entry = line.commits[seq].changes[key]
                known = entry is None or (key, seq) in line.pruned
                if not known and not any(seq <= place < following for place in protected):
                    line.pruned.add((key, seq))
                    removed += 1
    return removed
