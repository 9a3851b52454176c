"""History for people: a log that reads like one, and a diff that looks like one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.capabilities.timeline.comparing import Differences
from weft.capabilities.timeline.operations import CommitInfo, CommitShown, Log
from weft.transports.cli.render import cell, harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.capabilities.timeline.comparing import KeyDiff
    from weft.capabilities.timeline.operations import ChangeInfo

_SHORT_HASH = 10
_SIGNS = {"write": click.style("+", fg="green"), "delete": click.style("-", fg="red")}
_EXPIRED = click.style("×", fg="red")  # noqa: RUF001 - a cross, not a letter
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _render_log(log: Log) -> str:
    if not log.commits:
        return "Nothing was done yet."
    shown = ["\n".join(_commit(commit)) for commit in log.commits]
    more = f"\n\nThere is more: --before-version {log.commits[-1].version}" if log.has_more else ""
    return "\n".join(shown) + more


def _render_commit(shown: CommitShown) -> str:
    commit = shown.commit
    lines = [*_commit(commit, whole_hash=True)]
    lines += [f"    after {shown.parent}"] if shown.parent else []
    lines += [f"    named {', '.join(map(harmless, shown.snapshots))}"] if shown.snapshots else []
    return "\n".join(lines)


def _render_differences(found: Differences) -> str:
    one, other = f"{found.from_context_id} v{found.from_version}", f"{found.to_context_id} v{found.to_version}"
    parts = [
        *(_key(diff, f"added {diff.key} (v{diff.to_version}, {diff.author})") for diff in found.added),
        *(_key(diff, f"removed {diff.key} (was v{diff.from_version})") for diff in found.removed),
        *(
            _key(diff, f"modified {diff.key} (v{diff.from_version} to v{diff.to_version}, {diff.author})")
            for diff in found.modified
        ),
    ]
    title = click.style(f"{one} .. {other}", bold=True)
    return "\n\n".join([title, *(parts or ["Nothing differs."])])


def _commit(commit: CommitInfo, *, whole_hash: bool = False) -> Iterator[str]:
    version = click.style(f"v{commit.version}", fg="yellow")
    short = commit.hash if whole_hash else commit.hash[:_SHORT_HASH]
    step = f" (step {commit.step})" if commit.step else ""
    yield f"{version} {short}  {cell(commit.at)}  {click.style(harmless(commit.author), bold=True)}"
    yield f"    {harmless(commit.reason)}{step}"
    if commit.merged:
        yield f"    brings in {commit.merged.context_id} v{commit.merged.version}"
    for change in commit.changes:
        yield f"    {_change(change)}"


def _change(change: ChangeInfo) -> str:
    size = f", {change.size_tokens} tokens" if change.size_tokens else ""
    return f"{_SIGNS.get(change.act, _EXPIRED)} {harmless(change.key)} (v{change.key_version}{size})"


def _key(diff: KeyDiff, title: str) -> str:
    lines = [click.style(harmless(title), bold=True)]
    if diff.diff is not None:
        lines += [_coloured(line) for line in harmless(diff.diff).split("\n")]
    if diff.no_diff is not None:
        lines.append(f"({harmless(diff.no_diff)})")
    return "\n".join(lines)


def _coloured(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    return line if colour is None else click.style(line, fg=colour)


# Which answers are shown in which form of their own.
FORMS: dict[type, Callable[[Any], str]] = {
    Log: _render_log,
    CommitShown: _render_commit,
    Differences: _render_differences,
}
