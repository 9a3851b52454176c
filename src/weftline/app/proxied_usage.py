"""Usage of calls through the model proxy of a server: metered, and counted for the budgets of their agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.models.budget_limits import Budgets
from weftline.models.budgets import BudgetExceeded, Charge
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from weftline.app.call_meter import CallMeter, ProxiedAs
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.metering import CallKind, UsageSums
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector


class ProxiedUsage:
    """Meters calls that were made, and refuses further ones of agents with a spent budget."""

    def __init__(self, meter: CallMeter, database: Database, injector: Injector) -> None:
        self._meter = meter
        self._budgets = SystemTransactions(database, injector, Budgets)

    async def check(self, caller: ChatCaller) -> None:
        """Raise BudgetExceeded if a budget refuses more calls of an agent; admins are told once in a period."""
        try:
            await self._budgets.read(caller.tenant, lambda budgets: budgets.binding(caller.agent_id))
        except BudgetExceeded as error:
            refusal = error
            if refusal.use is not None and refusal.use.spend.exceeded_at is None:
                await self._budgets.write(caller.tenant, lambda budgets: budgets.tell_refused(refusal))
            raise

    async def add(
        self,
        kind: CallKind,
        caller: ChatCaller,
        model: str,
        sums: UsageSums,
        seconds: float,
        proxied: ProxiedAs | None = None,
    ) -> None:
        """Add a call that ends now and took this long, to usage and budgets in one transaction."""
        made = Charge(sums.total_tokens, sums.cost_nanos, 1, sums.unpriced_calls)
        is_charged = bool(sums.total_tokens or sums.unpriced_calls)
        charge = self._budgets.doing(lambda budgets: budgets.charge_made(caller.agent_id, made))
        await self._meter.add(kind, caller, model, sums, seconds, proxied, charge if is_charged else None)
