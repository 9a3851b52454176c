"""The repository that an agent works in, and the names of its agent and session in Weftline."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_HEAD = "ref: refs/heads/"
_MAX_SLUG = 24
_COMMIT_DIGITS = 10
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on this machine; all its worktrees have one root. A folder without one has no branch."""

    root: Path
    branch: str = ""

    @property
    def agent_id(self) -> str:
        """Name the agent that the memory of the repository belongs to; those of its conversations are below it."""
        return f"{slug(self.root.name)}-{short_hash(str(self.root))}"

    @property
    def session_id(self) -> str:
        """Name the session that all agents on this branch share."""
        names = [slug(self.root.name), *([slug(self.branch)] if self.branch else [])]
        return "-".join([*names, short_hash(f"{self.root}\0{self.branch}")])

    def conversation_agent(self, client: str, conversation: str, subagent: str = "") -> str:
        """Name the agent of a conversation, or of a sub-agent in it, which has a window of its own."""
        parts = [self.agent_id, client, short_hash(conversation), *([short_hash(subagent)] if subagent else [])]
        return "-".join(parts)

    def __str__(self) -> str:
        return f"{self.root.name} on {self.branch}" if self.branch else self.root.name


def find_repository(folder: Path) -> Repository:
    """Return the repository that a folder is in, read from its files: starting git for each hook would be slow."""
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return Repository(place, _branch(git))
        if git.is_file():
            return _linked(git, place)
    return Repository(folder)


def slug(name: str) -> str:
    """Return a name with letters, digits and dashes only."""
    return _NOT_IN_NAME.sub("-", name).strip("-")[:_MAX_SLUG].strip("-") or "x"


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _linked(git: Path, place: Path) -> Repository:
    """Return the repository of a worktree or submodule, whose .git is a file that names a folder."""
    try:
        named = git.read_text("utf-8").removeprefix("gitdir:").strip()
        folder = (place / named).resolve()
        common = folder / "commondir"
        shared = (folder / common.read_text("utf-8").strip()).resolve() if common.is_file() else None
    except (OSError, UnicodeDecodeError):
        return Repository(place)
    if shared is None:
        # A submodule is a repository of its own.
        return Repository(place, _branch(folder))
    return Repository(shared.parent if shared.name == ".git" else shared, _branch(folder))


def _branch(git: Path) -> str:
    try:
        head = (git / "HEAD").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return head.removeprefix(_HEAD) if head.startswith(_HEAD) else f"detached-{head[:_COMMIT_DIGITS]}"
