"""Loads the last calls of an agent for a replay: receipts with their texts, and the windows they belong to."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from weftline.insight.recommendations.evidence import likelihoods, useful_items
from weftline.insight.recommendations.replay import RecordedCall, RecordedWindow
from weftline.kernel.errors import NotFound, PermissionDenied
from weftline.prompts.assembly.model import digest_of
from weftline.prompts.assembly.prompt_trust import Screening
from weftline.prompts.assembly.receipts import MadeBlocks, ReceiptPruned, blocks_with_texts
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.assembly.stored_prompts import check_requester, redacted_since
from weftline.records.sql import RecordStore
from weftline.safety.trust.policy import TrustPolicies
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.prompts.assembly.prompt_trust import DataMarking
    from weftline.prompts.assembly.receipts import Receipt, StoredReceipt
    from weftline.state.agent_context.compaction_settings import ResolvedCompaction
    from weftline.windows.model import Window

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
        calls = await self._calls(stored)
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
        return next(iter(() if found is None else await self._calls([found])), None)

    async def _calls(self, stored: Sequence[StoredReceipt]) -> list[RecordedCall]:
        """Return calls of a session with their texts, which are read once: prompts have most of them in common.

        Calls of which content was removed, and those that are not the caller's to read, are left out.
        """
        readable = [each for each in stored if await self._may_read(each.receipt)]
        receipts = [each.receipt for each in readable]
        redacted = await redacted_since(receipts, self.records)
        digests = {digest for each in receipts for digest in (each.tools_digest, *(b.digest for b in each.blocks))}
        texts = await self.receipts.texts(stored[0].receipt.session_id, sorted(digests))
        calls: list[RecordedCall] = []
        made: MadeBlocks = {}
        for each in readable:
            if each.receipt.receipt_id in redacted:
                continue
            with contextlib.suppress(ReceiptPruned):
                blocks, tools = blocks_with_texts(each.receipt, texts, made)
                calls.append(
                    RecordedCall(each.receipt, each.usage, blocks, tools, useful_items(each), likelihoods(each))
                )
        return calls

    async def _may_read(self, receipt: Receipt) -> bool:
        try:
            await check_requester(receipt, self.windows)
        except PermissionDenied:
            return False
        return True

    async def _screening(self, receipt: Receipt) -> Screening:
        """Return the rules that the texts of a call were screened by, if these are still the tenant's."""
        policy = await self.policies.current()
        for marking in _MARKINGS:
            if digest_of((policy, marking)).hex()[:16] == receipt.versions.get(_SCREENING):
                return Screening(policy, marking)
        return Screening(policy)
