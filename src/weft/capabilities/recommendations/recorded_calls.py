"""Loads the last calls of an agent for a replay: receipts with their texts, and the windows they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.assembly.model import digest_of
from weft.capabilities.assembly.prompt_trust import Screening
from weft.capabilities.assembly.receipts import ReceiptPruned, ReceiptStore, blocks_with_texts
from weft.capabilities.assembly.stored_prompts import check_redactions, check_requester
from weft.capabilities.compaction.store import CompactionStore
from weft.capabilities.recommendations.evidence import likelihoods, useful_items
from weft.capabilities.recommendations.replay import RecordedCall, RecordedWindow
from weft.capabilities.records.store import RecordStore
from weft.capabilities.trust.policy import TrustPolicies
from weft.capabilities.windows.service import Windows
from weft.kernel.errors import NotFound, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.agent_context.compaction_settings import ResolvedCompaction
    from weft.capabilities.assembly.prompt_trust import DataMarking
    from weft.capabilities.assembly.receipts import Receipt, StoredReceipt
    from weft.capabilities.windows.model import Window

_SCREENING = "screening"
_COMPACTION = "compaction"
_MARKINGS: tuple[DataMarking, ...] = ("delimit", "words")
_PAGE = 50


class ReplayStores(msgspec.Struct, frozen=True):
    """Stores that hold what a replay needs, for one caller in one transaction."""

    receipts: ReceiptStore
    windows: Windows
    compactions: CompactionStore
    policies: TrustPolicies
    records: RecordStore

    async def newest(self, agent_id: str, limit: int, session_id: str | None = None) -> list[StoredReceipt]:
        """Return the newest receipts of an agent, newest first."""
        found: list[StoredReceipt] = []
        before: tuple[int, str] | None = None
        while len(found) < limit:
            wanted, clearance = min(_PAGE, limit - len(found)), self.windows.actor.clearance
            page = await self.receipts.page(session_id, agent_id, before, wanted, max_clearance=clearance)
            found += page
            if len(page) < _PAGE:
                break
            before = (page[-1].receipt.created_at, page[-1].receipt.receipt_id)
        return found

    async def recorded(self, agent_id: str, limit: int, session_id: str | None = None) -> list[RecordedWindow]:
        """Return the newest calls of an agent by window; those that the caller may not read are left out."""
        by_session: dict[str, list[StoredReceipt]] = {}
        for stored in reversed(await self.newest(agent_id, limit, session_id)):
            by_session.setdefault(stored.receipt.session_id, []).append(stored)
        found = [await self._window(agent_id, stored) for stored in by_session.values()]
        return [window for window in found if window is not None]

    async def _window(self, agent_id: str, stored: Sequence[StoredReceipt]) -> RecordedWindow | None:
        session_id = stored[0].receipt.session_id
        try:
            window = await self.windows.open(session_id, agent_id)
        except (NotFound, PermissionDenied):
            return None
        calls = [call for each in stored if (call := await self._call(each)) is not None]
        if not calls:
            return None
        names = {name for call in calls if (name := call.receipt.versions.get(_COMPACTION)) is not None}
        views = {name: view for name in sorted(names) if (view := await self.compactions.view(name)) is not None}
        return RecordedWindow(
            line_id=window.line_id,
            session_id=session_id,
            calls=calls,
            earlier=await self._earlier(calls[0].receipt),
            events=await self.windows.events(window),
            views=views,
            screening=await self._screening(calls[-1].receipt),
            shares=window.settings.shares,
            window_limit=window.limit,
            compaction=await self._compaction(window),
        )

    async def _compaction(self, window: Window) -> ResolvedCompaction:
        settings = await self.windows.compaction(window)
        return settings._replace(threshold=await self.windows.threshold(window))

    async def _earlier(self, receipt: Receipt) -> RecordedCall | None:
        found = None if receipt.previous_id is None else await self.receipts.find(receipt.previous_id)
        return None if found is None else await self._call(found)

    async def _call(self, stored: StoredReceipt) -> RecordedCall | None:
        """Return a call with its texts; None if content of it was removed, or it is not the caller's to read."""
        receipt = stored.receipt
        digests = [receipt.tools_digest, *(block.digest for block in receipt.blocks)]
        try:
            await check_requester(receipt, self.windows)
            await check_redactions(receipt, self.records)
            blocks, tools = blocks_with_texts(receipt, await self.receipts.texts(receipt.session_id, digests))
        except (PermissionDenied, ReceiptPruned):
            return None
        return RecordedCall(receipt, stored.usage, blocks, tools, useful_items(stored), likelihoods(stored))

    async def _screening(self, receipt: Receipt) -> Screening:
        """Return the rules that the texts of a call were screened by, if these are still the tenant's."""
        policy = await self.policies.current()
        for marking in _MARKINGS:
            if digest_of((policy, marking)).hex()[:16] == receipt.versions.get(_SCREENING):
                return Screening(policy, marking)
        return Screening(policy)
