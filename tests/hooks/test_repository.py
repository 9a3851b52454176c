"""Which repository a folder is in."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from support.hooks import add_worktree, make_repository
from weftline.kernel.fields import is_name
from weftline.transports.hooks.repository import Repository, find_repository

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_below_the_root_is_in_the_repository(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "shop", "feature/prices")
    (root / "src" / "deep").mkdir(parents=True)
    assert find_repository(root / "src" / "deep") == Repository(root, "feature/prices")


def test_real_git_is_read_as_git_says(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(tmp_path / "shop")]
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path / "shop")], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", "-b", "fix", str(tmp_path / "tree")], check=True)
    assert find_repository(tmp_path / "tree") == Repository(tmp_path / "shop", "fix")
    subprocess.run([*git, "checkout", "-q", "--detach"], check=True)
    assert find_repository(tmp_path / "shop").branch.startswith("detached-")


def test_worktrees_share_the_agent_and_not_the_session(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "shop")
    tree = find_repository(add_worktree(root, tmp_path / "tree", "fix"))
    assert (tree.root, tree.branch) == (root, "fix")
    assert tree.agent_id == find_repository(root).agent_id


def test_a_folder_without_a_repository_stands_for_itself(tmp_path: Path) -> None:
    assert find_repository(tmp_path) == Repository(tmp_path)


def test_names_are_valid_and_distinct_whatever_the_folder_is_called(tmp_path: Path) -> None:
    names = [Repository(tmp_path / name, branch) for name in ("ü", "a b", "x" * 90) for branch in ("", "a/b", "a-b")]
    assert all(is_name(each.session_id) and is_name(each.conversation_agent("claude-code", "c", "s")) for each in names)
    assert len({each.session_id for each in names}) == len(names)
