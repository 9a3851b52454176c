"""The contract of RecordStore."""

from __future__ import annotations

from typing import Any

import msgspec

from support.contracts.sessions import session
from support.contracts.stores import ContractStores
from weftline.kernel.identity import Actor, Permission, PrincipalKind, system_actor
from weftline.records.refs import Link
from weftline.records.schemas import Redaction, StoredRecord

ADMIN = system_actor("acme")


def stored_record(record_id: str, **changed: Any) -> StoredRecord:
    plain = StoredRecord(
        type="context_envelope",
        record_id=record_id,
        session_id="s1",
        status="draft",
        recorded_by="orchestrator",
        recorded_at=10,
        changed_at=10,
        seq=1,
        readable_by=("subagent:*", "principal:ada"),
        body='{"nested":[1,1.0,null,"é"]}'.encode(),
        principal_id="ada",
    )
    return msgspec.structs.replace(plain, **changed)


def missing_context(record_id: str, **changed: Any) -> StoredRecord:
    return stored_record(record_id, type="missing_context", **{"status": "detected", **changed})


def redaction(item_id: str, state: str = "masked") -> Redaction:
    return Redaction(item_id, "s1", state, "by hand", "a name", "human:dana", 20)


async def fill(stores: ContractStores, *records: StoredRecord, items: tuple[str, ...] = ()) -> None:
    for record in records:
        assert await stores.records.add(record, items)


class RecordStoreContract:
    """Records are stored unchanged and found by id, session, item and state."""

    async def test_a_record_is_returned_unchanged(self, stores: ContractStores) -> None:
        record, of_none = (
            stored_record("r1"),
            stored_record("r2", session_id=None, status=None, readable_by=("*",), principal_id=None),
        )
        await fill(stores, record, of_none)
        assert await stores.records.find("context_envelope", "r1") == record
        assert await stores.records.find("context_envelope", "r2") == of_none
        assert await stores.records.find_locked("context_envelope", "r1") == record
        assert await stores.records.find("context_budget", "r1") is None
        assert await stores.records.find_locked("context_envelope", "r3") is None

    async def test_records_are_added_in_bulk_with_their_items(self, stores: ContractStores) -> None:
        some = [stored_record("r1"), stored_record("r2", seq=2)]
        await stores.records.add_all([(some[0], ["i", "i"]), (some[1], ["i", "j"])])
        await stores.records.add_all([])
        assert await stores.records.of_session("s1", 0, 9) == some
        assert await stores.records.of_item("i", ADMIN) == some
        assert await stores.records.of_item("j", ADMIN) == some[1:]

    async def test_records_of_an_item_are_those_of_the_readers_sessions_and_its_own(
        self, stores: ContractStores
    ) -> None:
        for session_id, members in (("s2", ()), ("s3", ("orchestrator",))):
            assert await stores.sessions.add(msgspec.structs.replace(session(session_id), members=members))
        by_eve = {"principal_id": "eve"}
        await fill(
            stores,
            stored_record("own", session_id=None),
            stored_record("imported", session_id=None, principal_id=None),
            stored_record("shared", session_id=None, **by_eve),
            stored_record("closed", session_id="s2", **by_eve),
            stored_record("open", session_id="s3", **by_eve),
            items=("i",),
        )
        ada = Actor("acme", "ada", PrincipalKind.AGENT, "ada", False, frozenset({Permission.READ}), 1, 0)  # noqa: FBT003 - a field
        found = {each.record_id for each in await stores.records.of_item("i", ada)}
        assert found == {"own", "imported", "shared", "open"}
        assert len(await stores.records.of_item("i", ADMIN)) == 5

    async def test_an_id_is_unique_within_its_type(self, stores: ContractStores) -> None:
        await fill(stores, stored_record("r1"), stored_record("r1", type="context_budget"))
        assert not await stores.records.add(stored_record("r1", body=b"{}"), ["i"])
        assert await stores.records.find("context_envelope", "r1") == stored_record("r1")
        assert await stores.records.of_item("i", ADMIN) == []

    async def test_a_record_can_be_updated(self, stores: ContractStores) -> None:
        await fill(stores, stored_record("r1"), items=("before", "both"))
        changed = stored_record("r1", status="archived", changed_at=20, seq=9, body=b'{"now":true}')
        await stores.records.replace(changed, ["both", "after"])
        assert await stores.records.find("context_envelope", "r1") == changed
        assert await stores.records.of_item("before", ADMIN) == []
        assert await stores.records.of_item("both", ADMIN) == await stores.records.of_item("after", ADMIN) == [changed]

    async def test_several_records_are_found_in_one_call(self, stores: ContractStores) -> None:
        records = [stored_record(f"r{n}", type=("context_envelope", "context_item")[n % 2]) for n in range(120)]
        await fill(stores, *records)
        wanted = [(record.type, record.record_id) for record in records[7:113]]
        found = await stores.records.find_several([*wanted, ("context_item", "none"), ("context_budget", "r7")])
        assert sorted((each.type, each.record_id) for each in found) == sorted(wanted)
        assert await stores.records.find_several([]) == []

    async def test_records_of_a_session_are_in_log_order(self, stores: ContractStores) -> None:
        await fill(stores, *(stored_record(f"r{n}", seq=10 - n) for n in range(5)), stored_record("x", session_id="s2"))
        await fill(stores, stored_record("none", session_id=None, seq=3))
        assert [each.record_id for each in await stores.records.of_session("s1", 0, 9)] == [
            "r4",
            "r3",
            "r2",
            "r1",
            "r0",
        ]
        assert [each.record_id for each in await stores.records.of_session("s1", 7, 2)] == ["r2", "r1"]
        assert [each.record_id for each in await stores.records.of_session(None, 0, 9)] == ["none"]

    async def test_records_of_an_item_are_oldest_first(self, stores: ContractStores) -> None:
        await fill(stores, stored_record("r1", seq=2), items=("i", "j", "i"))
        await fill(stores, stored_record("r2", seq=1), items=("i",))
        assert [each.record_id for each in await stores.records.of_item("i", ADMIN)] == ["r2", "r1"]
        assert [each.record_id for each in await stores.records.of_item("j", ADMIN)] == ["r1"]
        assert await stores.records.of_item("k", ADMIN) == []

    async def test_missing_context_is_found_until_it_is_resolved(self, stores: ContractStores) -> None:
        await fill(
            stores,
            stored_record("r1"),
            missing_context("m1", recorded_at=30),
            missing_context("m2", recorded_at=20, status="requested"),
            missing_context("m3", status="resolved"),
            missing_context("m4", session_id="s2"),
        )
        assert [each.record_id for each in await stores.records.open_missing("s1", 9)] == ["m2", "m1"]
        assert [each.record_id for each in await stores.records.open_missing("s1", 1)] == ["m2"]
        assert [each.record_id for each in await stores.records.open_missing(None, 9)] == ["m4", "m2", "m1"]

    async def test_missing_context_is_paged_by_id(self, stores: ContractStores) -> None:
        await fill(
            stores,
            stored_record("m0"),
            missing_context("m3"),
            missing_context("m1", status="resolved"),
            missing_context("m2", session_id="s2"),
        )

        async def ids(session_id: str | None, after: str, limit: int, *, only_open: bool) -> list[str]:
            found = await stores.records.missing_after(session_id, after, limit, only_open=only_open)
            return [each.record_id for each in found]

        assert await ids(None, "", 9, only_open=False) == ["m1", "m2", "m3"]
        assert await ids(None, "", 9, only_open=True) == ["m2", "m3"]
        assert await ids("s1", "", 9, only_open=False) == ["m1", "m3"]
        assert await ids("s1", "", 9, only_open=True) == ["m3"]
        assert await ids(None, "m1", 1, only_open=False) == ["m2"]
        assert await ids("s1", "m1", 9, only_open=False) == ["m3"]

    async def test_open_records_have_an_audience(self, stores: ContractStores) -> None:
        await fill(
            stores,
            missing_context("m1"),
            missing_context("m2", readable_by=("*",)),
            missing_context("m3", status="resolved"),
            stored_record("r1"),
        )
        readers = await stores.records.open_missing_readers("s1")
        assert sorted(readers) == [("*",), ("subagent:*", "principal:ada")]
        assert await stores.records.open_missing_readers("s2") == []

    async def test_content_is_stored_once_for_each_item(self, stores: ContractStores) -> None:
        for content in (b"\x00first", b"second"):
            await stores.records.put_content("s1", "i", content)
        await stores.records.put_content(None, "i", b"of none")
        assert await stores.records.content("s1", "i") == b"\x00first"
        assert await stores.records.content(None, "i") == b"of none"
        assert await stores.records.content("s2", "i") is None
        assert await stores.records.content("s1", "j") is None

    async def test_the_last_redaction_of_an_item_wins(self, stores: ContractStores) -> None:
        for each in (redaction("i"), redaction("j"), redaction("i", "removed")):
            await stores.records.redact(each)
        found = await stores.records.redactions(["i", "k", *(f"n{n}" for n in range(70)), "j"])
        assert found == {"i": redaction("i", "removed"), "j": redaction("j")}
        assert await stores.records.redactions([]) == {}

    async def test_the_summary_of_an_item_is_replaced_with_its_next_redaction(self, stores: ContractStores) -> None:
        summarized = msgspec.structs.replace(redaction("i", "summarized"), replacement="a name: é")
        await stores.records.redact(summarized)
        assert await stores.records.redactions(["i"]) == {"i": summarized}
        changed = msgspec.structs.replace(summarized, replacement="somebody")
        await stores.records.redact(changed)
        assert await stores.records.redactions(["i"]) == {"i": changed}
        await stores.records.redact(redaction("i", "none"))
        assert await stores.records.redactions(["i"]) == {}
        await stores.records.redact(redaction("i", "summarized"))
        assert await stores.records.redactions(["i"]) == {"i": redaction("i", "summarized")}

    async def test_an_imported_redaction_keeps_its_policies(self, stores: ContractStores) -> None:
        came = msgspec.structs.replace(redaction("i"), imported_policies=("p", Link(kind="export_policy", id="q")))
        none = msgspec.structs.replace(redaction("j"), imported_policies=())
        for each in (came, none):
            await stores.records.redact(each)
        assert await stores.records.redactions(["i", "j"]) == {"i": came, "j": none}

    async def test_records_are_deleted_with_their_session(self, stores: ContractStores) -> None:
        await stores.sessions.add(session("s1"))
        await fill(stores, stored_record("r1"), stored_record("other", session_id="s2"), items=("i",))
        await stores.records.put_content("s1", "i", b"content")
        await stores.records.redact(redaction("i"))
        await stores.sessions.erase("s1")
        assert await stores.records.find("context_envelope", "r1") is None
        assert [each.record_id for each in await stores.records.of_item("i", ADMIN)] == ["other"]
        assert await stores.records.content("s1", "i") is None
        assert await stores.records.redactions(["i"]) == {}

    async def test_tenants_have_their_own_records(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await fill(stores, stored_record("r1"), missing_context("m1"), items=("i",))
        await stores.records.put_content("s1", "i", b"content")
        await stores.records.redact(redaction("i"))
        assert await elsewhere.records.find("context_envelope", "r1") is None
        assert await elsewhere.records.find_several([("context_envelope", "r1")]) == []
        assert await elsewhere.records.of_session("s1", 0, 9) == await elsewhere.records.of_item("i", ADMIN) == []
        assert await elsewhere.records.open_missing(None, 9) == []
        assert await elsewhere.records.missing_after(None, "", 9, only_open=False) == []
        assert await elsewhere.records.open_missing_readers("s1") == []
        assert await elsewhere.records.content("s1", "i") is None
        assert await elsewhere.records.redactions(["i"]) == {}
        await fill(elsewhere, stored_record("r1", body=b"{}"))
        assert await stores.records.find("context_envelope", "r1") == stored_record("r1")
