"""The contract of CompactionStore."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.safety.trust.model import Source, Trust, TrustLabel
from weftline.windows.compaction.model import (
    CompactedView,
    Compaction,
    CompactionState,
    FactKind,
    KeyFact,
    ShortenedEvent,
    Summary,
)
from weftline.windows.compaction.sql import KEPT_COMPACTIONS, KEPT_VIEWS

LINE = "window:s1:planner"


def compaction(compaction_id: str, **fields: Any) -> Compaction:
    return Compaction(
        **{
            "compaction_id": compaction_id,
            "session_id": "s1",
            "agent_id": "planner",
            "line_id": LINE,
            "requested_by": "planner",
            "trigger": "request",
            "state": CompactionState.QUEUED,
            "strategy": "auto",
            "target": 0.4,
            "keep_recent": 20,
            "created_at": 1,
            **fields,
        }
    )


def view(text: str = "We chose SQLite.") -> CompactedView:
    """Return a view with every kind of content."""
    return CompactedView(
        summaries=(
            Summary(
                summary_id="1-2",
                title="Events 1 to 2",
                text=text,
                method="extractive_summary",
                sources={"e1": "1.1", "e2": "1.1"},
                first_number=1,
                last_number=2,
                first_at=10,
                last_at=20,
                tokens_before=40,
                tokens=5,
                confidence=0.9,
                loss_notes=("2 greetings",),
                trust=TrustLabel(source=Source.TOOL, trust=Trust.UNTRUSTED),
            ),
        ),
        shortened=(ShortenedEvent(event_id="e3", version="1.1", content="…", tokens_before=900, tokens=20),),
        facts=(
            KeyFact(
                fact_id="e1#1", kind=FactKind.DECISION, text="We use SQLite.", who="user", at=10, event_ids=("e1",)
            ),
        ),
    )


class CompactionStoreContract:
    """One open and one applied compaction per line, and the newest views."""

    async def test_a_compaction_is_stored_with_all_its_figures(self, stores: ContractStores) -> None:
        made = compaction("c1")
        assert await stores.compactions.add(made)
        full = structs.replace(
            made,
            state=CompactionState.RUNNING,
            cut=9,
            used="key_facts",
            reason="many decisions",
            version="ab",
            events_covered=7,
            tokens_before=100,
            tokens_after=40,
            facts=3,
            carried_facts=1,
            summaries=2,
            loss_notes=4,
            degraded=("model: timeout",),
            model="m",
            approval_id="a1",
            started_at=5,
            finished_at=6,
        )
        await stores.compactions.save(full)
        assert await stores.compactions.find("c1") == full == await stores.compactions.lock("c1")
        assert await stores.compactions.find("c2") is None is await stores.compactions.lock("c2")

    async def test_a_line_has_one_open_compaction(self, stores: ContractStores) -> None:
        assert await stores.compactions.add(compaction("c1"))
        assert not await stores.compactions.add(compaction("c2"))
        assert await stores.compactions.add(compaction("c3", line_id="window:s1:other"))
        for state in (CompactionState.RUNNING, CompactionState.HELD):
            await stores.compactions.save(compaction("c1", state=state))
            assert not await stores.compactions.add(compaction("c2"))
            assert await stores.compactions.open_for(LINE) == compaction("c1", state=state)
        await stores.compactions.save(compaction("c1", state=CompactionState.REJECTED))
        assert await stores.compactions.open_for(LINE) is None
        assert await stores.compactions.add(compaction("c2"))

    async def test_the_applied_compaction_supersedes_the_one_before(self, stores: ContractStores) -> None:
        assert await stores.compactions.current(LINE) is None
        for name in ("c1", "c2"):
            await stores.compactions.add(compaction(name))
            await stores.compactions.save(compaction(name, state=CompactionState.APPLIED), view(name))
            current = await stores.compactions.current(LINE)
            assert current == (compaction(name, state=CompactionState.APPLIED), view(name))
        assert await stores.compactions.applied(LINE) == compaction("c2", state=CompactionState.APPLIED)
        assert await stores.compactions.find("c1") == compaction("c1", state=CompactionState.SUPERSEDED)
        assert await stores.compactions.view("c1") == view("c1")

    async def test_the_newest_compaction_is_found_with_the_one_in_effect(self, stores: ContractStores) -> None:
        assert await stores.compactions.newest(LINE) == (None, None)
        await stores.compactions.add(compaction("c1"))
        assert await stores.compactions.newest(LINE) == (compaction("c1"), None)
        applied = compaction("c1", state=CompactionState.APPLIED, saved_tokens=70)
        await stores.compactions.save(applied, view())
        assert await stores.compactions.newest(LINE) == (applied, applied)
        for number in (2, 3):
            await stores.compactions.add(compaction(f"c{number}", state=CompactionState.SKIPPED))
        assert await stores.compactions.newest(LINE) == (compaction("c3", state=CompactionState.SKIPPED), applied)

    async def test_a_view_that_is_held_is_not_in_effect(self, stores: ContractStores) -> None:
        await stores.compactions.add(compaction("c1"))
        await stores.compactions.save(compaction("c1", state=CompactionState.HELD), view())
        assert await stores.compactions.current(LINE) is None
        assert await stores.compactions.view("c1") == view()

    async def test_compactions_are_listed_newest_first(self, stores: ContractStores) -> None:
        for number in range(1, 5):
            await stores.compactions.add(compaction(f"c{number}", state=CompactionState.SKIPPED))
        await stores.compactions.add(compaction("c5", line_id="window:s1:other"))
        page = await stores.compactions.page(LINE, None, 2)
        assert [each.compaction_id for each in page] == ["c4", "c3"]
        page = await stores.compactions.page(LINE, "c3", 9)
        assert [each.compaction_id for each in page] == ["c2", "c1"]

    async def test_only_the_newest_views_of_a_line_and_the_applied_one_are_kept(self, stores: ContractStores) -> None:
        names = [f"c{number:02}" for number in range(KEPT_VIEWS + 3)]
        await stores.compactions.add(compaction(names[0]))
        await stores.compactions.save(compaction(names[0], state=CompactionState.APPLIED), view())
        for name in names[1:]:
            await stores.compactions.add(compaction(name, state=CompactionState.RUNNING))
            await stores.compactions.save(compaction(name, state=CompactionState.REJECTED), view(name))
        kept = [name for name in names if await stores.compactions.view(name) is not None]
        assert kept == [names[0], *names[-KEPT_VIEWS:]]
        assert await stores.compactions.find(names[1]) == compaction(names[1], state=CompactionState.REJECTED)

    async def test_only_the_newest_compactions_of_a_line_are_kept(self, stores: ContractStores) -> None:
        names = [f"c{number:03}" for number in range(KEPT_COMPACTIONS + 4)]
        for name, state in zip(names, (CompactionState.APPLIED, CompactionState.REJECTED), strict=False):
            await stores.compactions.add(compaction(name))
            await stores.compactions.save(compaction(name, state=state), view())
        await stores.compactions.add(compaction("c000-other", line_id="window:s1:other", state=CompactionState.SKIPPED))
        for name in names[2:]:
            await stores.compactions.add(compaction(name, state=CompactionState.SKIPPED))
        kept = [name for name in names if await stores.compactions.find(name) is not None]
        assert kept == [*names[:2], *names[-KEPT_COMPACTIONS:]], "one is applied, one has a view"
        assert await stores.compactions.find("c000-other") is not None

    async def test_views_are_erased_with_what_they_stand_for(self, stores: ContractStores) -> None:
        await stores.compactions.add(compaction("c1"))
        await stores.compactions.save(compaction("c1", state=CompactionState.APPLIED), view())
        assert await stores.compactions.erase_views(LINE) == 1
        assert await stores.compactions.current(LINE) is None is await stores.compactions.view("c1")
        assert await stores.compactions.find("c1") == compaction("c1", state=CompactionState.SUPERSEDED)

    async def test_compactions_are_deleted_with_their_line_and_their_session(self, stores: ContractStores) -> None:
        for name, line_id in (("c1", LINE), ("c2", f"{LINE}@branch")):
            await stores.compactions.add(compaction(name, line_id=line_id))
            applied = compaction(name, line_id=line_id, state=CompactionState.APPLIED)
            await stores.compactions.save(applied, view())
        await stores.lines.erase(f"{LINE}@branch")
        assert await stores.compactions.find("c2") is None is await stores.compactions.view("c2")
        assert await stores.compactions.current(LINE) is not None
        await stores.sessions.erase("s1")
        assert await stores.compactions.find("c1") is None is await stores.compactions.view("c1")

    async def test_another_tenant_sees_nothing(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.compactions.add(compaction("c1"))
        await stores.compactions.save(compaction("c1", state=CompactionState.APPLIED), view())
        assert await elsewhere.compactions.find("c1") is None is await elsewhere.compactions.view("c1")
        assert await elsewhere.compactions.current(LINE) is None
        assert await elsewhere.compactions.page(LINE, None, 9) == []
        assert await elsewhere.compactions.add(compaction("c1"))
