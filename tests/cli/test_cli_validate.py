"""``weftline records validate``: files of records, checked without a database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli_support import CommandLine

pytestmark = pytest.mark.req("AC-01")
FOLDER = Path(__file__).parents[1] / "data" / "records"
VALID = sorted(FOLDER.glob("*/valid-*.json"))
REFUSED = json.loads((FOLDER / "invalid.json").read_text("utf-8"))


@pytest.fixture
def plain(cli: CommandLine) -> CommandLine:
    cli.env["NO_COLOR"] = "1"
    return cli


def records_in(path: Path) -> int:
    held = json.loads(path.read_text("utf-8"))
    return len(held) if isinstance(held, list) else 1


def test_every_valid_example_is_accepted(plain: CommandLine) -> None:
    lines = plain.run("records", "validate", *map(str, VALID)).stdout.splitlines()
    expected = [(path, records_in(path)) for path in VALID]
    assert lines == [f"{path}: ok ({count} record{'' if count == 1 else 's'})" for path, count in expected]


def test_every_invalid_example_is_refused_with_its_path_and_reason(plain: CommandLine) -> None:
    files = [str(FOLDER / name) for name in REFUSED]
    lines = plain.run("records", "validate", *files, code=1).stdout.splitlines()
    assert lines == [f"{FOLDER / name}:1 {why['path']}: {why['reason']}" for name, why in REFUSED.items()]


def test_all_examples_as_one_file_of_lines_are_accepted_from_standard_input(plain: CommandLine) -> None:
    held = [json.loads(path.read_text("utf-8")) for path in VALID]
    records = [record for part in held for record in (part if isinstance(part, list) else [part])]
    lines = "\n".join(map(json.dumps, records))
    assert plain.run("records", "validate", "-", stdin=lines).stdout == f"-: ok ({len(records)} records)\n"


def test_each_problem_is_reported_with_its_line_also_as_json(plain: CommandLine, tmp_path: Path) -> None:
    good = VALID[0].read_text("utf-8")
    file = tmp_path / "records.ndjson"
    file.write_text(f"{json.dumps(json.loads(good))}\n\n{{}}\n[\x1b]\n", "utf-8")
    ended = plain.run("records", "validate", str(file), code=1)
    assert [line.split(":")[1].split()[0] for line in ended.stdout.splitlines()] == ["3", "4"]
    assert "\x1b" not in ended.stdout
    answer = plain.json("records", "validate", str(file), "-", stdin=good, code=1)
    assert answer["valid"] is False
    assert [(each["file"], each["valid"], each["records"]) for each in answer["files"]] == [
        (str(file), False, 3),
        ("-", True, 1),
    ]
    assert [problem["line"] for problem in answer["files"][0]["problems"]] == [3, 4]


def test_an_unreadable_file_is_reported(plain: CommandLine, tmp_path: Path) -> None:
    ended = plain.run("records", "validate", str(tmp_path / "none.json"), str(VALID[0]), code=1)
    assert ended.stdout.splitlines()[0] == f"{tmp_path / 'none.json'}:1 $: cannot be read: No such file or directory"
    assert ended.stdout.splitlines()[1].endswith(": ok (1 record)")
    assert "cannot be read" in plain.run("records", "validate", str(tmp_path), code=1).stdout
    assert "cannot be read" in plain.run("records", "validate", "a\0b", code=1).stdout


def test_validating_creates_no_data_folder(plain: CommandLine) -> None:
    plain.run("records", "validate", str(VALID[0]))
    assert not plain.data.exists()
    assert "Missing argument" in plain.run("records", "validate", code=2).stderr


def test_a_schema_is_shown_as_it_is_published(plain: CommandLine) -> None:
    plain.run("tenant", "create", "default")
    shown = json.loads(plain.run("records", "schema", "context_window").stdout)
    assert shown["$id"] == "urn:weftline:agent-context:0.1.0:context_window"
    assert shown == plain.json("records", "schema", "context_window")["schema"]


def test_help_mentions_bundles(plain: CommandLine) -> None:
    assert "a bundle of 'weftline export'" in " ".join(plain.run("records", "validate", "--help").stdout.split())
