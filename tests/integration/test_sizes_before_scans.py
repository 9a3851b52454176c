"""Texts that are too large are refused before they are scanned: a scan takes time in proportion to the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.records import envelope
from support.world import refused
from weftline.app.registry import all_operations
from weftline.safety.trust.scanner import ContentScanner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from support.world import World
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import SubmittedText

IN_SESSION = {"session_id": "s1"}
HUGE = "word " * 3_400_000
LARGE = "word " * 700_000
BY_SCHEMA = "the schema of the request limits every text of it"
# A request of each operation with content, with a text that is too large, and the error.
TOO_LARGE: dict[str, tuple[dict[str, Any], str] | str] = {
    "board.write": ({**IN_SESSION, "key": "k", "value": LARGE}, "VALUE_TOO_LARGE"),
    "context.ingest": ({**IN_SESSION, "events": [{"event_id": "e", "content": LARGE}]}, "CONTENT_TOO_LARGE"),
    "context.push": ({"knowledge": [{"key": "k", "value": HUGE}]}, "CONTENT_TOO_LARGE"),
    "conventions.define": BY_SCHEMA,
    "history.resolve": ({"resolutions": {"k": {"take": "value", "value": LARGE}}}, "VALUE_TOO_LARGE"),
    "knowledge.create_domain": BY_SCHEMA,
    "knowledge.update_domain": BY_SCHEMA,
    "memory.set": ({"key": "k", "value": LARGE}, "CONTENT_TOO_LARGE"),
    "message.add": ({**IN_SESSION, "content": LARGE}, "CONTENT_TOO_LARGE"),
    "missing.report": BY_SCHEMA,
    "missing.request": BY_SCHEMA,
    "missing.resolve": BY_SCHEMA,
    "records.add": ({"records": [envelope("r") | {"purpose": LARGE}]}, "CONTENT_TOO_LARGE"),
    "records.redact": BY_SCHEMA,
    "session.create": ({"purpose": "p", "metadata": {"note": LARGE}}, "INVALID_INPUT_FORMAT"),
    "tools.register": ({"tools": [{"name": "t", "description": LARGE}]}, "INVALID_INPUT_FORMAT"),
}
# The longest text that a schema lets through.
LONGEST_BY_SCHEMA = 10_000


def test_every_operation_with_content_has_an_entry() -> None:
    assert {each.name for each in all_operations() if each.content is not None} == TOO_LARGE.keys()


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the texts that are scanned."""
    sizes: list[int] = []
    prepare, scan = ContentScanner.prepare, ContentScanner.scan

    async def noted(self: ContentScanner, actor: Actor, texts: Iterable[SubmittedText]) -> Any:
        given = list(texts)
        sizes.extend(len(text) for text, _ in given)
        return await prepare(self, actor, given)

    def noted_scan(self: ContentScanner, actor: Actor, text: str, *, data: bool) -> Any:
        sizes.append(len(text))
        return scan(self, actor, text, data=data)

    monkeypatch.setattr(ContentScanner, "prepare", noted)
    monkeypatch.setattr(ContentScanner, "scan", noted_scan)
    return sizes


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_text_that_is_too_large_is_not_scanned(world: World, scanned: list[int]) -> None:
    review_id = await open_review(world)
    await world.planner.write("small", "some words " * 100)
    assert max(scanned) > 1_000
    scanned.clear()
    for name, case in TOO_LARGE.items():
        if isinstance(case, str):
            continue
        fields, code = case
        more = {"review_id": review_id} if name == "history.resolve" else {}
        with refused(code):
            await world.admin.call(name, **fields, **more)
        assert sum(scanned) <= LONGEST_BY_SCHEMA, name
        scanned.clear()


async def open_review(world: World) -> str:
    """Return a review of one key in conflict."""
    planner = world.planner
    await planner.write("k", "base")
    await planner.call("history.branch", context_id="board:s1", branch="draft")
    await planner.write("k", "theirs", branch="draft")
    await planner.write("k", "ours")
    merged = await planner.call("history.merge", context_id="board:s1", from_context_id="board:s1@draft")
    return str(merged["review_id"])
