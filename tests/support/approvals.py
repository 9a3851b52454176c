"""A guard that holds calls, and helpers to decide about them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weftline.kernel.errors import Forbidden
from weftline.kernel.guards import Guard
from weftline.kernel.identity import HoldReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from support.world import Caller
    from weftline.kernel.guards import GuardedCall

CHECK = "rule:ask"
QUESTION = "Deleting needs an approval."


class NeedsApproval(Forbidden):
    """A rule asks a human first."""

    code = "TEST_NEEDS_APPROVAL"
    hold = "approval"


class Suspicious(Forbidden):
    """The content is suspicious."""

    code = "TEST_SUSPICIOUS"
    hold = "quarantine"


class Asking(Guard):
    """Holds calls of some operations, once for each check."""

    def __init__(
        self,
        *operations: str,
        checks: Iterable[str] = (CHECK,),
        approver: Any = "human",
        error: type[Forbidden] = NeedsApproval,
    ) -> None:
        self.operations = operations or ("board.delete",)
        self.checks = tuple(checks)
        self.approver = approver
        self.error = error
        self.approvals: list[Any] = []

    async def before(self, call: GuardedCall) -> Any:
        if call.operation.name not in self.operations:
            return call.request
        self.approvals.append(call.approval)
        for check in self.checks:
            if call.approval is None or not call.approval.covers(check):
                held = self.error(QUESTION)
                held.hold_reason = HoldReason(
                    check=check, text=QUESTION, details={"excerpt": "suspicious words"}, approver=self.approver
                )
                raise held
        return call.request


async def pending(approver: Caller, count: int = 1) -> list[dict[str, Any]]:
    """Wait until this many calls are pending, and return them, newest first."""
    async with asyncio.timeout(60):
        while True:
            found = (await approver.call("approval.list", state="pending"))["approvals"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


async def approval_of(approver: Caller) -> str:
    return (await pending(approver))[0]["approval_id"]
