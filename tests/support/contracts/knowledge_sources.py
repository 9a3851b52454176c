"""The contract of SourceStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.knowledge.source_sync import SignedCall
from weftline.knowledge.sources import KnowledgeSource, RejectedDocument, SyncCounts, SyncedFile

SOURCE = KnowledgeSource(
    source_id="source_1",
    domain="handbook",
    kind="folder",
    location="/srv/knowledge",
    prefix="docs/",
    include=("*.md", "guides/*"),
    exclude=("drafts/*",),
    every_seconds=60,
    watch=True,
    secret="whsec_",
    token_digest="0a",
    principal_id="admin",
    created_at=7,
    requested=1,
)
FILE = SyncedFile("docs/a.md", 3, 5, "0b")


class SourceStoreContract:
    """Sources are stored unchanged, with the state of their files and calls."""

    async def test_a_source_is_returned_unchanged(self, stores: ContractStores) -> None:
        other = structs.replace(
            SOURCE, source_id="source_0", kind="hook", every_seconds=None, watch=False, created_at=8
        )
        elsewhere = structs.replace(SOURCE, source_id="source_2", domain="other")
        for source in (SOURCE, other, elsewhere):
            await stores.sources.add(source)
        assert await stores.sources.find("source_1") == SOURCE
        assert await stores.sources.find_locked("source_0") == other
        assert await stores.sources.find("source_9") is None
        assert list(await stores.sources.of_domain("handbook")) == [SOURCE, other]
        assert await stores.sources.count() == 3

    async def test_a_source_is_changed_only_if_unchanged_since_it_was_read(self, stores: ContractStores) -> None:
        await stores.sources.add(SOURCE)
        changed = structs.replace(
            SOURCE,
            include=("*",),
            exclude=(),
            every_seconds=None,
            watch=False,
            enabled=False,
            error="away",
            requested=2,
            due_at=9,
            synced_at=8,
            failures=6,
            validator="looks so",
            last_sync=SyncCounts(added=1, failed=2, failures=(RejectedDocument("docs/a.md", "too large"),)),
        )
        await stores.sources.update(changed)
        assert await stores.sources.find("source_1") == changed

    async def test_files_are_stored_until_deleted(self, stores: ContractStores) -> None:
        await stores.sources.add(SOURCE)
        await stores.sources.put_file("source_1", FILE)
        await stores.sources.put_file("source_1", structs.replace(FILE, document_id="docs/b.md", error="too large"))
        await stores.sources.put_file("source_1", structs.replace(FILE, size=4))
        known = await stores.sources.files("source_1")
        assert list(known) == ["docs/a.md", "docs/b.md"]
        assert known["docs/a.md"] == structs.replace(FILE, size=4)
        assert known["docs/b.md"].error == "too large"
        assert await stores.sources.file("source_1", "docs/b.md") == known["docs/b.md"]
        assert await stores.sources.file("source_1", "docs/c.md") is None
        await stores.sources.invalidate_files("source_1")
        assert {file.changed_at for file in (await stores.sources.files("source_1")).values()} == {-1}
        await stores.sources.delete_file("source_1", "docs/a.md")
        assert list(await stores.sources.files("source_1")) == ["docs/b.md"]

    async def test_calls_are_stored_until_deleted(self, stores: ContractStores) -> None:
        await stores.sources.put_call("source_1", SignedCall("one", 5), "first")
        await stores.sources.put_call("source_1", SignedCall("two", 6), "second")
        for again in (9, 7):
            await stores.sources.put_call("source_1", SignedCall("one", again), "another")
        assert await stores.sources.response_to("source_1", "one") == "first"
        assert await stores.sources.response_to("source_2", "one") is None
        await stores.sources.delete_calls("source_1", 9)
        assert await stores.sources.response_to("source_1", "one") == "first"
        assert await stores.sources.response_to("source_1", "two") is None
        await stores.sources.delete_calls("source_1", 10)
        assert await stores.sources.response_to("source_1", "one") is None

    async def test_files_and_calls_are_deleted_with_their_source(self, stores: ContractStores) -> None:
        await stores.sources.add(SOURCE)
        await stores.sources.put_file("source_1", FILE)
        await stores.sources.put_call("source_1", SignedCall("one", 5), "first")
        await stores.sources.delete("source_1")
        assert await stores.sources.find("source_1") is None
        assert not await stores.sources.files("source_1")
        assert await stores.sources.response_to("source_1", "one") is None

    async def test_tenants_have_their_own_sources(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.sources.add(SOURCE)
        await stores.sources.put_file("source_1", FILE)
        assert await elsewhere.sources.find("source_1") is None
        assert await elsewhere.sources.count() == 0
        assert not await elsewhere.sources.files("source_1")
        await stores.sources.put_call("source_1", SignedCall("one", 5), "first")
        assert await elsewhere.sources.response_to("source_1", "one") is None
        await elsewhere.sources.delete("source_1")
        assert await stores.sources.find("source_1") == SOURCE
