"""History: log, diff, merges and reviews with all sides of a conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from weftline.transports.cli.render import block, cell, counted, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weftline.history.diff import Differences, KeyDiff
    from weftline.history.log import ChangeInfo, CommitInfo, CommitShown, Log
    from weftline.history.merge_operations import ConflictInfo, Merged, Side
    from weftline.history.merge_reviews import ReviewInfo, Reviews

_SHORT_HASH = 10
_SIGNS = {"write": click.style("+", fg="green"), "delete": click.style("-", fg="red")}
_EXPIRED = click.style("×", fg="red")  # noqa: RUF001 - a cross, not a letter
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _render_log(log: Log) -> str:
    if not log.commits:
        return "No commits."
    shown = ["\n".join(_commit(commit)) for commit in log.commits]
    more = f"\n\nMore: --before-version {log.commits[-1].version}" if log.has_more else ""
    return "\n".join(shown) + more


def _render_commit(shown: CommitShown) -> str:
    commit = shown.commit
    lines = [*_commit(commit, whole_hash=True)]
    lines += [f"    parent {shown.parent}"] if shown.parent else []
    lines += [f"    snapshots {', '.join(map(escape_controls, shown.snapshots))}"] if shown.snapshots else []
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
    return "\n\n".join([title, *(parts or ["No differences."])])


def _commit(commit: CommitInfo, *, whole_hash: bool = False) -> Iterator[str]:
    version = click.style(f"v{commit.version}", fg="yellow")
    short = commit.hash if whole_hash else commit.hash[:_SHORT_HASH]
    step = f" (step {commit.step})" if commit.step else ""
    yield f"{version} {short}  {cell(commit.at)}  {click.style(_who(commit.author, commit.agent_id), bold=True)}"
    yield f"    {escape_controls(commit.reason)}{step}"
    if commit.merged:
        yield f"    merges {commit.merged.context_id} v{commit.merged.version}"
    for change in commit.changes:
        yield f"    {_change(change)}"


def _change(change: ChangeInfo) -> str:
    size = f", {counted(change.size_tokens, 'token')}" if change.size_tokens else ""
    return f"{_SIGNS.get(change.act, _EXPIRED)} {escape_controls(change.key)} (v{change.key_version}{size})"


def _key(diff: KeyDiff, title: str) -> str:
    lines = [click.style(escape_controls(title), bold=True)]
    if diff.diff is not None:
        lines += [_coloured(line) for line in escape_controls(diff.diff).split("\n")]
    if diff.omitted_lines:
        lines.append(f"({counted(diff.omitted_lines, 'more line')})")
    if diff.no_diff is not None:
        lines.append(f"({escape_controls(diff.no_diff)})")
    return "\n".join(lines)


def _coloured(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    return line if colour is None else click.style(line, fg=colour)


def _render_merge(answer: Merged) -> str:
    if answer.review_id is None:
        taken = ", ".join(map(escape_controls, answer.taken)) or "none"
        return f"Merged: {answer.context_id} is at v{answer.version}. Keys taken over: {taken}."
    keys = counted(len(answer.conflicts) + answer.hidden_conflicts, "key")
    summary = f"Not merged: both sides changed {keys}. Review {answer.review_id} is open for a human decision."
    return "\n\n".join([summary, *_conflicts(answer.review_id, answer.conflicts, answer.hidden_conflicts)])


def _render_reviews(found: Reviews) -> str:
    if not found.reviews:
        return "No reviews."
    more = [f"More: --cursor {found.next_cursor}"] if found.next_cursor else []
    return "\n\n".join([*map(_render_review, found.reviews), *more])


def _render_review(review: ReviewInfo) -> str:
    title = click.style(f"{review.review_id} ({review.state})", fg="yellow")
    facts = {
        "merge": f"{review.from_context_id} into {review.context_id}",
        "opened": f"{cell(review.opened_at)} by {escape_controls(review.opened_by)}",
        "reason": escape_controls(review.reason),
        "decided": f"{cell(review.decided_at)} by {escape_controls(review.decided_by)}" if review.decided_by else "",
    }
    shown = f"{title}\n{indent(block({name: text for name, text in facts.items() if text}))}"
    sides = _conflicts(review.review_id, review.conflicts, review.hidden_conflicts) if review.state == "open" else ()
    return "\n\n".join([shown, *map(indent, sides)])


def _conflicts(review_id: str, conflicts: Sequence[ConflictInfo], hidden: int) -> Iterator[str]:
    """Yield both sides of every key in conflict, and the command that resolves them."""
    for conflict in conflicts:
        sides = (("base", conflict.base), ("ours", conflict.ours), ("theirs", conflict.theirs))
        shown = "\n".join(indent(_side(name, side)) for name, side in sides)
        yield f"{click.style(escape_controls(conflict.key), bold=True)}\n{shown}"
    if hidden:
        yield f"And {counted(hidden, 'key')} that you may not read: someone who may read them has to decide."
    elif conflicts:
        example = msgspec.json.encode({conflict.key: {"take": "ours"} for conflict in conflicts}).decode()
        yield (
            "Choose ours, theirs, base or a new value for every key:\n"
            f"  weftline history resolve {review_id} '{escape_controls(example)}'"
        )


def _side(name: str, side: Side | None) -> str:
    title = click.style(f"{name:<6}", fg="cyan")
    if side is None:
        return f"{title}  absent"
    heading = f"{title}  v{side.key_version}  {cell(side.at)}  {_who(side.author, side.agent_id)}"
    return f"{heading}\n{indent(indent(_value(side)))}"


def _value(side: Side) -> str:
    if side.pruned:
        return "(value pruned)"
    if side.outside:
        return "(large value: read it by its key)"
    return escape_controls(side.value if isinstance(side.value, str) else msgspec.json.encode(side.value).decode())


def _who(author: str, agent_id: str) -> str:
    """Return the author, with the agent id unless the author contains it."""
    return escape_controls(author if agent_id in author.split(":") else f"{author} ({agent_id})")


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "history.log": _render_log,
    "history.show": _render_commit,
    "history.diff": _render_differences,
    "history.merge": _render_merge,
    "history.reviews": _render_reviews,
    "history.review": _render_review,
}
