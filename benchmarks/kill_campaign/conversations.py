"""Kinds of work on conversations: events, prompts and what they cost, alerts about that, compactions."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.kill_campaign.kinds import INDEX_SECONDS, POLL_SECONDS, Kind, as_admin, as_agent
from weftline.kernel.errors import NotFound
from weftline.models.metering import SUM_NAMES, UNITS, UsageSums
from weftline.models.sql import UsageStore
from weftline.storage.sql.database import Scope
from weftline.windows.compaction.model import OPEN_STATES

if TYPE_CHECKING:
    from weftline.app.app import App
    from weftline.kernel.transaction import Transaction
    from weftline.models.metering import UsageEntry

TENANT = "default"
# Agent whose calls are limited by a budget.
SPENDER = "spender"
# Many windows, so that none grows so long that the campaign measures the cost of long ones.
SESSIONS = tuple(f"talk{number}" for number in range(40))
_EVENTS = 5
_PAGE = 200
_MANY = 1_000
_ROLL_UP = 500


def _session(number: int) -> str:
    return SESSIONS[number % len(SESSIONS)]


class IngestedEvents(Kind):
    """Several events of a conversation in one call, each call whole or not at all."""

    name = "ingestion"

    async def work(self, number: int) -> int:
        events = [
            {"event_id": f"e{number}_{place}", "content": f"Decision {number}: the release is on day {place}."}
            for place in range(_EVENTS)
        ]
        await self.client.call("POST", f"/v1/sessions/{_session(number)}/ingest", {"events": events})
        return number

    async def found(self, app: App) -> int:
        stored = Counter([int(name[1:].partition("_")[0]) for each in SESSIONS for name in await _events(app, each)])
        torn = sum(count != _EVENTS for count in stored.values())
        return sum(stored[number] == _EVENTS for number in self.acknowledged) - torn


async def _events(app: App, session: str) -> list[str]:
    names: list[str] = []
    while True:
        try:
            page = await as_agent(app, "window.events", session_id=session, limit=_PAGE, offset=len(names))
        except NotFound:
            return []
        names += [event["event_id"] for event in page["events"]]
        if not page["has_more"]:
            return names


class Assemblies(Kind):
    """Prompts, and reports of what the calls cost: each has its usage entry, and has it once."""

    name = "usage_entries"
    pause_seconds = 0.1

    async def work(self, number: int) -> tuple[str, str]:
        """Assemble a prompt, or report the call of the last one."""
        last = self.acknowledged[-1] if self.acknowledged else None
        if last is not None and last[0] == "call":
            body = {"receipt_id": last[1], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}
            await self.client.call("POST", f"/v1/sessions/{self._session}/metrics", body)
            return "report", last[1]
        self._session = _session(number)
        answer = await self.client.call("POST", f"/v1/sessions/{self._session}/assemble", _task(number))
        return "call", answer["receipt_id"]

    async def found(self, app: App) -> int:
        entries = await _entries(app)
        stored = Counter((each.entry, each.call_id) for each in entries)
        receipts = await app.database.read(Scope(TENANT), _receipts)
        torn = len(receipts ^ {each.call_id for each in entries if each.entry == "call"})
        return sum(stored[each] == 1 for each in self.acknowledged) - torn


def _task(number: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"task_description": f"On which day is release {number}?", "token_budget": 2_000, "domains": [], **more}


async def _receipts(transaction: Transaction) -> set[str]:
    return {
        row[0] for row in await transaction.all("SELECT receipt_id FROM receipts WHERE tenant = $1", transaction.tenant)
    }


async def _entries(app: App) -> list[UsageEntry]:
    entries: list[UsageEntry] = []
    while True:
        after = entries[-1].seq if entries else 0
        page = await app.database.read(Scope(TENANT), lambda tx, after=after: UsageStore(tx).after(after, _MANY))
        if not page:
            return entries
        entries += page


class AcknowledgedAlerts(Kind):
    """Alerts about a budget that is spent: one opens with the first call under new limits, and is acknowledged."""

    name = "alerts"
    pause_seconds = 0.1

    async def work(self, number: int) -> str:
        # New limits resolve the alert about the old ones.
        await self.client.call("PUT", f"/v1/budgets/agent:{SPENDER}/month", {"tokens": number})
        await self.client.call("POST", f"/v1/sessions/{SESSIONS[0]}/assemble", _task(number, agent_id=SPENDER))
        listed = await self.client.call("GET", f"/v1/alerts?agent_id={SPENDER}&condition=budget.exceeded")
        alert: str = listed["alerts"][0]["alert_id"]
        await self.client.call("POST", f"/v1/alerts/{alert}/acknowledge")
        return alert

    async def found(self, app: App) -> int:
        stored: dict[str, bool] = {}
        cursor: dict[str, Any] = {}
        while True:
            page = await as_admin(app, "alerts.list", state="all", agent_id=SPENDER, limit=_PAGE, **cursor)
            stored |= {alert["alert_id"]: alert.get("acknowledged_by") is not None for alert in page["alerts"]}
            if page.get("next_cursor") is None:
                return sum(stored.get(alert, False) for alert in self.acknowledged)
            cursor = {"cursor": page["next_cursor"]}


class Compactions(Kind):
    """Compactions of windows; each that was begun ends, also if the process that ran it was killed."""

    name = "compactions"
    pause_seconds = 0.5

    async def work(self, number: int) -> str:
        body = {"keep_recent": 2, "wait_seconds": 5}
        answer = await self.client.call("POST", f"/v1/sessions/{_session(number)}/compact", body)
        compaction: str = answer["compaction_id"]
        return compaction

    async def found(self, app: App) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INDEX_SECONDS):
                while OPEN_STATES & set(await self._states(app)):  # noqa: ASYNC110 - background work
                    await asyncio.sleep(POLL_SECONDS)
        return sum(state in {"applied", "superseded", "skipped"} for state in await self._states(app))

    async def _states(self, app: App) -> list[str]:
        return [await self._state(app, each) for each in self.acknowledged]

    async def _state(self, app: App, compaction: str) -> str:
        shown = await as_agent(app, "compaction.show", compaction_id=compaction, originals=False)
        state: str = shown["compaction"]["state"]
        return state


async def exact_rollups(app: App) -> int:
    """Roll up what is left; return how many sums (by unit, with and without names) equal those of the raw entries."""
    while await app.database.write(Scope(TENANT), lambda tx: UsageStore(tx).roll_up(_ROLL_UP)):
        pass
    raw = UsageSums()
    for each in await _entries(app):
        raw = raw.plus(each.sums)
    sums = await app.database.read(Scope(TENANT), _rolled_up)
    return sum(each == raw.values for each in sums)


ROLLUPS = 2 * len(UNITS)


async def _rolled_up(transaction: Transaction) -> list[tuple[int, ...]]:
    added = ", ".join(f"COALESCE(SUM({name}), 0)" for name in SUM_NAMES)
    found = []
    for table in ("usage_rollups", "usage_totals"):
        for unit in UNITS:
            sql = f"SELECT {added} FROM {table} WHERE tenant = $1 AND unit = $2"
            row = await transaction.one(sql, transaction.tenant, unit)
            found.append(tuple(int(value) for value in row or ()))
    return found


async def is_budget_exact(app: App) -> bool:
    """Tell whether what the budget has counted is what the usage entries of its agent add up to."""
    spent = UsageSums()
    for each in await _entries(app):
        if each.key.agent_id == SPENDER:
            spent = spent.plus(each.sums)
    (budget,) = (await as_admin(app, "budget.list", agent_id=SPENDER))["budgets"]
    return (budget["used_tokens"], budget["calls"]) == (spent.total_tokens, spent.calls) and spent.calls > 0
