"""The contract of SnapshotStore."""
# ruff: noqa: S101 - tests that others run

from __future__ import annotations

from msgspec import structs

from weft.capabilities.context.model import holder_in
from weft.capabilities.context.store import Snapshot
from weft.capabilities.history.model import Head, blob_hash
from weft.testing.contracts.stores import Stores

HELD = Snapshot("s1", "planner", "context:planner", 12, bytes(range(32)), known=12, pulled_at=5)


class SnapshotStoreContract:
    """An agent holds one version of its context in a session, or none."""

    async def test_a_snapshot_comes_back_as_it_was_put(self, stores: Stores) -> None:
        assert await stores.snapshots.find("s1", "planner") is None
        await stores.snapshots.put(HELD)
        assert await stores.snapshots.find("s1", "planner") == HELD
        assert await stores.snapshots.find("s1", "other") is None
        assert await stores.snapshots.find("s2", "planner") is None

    async def test_putting_again_leaves_nothing_of_the_one_before(self, stores: Stores) -> None:
        other = Snapshot("s1", "planner", "context:planner@try", 3, bytes(32), known=3, pulled_at=9)
        await stores.snapshots.put(HELD)
        await stores.snapshots.put(other)
        assert await stores.snapshots.find("s1", "planner") == other

    async def test_a_session_learns_of_the_context_it_holds_and_of_no_other(self, stores: Stores) -> None:
        await stores.snapshots.put(HELD)
        await stores.snapshots.learn("s1", "planner", "context:planner@try", 20)
        await stores.snapshots.learn("s1", "other", "context:planner", 20)
        await stores.snapshots.learn("s2", "planner", "context:planner", 20)
        assert await stores.snapshots.find("s1", "planner") == HELD
        await stores.snapshots.learn("s1", "planner", "context:planner", 13)
        assert await stores.snapshots.find("s1", "planner") == structs.replace(HELD, known=13)

    async def test_any_number_of_values_is_read_by_their_hashes(self, stores: Stores) -> None:
        texts = [str(number) for number in range(120)]
        for text in texts:
            await stores.lines.put_blob(blob_hash(text), text)
        hashes = [blob_hash(text) for text in texts]
        assert await stores.snapshots.values([]) == {}
        assert await stores.snapshots.values([blob_hash("never kept")]) == {}
        assert await stores.snapshots.values(hashes) == dict(zip(hashes, texts, strict=True))

    async def test_a_session_takes_what_was_held_in_it_along(self, stores: Stores, elsewhere: Stores) -> None:
        for each in (stores, elsewhere):
            await each.lines.create("context:planner")
            for session_id in ("s1", "s2"):
                await each.snapshots.put(structs.replace(HELD, session_id=session_id))
                await each.lines.pin("context:planner", 12, holder_in(session_id, "planner"))
        await stores.sessions.erase("s1")
        assert await stores.snapshots.find("s1", "planner") is None
        assert await stores.snapshots.find("s2", "planner") is not None
        assert await elsewhere.snapshots.find("s1", "planner") == HELD
        assert await stores.lines.lock("context:planner") == Head.of_new_line("context:planner")

    async def test_tenants_have_their_own_snapshots(self, stores: Stores, elsewhere: Stores) -> None:
        await stores.snapshots.put(HELD)
        await elsewhere.snapshots.learn("s1", "planner", "context:planner", 99)
        assert await elsewhere.snapshots.find("s1", "planner") is None
        assert await stores.snapshots.find("s1", "planner") == HELD
