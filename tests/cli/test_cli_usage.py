"""weftline usage: a table with shares and sparklines, and exports for other programs."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest
from click import unstyle

from weftline.insight.usage import UsageFigures, UsageReported, UsageRow, figures
from weftline.kernel.clock import from_micros
from weftline.models.metering import UsageSums
from weftline.transports.cli.formatters.usage import FORMATTERS

if TYPE_CHECKING:
    from cli_support import CommandLine

    from weftline.models.metering import GroupBy

_SONNET = "claude-sonnet-4-5"


def shown(by: GroupBy, rows: dict[str, UsageSums], *, left_out: int = 0) -> list[str]:
    total = UsageSums()
    for sums in rows.values():
        total = total.plus(sums)
    report = UsageReported(
        by=by,
        since=None,
        until=from_micros(0),
        rows=[UsageRow(group=name, **figures(sums)) for name, sums in rows.items()],  # type: ignore[arg-type]
        left_out=left_out,
        total=UsageFigures(**figures(total)),  # type: ignore[arg-type]
    )
    return unstyle(FORMATTERS["usage.report"](report)).splitlines()


def test_groups_are_a_table_with_shares_and_a_total() -> None:
    one = UsageSums(calls=3, reported_calls=3, total_tokens=7_500, cost_nanos=2_000_000, naive_baseline_tokens=10_000)
    other = UsageSums(calls=1, unpriced_calls=1, total_tokens=2_500)
    lines = shown("model", {_SONNET: one, "": other}, left_out=2)
    header, first, second, total = (line.split() for line in lines[:4])
    assert header[:5] == ["model", "calls", "tokens", "share", "cost"]
    assert first[:6] == [_SONNET, "3", "7,500", "75%", "$0.0020", "100.0%"]
    # A model without a price has no cost, which is not the same as no cost at all.
    assert second == ["(none)", "1", "2,500", "25%"]
    assert total[:5] == ["total", "4", "10,000", "100%", "$0.0020"]
    assert lines[-3:] == [
        "2 more; show them with --limit.",
        "1 of 4 calls are of models without a known price.",
        "1 calls have no report: their tokens and cost are expected.",
    ]


def test_days_are_drawn_as_sparklines() -> None:
    days = {
        f"2026-02-0{day}T00:00:00Z": UsageSums(calls=1, total_tokens=tokens, cost_nanos=tokens)
        for day, tokens in ((1, 10), (2, 80), (3, 40))
    }
    lines = shown("day", days)
    assert lines[:3] == ["2026-02-01 to 2026-02-03", "tokens ▂█▅", "cost   ▂█▅"]
    assert lines[5].split()[:3] == ["2026-02-01", "1", "10"]


def test_control_characters_of_names_do_not_reach_the_terminal() -> None:
    assert r"bad\x1b[31m" in "\n".join(shown("model", {"bad\x1b[31m": UsageSums(calls=1)}))


def test_the_commands_report_and_export_calls(launch: CommandLine) -> None:
    assert launch.run("usage", "report").stdout == "No model calls.\n"
    prompt = launch.json("context", "assemble", "What is open?", "--model", _SONNET)
    launch.run("context", "emit-metrics", prompt["receipt_id"], '{"input_tokens": 310, "output_tokens": 12}')
    table = unstyle(launch.run("usage", "report", "--by", "model").stdout)
    assert table.splitlines()[1].split()[:3] == [_SONNET, "1", "322"]
    (row,) = launch.json("usage", "report", "--by", "session")["rows"]
    assert (row["group"], row["input_tokens"], row["reported_calls"]) == ("launch", 310, 1)
    (line,) = csv.DictReader(launch.run("usage", "export").stdout.splitlines())
    assert (line["model"], line["input_tokens"], line["output_tokens"]) == (_SONNET, "310", "12")
    exported = launch.run("usage", "export", "--form", "json", "--unit", "hour").stdout
    assert [json.loads(each)["calls"] for each in exported.splitlines()] == [1]


@pytest.mark.req("CE-L3")
@pytest.mark.req("CE-F54", part="savings over all tenants")
@pytest.mark.req("CE-U6")
def test_the_owner_of_the_data_folder_sees_all_tenants_and_nothing_of_their_content(launch: CommandLine) -> None:
    launch.run("tenant", "create", "acme")
    launch.run("board", "write", "quokka_key", "A quokka naps.")
    launch.run("agent", "create", "quokka-agent")
    launch.run("context", "assemble", "Where does the quokka nap?", "--model", "quokka-model")
    answer = launch.json("tenant", "usage")
    assert {each["tenant"]: each["calls"] for each in answer["tenants"]} == {"default": 1, "acme": 0}
    assert answer["total"]["calls"] == 1
    lines = unstyle(launch.run("tenant", "usage").stdout).splitlines()
    assert lines[0].split()[:4] == ["tenant", "calls", "tokens", "share"]
    assert [line.split()[0] for line in lines[1:]] == ["default", "acme", "total"]
    assert [line.split()[-1] for line in lines[1:3]] == ["ok", "ok"]
    seen = json.dumps(answer) + "\n".join(lines)
    assert not [name for name in ("quokka", "launch", "admin") if name in seen]
    assert launch.json("tenant", "usage", "--since", "2999-01-01")["total"]["calls"] == 0
    assert "since" in launch.run("tenant", "usage", "--since", "yesterday", code=1).output


@pytest.mark.req("CE-L3")
def test_an_admin_of_a_tenant_sees_its_own_tenant_only(launch: CommandLine) -> None:
    launch.run("tenant", "create", "acme")
    launch.run("context", "assemble", "What is open?", "--model", _SONNET)
    refused = launch.run("--tenant", "acme", "tenant", "usage", code=2).output
    assert "--tenant" in refused
    with_a_key = launch.run(
        "--url", "http://127.0.0.1:9", "--key", "-", "tenant", "usage", code=2, stdin="weftline.x"
    ).output
    assert "--url" in with_a_key
    assert launch.json("--tenant", "acme", "usage", "report", "--by", "tenant")["rows"] == []
