"""``weftline validate``: figures against targets, as a table or JSON, and the blind review."""

from __future__ import annotations

import asyncio
import csv
import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from support.scripted_provider import Answer, scripted_provider
from weftline.validation import catalogue, push_pull
from weftline.validation.model import Figure, ProductValidation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli_support import CommandLine

    from support.scripted_provider import ScriptedProvider
    from weftline.validation.compaction import Material

pytestmark = pytest.mark.req("CE-V")


def test_help_lists_the_eight(cli: CommandLine) -> None:
    listed = cli.run("validate", "--help").stdout
    assert all(f"  {name} " in listed for name in catalogue.VALIDATIONS)


def test_a_validation_prints_what_it_measured_against_which_target(cli: CommandLine) -> None:
    text = cli.run("validate", "push-pull").stdout
    assert text.split()[:5] == ["validation", "measured", "value", "target", "met"]
    assert "20 of 20" in text
    assert text.endswith("1 met.\n")
    assert not cli.data.exists()


def test_all_prints_one_table_and_does_not_count_what_was_not_measured(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    async def figures(validation: ProductValidation, settings: object, material: Material) -> object:
        drawn.append(material.random_seed)
        measured = [] if validation.name == "quality" else [Figure(measured="x", value=1, target=">= 1", met=True)]
        return validation.result(measured)

    monkeypatch.setattr(ProductValidation, "run", figures)
    text = cli.run("validate", "all").stdout
    assert text.count("validation  ") == 1
    assert text.endswith("7 met; 1 not measured (quality).\n")
    assert set(drawn) == {0}
    answer = cli.json("validate", "all", "--random-seed", "5")
    assert drawn[-1] == 5
    assert answer["not_measured"] == ["quality"]
    assert [each["validation"] for each in answer["validations"]] == list(catalogue.VALIDATIONS)


def test_a_missed_target_is_named_and_ends_with_1(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def miss(settings: object) -> list[Figure]:
        return [Figure(measured="facts kept", value=97, unit="%", target=">= 99 %", met=False, misses=("OPS-1",))]

    monkeypatch.setattr(push_pull, "measure", miss)
    text = cli.run("validate", "push-pull", code=1).stdout
    assert "push-pull: facts kept: OPS-1" in text
    assert text.endswith("1 missed (push-pull).\n")
    answer = cli.json("validate", "push-pull", code=1)
    assert (answer["missed"], answer["met"]) == (["push-pull"], [])
    (figure,) = answer["validations"][0]["figures"]
    assert figure == {
        "measured": "facts kept",
        "value": 97,
        "unit": "%",
        "target": ">= 99 %",
        "met": False,
        "misses": ["OPS-1"],
    }


def test_own_receipts_are_measured_on_request(launch: CommandLine) -> None:
    assert "There are no receipts" in launch.run("validate", "tokens", "--receipts", code=1).stdout
    launch.run("context", "ingest", json.dumps([{"event_id": "e1", "content": "Hello."}]))
    launch.run("context", "assemble", "Say hello.")
    answer = launch.json("validate", "tokens", "--session", "launch", code=1)
    figures = {figure["measured"]: figure for figure in answer["validations"][0]["figures"]}
    assert figures["prompts"]["value"] == 1
    # A prompt as small as the whole context saves nothing: the target is missed, not hidden.
    assert figures["tokens saved against conversations and documents"]["met"] is False
    assert figures["tokens saved against the conversations alone"]["value"] == 0


def test_example_questions_of_an_own_domain_are_measured_on_request(launch: CommandLine) -> None:
    launch.run("knowledge", "create-domain", "runbooks", "--template", "runbooks")
    answer = launch.json("validate", "retrieval", "--domain", "runbooks", code=1)
    (figure,) = answer["validations"][0]["figures"]
    assert (figure["value"], figure["met"]) == (0, False)
    assert figure["misses"]
    assert "DOMAIN_NOT_FOUND" in launch.run("validate", "retrieval", "--domain", "none", code=1).stderr


def test_own_sessions_are_measured_on_request(launch: CommandLine) -> None:
    assert "WINDOW_NOT_FOUND" in launch.run("validate", "compaction", "--session", "launch", code=1).stderr
    launch.run("window", "create")
    assert "has no messages" in launch.run("validate", "compaction", "--session", "launch", code=1).stdout
    turns = [
        {"event_id": f"e{n}", "content": f"Tram number {n} stops beside the old bakery while pigeons gather noisily."}
        for n in range(40)
    ]
    launch.run("context", "ingest", json.dumps(turns))
    answer = launch.json("validate", "compaction", "--session", "launch", "--random-seed", "3", code=1)
    (result,) = answer["validations"]
    assert result["note"] == "Measured on 40 messages of the session launch."
    assert [each["measured"].partition(",")[0] for each in result["figures"]][:2] == [
        "compactions that were applied",
        "statements in the next prompt",
    ]
    assert "SESSION_NOT_FOUND" in launch.run("validate", "immutability", "--session", "none", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["compaction", "--agent-id", "analysis"], "--agent-id needs --session"),
        (["retrieval", "--domain", "a", "--session", "b"], "Give --domain or --session"),
    ],
)
def test_options_that_contradict_each_other_are_refused(cli: CommandLine, arguments: list[str], advice: str) -> None:
    assert advice in cli.run("validate", *arguments, code=2).stderr


def pairs_file(folder: Path) -> str:
    file = folder / "pairs.jsonl"
    pairs = [{"question": f"q{n}", "with_weftline": "long", "full_context": "short"} for n in range(4)]
    file.write_text("\n".join(map(json.dumps, pairs)))
    return str(file)


def fill(path: Path, wanted: str) -> None:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows({**row, "choice": "A" if row["answer_a"] == wanted else "B"} for row in rows)


def test_a_review_is_exported_and_scored(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "review"
    written = cli.json(
        "validate", "quality", "--export", str(folder), "--pairs", pairs_file(tmp_path), "--reviewers", "2"
    )
    assert written["questions"] == 4
    sheets = [folder / "reviewers" / name for name in written["sheets"]]
    options = [part for sheet in sheets for part in ("--score", str(sheet))] + ["--key-file", written["key"]]
    assert "1 not measured" in cli.run("validate", "quality", *options, code=1).stdout
    for sheet in sheets:
        fill(sheet, "long")
    assert "1 met." in cli.run("validate", "quality", *options).stdout
    for sheet in sheets:
        fill(sheet, "short")
    assert "1 missed (quality)." in cli.run("validate", "quality", *options, code=1).stdout


@contextmanager
def provider() -> Iterator[ScriptedProvider]:
    """Run the scripted provider on a loop of its own: the command runs one as well."""
    ready, stop, found = threading.Event(), threading.Event(), []

    async def serve() -> None:
        async with scripted_provider() as service:
            service.respond = lambda body: Answer(f"An answer to {len(json.dumps(body))} characters.")
            found.append(service)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join()


def test_the_configured_model_answers_with_both_contexts(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "review"
    with provider() as service:
        cli.env |= {"WEFTLINE_CHAT_MODEL": "openai:small", "WEFTLINE_CHAT_URL": f"{service.url}/v1"}
        # Words are enough here, and embedding the conversations takes long.
        cli.env["WEFTLINE_SEMANTIC_SEARCH"] = "off"
        written = cli.json("validate", "quality", "--export", str(folder), "--reviewers", "1")
        calls = [json.dumps(call.body) for call in service.calls]
    assert written["questions"] == 9
    with_weftline, full = calls[::2], calls[1::2]
    assert len(with_weftline) == len(full) == 9
    assert all(len(one) < len(other) / 2 for one, other in zip(with_weftline, full, strict=True))
    # The full context has every document; both have the question.
    assert all("architecture.md" in text for text in full)
    assert "given the freeze?" in with_weftline[0]
    assert "given the freeze?" in full[0]


def test_without_a_model_or_pairs_nothing_is_exported(cli: CommandLine, tmp_path: Path) -> None:
    ended = cli.run("validate", "quality", "--export", str(tmp_path / "review"), code=1)
    assert "WEFTLINE_CHAT_MODEL" in ended.stderr
    assert not (tmp_path / "review").exists()
    assert "Give --export" in cli.run("validate", "quality", code=2).stderr
