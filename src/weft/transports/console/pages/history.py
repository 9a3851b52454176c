"""History of any context: log, differences, blame, branches, rollback with a preview; merge reviews; compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.transports.console.view import Page

if TYPE_CHECKING:
    from starlette.responses import Response

    from weft.transports.console.view import PageView


async def log(view: PageView) -> Response:
    context_id = view.part("context_id")
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
        branches=await view.call("history.branches", context_id=context_id),
        following=listed.commits[-1].version if listed.has_more else None,
        tab="log",
    )


async def differences(view: PageView) -> Response:
    """Show what changed between two versions; by default in the latest."""
    context_id = view.part("context_id")
    to = view.query("to") or await _newest(view)
    found = await view.call(
        "history.diff",
        context_id=context_id,
        from_version=view.query("from") or max(0, int(to) - 1 if str(to).isdigit() else 0),
        to_version=to,
        text=True,
    )
    return view.render("diff.html", context_id=context_id, diff=found, tab="diff")


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
    """Show what a rollback would change, before it is made."""
    context_id, version = view.part("context_id"), view.query("version")
    preview = await view.call(
        "history.diff", context_id=context_id, from_version=await _newest(view), to_version=version, text=True
    )
    return view.render("rollback.html", context_id=context_id, version=version, diff=preview, tab="log")


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
    return view.render("review.html", review=await view.call("history.review", review_id=view.part("review_id")))


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
    return view.render("compaction.html", shown=shown)


HISTORY = (
    Page("/history/{context_id}", log, "history.log"),
    Page("/history/{context_id}/diff", differences, "history.diff"),
    Page("/history/{context_id}/blame", blame, "history.blame"),
    Page("/history/{context_id}/rollback", rollback, "history.rollback"),
    Page("/reviews", reviews, "history.reviews", "Merge reviews", "m"),
    Page("/reviews/{review_id}", review, "history.review"),
    Page("/sessions/{session_id}/windows/{agent_id}/compactions", compactions, "compaction.list"),
    Page("/compactions/{compaction_id}", compaction, "compaction.show"),
)
