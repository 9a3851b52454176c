"""Reference model of an agent's context: a root line and its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.history_model import Commit, Entry, Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.history_model import Place, State

    # The values of each part, by part and key.
    Memory = dict[str, dict[str, Any]]

DEFINITION = "definition"
ARTIFACTS = "work_artifacts"
PARTS = ("conversation_context:w1", "conversation_context:w2", "learned_knowledge", "team_preferences", ARTIFACTS)
ARTIFACT_DAYS = 90


class ContextModel:
    """One agent's context. The root's entry of a part holds the part's line id and commit number."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.roots: dict[str, Line] = {"main": Line(f"context:{owner}")}
        self.parts: dict[str, Line] = {}

    def line_of(self, part: str, branch: str) -> str:
        if part == DEFINITION:
            return f"agent:{self.owner}"
        return f"context:{self.owner}:{part}" + ("" if branch == "main" else f"@{branch}")

    def part_at(self, root: Line, part: str, seq: int | None = None) -> Place | None:
        """Return the line and commit of a part at a version of the root."""
        entry = root.state_at(root.head if seq is None else seq).get(part)
        if entry is None:
            return None
        line_id, at = entry.value.split()
        return self.parts[line_id], int(at)

    def state(self, root: Line, part: str, seq: int | None = None) -> State:
        at = self.part_at(root, part, seq)
        return {} if at is None else at[0].state_at(at[1])

    def memory(self, branch: str, seq: int | None = None) -> Memory:
        """Return the values of every part, now or at a version of the root."""
        root = self.roots[branch]
        values = {part: _values(self.state(root, part, seq)) for part in (DEFINITION, *PARTS)}
        return {part: state for part, state in values.items() if state}

    def own_line(self, part: str, branch: str) -> Line | None:
        """Return the branch's own line of a part; None while it shares the line of another branch."""
        at = self.part_at(self.roots[branch], part)
        return at[0] if at and at[0].name == self.line_of(part, branch) else None

    def commit_part(self, part: str, branch: str, changes: Mapping[str, Entry | None], now: float) -> Entry:
        """Add a commit to a part; return the root's new entry for the part."""
        line = self.own_line(part, branch)
        if line is None:
            line = Line(self.line_of(part, branch), self.part_at(self.roots[branch], part))
            self.parts[line.name] = line
        line.add(Commit(now, changes))
        return Entry(f"{line.name} {line.head}")

    def expired_artifacts(self, branch: str, now: float) -> set[str]:
        """Return the keys of expired artifacts, including those not yet deleted."""
        state = self.state(self.roots[branch], ARTIFACTS)
        return {key for key, entry in state.items() if written_at(entry) <= now - ARTIFACT_DAYS}

    def forget_branch(self, branch: str) -> None:
        self.roots.pop(branch).deleted = True
        self.parts = {name: line for name, line in self.parts.items() if not name.endswith(f"@{branch}")}

    def mark_prunable(self, protected: set[Place], versions: Mapping[str, int], now: float) -> None:
        """Mark the old values that retention may remove: those that no tag, branch or head needs."""
        needed = {
            self._owned(point)
            for root, seq in {*protected, *self._protected_points()}
            for point in self._parts_at(root, seq)
        }
        needed |= {self._owned((line, seq)) for line in self.parts.values() for seq in line.named.values()}
        needed |= {self._owned(line.base) for line in self.parts.values() if line.base}
        for line in self.parts.values():
            sort = line.name.partition("@")[0].split(":")[2:3]
            keep = versions.get(sort[0]) if sort else None
            for key, seqs in line.changes_of():
                writes = [seq for seq in seqs if line.commits[seq].changes[key] is not None]
                old = set(writes[:-keep]) if keep else set()
                if sort == [ARTIFACTS]:
                    old |= {seq for seq in writes if line.commits[seq].at < now - ARTIFACT_DAYS} - {seqs[-1]}
                for seq in old:
                    following = min(later for later in seqs if later > seq)
                    if not any(line is other and seq <= at < following for other, at in needed):
                        line.pruned.add((key, seq))

    def _protected_points(self) -> set[Place]:
        """Return the root's tagged versions, heads and branch bases."""
        ends = {(root, seq) for root in self.roots.values() for seq in (root.head, *root.named.values())}
        return ends | {root.base for root in self.roots.values() if root.base}

    def _parts_at(self, root: Line, seq: int) -> Iterator[Place]:
        for part in PARTS:
            at = self.part_at(root, part, seq) if seq else None
            if at is not None:
                yield at

    @staticmethod
    def _owned(point: Place) -> Place:
        line, seq = point
        return line.owner(seq), seq


def written_at(entry: Entry) -> float:
    assert entry.line is not None
    return entry.line.commits[entry.seq].at


def _values(state: State) -> dict[str, Any]:
    return {key: entry.value for key, entry in state.items()}
