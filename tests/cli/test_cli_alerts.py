"""weftline alerts: list, acknowledge and resolve, readable for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click import unstyle

from weftline.insight.alerts.operations import AlertInfo, AlertList
from weftline.kernel.clock import from_micros
from weftline.transports.cli.formatters.alerts import FORMATTERS

if TYPE_CHECKING:
    from cli_support import CommandLine

ALERT = AlertInfo(
    alert_id="alert_1",
    condition="efficiency.low",
    subject="agent:analysis",
    state="acknowledged",
    message="Agent analysis used 5% of what its last 20 prompts contained.",
    data={"efficiency": 0.05, "receipt_id": "receipt_1"},
    opened_at=from_micros(0),
    seen_at=from_micros(0),
    acknowledged_at=from_micros(0),
    acknowledged_by="human:\x1b[31mdana",
)


def test_alerts_are_listed_for_people() -> None:
    shown = unstyle(FORMATTERS["alerts.list"](AlertList(alerts=[ALERT], next_cursor="alert_1")))
    assert "acknowledged  Agent analysis used 5% of what its last 20 prompts contained." in shown
    assert "receipt:" in shown
    assert r"by human:\x1b[31mdana" in shown
    assert shown.endswith("More: --cursor alert_1")


def test_a_digest_says_how_to_list_its_agents_and_who_resolved_it() -> None:
    digest = AlertInfo(
        alert_id="alert_2",
        condition="efficiency.low",
        subject="tenant",
        state="resolved",
        message="30 agents use little of what is in their prompts.",
        data={"agents": 30},
        opened_at=from_micros(0),
        seen_at=from_micros(0),
        digest=True,
        resolved_at=from_micros(0),
    )
    shown = FORMATTERS["alerts.resolve"](digest)
    assert "weftline alerts list --digest-id alert_2" in shown
    assert "because the condition has ended" in shown


def test_the_commands_reach_the_operations(launch: CommandLine) -> None:
    assert launch.run("alerts", "list", "--state", "all").stdout == "No alerts.\n"
    assert launch.run("alerts").stdout == "No alerts.\n"
    assert launch.json("alerts", "list") == {"alerts": []}
    assert "ALERT_NOT_FOUND" in launch.run("alerts", "resolve", "alert_1", code=1).output
