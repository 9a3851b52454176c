"""The contracts of AccessStore and AuditStore."""

from __future__ import annotations

from dataclasses import replace

from support.contracts.stores import ContractStores
from weftline.access.audit import AuditQuery, AuditRow
from weftline.access.model import Principal, SigningKey, StoredKey, StoredToken
from weftline.kernel.identity import Permission, PrincipalKind

BOTH = frozenset({Permission.READ, Permission.WRITE})


def principal(principal_id: str, parent_id: str | None = None, *, below_agent: bool = False) -> Principal:
    return Principal(principal_id, PrincipalKind.AGENT, "custom", parent_id, below_agent, 2, BOTH, 1)


def key(key_id: str, principal_id: str = "planner") -> StoredKey:
    return StoredKey(key_id, principal_id, bytes(range(32)), 1, 99, None)


def token(token_id: str, key_id: str = "key_1", expires_at: int = 50, revoked_at: int | None = None) -> StoredToken:
    return StoredToken(
        token_id=token_id,
        principal_id="planner",
        key_id=key_id,
        permissions=BOTH,
        proven_at=1,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )


class AccessStoreContract:
    """Principals, keys and tokens of one tenant."""

    async def test_the_epoch_only_increases_and_only_for_its_tenant(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        before = await stores.access.epoch()
        assert before is not None
        untouched = await elsewhere.access.epoch()
        await stores.access.advance_epoch()
        assert await stores.access.epoch() == before + 1
        assert await elsewhere.access.epoch() == untouched

    async def test_a_principal_knows_the_agents_above_and_below_it(self, stores: ContractStores) -> None:
        assert await stores.access.add_principal(principal("planner"))
        assert await stores.access.principal("planner") == principal("planner")
        assert await stores.access.add_principal(principal("helper", "planner"))
        assert await stores.access.principal("planner") == replace(principal("planner"), has_agents_below=True)
        assert await stores.access.principal("helper") == principal("helper", "planner", below_agent=True)
        assert await stores.access.principal("none") is None

    async def test_many_principals_are_found_by_id(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        for name in ("planner", "writer", "critic"):
            await stores.access.add_principal(principal(name))
        found = await stores.access.find_principals(["writer", "none", "planner"])
        assert list(found.items()) == [("writer", principal("writer")), ("planner", principal("planner"))]
        assert await stores.access.find_principals([]) == {}
        assert await elsewhere.access.find_principals(["writer"]) == {}

    async def test_a_tree_is_disabled_and_enabled_as_one(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        access = stores.access
        for each in (stores, elsewhere):
            for made in (principal("a"), principal("b", "a"), principal("c", "b"), principal("other")):
                await each.access.add_principal(made)
        await access.lock_tree()
        assert [found.principal_id for found in await access.ancestors("c")] == ["b", "a"]
        assert [found.principal_id for found in await access.below("a")] == ["b", "c"]
        # The tenant's own admin is a human.
        assert (await access.agents_below("a"), await access.active_agents()) == (2, 4)
        root = replace(principal("a"), disabled_at=7, disabled_by="admin")
        assert await access.disable_below(root, None) == ["b", "c"]
        found = await access.principal("c")
        assert found is not None
        assert (found.disabled_at, found.disabled_by, found.disabled_with) == (7, "admin", "a")
        assert (await access.agents_below("a"), await access.active_agents()) == (0, 2)
        branch = replace(principal("b", "a"), disabled_at=8, disabled_by="x")
        assert await access.disable_below(branch, "a") == ["c"]
        assert await access.enable_below("a") == ["b"]
        assert await access.enable_below("b") == ["c"]
        assert (await elsewhere.access.agents_below("a"), await elsewhere.access.active_agents()) == (2, 4)

    async def test_an_agent_is_moved_with_everything_below_it(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        access = stores.access
        for each in (stores, elsewhere):
            for made in (principal("a"), principal("b", "a"), principal("c", "b"), principal("other")):
                await each.access.add_principal(made)
        assert [await access.height(name) for name in ("a", "b", "c")] == [3, 2, 1]
        await access.disable_below(replace(principal("a"), disabled_at=7, disabled_by="admin"), None)
        moving = await access.principal("b")
        assert moving is not None
        await access.move(moving, "other")
        assert [found.principal_id for found in await access.ancestors("c")] == ["b", "other"]
        assert await access.enable_below("a") == []
        assert await access.enable_below("b") == ["c"]
        assert (await access.agents_below("a"), await access.agents_below("other")) == (0, 1)
        assert [found.principal_id for found in await elsewhere.access.ancestors("c")] == ["b", "a"]

    async def test_a_type_is_foreign_to_a_tree_that_has_no_active_agent_of_it(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        for each in (principal("a"), principal("b", "a"), principal("c", "b"), principal("other")):
            await stores.access.add_principal(replace(each, agent_type=f"type-{each.principal_id}"))
        await elsewhere.access.add_principal(replace(principal("x"), agent_type="type-x"))
        for agent_type, principal_id, used in (
            ("type-a", "a", False),
            ("type-b", "a", False),
            ("type-c", "a", False),
            ("type-a", "b", True),
            ("type-other", "a", True),
            ("type-x", "a", False),
        ):
            assert await stores.access.is_foreign_type(agent_type, principal_id) is used
        shared = replace(principal("d", "other"), agent_type="type-b")
        await stores.access.add_principal(shared)
        assert not await stores.access.is_foreign_type("type-b", "a")
        assert not await stores.access.is_foreign_type("type-b", "other")
        await stores.access.update_principal(replace(shared, disabled_at=7))
        assert await stores.access.is_foreign_type("type-b", "other")
        await stores.access.add_principal(replace(principal("h"), kind=PrincipalKind.HUMAN, agent_type="type-b"))
        assert await stores.access.is_foreign_type("type-b", "a")

    async def test_the_id_of_a_principal_is_unique(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        assert await stores.access.add_principal(principal("planner"))
        assert not await stores.access.add_principal(principal("planner"))
        assert await elsewhere.access.add_principal(principal("planner"))

    async def test_principals_are_listed_by_id_after_a_cursor(self, stores: ContractStores) -> None:
        for principal_id in ("z", "x", "y"):
            await stores.access.add_principal(principal(principal_id))
        assert [found.principal_id for found in await stores.access.principals("x", 1)] == ["y"]

    async def test_a_principal_can_be_changed(self, stores: ContractStores) -> None:
        await stores.access.add_principal(principal("planner"))
        changed = replace(principal("planner"), permissions=frozenset(), clearance=5, disabled_at=7, min_score=0.3)
        await stores.access.update_principal(changed)
        assert await stores.access.principal("planner") == changed

    async def test_revoking_a_key_revokes_the_tokens_it_was_used_to_get(self, stores: ContractStores) -> None:
        for key_id in ("key_1", "key_2"):
            await stores.access.add_key(key(key_id))
        assert await stores.access.key("key_1") == key("key_1")
        await stores.access.add_token(token("t1"))
        await stores.access.add_token(token("t2", "key_2"))
        await stores.access.revoke_key("key_1", 5)
        revoked, other = await stores.access.key("key_1"), await stores.access.key("key_2")
        assert revoked is not None
        assert other is not None
        assert (revoked.revoked_at, other.revoked_at) == (5, None)
        assert await stores.access.token("t1") == token("t1", revoked_at=5)
        assert await stores.access.token("t2") == token("t2", "key_2")
        assert {found.key_id for found in await stores.access.keys_of("planner")} == {"key_1", "key_2"}

    async def test_the_first_revocation_of_a_token_is_kept(self, stores: ContractStores) -> None:
        await stores.access.add_token(token("t1"))
        await stores.access.revoke_token("t1", 5)
        await stores.access.revoke_token("t1", 6)
        assert await stores.access.token("t1") == token("t1", revoked_at=5)

    async def test_all_tokens_of_one_principal_are_revoked(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        once = replace(token("t1"), single_use=True)
        other = replace(token("t3"), principal_id="other")
        for stored in (once, token("t2", revoked_at=None), other):
            await stores.access.add_token(stored)
        await elsewhere.access.add_token(token("t1"))
        await stores.access.revoke_token("t2", 4)
        await stores.access.lock_tokens("planner")
        await stores.access.revoke_tokens_of("planner", 5)
        assert await stores.access.token("t1") == replace(once, revoked_at=5)
        assert await stores.access.token("t2") == token("t2", revoked_at=4)
        assert await stores.access.token("t3") == other
        assert await elsewhere.access.token("t1") == token("t1")

    async def test_the_tokens_of_one_sign_in_are_revoked(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        signed_in, refreshed = token("t1"), token("t2")
        others = (
            replace(token("t3"), proven_at=4),
            token("t4", key_id="key_2"),
            replace(token("t5"), principal_id="other"),
        )
        for stored in (signed_in, refreshed, *others):
            await stores.access.add_token(stored)
        await elsewhere.access.add_token(signed_in)
        await stores.access.revoke_sign_in(refreshed, 5)
        for stored in (signed_in, refreshed):
            assert await stores.access.token(stored.token_id) == replace(stored, revoked_at=5)
        for stored in others:
            assert await stores.access.token(stored.token_id) == stored
        assert await elsewhere.access.token("t1") == signed_in

    async def test_only_tokens_long_expired_are_deleted(self, stores: ContractStores) -> None:
        await stores.access.add_token(token("old", expires_at=9))
        await stores.access.add_token(token("new", expires_at=10))
        await stores.access.forget_expired_tokens("planner", 10)
        assert await stores.access.token("old") is None
        assert await stores.access.token("new") is not None

    async def test_signing_keys_are_newest_first_and_are_retired_or_deleted(self, stores: ContractStores) -> None:
        await stores.access.retire_signing_keys(1, forget=True)
        for created_at in (1, 2):
            await stores.access.add_signing_key(SigningKey(f"k{created_at}", bytes(32), created_at, None))
        assert [found.kid for found in await stores.access.signing_keys()] == ["k2", "k1"]
        await stores.access.retire_signing_keys(9, forget=False)
        assert [found.retired_at for found in await stores.access.signing_keys()] == [9, 9]
        await stores.access.retire_signing_keys(9, forget=True)
        assert await stores.access.signing_keys() == []


class AuditStoreContract:
    """Audit rows are added and read, newest first."""

    async def test_rows_are_read_newest_first_page_by_page_and_by_outcome(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        rows = [
            AuditRow(f"{n:02d}", n, "orchestrator", None, "act", ("done", "denied")[n % 2], "target", {"n": [n, "é"]})
            for n in range(5)
        ]
        for row in rows:
            await stores.audit.add(row)
        assert list(await stores.audit.read(AuditQuery(), 2)) == [rows[4], rows[3]]
        assert list(await stores.audit.read(AuditQuery(before="03"), 10)) == [rows[2], rows[1], rows[0]]
        assert list(await stores.audit.read(AuditQuery(outcome="denied"), 10)) == [rows[3], rows[1]]
        assert list(await elsewhere.audit.read(AuditQuery(), 10)) == []

    async def test_rows_are_filtered_by_action_agent_target_and_time(self, stores: ContractStores) -> None:
        for row in (
            AuditRow("1", 1, "human:ada", "ada", "key.create", "done", "Launch", {}),
            AuditRow("2", 2, "human:bo", "bo", "sessions.x", "done", "launched", {}),
            AuditRow("3", 3, "human:bo", "bo", "session.archive", "done", "", {}),
            AuditRow("4", 4, "human:bo", "bo", "session.delete", "denied", "launch", {}),
            AuditRow("5", 5, "human:ada", "ada", "session.delete", "done", "launch/plan", {}),
        ):
            await stores.audit.add(row)
        for wanted, found in (
            (AuditQuery(action="session"), "543"),
            (AuditQuery(action="session.delete"), "54"),
            (AuditQuery(action="session_delete"), ""),
            (AuditQuery(action="sess"), ""),
            (AuditQuery(agent="ada"), "51"),
            (AuditQuery(target="launch"), "54"),
            (AuditQuery(target="plan"), "5"),
            (AuditQuery(target="lau"), ""),
            (AuditQuery(since=3), "543"),
            (AuditQuery(until=3), "21"),
            (AuditQuery(action="session", agent="bo", since=4), "4"),
        ):
            rows = await stores.audit.read(wanted, 10)
            assert "".join(row.audit_id for row in rows) == found, wanted

    async def test_the_detail_of_a_row_can_be_replaced(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        row = AuditRow("01", 1, "unknown", None, "act", "refused", "", {"count": 1})
        for each in (stores, elsewhere):
            await each.audit.add(row)
        await stores.audit.replace_detail("01", {"count": 2})
        assert list(await stores.audit.read(AuditQuery(outcome="refused"), 10)) == [replace(row, detail={"count": 2})]
        assert list(await elsewhere.audit.read(AuditQuery(), 10)) == [row]
