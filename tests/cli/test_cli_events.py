"""``weftline events`` and ``weftline webhook``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli_support import CommandLine

pytestmark = pytest.mark.req("AC-13")


def test_the_log_is_printed_as_one_event_per_line(launch: CommandLine) -> None:
    everything = "".join(f"event {number}\n" for number in range(3))
    for number, text in enumerate(everything.splitlines()):
        launch.run("board", "write", f"k{number}", text)
    lines = launch.run("events", "read", "--after", "0", "--format", "cloudevents", "--json").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert [int(event["sequence"]) for event in events] == list(range(1, len(events) + 1))
    assert [event["subject"] for event in events][-3:] == ["k0", "k1", "k2"]
    assert {event["specversion"] for event in events} == {"1.0"}
    assert launch.run("events", "read", "--format", "cloudevents", "--json").stdout == ""


def test_the_log_is_read_page_by_page_to_its_end(launch: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.event_feed._PAGE_SIZE", 2)
    for number in range(5):
        launch.run("board", "write", "goal", str(number))
    read = ("events", "read", "--after", "0", "--types", "context.item.*", "--format", "cloudevents", "--json")
    versions = [json.loads(line)["data"]["data"]["version"] for line in launch.run(*read).stdout.splitlines()]
    assert versions[-5:] == [1, 2, 3, 4, 5]


def test_cloudevents_are_printed_for_people(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "ship")
    shown = launch.run("events", "read", "--after", "0", "--format", "cloudevents").stdout
    assert "context.item.added" in shown
    assert "UNSET" not in shown


def test_a_webhook_is_created_listed_and_deleted(launch: CommandLine) -> None:
    made = launch.json("webhook", "create", "https://receiver.invalid/hook", "--types", "context.item.*")
    assert made["secret"].startswith("whsec_")
    shown = launch.run("webhook", "list").stdout
    assert made["webhook_id"] in shown
    assert made["secret"] not in shown
    assert launch.json("webhook", "deliveries", made["webhook_id"])["dead"] == 0
    assert launch.json("webhook", "update", made["webhook_id"], "false")["enabled"] is False
    launch.run("webhook", "delete", made["webhook_id"], "--yes")
    launch.run("webhook", "delete", made["webhook_id"], "--yes", code=1)
    launch.run("webhook", "create", "http://127.0.0.1/", code=1)
