"""Contracts of ReviewStore, SnapshotIndex, RetentionStore, PruningLog and JobStore."""

from __future__ import annotations

from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.history.model import Tag
from weftline.history.retention_rules import Pruning, StoredRule
from weftline.history.reviews import ConflictHashes, Review, ReviewState
from weftline.history.store import Rule, SnapshotPosition
from weftline.kernel.job_store import Progress

LINE, SOURCE = "board:s1", "board:s1@try"
REVIEW = Review(
    review_id="review_1",
    line_id=LINE,
    source_line=SOURCE,
    state=ReviewState.OPEN,
    ours_seq=3,
    theirs_seq=4,
    base_line=LINE,
    base_seq=2,
    conflicts=(ConflictHashes("goal", "aa", None, "bb"),),
    reason="merge",
    opened_by="orchestrator",
    opened_at=1_000,
)
PRUNING = Pruning("p1", LINE, 1_000, "system", "board: 30 days", 3, 40, 5, 9)


class ReviewStoreContract:
    """A review is found by its id, or as the open one of a merge."""

    async def test_a_review_is_read_as_it_was_added(self, stores: ContractStores) -> None:
        await stores.reviews.add(REVIEW)
        assert await stores.reviews.find("review_1") == REVIEW
        assert await stores.reviews.find("review_2") is None

    async def test_a_merge_has_one_open_review(self, stores: ContractStores) -> None:
        await stores.reviews.add(REVIEW)
        assert await stores.reviews.open_for(LINE, SOURCE) == REVIEW
        assert await stores.reviews.open_for(SOURCE, LINE) is None
        decided = structs.replace(
            REVIEW, state=ReviewState.RESOLVED, decided_by="human:admin", decided_at=2_000, conflicts=(), ours_seq=7
        )
        await stores.reviews.update(decided)
        assert await stores.reviews.find("review_1") == decided
        assert await stores.reviews.open_for(LINE, SOURCE) is None

    async def test_reviews_are_listed_newest_first(self, stores: ContractStores) -> None:
        for number, line, state in ((1, LINE, ReviewState.OPEN), (2, "x", ReviewState.OPEN), (3, LINE, "abandoned")):
            review = structs.replace(REVIEW, review_id=f"review_{number}", line_id=line, state=ReviewState(state))
            await stores.reviews.add(review)
        every = await stores.reviews.newest(None, 10, None, None)
        assert [review.review_id for review in every] == ["review_3", "review_2", "review_1"]
        assert [r.review_id for r in await stores.reviews.newest("review_3", 1, None, None)] == ["review_2"]
        assert [r.review_id for r in await stores.reviews.newest(None, 10, LINE, None)] == ["review_3", "review_1"]
        of_line = await stores.reviews.newest(None, 10, LINE, ReviewState.OPEN)
        assert [review.review_id for review in of_line] == ["review_1"]

    async def test_reviews_outlive_a_branch_and_go_with_its_line(self, stores: ContractStores) -> None:
        for number, line in enumerate((LINE, SOURCE, "board:s10", "board:s10@try"), 1):
            await stores.reviews.add(structs.replace(REVIEW, review_id=f"review_{number}", line_id=line))
        await stores.lines.erase(SOURCE)
        assert [review.line_id for review in await stores.reviews.newest(None, 10, SOURCE, None)] == [SOURCE]
        await stores.lines.erase(LINE)
        left = await stores.reviews.newest(None, 10, None, None)
        assert [review.line_id for review in left] == ["board:s10@try", "board:s10"]

    async def test_tenants_have_their_own_reviews(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.reviews.add(REVIEW)
        assert await elsewhere.reviews.find("review_1") is None
        assert await elsewhere.reviews.newest(None, 10, None, None) == []


class SnapshotIndexContract:
    """One index holds the snapshots of all lines."""

    async def test_snapshots_of_all_lines_come_newest_first(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for line in (LINE, SOURCE):
            await stores.lines.create(line)
        await stores.lines.tag(LINE, Tag("a", 0, "orchestrator", 10))
        await stores.lines.tag(SOURCE, Tag("b", 0, "orchestrator", 20, automatic=True))
        await stores.lines.tag(LINE, Tag("c", 0, "orchestrator", 20))
        found = await stores.snapshot_index.newest(None, 10, None)
        assert [(snapshot.label, snapshot.automatic) for snapshot in found] == [("b", True), ("c", False), ("a", False)]
        last = found[0]
        position = SnapshotPosition(last.created_at, last.line_id, last.label)
        assert [snapshot.label for snapshot in await stores.snapshot_index.newest(position, 1, None)] == ["c"]
        assert [snapshot.label for snapshot in await stores.snapshot_index.newest(None, 10, LINE)] == ["c", "a"]
        assert await elsewhere.snapshot_index.newest(None, 10, None) == []

    async def test_named_snapshots_are_counted_by_owner(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await stores.lines.create(LINE)
        for label, owner in {"a": "planner", "b": "planner", "c": "analysis", "before-merge-v1": None}.items():
            await stores.lines.tag(LINE, Tag(label, 0, "orchestrator", 10, automatic=owner is None, owner=owner))
        counts = [await stores.snapshot_index.count(owner) for owner in ("planner", "analysis", "nobody")]
        assert counts == [2, 1, 0]
        assert await elsewhere.snapshot_index.count("planner") == 0
        assert (await stores.lines.find_tag(LINE, "c")) == Tag("c", 0, "orchestrator", 10, owner="analysis")


class RetentionRulesContract:
    """A subject has one rule, the last one set."""

    async def test_the_last_rule_counts(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        assert await stores.retention.rules() == {}
        await stores.retention.set(StoredRule("board", Rule(30, None), "human:admin", 1))
        await stores.retention.set(StoredRule(LINE, Rule(None, 5, 3), "human:admin", 2))
        await stores.retention.set(StoredRule("board", Rule(None, None), "human:other", 3))
        assert await stores.retention.rules() == {"board": Rule(None, None), LINE: Rule(None, 5, 3)}
        assert next(iter(await stores.retention.listed())) == StoredRule("board", Rule(None, None), "human:other", 3)
        assert await elsewhere.retention.rules() == {}

    async def test_a_rule_is_deleted_once(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.retention.set(StoredRule("board", Rule(30, None), "human:admin", 1))
        assert not await elsewhere.retention.clear("board")
        assert await stores.retention.clear("board")
        assert not await stores.retention.clear("board")
        assert await stores.retention.rules() == {}


class PruningLogContract:
    """Removals of one pruning are summed up."""

    async def test_steps_of_one_pruning_add_up(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.prunings.note(PRUNING)
        await stores.prunings.note(PRUNING._replace(versions=1, bytes=2, first_seq=1, last_seq=2))
        assert await stores.prunings.find("p1") == PRUNING._replace(versions=4, bytes=42, first_seq=1)
        assert await stores.prunings.find("p2") is None
        assert await elsewhere.prunings.find("p1") is None

    async def test_prunings_are_listed_newest_first(self, stores: ContractStores) -> None:
        for number, line in ((1, LINE), (2, SOURCE), (3, LINE)):
            await stores.prunings.note(PRUNING._replace(pruning_id=f"p{number}", line_id=line))
        assert [p.pruning_id for p in await stores.prunings.newest(None, 2, None)] == ["p3", "p2"]
        assert [p.pruning_id for p in await stores.prunings.newest("p3", 2, LINE)] == ["p1"]


class JobStoreContract:
    """A job has one holder until its lease ends."""

    async def test_a_job_is_claimed_once(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        assert await stores.jobs.claim("job", "one", 100, 200, due_by=100) == Progress()
        assert await stores.jobs.claim("job", "two", 150, 250, due_by=150) is None
        assert await elsewhere.jobs.claim("job", "two", 150, 250, due_by=150) == Progress()

    async def test_a_job_with_an_expired_lease_is_resumed_at_its_cursor(self, stores: ContractStores) -> None:
        await stores.jobs.claim("job", "one", 100, 200, due_by=100)
        await stores.jobs.save("job", Progress("here", "so much"))
        assert await stores.jobs.claim("job", "two", 200, 300, due_by=200) == Progress("here", "so much")
        assert await stores.jobs.renew("job", "one", 400) is None
        assert await stores.jobs.renew("job", "two", 400) == Progress("here", "so much")
        assert await stores.jobs.claim("job", "three", 399, 500, due_by=399) is None

    async def test_a_released_job_resumes_and_a_finished_one_restarts_when_due(self, stores: ContractStores) -> None:
        await stores.jobs.claim("job", "one", 100, 200, due_by=100)
        await stores.jobs.save("job", Progress("here", "so much"))
        await stores.jobs.release("job", 150)
        assert await stores.jobs.claim("job", "two", 149, 249, due_by=149) is None
        assert await stores.jobs.claim("job", "two", 150, 250, due_by=150) == Progress("here", "so much")
        await stores.jobs.finish("job", 1_000)
        assert await stores.jobs.claim("job", "two", 999, 1_099, due_by=999) is None
        assert await stores.jobs.claim("job", "two", 999, 1_099, due_by=5_000) == Progress()

    async def test_the_progress_of_a_leased_job_can_be_changed_by_others(self, stores: ContractStores) -> None:
        assert await stores.jobs.held("job") == Progress()
        assert await stores.jobs.claim("job", "one", 100, 200, due_by=100) == Progress()
        await stores.jobs.save("job", Progress("here", "so much"))
        assert await stores.jobs.held("job") == Progress("here", "so much")
        assert await stores.jobs.renew("job", "one", 300) == Progress("here", "so much")

    async def test_a_one_time_job_is_deleted_when_finished(self, stores: ContractStores) -> None:
        await stores.jobs.claim("job", "one", 100, 200, due_by=100)
        await stores.jobs.drop("job")
        assert await stores.jobs.renew("job", "one", 300) is None
        assert await stores.jobs.claim("job", "two", 100, 200, due_by=100) == Progress()
