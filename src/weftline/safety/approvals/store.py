"""Ports of approvals: who observes held calls, and who performs approved ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.safety.approvals.model import HeldCall


class HeldCallObserver(Protocol):
    """Another slice that holds something for an approval: shows it to approvers, and ends it with the approval."""

    async def details(self, held: HeldCall) -> Mapping[str, Any]:
        """Return what an approver is shown besides the details of the reason, as it is now."""
        ...

    async def closed(self, held: HeldCall, decision: Literal["rejected", "expired"]) -> None:
        """Note, in the transaction of the decision, that a call will not be performed."""
        ...


class CallPerformer(Protocol):
    """Performs approved calls."""

    async def perform(self, tenant: str, held: HeldCall) -> HeldCall | None:
        """Perform a call whose performer this process is; return it with its outcome, None if it was deleted."""
        ...
