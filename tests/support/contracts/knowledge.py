"""The contracts of DomainStore and DocumentStore."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.access.plans import AssignedPlan
from weftline.indexing.chunking.model import ChunkingOptions
from weftline.knowledge.model import Document, Domain, FlaggedPassage, Quarantine
from weftline.knowledge.sql import Backlog, IncompleteDocument, LeasedDocument, StoredContent
from weftline.knowledge.templates.model import (
    DomainEvaluation,
    DomainTemplate,
    ExampleQuestion,
    MetadataField,
    QuestionResult,
)
from weftline.safety.trust.model import Source, Trust, TrustLabel

ALL_SIZES = range(1_000)
DOMAIN = Domain(
    domain="handbook",
    description="How we work",
    clearance=2,
    agents=("orchestrator", "type:review"),
    writers=("type:review",),
    chunking=ChunkingOptions(chunk_tokens=256, overlap_tokens=16),
    importance=0.25,
    created_by="admin",
    created_at=7,
    updated_at=8,
)
DOCUMENT = Document(
    domain="handbook",
    document_id="guides/start.md",
    version=1,
    content_version=1,
    digest="d1",
    fingerprint="f1",
    bytes=5,
    media_type="text/markdown",
    title="Start",
    metadata='{"team":"people","year":2026}',
    pinned=True,
    importance=None,
    timestamp=3,
    added_by="planner",
    created_at=4,
    updated_at=4,
)
TEMPLATE = DomainTemplate(
    name="team_rules",
    version=3,
    metadata=(MetadataField(name="status", required=True, values=("draft", "final")),),
    pinned=("glossary*",),
    retention_days=30,
    questions=(ExampleQuestion(question="How many days?", contains=("thirty",)),),
)
EVALUATION = DomainEvaluation(
    template="team_rules",
    version=3,
    evaluated_at=datetime(2026, 3, 1, tzinfo=UTC),
    documents=2,
    found=1,
    questions=(
        QuestionResult(question="How many days?", found=True, rank=1, document_id="guides/start.md", confidence=0.5),
    ),
)
NAMES = (DOCUMENT.domain, DOCUMENT.document_id)


def later(document: Document, version: int) -> Document:
    return structs.replace(document, version=version, content_version=version, fingerprint=f"f{version}")


class DomainStoreContract:
    """Domains are stored unchanged and count their documents."""

    async def test_a_domain_is_returned_unchanged(self, stores: ContractStores) -> None:
        assert await stores.domains.add(DOMAIN)
        assert not await stores.domains.add(DOMAIN)
        other = structs.replace(DOMAIN, domain="another", agents=("*",))
        assert await stores.domains.add(other)
        assert await stores.domains.find("handbook") == DOMAIN
        assert await stores.domains.find_locked("handbook") == DOMAIN
        assert await stores.domains.find("none") is None
        assert list(await stores.domains.all()) == [other, DOMAIN]

    async def test_a_domain_can_be_updated_and_its_counters_stay(self, stores: ContractStores) -> None:
        await stores.domains.add(DOMAIN)
        await stores.domains.count("handbook", documents=2, size=30)
        await stores.domains.count("handbook", documents=-1, size=-10)
        await stores.domains.update(
            structs.replace(
                DOMAIN,
                clearance=4,
                agents=("*",),
                writers=("*",),
                chunking=ChunkingOptions(),
                updated_at=9,
                reembed=True,
            )
        )
        found = await stores.domains.find("handbook")
        assert found == structs.replace(
            DOMAIN,
            clearance=4,
            agents=("*",),
            writers=("*",),
            chunking=ChunkingOptions(),
            updated_at=9,
            documents=1,
            bytes=20,
            reembed=True,
        )

    async def test_reindexing_is_recorded(self, stores: ContractStores) -> None:
        await stores.domains.add(DOMAIN)
        assert list(await stores.domains.reindexing()) == []
        await stores.domains.set_reindexing("handbook", "a.md")
        assert list(await stores.domains.reindexing()) == ["handbook"]
        await stores.domains.set_reindexing("handbook", None)
        assert list(await stores.domains.reindexing()) == []

    async def test_a_domain_keeps_its_template_and_the_evaluation_of_it(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for each in (stores, elsewhere):
            await each.domains.add(structs.replace(DOMAIN, template=TEMPLATE))
        await stores.domains.set_evaluation("handbook", EVALUATION, 3)
        found = await stores.domains.find("handbook")
        assert found == structs.replace(DOMAIN, template=TEMPLATE, evaluation=EVALUATION)
        assert await elsewhere.domains.find("handbook") == structs.replace(DOMAIN, template=TEMPLATE)
        # A later evaluation takes its place; changes of the domain keep both.
        later = structs.replace(EVALUATION, found=0, questions=())
        await stores.domains.set_evaluation("handbook", later, 4)
        await stores.domains.update(structs.replace(DOMAIN, description="Rules"))
        found = await stores.domains.find("handbook")
        assert found is not None
        assert (found.description, found.template, found.evaluation) == ("Rules", TEMPLATE, later)
        await stores.domains.set_evaluation("none", EVALUATION, 1)
        assert await stores.domains.find("none") is None

    async def test_changes_of_documents_and_of_how_they_are_indexed_are_counted(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for each in (stores, elsewhere):
            await each.domains.add(DOMAIN)
        before = await stores.domains.content_changes("handbook")
        await stores.domains.count("handbook", documents=1, size=5)
        await stores.domains.count("handbook", documents=0, size=0)
        await stores.domains.update(structs.replace(DOMAIN, chunking=ChunkingOptions()))
        assert await stores.domains.content_changes("handbook") == before + 3
        await stores.domains.set_evaluation("handbook", EVALUATION, before + 3)
        assert await stores.domains.content_changes("handbook") == before + 3
        assert await elsewhere.domains.content_changes("handbook") == before
        assert await stores.domains.content_changes("none") == 0

    async def test_documents_are_deleted_with_their_domain(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for each in (stores, elsewhere):
            await each.domains.add(DOMAIN)
            await each.documents.put(DOCUMENT, b"x", 5)
        await stores.domains.delete("handbook")
        assert await stores.domains.find("handbook") is None
        assert await stores.documents.find(*NAMES) is None
        assert await stores.documents.content(*NAMES, 1) is None
        assert await elsewhere.documents.find(*NAMES) == DOCUMENT

    async def test_tenants_have_their_own_plan(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        assert await stores.plans.plan() is None
        await stores.plans.set_plan(AssignedPlan("pro", {"domains": 20, "bytes": None}), 1)
        assert await stores.plans.plan() == AssignedPlan("pro", {"domains": 20, "bytes": None})
        await stores.plans.set_plan(AssignedPlan("free"), 2)
        assert await stores.plans.plan() == AssignedPlan("free")
        assert await elsewhere.plans.plan() is None


class DocumentStoreContract:
    """A document has one lease at a time; search results change only when a version is finished."""

    async def test_many_documents_are_found_in_one_call(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        odd = structs.replace(DOCUMENT, document_id='a "quoted", {braced} \\ [name].md')
        for document in (DOCUMENT, odd):
            await stores.documents.put(document, b"x", 5)
        wanted = [DOCUMENT.document_id, odd.document_id, odd.document_id, "nowhere.md"]
        found = await stores.documents.find_all(DOCUMENT.domain, wanted)
        assert found == {document.document_id: document for document in (DOCUMENT, odd)}
        assert await stores.documents.find_all("elsewhere", wanted) == {}
        assert await stores.documents.find_all(DOCUMENT.domain, []) == {}
        assert await elsewhere.documents.find_all(DOCUMENT.domain, wanted) == {}

    async def test_a_document_is_returned_unchanged(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        assert await stores.documents.find(*NAMES) == DOCUMENT
        assert await stores.documents.find_locked(*NAMES) == DOCUMENT
        assert await stores.documents.content(*NAMES, 1) == StoredContent(b"x", None)
        assert await elsewhere.documents.find(*NAMES) is None
        assert await elsewhere.documents.content(*NAMES, 1) is None

    async def test_documents_are_paged_and_filtered_by_state(self, stores: ContractStores) -> None:
        for name in ("c", "a", "b"):
            await stores.documents.put(structs.replace(DOCUMENT, document_id=name), b"x", 5)
        await stores.documents.fail("handbook", "b", "no text")
        names = [each.document_id for each in await stores.documents.page("handbook", None, "a", 10)]
        assert names == ["b", "c"]
        assert [each.document_id for each in await stores.documents.page("handbook", "pending", "", 1)] == ["a"]
        assert [each.error for each in await stores.documents.page("handbook", "failed", "", 9)] == ["no text"]
        assert await stores.documents.backlog("handbook") == Backlog(pending=2, failed=1, quarantined=0)

    async def test_a_version_is_incomplete_until_it_is_indexed_or_failed(self, stores: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        assert list(await stores.documents.incomplete("handbook")) == []
        await stores.documents.advance(*NAMES, done=1, total=2, layout_hash="so")
        await stores.documents.put(structs.replace(DOCUMENT, version=2, content_version=2), b"y", 6)
        assert list(await stores.documents.incomplete("handbook")) == [IncompleteDocument(DOCUMENT.document_id, 0)]
        assert list(await stores.documents.incomplete("other")) == []
        await stores.documents.finish(structs.replace(DOCUMENT, version=2, content_version=2, indexed_at=7), None)
        assert list(await stores.documents.incomplete("handbook")) == []
        await stores.documents.advance(*NAMES, done=1, total=2, layout_hash="so")
        assert list(await stores.documents.incomplete("handbook")) == [IncompleteDocument(DOCUMENT.document_id, 2)]
        await stores.documents.fail(*NAMES, "no text")
        assert list(await stores.documents.incomplete("handbook")) == []

    async def test_documents_are_found_by_metadata(self, stores: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        matching = stores.documents.matching
        assert list(await matching("handbook", {"team": "people"}, ())) == []
        await stores.documents.finish(DOCUMENT, None)
        # Metadata of the indexed version count until the next one is finished.
        second = structs.replace(later(DOCUMENT, 2), metadata='{"year":2025}', media_type="text/html")
        await stores.documents.put(second, b"y", 6)
        assert list(await matching("handbook", {"team": "people"}, ())) == ["guides/start.md"]
        assert list(await matching("handbook", {"team": "people", "year": 2025}, ())) == []
        assert list(await matching("handbook", {}, ("text/markdown",))) == ["guides/start.md"]
        assert list(await matching("handbook", {}, ("text/html",))) == []
        await stores.documents.finish(second, None)
        assert list(await matching("handbook", {"year": 2025}, ("text/html",))) == ["guides/start.md"]
        assert list(await matching("handbook", {"team": "people"}, ())) == []

    async def test_a_document_has_one_lease_until_it_is_released_or_expires(self, stores: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        assert [each[:3] for each in await stores.documents.queued(10, 9, ALL_SIZES)] == [(*NAMES, 0)]
        assert await stores.documents.claim(*NAMES, "me", 10, 20) == LeasedDocument(DOCUMENT, "", 0)
        assert list(await stores.documents.queued(19, 9, ALL_SIZES)) == []
        assert await stores.documents.claim(*NAMES, "you", 19, 30) is None
        assert await stores.documents.renew_lease(*NAMES, 1, "you", 30) is None
        assert await stores.documents.renew_lease(*NAMES, 1, "me", 25) == LeasedDocument(DOCUMENT, "", 1)
        assert await stores.documents.claim(*NAMES, "you", 24, 40) is None
        assert await stores.documents.claim(*NAMES, "you", 25, 40) == LeasedDocument(DOCUMENT, "", 1)
        await stores.documents.end_lease(*NAMES, "me", 0)
        assert await stores.documents.claim(*NAMES, "me", 26, 50) is None
        await stores.documents.end_lease(*NAMES, "you", 45)
        assert await stores.documents.claim(*NAMES, "me", 44, 60) is None
        assert await stores.documents.claim(*NAMES, "me", 45, 60) == LeasedDocument(DOCUMENT, "", 0)

    async def test_attempts_are_counted_until_a_document_progresses_or_is_released(
        self, stores: ContractStores
    ) -> None:
        async def starts(holder: str, now: int) -> int:
            held = await stores.documents.claim(*NAMES, holder, now, now + 1)
            assert held is not None
            return held.attempts

        await stores.documents.put(DOCUMENT, b"x", 5)
        assert [await starts("me", 10), await starts("you", 11)] == [0, 1]
        # A claim by the same holder is not counted as a failed attempt.
        assert [await starts("you", 12), await starts("me", 13)] == [2, 2]
        assert [each[:3] for each in await stores.documents.queued(14, 9, ALL_SIZES)] == [(*NAMES, 3)]
        assert [await starts("you", 14)] == [3]
        after_rest = 15 + 15_000_000
        assert list(await stores.documents.queued(after_rest - 1, 9, ALL_SIZES)) == []
        assert [each[:3] for each in await stores.documents.queued(after_rest, 9, ALL_SIZES)] == [(*NAMES, 4)]
        await stores.documents.advance(*NAMES, done=2, total=5, layout_hash="c1")
        assert [await starts("me", 15), await starts("you", 16)] == [0, 1]
        await stores.documents.end_lease(*NAMES, "you", 0, interrupted=True)
        assert [await starts("you", 17), await starts("me", 18)] == [2, 3]
        await stores.documents.end_lease(*NAMES, "me", 0)
        assert await starts("you", 17) == 0
        await stores.documents.put(later(DOCUMENT, 2), b"y", 18)
        assert await starts("me", 19) == 0

    async def test_the_queue_is_first_in_first_out(self, stores: ContractStores) -> None:
        for name, queued in (("a", 30), ("b", 10), ("c", 20)):
            await stores.documents.put(structs.replace(DOCUMENT, document_id=name), b"x", queued)
        assert [each.document_id for each in await stores.documents.queued(99, 2, ALL_SIZES)] == ["b", "c"]

    async def test_small_and_large_documents_are_queued_apart(self, stores: ContractStores) -> None:
        for name, size in (("a", 9), ("b", 10), ("c", 11)):
            await stores.documents.put(structs.replace(DOCUMENT, document_id=name, bytes=size), b"x", 10)
        small, large = [await stores.documents.queued(99, 9, sizes) for sizes in (range(10), range(10, 2**62))]
        assert [each.document_id for each in small] == ["a"]
        assert {each.document_id: each.bytes for each in large} == {"b": 10, "c": 11}

    async def test_a_new_version_ends_the_indexing_of_the_old_one(self, stores: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        await stores.documents.claim(*NAMES, "me", 10, 20)
        await stores.documents.advance(*NAMES, done=2, total=5, layout_hash="c1")
        held = await stores.documents.renew_lease(*NAMES, 1, "me", 20)
        assert held == LeasedDocument(structs.replace(DOCUMENT, chunks_done=2, chunks_total=5), "c1", 0)
        second = later(DOCUMENT, 2)
        await stores.documents.put(second, b"y", 11)
        assert await stores.documents.renew_lease(*NAMES, 1, "me", 20) is None
        assert await stores.documents.find(*NAMES) == second
        assert await stores.documents.content(*NAMES, 1) is None
        assert await stores.documents.claim(*NAMES, "you", 12, 20) == LeasedDocument(second, "", 0)

    async def test_search_finds_the_finished_version(self, stores: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        done = structs.replace(DOCUMENT, chunks=3, indexed_at=9, title="Found", text_bytes=4)
        await stores.documents.finish(done, b"text")
        found = await stores.documents.find(*NAMES)
        assert found is not None
        assert (found.state, found.indexed_version, found.indexed_content, found.indexed_at) == ("indexed", 1, 1, 9)
        assert (found.chunks, found.chunks_done, found.chunks_total, found.title) == (3, 3, 3, "Found")
        assert (found.indexed_title, found.indexed_type, found.text_bytes) == ("Found", "text/markdown", 4)
        assert await stores.documents.content(*NAMES, 1) == StoredContent(b"x", b"text")
        await stores.documents.put(structs.replace(later(found, 2), state="pending", title="Next"), b"y", 11)
        pending = await stores.documents.find(*NAMES)
        assert pending is not None
        assert (pending.title, pending.indexed_title) == ("Next", "Found")
        # The indexed version stays readable until the next one is finished.
        assert await stores.documents.content(*NAMES, 1) == StoredContent(b"x", b"text")
        await stores.documents.finish(structs.replace(later(found, 2), chunks=1), None)
        assert await stores.documents.content(*NAMES, 1) is None
        assert await stores.documents.content(*NAMES, 2) == StoredContent(b"y", None)

    async def test_a_held_version_leaves_the_queue_until_it_is_released(self, stores: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        held = Quarantine(2, (FlaggedPassage(0, 9, 7.5, "obey"),), 6, "approval_1")
        await stores.documents.quarantine(DOCUMENT, held)
        found = await stores.documents.find(*NAMES)
        assert found == structs.replace(DOCUMENT, state="quarantined", quarantine=held)
        assert list(await stores.documents.queued(99, 9, ALL_SIZES)) == []
        assert await stores.documents.backlog("handbook") == Backlog(pending=0, failed=0, quarantined=1)
        await stores.documents.release(DOCUMENT, "human:dana", 7)
        released = await stores.documents.find(*NAMES)
        assert released == structs.replace(DOCUMENT, released="f1", released_by="human:dana")
        assert released.is_released
        assert [each[:3] for each in await stores.documents.queued(99, 9, ALL_SIZES)] == [(*NAMES, 0)]
        await stores.documents.put(later(DOCUMENT, 2), b"y", 8)
        again = await stores.documents.find(*NAMES)
        assert again is not None
        assert not again.is_released

    async def test_an_unindexed_document_keeps_its_content(self, stores: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        label = TrustLabel(Source.DOCUMENT, Trust.SUSPICIOUS, reasons=("injection",))
        await stores.documents.finish(structs.replace(DOCUMENT, chunks=3, indexed_at=9, trust=label), None)
        found = await stores.documents.find(*NAMES)
        assert found is not None
        assert found.trust == label
        await stores.documents.set_trust(*NAMES, None)
        await stores.documents.unindex(*NAMES)
        found = await stores.documents.find(*NAMES)
        assert found is not None
        assert (found.indexed_version, found.indexed_content, found.chunks, found.trust) == (0, 0, 0, None)
        assert await stores.documents.content(*NAMES, 1) == StoredContent(b"x", None)
        await stores.documents.delete_content(*NAMES, 1)
        assert await stores.documents.content(*NAMES, 1) is None

    async def test_documents_are_requeued_in_small_batches(self, stores: ContractStores) -> None:
        for name in ("a", "b", "c"):
            document = structs.replace(DOCUMENT, document_id=name)
            await stores.documents.put(document, b"x", 5)
            await stores.documents.finish(structs.replace(document, chunks=1), None)
        assert await stores.documents.requeued("handbook") == (0, 0)
        assert [await stores.documents.count_after("handbook", name) for name in ("", "b", "c")] == [3, 1, 0]
        assert await stores.documents.requeue("handbook", "", 2, 50) == "b"
        assert await stores.documents.requeued("handbook") == (2, 2)
        states = {
            each.document_id: (each.state, each.version)
            for each in await stores.documents.page("handbook", None, "", 9)
        }
        assert states == {"a": ("pending", 2), "b": ("pending", 2), "c": ("indexed", 1)}
        assert await stores.documents.requeue("handbook", "b", 2, 50) == "c"
        assert await stores.documents.requeue("handbook", "c", 2, 50) is None
        found = await stores.documents.find("handbook", "a")
        assert found is not None
        assert (found.content_version, found.indexed_version) == (1, 1)

    async def test_a_deleted_document_leaves_no_rows(self, stores: ContractStores) -> None:
        await stores.documents.put(DOCUMENT, b"x", 5)
        await stores.documents.delete(*NAMES)
        assert await stores.documents.find(*NAMES) is None
        assert await stores.documents.content(*NAMES, 1) is None
