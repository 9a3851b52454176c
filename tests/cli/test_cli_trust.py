"""weftline trust: trace what was derived from an item, and forget it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli_support import CommandLine

SOURCE = "board:launch/goal"


def test_a_source_is_traced_and_forgotten(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "ship on Friday")
    assert launch.run("trust", "trace", SOURCE).stdout == f"Nothing was derived from {SOURCE}.\n"
    launch.run("board", "write", "plan", "ship on Friday, then rest", "--derived-from", SOURCE)
    traced = launch.run("trust", "trace", SOURCE).stdout
    assert "declared" in traced
    assert "board:launch/plan" in traced
    dry = launch.run("trust", "forget", SOURCE, "poisoned", "--yes").stdout
    assert "2 deleted, 0 flagged, 0 skipped." in dry
    assert "Nothing was changed" in dry
    launch.run("board", "read", "plan")
    done = launch.run("trust", "forget", SOURCE, "poisoned", "--no-dry-run", "--yes").stdout
    assert "Text removed from 2 versions and 0 blocks of stored prompts." in done
    for key in ("goal", "plan"):
        launch.run("board", "read", key, code=1)
