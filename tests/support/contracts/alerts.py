"""The contract of AlertStore."""

from __future__ import annotations

from msgspec.structs import replace

from support.contracts.stores import ContractStores
from weftline.access.model import Principal
from weftline.insight.alerts.model import ALL_AGENTS, Alert, AlertState
from weftline.insight.alerts.sql import AlertFilter, AlertReader
from weftline.kernel.events import TENANT_SUBJECT, agent_subject, team_subject
from weftline.kernel.identity import Permission, PrincipalKind

ALERT = Alert(
    alert_id="alert_1",
    condition="efficiency.low",
    subject=agent_subject("analysis"),
    data={"efficiency": 0.1, "calls": 20},
    opened_at=100,
    seen_at=100,
)
DIGEST = replace(ALERT, alert_id="alert_0", subject=TENANT_SUBJECT, about=ALL_AGENTS, data={"agents": 2})
ADMIN = AlertReader("dana", 3, is_admin=True)
RESOLVED = replace(ALERT, state=AlertState.RESOLVED, resolved_at=200, resolved_by="human:dana")


async def _add_agents(stores: ContractStores) -> None:
    """Add a human with an agent, which has an agent of a higher clearance below it."""
    for principal_id, parent_id, clearance in (("dana", None, 3), ("planner", "dana", 2), ("analysis", "planner", 4)):
        await stores.access.add_principal(
            Principal(
                principal_id=principal_id,
                kind=PrincipalKind.HUMAN if parent_id is None else PrincipalKind.AGENT,
                agent_type=principal_id,
                parent_id=parent_id,
                parent_is_agent=parent_id == "planner",
                clearance=clearance,
                permissions=frozenset({Permission.READ}),
                created_at=1,
            )
        )


class AlertStoreContract:
    """A subject has one active alert of each condition."""

    async def test_an_alert_is_stored_as_it_is(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        whole = replace(RESOLVED, about="domains", acknowledged_at=150, acknowledged_by="human:é", digest_id="alert_0")
        assert await stores.alerts.add(whole)
        assert await stores.alerts.find("alert_1") == whole
        assert await stores.alerts.find("alert_2") is None
        assert await elsewhere.alerts.find("alert_1") is None

    async def test_there_is_one_active_alert_of_a_condition_and_subject(self, stores: ContractStores) -> None:
        assert await stores.alerts.add(ALERT)
        again = replace(ALERT, alert_id="alert_2")
        assert not await stores.alerts.add(again)
        assert await stores.alerts.add(replace(again, alert_id="alert_3", condition="context.overload"))
        assert await stores.alerts.add(replace(again, alert_id="alert_4", subject=team_subject("analysis")))
        assert await stores.alerts.add(replace(again, alert_id="alert_5", about="daily"))
        assert await stores.alerts.update(RESOLVED, expected=AlertState.OPEN)
        assert await stores.alerts.add(again)
        assert await stores.alerts.active("efficiency.low", ALERT.subject) == again
        assert await stores.alerts.active("efficiency.low", ALERT.subject, "weekly") is None

    async def test_a_change_names_the_state_that_it_expects(self, stores: ContractStores) -> None:
        await stores.alerts.add(ALERT)
        by_dana = replace(ALERT, state=AlertState.ACKNOWLEDGED, acknowledged_at=110, acknowledged_by="human:dana")
        acknowledged = replace(by_dana, data={}, seen_at=120)
        assert await stores.alerts.update(acknowledged, expected=AlertState.OPEN)
        assert not await stores.alerts.update(RESOLVED, expected=AlertState.OPEN)
        assert await stores.alerts.find("alert_1") == acknowledged

    async def test_alerts_of_several_agents_are_found_at_once(self, stores: ContractStores) -> None:
        for number, name in enumerate(("analysis", "review", "writer")):
            await stores.alerts.add(replace(ALERT, alert_id=f"alert_{number}", subject=agent_subject(name)))
        found = await stores.alerts.active_of_agents(["analysis", "writer", "none"])
        assert [alert.subject.name for alert in found] == ["analysis", "writer"]
        await stores.alerts.update(replace(RESOLVED, alert_id="alert_0"), expected=AlertState.OPEN)
        await stores.alerts.update(replace(RESOLVED, alert_id="alert_2", resolved_by=None), expected=AlertState.OPEN)
        by_hand = await stores.alerts.resolved_by_hand(["analysis", "writer"])
        assert by_hand == {("efficiency.low", "analysis"): 200}
        assert await stores.alerts.active_of_agents([]) == []

    async def test_readers_see_alerts_up_to_their_clearance(
        self, stores: ContractStores, elsewhere: ContractStores
    ) -> None:
        await _add_agents(stores)
        await stores.alerts.add(ALERT)
        await stores.alerts.add(replace(ALERT, alert_id="alert_2", subject=agent_subject("planner")))
        await stores.alerts.add(replace(ALERT, alert_id="alert_3", subject=TENANT_SUBJECT))

        async def seen(reader: AlertReader) -> list[str]:
            return [each.alert_id for each in await stores.alerts.page(reader, AlertFilter(), None, 10)]

        assert await seen(ADMIN) == ["alert_3", "alert_2"]
        assert await seen(ADMIN._replace(clearance=4)) == ["alert_3", "alert_2", "alert_1"]
        assert await seen(ADMIN._replace(is_admin=False)) == ["alert_2"]
        assert await seen(AlertReader("planner", 2, is_admin=False)) == ["alert_2"]
        assert await seen(AlertReader("analysis", 4, is_admin=False)) == ["alert_1"]
        assert await elsewhere.alerts.page(ADMIN, AlertFilter(), None, 10) == []

    async def test_alerts_are_listed_newest_first_by_state_condition_and_subject(self, stores: ContractStores) -> None:
        await _add_agents(stores)
        reader = ADMIN._replace(clearance=5)
        await stores.alerts.add(RESOLVED)
        await stores.alerts.add(replace(ALERT, alert_id="alert_2", subject=agent_subject("planner")))
        await stores.alerts.add(replace(ALERT, alert_id="alert_3", condition="context.overload"))

        async def listed(wanted: AlertFilter, before: str | None = None, limit: int = 10) -> list[str]:
            return [each.alert_id for each in await stores.alerts.page(reader, wanted, before, limit)]

        assert await listed(AlertFilter()) == ["alert_3", "alert_2", "alert_1"]
        assert await listed(AlertFilter(), "alert_3", 1) == ["alert_2"]
        assert await listed(AlertFilter((AlertState.OPEN,))) == ["alert_3", "alert_2"]
        assert await listed(AlertFilter(condition="context.overload")) == ["alert_3"]
        assert await listed(AlertFilter(subject=agent_subject("planner"))) == ["alert_2"]

    async def test_alerts_in_a_digest_are_counted_and_listed_apart(self, stores: ContractStores) -> None:
        await _add_agents(stores)
        digested = replace(ALERT, alert_id="alert_2", subject=agent_subject("planner"), digest_id="alert_0")
        for alert in (DIGEST, ALERT, digested):
            await stores.alerts.add(alert)
        assert await stores.alerts.count_of_agents("efficiency.low") == 1
        assert await stores.alerts.count_in_digest("alert_0") == 1
        assert await stores.alerts.in_digest("alert_0", 10) == [digested]
        reader = ADMIN._replace(clearance=5)
        assert [*await stores.alerts.page(reader, AlertFilter(), None, 10)] == [ALERT, DIGEST]
        assert [*await stores.alerts.page(reader, AlertFilter(digest_id="alert_0"), None, 10)] == [digested]
        assert [*await stores.alerts.page(reader, AlertFilter(subject=digested.subject), None, 10)] == [digested]
        own = AlertReader("planner", 2, is_admin=False)
        assert [*await stores.alerts.page(own, AlertFilter(), None, 10)] == [digested]

    async def test_a_digest_is_resolved_or_left(self, stores: ContractStores) -> None:
        await stores.alerts.add(replace(ALERT, digest_id="alert_0"))
        await stores.alerts.resolve_digest("alert_0", "human:dana", 300)
        resolved = await stores.alerts.find("alert_1")
        assert resolved is not None
        assert (resolved.state, resolved.resolved_by, resolved.resolved_at) == ("resolved", "human:dana", 300)
        await stores.alerts.add(replace(ALERT, alert_id="alert_2", digest_id="alert_0"))
        await stores.alerts.leave_digest("alert_0")
        assert await stores.alerts.find("alert_2") == replace(ALERT, alert_id="alert_2")

    async def test_alerts_in_digests_are_changed_together(self, stores: ContractStores) -> None:
        digested = [
            replace(ALERT, alert_id=f"alert_{number}", subject=agent_subject(f"a{number}"), digest_id="alert_0")
            for number in range(1, 4)
        ]
        await stores.alerts.add_digested(digested)
        await stores.alerts.add_digested([replace(digested[0], alert_id="alert_9")])
        await stores.alerts.see([replace(each, data={"calls": 9}, seen_at=150) for each in digested])
        first = ["alert_1", "alert_2"]
        assert await stores.alerts.resolve_digested(first, 200) == len(first)
        assert await stores.alerts.resolve_digested(first, 300) == 0
        await stores.alerts.see([replace(digested[0], data={}, seen_at=250)])
        assert await stores.alerts.in_digest("alert_0", 10) == [replace(digested[2], data={"calls": 9}, seen_at=150)]
        ended = await stores.alerts.find("alert_1")
        assert ended is not None
        assert (ended.state, ended.resolved_at, ended.resolved_by, ended.seen_at) == ("resolved", 200, None, 150)

    async def test_stale_and_old_alerts_are_found(self, stores: ContractStores) -> None:
        await stores.alerts.add(ALERT)
        await stores.alerts.add(replace(ALERT, alert_id="alert_2", condition="budget.near"))
        assert await stores.alerts.stale(["efficiency.low"], 101, 10) == [ALERT]
        assert await stores.alerts.stale(["efficiency.low"], 100, 10) == []
        await stores.alerts.update(RESOLVED, expected=AlertState.OPEN)
        assert await stores.alerts.stale(["efficiency.low"], 101, 10) == []
        assert await stores.alerts.prune(200, 10) == 0
        assert await stores.alerts.prune(201, 10) == 1
        assert await stores.alerts.find("alert_1") is None

    async def test_alerts_about_budgets_of_past_periods_are_found(self, stores: ContractStores) -> None:
        daily = replace(ALERT, alert_id="alert_2", condition="budget.near", about="day")
        monthly = replace(ALERT, alert_id="alert_3", condition="budget.exceeded", about="month")
        for alert in (ALERT, daily, monthly, replace(ALERT, alert_id="alert_4", condition="quota.near", about="day")):
            await stores.alerts.add(alert)
        assert await stores.alerts.of_ended_periods(100, 100, 10) == []
        assert await stores.alerts.of_ended_periods(101, 100, 10) == [daily]
        assert await stores.alerts.of_ended_periods(101, 101, 10) == [daily, monthly]
        assert await stores.alerts.of_ended_periods(101, 101, 1) == [daily]
