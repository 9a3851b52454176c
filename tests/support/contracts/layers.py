"""The contracts of LayerStore and CriticalEditStore."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.access.model import Principal
from weftline.history.composite_lines import PartVersion
from weftline.history.line_kinds import EditProof
from weftline.history.model import Author, Change, ChangeKind, ChangeMeta, Commit, Head, blob_hash
from weftline.history.store import Pin
from weftline.kernel.errors import Forbidden, SelfModification
from weftline.kernel.identity import Permission, PrincipalKind
from weftline.state.agent_context.sql import CriticalEdit
from weftline.state.layers.sql import LayerPin

TENANT, TEAM, DEFINITION = "layer:tenant", "layer:team:a", "agent:planner"
HASH = "ab" * 32
PINNED = LayerPin(
    "s1", "planner", (PartVersion(TENANT, 2, HASH), PartVersion(TEAM, 1, HASH), PartVersion(DEFINITION, 0, HASH)), 5
)
ADMIN = Author("human:admin", "admin")
AGENT = Principal("planner", PrincipalKind.AGENT, "custom", None, False, 5, frozenset(Permission), 1)  # noqa: FBT003
HOLDER = "session:s1:planner:layers"


def _commit(line_id: str, seq: int, author: Author, size: int = 1) -> Commit:
    change = Change("text", 1, seq, ChangeKind.WRITE, blob_hash("x"), ChangeMeta(size=size))
    return Commit(line_id, seq, author, committed_at=seq, reason="define", step=None, changes=(change,))


async def _append(stores: ContractStores, head: Head, author: Author, proof: EditProof | None, size: int = 1) -> Head:
    commit = _commit(head.line_id, head.seq + 1, author, size)
    return await stores.lines.append(head, commit, weight=size, next_expiry_at=None, proof=proof)


async def _define(stores: ContractStores, name: str, *sizes: int) -> Head:
    line_id = f"layer:{name}"
    await stores.lines.create(line_id)
    await stores.layers.add(name)
    head = Head.of_new_line(line_id)
    for size in sizes:
        head = await _append(stores, head, ADMIN, EditProof(line_id, "admin"), size)
    return head


class LayerStoreContract:
    """Defined layers are listed; an agent has one set of pinned versions in a session, or none."""

    async def test_layers_are_listed_by_name_with_their_last_commit(self, stores: ContractStores) -> None:
        heads = {name: await _define(stores, name, 3, 7) for name in ("tenant", "team:b", "team:a")}
        await stores.layers.add("team:a")
        await _define(stores, "team:empty")
        first = await stores.layers.page("", 2)
        assert [each.name for each in first] == ["team:a", "team:b"]
        (last,) = await stores.layers.page("team:b", 10)
        assert last == ("tenant", 2, heads["tenant"].hash, 7, "human:admin", 2)
        assert await stores.layers.page("tenant", 10) == []

    async def test_pinned_versions_are_returned_unchanged(self, stores: ContractStores) -> None:
        assert await stores.layers.find_pin("s1", "planner") is None
        await stores.layers.put_pin(PINNED)
        assert await stores.layers.find_pin("s1", "planner") == PINNED
        assert await stores.layers.find_pin("s1", "other") is None
        assert await stores.layers.find_pin("s2", "planner") is None

    async def test_versions_are_kept_from_pruning_until_others_are_pinned(self, stores: ContractStores) -> None:
        await stores.layers.put_pin(PINNED)
        assert await stores.lines.pinned(TENANT) == [Pin(2, HOLDER)]
        assert await stores.lines.pinned(TEAM) == [Pin(1, HOLDER)]
        # A line without versions has nothing that pruning could remove.
        assert await stores.lines.pinned(DEFINITION) == []
        later = structs.replace(PINNED, versions=(PartVersion(TENANT, 3, HASH),), pinned_at=9)
        await stores.layers.put_pin(later)
        assert await stores.layers.find_pin("s1", "planner") == later
        assert await stores.lines.pinned(TENANT) == [Pin(3, HOLDER)]
        assert await stores.lines.pinned(TEAM) == []

    async def test_pins_are_deleted_with_their_session(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        for each in (stores, elsewhere):
            for session_id in ("s1", "s2"):
                await each.layers.put_pin(structs.replace(PINNED, session_id=session_id))
        await stores.sessions.erase("s1")
        assert await stores.layers.find_pin("s1", "planner") is None
        assert await stores.lines.pinned(TENANT) == [Pin(2, HOLDER.replace("s1", "s2"))]
        assert await stores.layers.find_pin("s2", "planner") is not None
        assert await elsewhere.layers.find_pin("s1", "planner") == PINNED

    async def test_tenants_have_their_own_layers(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await _define(stores, "tenant", 3)
        await stores.layers.put_pin(PINNED)
        assert await elsewhere.layers.page("", 10) == []
        assert await elsewhere.layers.find_pin("s1", "planner") is None


class SignedLineContract:
    """Layers and definitions: the store demands the proof of an edit, checks it against its own rows and signs it."""

    async def test_an_edit_without_the_proof_of_its_author_is_refused(self, stores: ContractStores) -> None:
        await stores.access.add_principal(AGENT)
        await stores.access.add_principal(replace(AGENT, principal_id="helper", parent_id="planner", clearance=1))
        planner = Author("orchestrator:planner", "planner")
        for line_id in (TENANT, DEFINITION, "agent:helper"):
            await stores.lines.create(line_id)
        for line_id, author, proof in [
            (TENANT, ADMIN, None),
            (TENANT, ADMIN, EditProof(TEAM, "admin")),
            (TENANT, ADMIN, EditProof(TENANT, "planner")),
            (TENANT, planner, EditProof(TENANT, "planner")),
            (DEFINITION, planner, EditProof(DEFINITION, "planner")),
            (DEFINITION, Author("system", "system"), EditProof(DEFINITION, "system")),
            ("agent:helper", Author("subagent:helper", "helper"), EditProof("agent:helper", "helper")),
        ]:
            with pytest.raises(SelfModification):
                await _append(stores, Head.of_new_line(line_id), author, proof)
            assert await stores.lines.log(line_id, 1, 1) == []
        upward = EditProof(DEFINITION, "helper")
        with pytest.raises(Forbidden):
            await _append(stores, Head.of_new_line(DEFINITION), Author("subagent:helper", "helper"), upward)
        with pytest.raises(SelfModification):
            await stores.lines.append_all(Head.of_new_line(TENANT), [(_commit(TENANT, 1, ADMIN), 1)])
        head = await _append(stores, Head.of_new_line("agent:helper"), planner, EditProof("agent:helper", "planner"))
        assert head.seq == 1

    async def test_every_version_is_signed_with_its_state(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        first = await _define(stores, "tenant", 3)
        second = await _append(stores, first, ADMIN, EditProof(TENANT, "admin"), 5)
        for head in (first, second):
            state = [version.change for version in await stores.lines.state_at(TENANT, head.seq)]
            assert await stores.lines.is_signed(TENANT, head.seq, head.hash, state)
            assert not await stores.lines.is_signed(TENANT, head.seq, head.hash, [])
            assert not await stores.lines.is_signed(TENANT, head.seq, bytes(32), state)
            assert not await stores.lines.is_signed(TEAM, head.seq, head.hash, state)
            assert not await elsewhere.lines.is_signed(TENANT, head.seq, head.hash, state)
        assert not await stores.lines.is_signed(TENANT, 3, second.hash, state)

    async def test_a_new_key_keeps_older_signatures_and_erasing_a_line_removes_them(
        self, stores: ContractStores
    ) -> None:
        first = await _define(stores, "tenant", 3)
        for _ in range(3):
            await stores.line_keys.rotate(9)
        second = await _append(stores, first, ADMIN, EditProof(TENANT, "admin"), 5)
        for head in (first, second):
            state = [version.change for version in await stores.lines.state_at(TENANT, head.seq)]
            assert await stores.lines.is_signed(TENANT, head.seq, head.hash, state)
        await stores.lines.erase(TENANT)
        assert not await stores.lines.is_signed(TENANT, second.seq, second.hash, state)


class CriticalEditStoreContract:
    """The newest critical edit of a line is found by those with an older version."""

    async def test_the_newest_edit_after_a_version_is_found(self, stores: ContractStores) -> None:
        for version in (2, 5, 4):
            await stores.critical_edits.mark(CriticalEdit(TENANT, version, "human:admin", version * 10))
        await stores.critical_edits.mark(CriticalEdit(DEFINITION, 1, "orchestrator", 7))
        newest = CriticalEdit(TENANT, 5, "human:admin", 50)
        for versions, expected in [
            ([], []),
            ([PartVersion(TENANT, 5, "")], []),
            ([PartVersion(TENANT, 4, "")], [newest]),
            ([PartVersion(TENANT, 0, ""), PartVersion(TEAM, 0, "")], [newest]),
            ([PartVersion(TENANT, 5, ""), PartVersion(TEAM, 0, ""), PartVersion(DEFINITION, 1, "")], []),
            (
                [PartVersion(TENANT, 1, ""), PartVersion(TEAM, 0, ""), PartVersion(DEFINITION, 0, "")],
                [newest, CriticalEdit(DEFINITION, 1, "orchestrator", 7)],
            ),
        ]:
            assert await stores.critical_edits.newer_than(versions) == expected

    async def test_the_first_mark_of_a_version_stays(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.critical_edits.mark(CriticalEdit(TENANT, 2, "human:admin", 1))
        await stores.critical_edits.mark(CriticalEdit(TENANT, 2, "human:other", 2))
        pinned = [PartVersion(TENANT, 1, "")]
        assert await stores.critical_edits.newer_than(pinned) == [CriticalEdit(TENANT, 2, "human:admin", 1)]
        assert await elsewhere.critical_edits.newer_than(pinned) == []
