"""The contract of ApprovalStore."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.contracts.stores import ContractStores
from weftline.kernel.correlation import Correlation
from weftline.kernel.identity import Approval, HoldReason, Permission
from weftline.safety.approvals.model import RELEASE, ApprovalState, CallResult, HeldCall, HeldError
from weftline.safety.approvals.sql import Pending, PerformedElsewhere

HELD = HeldCall(
    approval_id="approval_1",
    caller_id="planner",
    caller="orchestrator:planner",
    session_id="s1",
    operation="board.write",
    request='{"value":"é"}',
    digest=b"\x00\xff",
    hold="quarantine",
    reason=HoldReason(check="injection:1", text="Suspicious.", details={"excerpt": "é"}, approver="client"),
    permissions=(Permission.READ, Permission.WRITE),
    token_id="token_1",
    step="review",
    bound_session="s1",
    correlation=Correlation(turn_id="t1"),
    created_at=100,
    expires_at=200,
    due_at=200,
)
APPROVED = replace(
    HELD,
    state=ApprovalState.APPROVED,
    decided_at=150,
    decided_by="human:dana",
    decision_reason="fine",
    checks=("injection:1",),
    performer="performer_1",
    due_at=210,
)
APPROVAL = Approval("approval_1", frozenset({"injection:1"}), "human:dana", "performer_1")
DONE = CallResult({"version": 1})
FAILED = CallResult(error=HeldError("module:Name", "KEY_NOT_FOUND", "No key.", "Look.", {"key": "a"}, ("tool",)))


class ApprovalStoreContract:
    """Every change names the state it expects."""

    async def test_a_held_call_is_stored_as_it_is(self, stores: ContractStores) -> None:
        assert await stores.approvals.add(HELD)
        assert await stores.approvals.find("approval_1") == HELD
        assert await stores.approvals.find("approval_2") is None
        assert await stores.approvals.latest("planner", HELD.digest) == HELD
        assert await stores.approvals.latest("review", HELD.digest) is None

    async def test_identical_calls_of_a_caller_are_pending_once(self, stores: ContractStores) -> None:
        assert await stores.approvals.add(HELD)
        again = replace(HELD, approval_id="approval_2")
        assert not await stores.approvals.add(again)
        assert await stores.approvals.add(replace(again, approval_id="approval_3", caller_id="review"))
        assert await stores.approvals.expire("approval_1", 200, 900)
        assert await stores.approvals.add(again)
        assert await stores.approvals.latest("planner", HELD.digest) == again

    async def test_pending_calls_are_counted(self, stores: ContractStores) -> None:
        for number, caller in enumerate(("planner", "planner", "review")):
            call = replace(HELD, approval_id=f"approval_{number}", caller_id=caller, digest=bytes([number]))
            await stores.approvals.add(call)
        await stores.approvals.reject(replace(HELD, approval_id="approval_0", state=ApprovalState.REJECTED), 150)
        await stores.approvals.add(replace(HELD, approval_id="approval_3", operation=RELEASE, digest=b"3"))
        size = len(HELD.request)
        assert await stores.approvals.pending("planner") == Pending(2, 1, 2 * size, size)
        assert await stores.approvals.pending("planner", releases=True) == Pending(1, 1, size, size)

    async def test_calls_are_listed_newest_first(self, stores: ContractStores) -> None:
        for number, caller in enumerate(("planner", "planner", "review")):
            call = replace(HELD, approval_id=f"approval_{number}", caller_id=caller, digest=bytes([number]))
            await stores.approvals.add(call)
        await stores.approvals.expire("approval_0", 200, 900)

        async def listed(before: str | None = None, limit: int = 10, **filters: object) -> list[str]:
            asked: dict[str, object] = {"caller_id": None, "states": (), **filters}
            found = await stores.approvals.newest(before, limit, **asked)  # type: ignore[arg-type]
            return [held.approval_id[-1] for held in found]

        assert await listed() == ["2", "1", "0"]
        assert await listed("approval_2", 1) == ["1"]
        assert await listed(caller_id="planner") == ["1", "0"]
        assert await listed(session_id="s1") == ["2", "1", "0"]
        assert await listed(session_id="s2") == []
        assert await listed(states=(ApprovalState.PENDING,)) == ["2", "1"]
        assert await listed(states=(ApprovalState.PENDING, ApprovalState.EXPIRED), caller_id="planner") == ["1", "0"]

    async def test_only_the_first_decision_is_stored(self, stores: ContractStores) -> None:
        await stores.approvals.add(HELD)
        rejected = replace(APPROVED, state=ApprovalState.REJECTED)
        assert not await stores.approvals.approve(APPROVED, 200)
        assert await stores.approvals.approve(APPROVED, 199)
        assert not await stores.approvals.approve(APPROVED, 150)
        assert not await stores.approvals.reject(rejected, 150)
        assert not await stores.approvals.expire("approval_1", 300, 900)
        assert await stores.approvals.find("approval_1") == APPROVED
        assert await stores.approvals.states(["approval_1", "approval_2"]) == {"approval_1": ApprovalState.APPROVED}

    async def test_a_call_expires_only_after_its_time(self, stores: ContractStores) -> None:
        await stores.approvals.add(HELD)
        assert not await stores.approvals.expire("approval_1", 199, 900)
        assert await stores.approvals.expire("approval_1", 200, 900)
        assert not await stores.approvals.approve(APPROVED, 150)
        expired = replace(HELD, state=ApprovalState.EXPIRED, due_at=900)
        assert await stores.approvals.find("approval_1") == expired

    async def test_one_performer_commits(self, stores: ContractStores) -> None:
        await stores.approvals.add(HELD)
        with pytest.raises(PerformedElsewhere):
            await stores.approvals.begin(APPROVAL)
        await stores.approvals.approve(APPROVED, 150)
        assert await stores.approvals.take_over("approval_1", "performer_2", 209, 300) is None
        taken = await stores.approvals.take_over("approval_1", "performer_2", 210, 300)
        assert taken == replace(APPROVED, performer="performer_2", due_at=300)
        with pytest.raises(PerformedElsewhere):
            await stores.approvals.begin(APPROVAL)
        second = replace(APPROVAL, performer="performer_2")
        await stores.approvals.begin(second)
        await stores.approvals.begin(second)
        await stores.approvals.keep(second, DONE)
        begun = replace(taken, state=ApprovalState.BEGUN, outcome=DONE)
        assert await stores.approvals.find("approval_1") == begun
        assert not await stores.approvals.finish(replace(APPROVED, outcome=FAILED), 250, 900)
        assert await stores.approvals.finish(replace(begun, outcome=FAILED), 250, 900)
        done = replace(begun, state=ApprovalState.PERFORMED, outcome=FAILED, performed_at=250, due_at=900)
        assert await stores.approvals.find("approval_1") == done
        assert await stores.approvals.take_over("approval_1", "performer_3", 9_999, 9_999) is None

    async def test_an_answer_is_collected_at_its_first_time(self, stores: ContractStores) -> None:
        await stores.approvals.add(HELD)
        await stores.approvals.collect("approval_1", 300, 360)
        await stores.approvals.collect("approval_1", 400, 460)
        found = await stores.approvals.find("approval_1")
        assert found == replace(HELD, collected_at=300, due_at=360)

    async def test_an_answer_is_deleted_before_its_call(self, stores: ContractStores) -> None:
        await stores.approvals.add(HELD)
        await stores.approvals.approve(APPROVED, 150)
        await stores.approvals.finish(replace(APPROVED, outcome=DONE), 250, 300)
        await stores.approvals.delete_answer("approval_1", 900)
        found = await stores.approvals.find("approval_1")
        assert found == replace(APPROVED, state=ApprovalState.PERFORMED, performed_at=250, due_at=900)

    async def test_an_approved_call_can_be_held_again(self, stores: ContractStores) -> None:
        await stores.approvals.add(HELD)
        assert not await stores.approvals.hold_again(APPROVED)
        await stores.approvals.approve(APPROVED, 150)
        again = replace(APPROVED, reason=HoldReason(check="rule:2", text="Ask."), expires_at=500)
        assert await stores.approvals.hold_again(again)
        pending = replace(HELD, reason=again.reason, expires_at=500, due_at=500, checks=("injection:1",))
        assert await stores.approvals.find("approval_1") == pending

    async def test_what_is_due_is_found_and_deleted(self, stores: ContractStores) -> None:
        await stores.approvals.add(HELD)
        assert await stores.approvals.due(199, 10) == []
        assert await stores.approvals.due(200, 10) == [HELD]
        await stores.approvals.delete("approval_1")
        assert await stores.approvals.due(200, 10) == []

    async def test_tenants_have_their_own_held_calls(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.approvals.add(HELD)
        assert await elsewhere.approvals.find("approval_1") is None
        assert not await elsewhere.approvals.approve(APPROVED, 150)
        assert await elsewhere.approvals.due(999, 10) == []
        await elsewhere.approvals.delete("approval_1")
        assert await stores.approvals.find("approval_1") == HELD
