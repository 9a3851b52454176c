"""History of any context: log, differences, blame, branches, rollback with a preview; merge reviews; compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.revisions import HEAD
from weftline.transports.console.side_by_side import as_text, compared
from weftline.transports.console.timeline import Lane, draw
from weftline.transports.console.view import Page, whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from weftline.history.diff import Differences
    from weftline.history.merge_operations import ConflictInfo
    from weftline.history.text_diff import TextDiff
    from weftline.transports.console.view import PageView

_LISTED_BRANCHES = 50
_DRAWN_BRANCHES = 12
_DRAWN_COMMITS = 60
_SHOWN_CHANGES = 50


async def log(view: PageView) -> Response:
    context_id = view.part("context_id")
    branches = await view.call("history.branches", context_id=context_id)
    listed = await view.call(
        "history.log",
        context_id=context_id,
        key=view.query("key"),
        before_version=view.query("before"),
        limit=50,
    )
    return view.render(
        "log.html",
        context_id=context_id,
        commits=listed.commits,
        trunk=branches.context_id,
        branches=view.page_of(branches.branches, _LISTED_BRANCHES),
        following=listed.commits[-1].version if listed.has_more else None,
        tab="log",
    )


async def graph(view: PageView) -> Response:
    """Draw the newest commits of a context and its branches."""
    context_id = view.part("context_id")
    listed = await view.call("history.branches", context_id=context_id)
    branches = view.page_of(listed.branches, _DRAWN_BRANCHES)
    lanes = [Lane(each.context_id, each.branch, each.from_context_id, each.from_version) for each in branches.rows]
    shown = [Lane(listed.context_id, "main"), *lanes]
    logs = {
        each.context_id: (await view.call("history.log", context_id=each.context_id, limit=_DRAWN_COMMITS)).commits
        for each in shown
    }
    return view.render(
        "graph.html",
        context_id=context_id,
        graph=draw(shown, logs, _DRAWN_COMMITS),
        shown=shown,
        branches=branches,
        tab="graph",
    )


async def verified(view: PageView) -> Response:
    """Show whether every hash and signature of a context is as it was written."""
    context_id = view.part("context_id")
    found = await view.call("history.verify", context_id=context_id)
    return view.render("verified.html", context_id=context_id, found=found, tab="verify")


async def differences(view: PageView) -> Response:
    """Show what changed between two versions; by default in the latest."""
    context_id = view.part("context_id")
    to = view.query("to") or await _newest(view)
    found = await view.call(
        "history.diff",
        context_id=context_id,
        from_version=view.query("from") or _before(to),
        to_version=to,
        text=True,
    )
    return await _render_changes(view, "diff.html", found, tab="diff")


async def _render_changes(view: PageView, template: str, diff: Differences, tab: str) -> Response:
    """Return a page with the changed keys of a context: a part of them, because a diff of each is long."""
    titled = (("Added", diff.added), ("Removed", diff.removed), ("Changed", diff.modified))
    changed = view.page_of([(title, each) for title, entries in titled for each in entries], _SHOWN_CHANGES)
    return await view.render_long(template, context_id=view.part("context_id"), diff=diff, changed=changed, tab=tab)


def _before(version: str | int) -> int:
    """Return the version before another; 0 before one that is named."""
    return max(0, int(version) - 1) if whole_number(str(version)) else 0


async def blame(view: PageView) -> Response:
    context_id = view.part("context_id")
    blamed = await view.call(
        "history.blame", context_id=context_id, version=view.query("version"), cursor=view.query("cursor")
    )
    return view.render(
        "blame.html",
        context_id=context_id,
        entries=view.arranged(blamed.entries, "key", "author", "at", "version"),
        version=blamed.version,
        next_cursor=blamed.next_cursor,
        tab="blame",
    )


async def rollback(view: PageView) -> Response:
    """Show what a rollback would change. The form names both versions: a rollback of anything else is refused."""
    context_id = view.part("context_id")
    preview = await view.call(
        "history.diff", context_id=context_id, from_version=HEAD, to_version=view.query("version"), text=True
    )
    return await _render_changes(view, "rollback.html", preview, tab="log")


async def _newest(view: PageView) -> int:
    """Return the latest version of the context."""
    log = await view.call("history.log", context_id=view.part("context_id"), limit=1)
    return log.commits[0].version if log.commits else 0


async def reviews(view: PageView) -> Response:
    listed = await view.call("history.reviews", state=view.query("state"), cursor=view.query("cursor"))
    return view.render(
        "reviews.html",
        reviews=view.arranged(listed.reviews, "review_id", "context_id", "opened_by", "opened_at", "state"),
        next_cursor=listed.next_cursor,
    )


async def review(view: PageView) -> Response:
    shown = await view.call("history.review", review_id=view.part("review_id"))
    return await view.render_long("review.html", review=shown, changes=await _sides(shown.conflicts))


async def _sides(conflicts: Sequence[ConflictInfo]) -> dict[str, list[tuple[str, TextDiff]]]:
    """Return what each side of a conflict changed in the value before both, as diffs by key."""
    named = [
        (conflict.key, label, (as_text(conflict.base.value), as_text(side.value)))
        for conflict in conflicts
        if conflict.base is not None
        for label, side in (("Here", conflict.ours), ("Incoming", conflict.theirs))
        if side is not None
    ]
    changes: dict[str, list[tuple[str, TextDiff]]] = {}
    diffs = await compared([texts for _, _, texts in named])
    for (key, label, _), diff in zip(named, diffs, strict=True):
        changes.setdefault(key, []).append((label, diff))
    return changes


async def compactions(view: PageView) -> Response:
    listed = await view.call(
        "compaction.list",
        session_id=view.part("session_id"),
        agent_id=view.part("agent_id"),
        cursor=view.query("cursor"),
    )
    return view.render(
        "compactions.html",
        session_id=view.part("session_id"),
        agent_id=view.part("agent_id"),
        compactions=view.arranged(listed.compactions, "created_at", "state", "tokens_before", "tokens_after"),
        next_cursor=listed.next_cursor,
    )


async def compaction(view: PageView) -> Response:
    shown = await view.call(
        "compaction.show", compaction_id=view.part("compaction_id"), originals=True, offset=view.query("offset")
    )
    return await view.render_long("compaction.html", shown=shown)


HISTORY = (
    Page("/history/{context_id}", log, "history.log"),
    Page("/history/{context_id}/graph", graph, "history.branches"),
    Page("/history/{context_id}/verify", verified, "history.verify"),
    Page("/history/{context_id}/diff", differences, "history.diff"),
    Page("/history/{context_id}/blame", blame, "history.blame"),
    Page("/history/{context_id}/rollback", rollback, "history.rollback"),
    Page("/reviews", reviews, "history.reviews", "Merge reviews", "m"),
    Page("/reviews/{review_id}", review, "history.review"),
    Page("/sessions/{session_id}/windows/{agent_id}/compactions", compactions, "compaction.list"),
    Page("/compactions/{compaction_id}", compaction, "compaction.show"),
)
