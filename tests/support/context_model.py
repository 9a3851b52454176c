"""Reference model of an agent's context: a root line and its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.history_model import Commit, Entry, Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.history_model import Place, State

    # What each part says, by part and key.
    Memory = dict[str, dict[str, Any]]

DEFINITION = "definition"
ARTIFACTS = "work_artifacts"
PARTS = ("conversation_context:w1", "conversation_context:w2", "learned_knowledge", "team_preferences", ARTIFACTS)
ARTIFACT_DAYS = 90


class ContextModel:
    """One agent's context. A root's entry of a part says which line keeps it, and up to which commit."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.roots: dict[str, Line] = {"main": Line(f"context:{owner}")}
        self.parts: dict[str, Line] = {}

    def line_of(self, part: str, branch: str) -> str:
        if part == DEFINITION:
            return f"agent:{self.owner}"
        return f"context:{self.owner}:{part}" + ("" if branch == "main" else f"@{branch}")

    def part_at(self, root: Line, part: str, seq: int | None = None) -> Place | None:
        """Return where a part stood at a version of the whole."""
        named = root.state_at(root.head if seq is None else seq).get(part)
        if named is None:
            return None
        line_id, at = named.value.split()
        return self.parts[line_id], int(at)

    def state(self, root: Line, part: str, seq: int | None = None) -> State:
        at = self.part_at(root, part, seq)
        return {} if at is None else at[0].state_at(at[1])

    def memory(self, branch: str, seq: int | None = None) -> Memory:
        """Return what every part says, or said at a version of the whole."""
        root = self.roots[branch]
        said = {part: _said(self.state(root, part, seq)) for part in (DEFINITION, *PARTS)}
        return {part: state for part, state in said.items() if state}

    def own_line(self, part: str, branch: str) -> Line | None:
        """Return the line that a branch keeps a part on; None as long as it shares that of another."""
        at = self.part_at(self.roots[branch], part)
        return at[0] if at and at[0].name == self.line_of(part, branch) else None

    def grow(self, part: str, branch: str, changes: Mapping[str, Entry | None], now: float) -> Entry:
        """Add a commit to a part, and return what the root says of the part from now on."""
        line = self.own_line(part, branch)
        if line is None:
            line = Line(self.line_of(part, branch), self.part_at(self.roots[branch], part))
            self.parts[line.name] = line
        line.add(Commit(now, changes))
        return Entry(f"{line.name} {line.head}")

    def overdue(self, branch: str, now: float) -> set[str]:
        """Return the artifacts whose time is over, whether or not anybody has noticed."""
        state = self.state(self.roots[branch], ARTIFACTS)
        return {key for key, entry in state.items() if written_at(entry) <= now - ARTIFACT_DAYS}

    def forget_branch(self, branch: str) -> None:
        self.roots.pop(branch).deleted = True
        self.parts = {name: line for name, line in self.parts.items() if not name.endswith(f"@{branch}")}

    def give_up(self, held: set[Place], versions: Mapping[str, int], now: float) -> None:
        """Note which old values retention may have removed: all but those that something needs."""
        needed = {self._owned(moment) for root, seq in {*held, *self._ends()} for moment in self._parts_at(root, seq)}
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

    def _ends(self) -> set[Place]:
        """Return the moments of the whole that have a name, or at which a branch begins or ends."""
        ends = {(root, seq) for root in self.roots.values() for seq in (root.head, *root.named.values())}
        return ends | {root.base for root in self.roots.values() if root.base}

    def _parts_at(self, root: Line, seq: int) -> Iterator[Place]:
        for part in PARTS:
            at = self.part_at(root, part, seq) if seq else None
            if at is not None:
                yield at

    @staticmethod
    def _owned(moment: Place) -> Place:
        line, seq = moment
        return line.owner(seq), seq


def written_at(entry: Entry) -> float:
    assert entry.line is not None
    return entry.line.commits[entry.seq].at


def _said(state: State) -> dict[str, Any]:
    return {key: entry.value for key, entry in state.items()}
