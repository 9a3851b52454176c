"""The contract of SnapshotStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.history.composite_lines import PartVersion
from weftline.history.model import SYSTEM, Change, ChangeKind, ChangeMeta, Commit, Head, Point, blob_hash
from weftline.state.agent_context.sql import PinnedContext

MAIN = "context:planner"
BRANCH = "context:planner@try"
HASH = bytes(range(32))
HELD = PinnedContext("s1", "planner", MAIN, MAIN, 12, HASH, known=12, known_hash=HASH, pulled_at=5)


def _commit(head: Head, seq: int, keys: tuple[str, ...]) -> Commit:
    changes = tuple(Change(key, 1, seq, ChangeKind.WRITE, blob_hash(key), ChangeMeta()) for key in keys)
    return Commit(head.line_id, seq, SYSTEM, committed_at=seq, reason="write", step=None, changes=changes)


class SnapshotStoreContract:
    """An agent holds one version of its context in a session, or none."""

    async def test_a_snapshot_is_returned_unchanged(self, stores: ContractStores) -> None:
        assert await stores.snapshots.find("s1", "planner") is None
        await stores.snapshots.put(HELD, [])
        assert await stores.snapshots.find("s1", "planner") == HELD
        assert await stores.snapshots.find("s1", "other") is None
        assert await stores.snapshots.find("s2", "planner") is None

    async def test_putting_again_replaces_the_snapshot_and_its_pins(self, stores: ContractStores) -> None:
        other = PinnedContext("s1", "planner", BRANCH, MAIN, 3, bytes(32), known=4, known_hash=HASH, pulled_at=9)
        await stores.snapshots.put(HELD, [])
        await stores.snapshots.put(other, [])
        assert await stores.snapshots.find("s1", "planner") == other

    async def test_a_session_learns_only_of_the_context_it_holds(self, stores: ContractStores) -> None:
        await stores.snapshots.put(HELD, [])
        await stores.snapshots.learn("s1", "planner", Point(BRANCH, 20, HASH))
        await stores.snapshots.learn("s1", "other", Point(MAIN, 20, HASH))
        await stores.snapshots.learn("s2", "planner", Point(MAIN, 20, HASH))
        assert await stores.snapshots.find("s1", "planner") == HELD
        await stores.snapshots.learn("s1", "planner", Point(MAIN, 13, bytes(32)))
        assert await stores.snapshots.find("s1", "planner") == structs.replace(HELD, known=13, known_hash=bytes(32))

    async def test_any_number_of_parts_is_pinned_and_read(self, stores: ContractStores) -> None:
        parts = []
        for number in range(120):
            line_id = f"{MAIN}:conversation_context:w{number}"
            await stores.lines.create(line_id)
            head = Head.of_new_line(line_id)
            for seq, keys in enumerate((("a", "b"), ("a",), ("later",)), 1):
                head = await stores.lines.append(head, _commit(head, seq, keys), weight=0, next_expiry_at=None)
            parts.append(PartVersion(line_id, 2, ""))
        await stores.snapshots.put(HELD, parts)
        assert await stores.snapshots.states([], stores.lines) == []
        found = await stores.snapshots.states(parts, stores.lines)
        assert {tuple(sorted((each.change.key, each.seq) for each in state)) for state in found} == {
            (("a", 2), ("b", 1))
        }
        assert len(found) == len(parts)

    async def test_any_number_of_values_is_read_by_their_hashes(self, stores: ContractStores) -> None:
        texts = [str(number) for number in range(120)]
        for text in texts:
            await stores.lines.put_blob(blob_hash(text), text)
        hashes = [blob_hash(text) for text in texts]
        assert await stores.snapshots.values([]) == {}
        assert await stores.snapshots.values([blob_hash("never kept")]) == {}
        assert await stores.snapshots.values(hashes) == dict(zip(hashes, texts, strict=True))

    async def test_snapshots_are_deleted_with_their_session(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for each in (stores, elsewhere):
            await each.lines.create("context:planner")
            for session_id in ("s1", "s2"):
                await each.snapshots.put(structs.replace(HELD, session_id=session_id), [])
        await stores.sessions.erase("s1")
        assert await stores.snapshots.find("s1", "planner") is None
        assert await stores.snapshots.find("s2", "planner") is not None
        assert await elsewhere.snapshots.find("s1", "planner") == HELD
        assert await stores.lines.lock("context:planner") == Head.of_new_line("context:planner")

    async def test_tenants_have_their_own_snapshots(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.snapshots.put(HELD, [])
        await elsewhere.snapshots.learn("s1", "planner", Point(MAIN, 99, HASH))
        assert await elsewhere.snapshots.find("s1", "planner") is None
        assert await stores.snapshots.find("s1", "planner") == HELD
