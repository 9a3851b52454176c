"""``weftline context assemble`` and ``weftline receipt``: prompts and receipts as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click
import msgspec
import pytest

from weftline.prompts.assembly.operations import PromptAssembled
from weftline.prompts.assembly.receipt_operations import ReceiptShown
from weftline.transports.cli.formatters.receipts import FORMATTERS

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine

MODEL = "claude-sonnet-4-5"
SYSTEM = {"event_id": "rules", "role": "system", "content": "You find out why orders are slow. " * 120}
QUESTION = {"event_id": "q1", "content": "Why are orders slow?"}


def ingest(line: CommandLine, *events: dict[str, Any]) -> None:
    line.run("context", "ingest", msgspec.json.encode(events).decode())


def assemble(line: CommandLine, *options: str, task: str = "Name the cause.") -> str:
    answer = line.json("context", "assemble", task, "--model", MODEL, *options)
    return str(answer["receipt_id"])


@pytest.fixture
def receipt(launch: CommandLine) -> str:
    """Return the receipt of the second prompt of a window."""
    launch.run("board", "write", "goal", "Find the cause of slow orders")
    ingest(launch, SYSTEM, QUESTION)
    assemble(launch)
    ingest(launch, {"event_id": "a1", "role": "assistant", "content": "I look at the price cache."})
    return assemble(launch, task="What did you find?")


@pytest.mark.req("CE-F54")
def test_a_receipt_is_shown_with_blocks_omissions_budget_and_savings(launch: CommandLine, receipt: str) -> None:
    output = launch.run("receipt", "show", receipt).stdout
    assert output.startswith(f"Receipt {receipt}  ")
    assert f"admin in session launch · {MODEL} · extended" in output
    assert re.search(r"▕[█▏▎▍▌▋▊▉ ]{40}▏ [\d,]+ of [\d,]+ tokens \([\d.]+%\)  estimated", output)
    assert re.search(r"[\d,]+ ◆ \S+ +layer +1 layer: layer:platform", output)
    assert re.search(r"conversation +1 event: rules", output)
    before, new = output.split("expected from the cache up to here, new below")
    assert "1 board entry: goal" in before
    assert "1 event: a1" in new
    assert re.search(r"Omitted: \d+ of \d+ candidates", output)
    money = r"[\d,]+ +\$0\.\d{5}"
    assert re.search(
        rf"this prompt +[\d,]+ +{money}\n +conversation alone +[\d,]+ +-?[\d.]+% +{money} +-?[\d.]+%\n", output
    )
    assert re.search(r"\n +conversation and documents +[\d,]+ +-?[\d.]+%\n", output)
    assert re.search(r"timing: +gather [\d.]+ · retrieve [\d.]+ · plan [\d.]+ · render [\d.]+ = [\d.]+ ms", output)
    assert f"weftline receipt replay {receipt}" in output


def test_omitted_candidates_are_shown_by_reason(launch: CommandLine) -> None:
    events = [
        {"event_id": f"e{number}", "content": "Well, thanks, that was really helpful! " * (30 + number)}
        for number in range(12)
    ]
    ingest(launch, *events)
    receipt = assemble(launch, "--token-budget", "2000")
    output = launch.run("receipt", "show", receipt).stdout
    assert re.search(r"Omitted: \d+ of \d+ candidates", output)
    assert re.search(r"[\d,]+   budget +\d+ events: e\d+, e\d+, e\d+ and \d+ more", output)
    assert "budget of the call 2,000" in output
    brief = launch.run("receipt", "show", receipt, "--no-candidates").stdout
    assert "Omitted" not in brief
    assert "Savings" in brief


@pytest.mark.req("CE-A")
def test_reported_usage_is_shown_next_to_the_count(launch: CommandLine, receipt: str) -> None:
    usage = msgspec.json.encode({"input_tokens": 900, "output_tokens": 12, "cache_read_input_tokens": 600}).decode()
    launch.run("context", "emit-metrics", receipt, usage, "--latency-ms", "830", "--quality-score", "0.9")
    output = launch.run("receipt", "show", receipt).stdout
    assert re.search(r"1,500 input tokens \([+-][\d.]+% against our count\) · 600 from cache · 12 output", output)
    assert "830 ms · quality 0.9" in output
    totals = launch.run("receipt", "savings").stdout
    assert totals.splitlines()[0].split()[:3] == ["agent", "calls", "tokens"]
    assert re.search(r"admin +2 .* 1 +\$0\.\d{5}", totals)


@pytest.mark.req("CE-U6")
@pytest.mark.parametrize("given", ["text", "JSON", "file", "stdin"])
def test_an_answer_is_reported_as_text_or_json_from_anywhere(launch: CommandLine, tmp_path: Path, given: str) -> None:
    launch.run("board", "write", "cause", "The price cache keeps prices for 300 seconds.")
    ingest(launch, QUESTION)
    receipt = assemble(launch, task="What is the cause?")
    answer = "[1] The price cache keeps prices for 300 seconds."
    if given in {"JSON", "file"}:
        answer = msgspec.json.encode({"role": "assistant", "content": [{"type": "text", "text": answer}]}).decode()
    (tmp_path / "answer.json").write_text(answer)
    option = {"file": f"@{tmp_path}/answer.json", "stdin": "-"}.get(given, answer)
    usage = '{"input_tokens": 900, "output_tokens": 12}'
    found = launch.json("context", "emit-metrics", receipt, usage, "--answer", option, stdin=answer)["efficiency"]
    assert found["basis"] == "answer"
    assert found["useful_tokens"] > 0
    shown = launch.run("receipt", "show", receipt).stdout
    assert "Use by the answer" in shown
    assert re.search(r"board +1 quoted", shown)
    assert f"{found['score']:.0%}" in launch.run("usage", "report", "--by", "session").stdout


def test_an_assembled_prompt_is_shown_before_its_figures(launch: CommandLine) -> None:
    ingest(launch, {"event_id": "log", "content": "A line of the log. " * 900}, QUESTION)
    output = launch.run("context", "assemble", "Name the cause.", "--model", MODEL, "--token-budget", "2000").stdout
    assert output.startswith('system\n  <weftline:layer level="1" name="platform">')
    assert output.index("user\n  Why are orders slow?") < output.index("user\n  Name the cause.")
    assert "mode:    first: There is no earlier call in this window." in output
    assert "of:      1 layer, " in output
    money = r"\$0\.\d{5} instead of \$0\.\d{5}"
    assert re.search(rf"saved: +[\d.]+% \(conversation alone: [\d,]+ tokens, {money}\)\n", output)
    assert re.search(r"receipt: weftline receipt show receipt_\w+\n$", output)


@pytest.mark.req("CE-F54")
@pytest.mark.req("CE-L6", part="junk in a prompt never raises the reported savings")
def test_a_prompt_that_is_larger_than_the_conversation_says_so(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "Find the cause of slow orders")
    ingest(launch, QUESTION)
    output = launch.run("context", "assemble", "Why are orders slow?").stdout
    alone = r"tokens more than the conversation alone"
    assert re.search(rf"saved: +nothing, \d+ {alone} \(conversation alone: \d+ tokens\)\n", output)
    receipt = launch.json("receipt", "list")["receipts"][0]["receipt_id"]
    assert re.search(rf"\n  \d+ {alone}\.\n", launch.run("receipt", "show", receipt).stdout)
    assert re.search(rf"\nadmin: \d+ {alone}\.\n$", launch.run("receipt", "savings").stdout)
    assert re.search(rf"\nThe prompts have \d+ {alone}\.\n", launch.run("usage", "report").stdout)


@pytest.mark.req("CE-F54")
def test_whole_documents_are_compared_apart(launch: CommandLine) -> None:
    ingest(launch, QUESTION)
    text = "Orders are slow, because the price cache is short. " + "Nobody knows the colour of the sky. " * 400
    launch.run("knowledge", "add", "shop", "-", "--name", "orders.txt", "--create", stdin=text)
    output = launch.run("context", "assemble", "Why are orders slow?", "--token-budget", "900").stdout
    assert re.search(r"saved: +nothing, .* · [\d.]+% \(conversation and documents: [\d,]+ tokens\)\n", output)


def test_a_replayed_prompt_is_text_or_the_body_of_a_provider(launch: CommandLine, receipt: str) -> None:
    text = launch.run("receipt", "replay", receipt).stdout
    assert "assistant\n  I look at the price cache." in text
    assert text.rstrip().endswith("the same prompt as then")
    body = launch.run("receipt", "replay", receipt, "--form", "anthropic").stdout.rpartition("\n\n")[0]
    assert msgspec.json.decode(body)["model"] == MODEL


def test_receipts_are_listed_newest_first_with_a_cursor(launch: CommandLine, receipt: str) -> None:
    assert launch.run("receipt", "savings").stdout.count("\nadmin ") == 1
    lines = launch.run("receipt", "list", "--limit", "1").stdout.splitlines()
    assert (
        " ".join(lines[0].split())
        == "receipt created agent session model mode tokens conversation saved with documents from cache used by"
    )
    assert lines[1].startswith(receipt)
    cursor = lines[-1].removeprefix("More: --cursor ")
    assert receipt not in launch.run("receipt", "list", "--cursor", cursor).stdout


def test_without_receipts_lists_say_so(launch: CommandLine) -> None:
    assert launch.run("receipt", "list").stdout == "No receipts.\n"
    assert launch.run("receipt", "savings").stdout == "No receipts.\n"


def test_control_characters_of_events_do_not_reach_the_terminal(launch: CommandLine) -> None:
    ingest(launch, {"event_id": "e1", "content": "red \x1b[31m alert"})
    receipt = assemble(launch)
    for command in (["context", "assemble", "Go on."], ["receipt", "replay", receipt], ["receipt", "show", receipt]):
        assert "\x1b" not in launch.run(*command).stdout


def test_notes_of_an_answer_are_shown(launch: CommandLine) -> None:
    ingest(launch, QUESTION)
    answer = msgspec.convert(
        launch.json("context", "assemble", "Go on.")
        | {"widened": True, "fallback": "recency", "compaction_due": True, "critical_update": {"agent": 2}},
        PromptAssembled,
    )
    text = FORMATTERS["context.assemble"](answer)
    for note in ("doubtful", "no evidence", "compaction threshold", "pull your context"):
        assert note in text


def test_facts_that_are_rare_have_their_line(launch: CommandLine, receipt: str) -> None:
    shown = launch.json("receipt", "show", receipt)
    shown["shortened"] = [{"ref": "window:launch:admin/t1", "original_tokens": 9_000, "kept_tokens": 800}]
    shown["confidence"] |= {"widened": True, "fallback": "recency", "pending_documents": 1}
    shown["counting"]["exact"] = True
    shown["tools_tokens"] = 90
    text = click.unstyle(FORMATTERS["receipt.show"](msgspec.convert(shown, ReceiptShown)))
    assert "Shortened\n       800   of 9,000, in the middle: window:launch:admin/t1" in text
    assert "with doubtful passages, no evidence was found, 1 document" in text
    assert "counted exactly" in text
    assert re.search(r" 90   \S+ +tools\n", text)


def test_the_receipt_of_a_compacted_window_says_what_stands_for_older_events(launch: CommandLine) -> None:
    talk = "We talked about the weather in the mountains, which was pleasant but settled nothing at all. "
    ingest(launch, *({"event_id": f"e{number}", "content": f"Turn {number}. {talk * 4}"} for number in range(60)))
    compacted = launch.json("compact", "--keep-recent", "5")
    output = launch.run("receipt", "show", assemble(launch)).stdout
    assert re.search(r"summary +\d+ summarised events: e0, e1, e2 and \d+ more", output)
    assert re.search(
        r"compacted: +\d+ older events in [\d,]+ instead of [\d,]+ tokens.* \(weftline compaction show (\w+)\)", output
    )
    assert f"weftline compaction show {compacted['compaction_id']}" in output
    assert re.search(r"compacted: +[\d,]+ tokens in prompts", launch.run("window", "show").stdout)
