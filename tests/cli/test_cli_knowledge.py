"""``weft knowledge``: files and folders into domains, what is found of them, and moving between models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cli_support import CommandLine

from weft.testing.server import server_process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.req("CE-F39"), pytest.mark.req("CE-A")]

LEAVE = "# Handbook\n\n## Leave\n\nEveryone has thirty days of vacation a year.\n"
TRAVEL = "Trains are booked by the office. Flights need the approval of a director.\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "office").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "leave.md").write_text(LEAVE)
    (folder / "office" / "travel.txt").write_text(TRAVEL)
    (folder / ".hidden").write_text("not for anyone")
    (folder / ".git" / "config").write_text("not for anyone")
    return folder


def test_a_folder_becomes_documents_that_a_search_finds(cli: CommandLine, docs: Path) -> None:
    told = cli.json("knowledge", "add", "handbook", str(docs), "--create")
    assert told == {
        "domain": "handbook",
        "documents": ["leave.md", "office/travel.txt"],
        "unchanged": 0,
        "pending": 0,
        "failed": [],
    }
    found = cli.run("search", "--domain", "handbook", "how many days of vacation?").stdout
    assert found.splitlines()[0].endswith("handbook > leave.md > Handbook")
    assert "thirty days of vacation" in found
    assert "domain:handbook/" in found
    assert cli.json("search", "approval of flights", "--top-k", "1")["results"][0]["document_id"] == "office/travel.txt"


def test_what_did_not_change_costs_nothing(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs), "--create")
    (docs / "leave.md").write_text(LEAVE + "\nUnpaid leave is agreed with the lead.\n")
    again = cli.run("knowledge", "add", "handbook", str(docs))
    assert again.stdout == "2 documents in handbook, 1 unchanged.\n"
    assert cli.json("search", "unpaid leave", "--top-k", "1")["results"][0]["document_id"] == "leave.md"


def test_names_can_be_given(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs / "leave.md"), "--create", "--prefix", "guides/")
    cli.run("knowledge", "add", "handbook", "-", "--name", "said.txt", stdin="Said on standard input.")
    assert cli.run("knowledge", "read-document", "handbook", "said.txt").stdout == "Said on standard input.\n"
    listed = cli.run("knowledge", "list-documents", "handbook").stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
        ["guides/leave.md", "indexed"],
        ["said.txt", "indexed"],
    ]
    domains = cli.run("knowledge", "list-domains").stdout.splitlines()
    assert domains[1].split()[:3] == ["handbook", "2", "2"]


def test_what_cannot_be_added_is_told_and_nothing_is_put(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "create-domain", "handbook")
    missing = cli.run("knowledge", "add", "none", str(docs), code=1)
    assert "DOMAIN_NOT_FOUND" in missing.stderr
    assert cli.json("knowledge", "add", "none", str(docs), code=1)["code"] == "DOMAIN_NOT_FOUND"
    cli.run("knowledge", "add", "handbook", str(docs / "nowhere"), code=2)
    cli.run("knowledge", "add", "handbook", "-", stdin="x", code=2)
    cli.run("knowledge", "add", "handbook", str(docs), "--name", "x", code=2)
    same = cli.run(
        "knowledge", "add", "handbook", str(docs / "leave.md"), str(docs / ".." / "docs" / "leave.md"), code=2
    )
    assert "--prefix" in same.stderr
    assert cli.json("knowledge", "show-domain", "handbook")["documents"] == 0


def test_a_file_that_cannot_be_indexed_ends_the_command_with_a_failure(cli: CommandLine, docs: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7 nothing of the kind")
    told = cli.run("knowledge", "add", "handbook", str(docs), "--create", code=1).stdout
    assert "broken.pdf could not be indexed: " in told
    assert cli.json("knowledge", "add", "handbook", str(docs), code=1)["failed"][0]["document_id"] == "broken.pdf"


def test_context_is_gathered_and_what_is_similar_found(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs), "--create")
    gathered = cli.run("gather", "How many days of vacation?", "--max-tokens", "300").stdout
    assert gathered.startswith("[1]")
    assert "thirty days of vacation" in gathered
    chunk = cli.json("search", "vacation", "--top-k", "1")["results"][0]["chunk_id"]
    assert "office/travel.txt" in cli.run("similar", chunk).stdout
    assert cli.json("similar", "domain:handbook/9999", code=1)["code"] == "CHUNK_NOT_FOUND"


@pytest.mark.req("CE-F43")
def test_a_folder_is_watched_that_may_be_read(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "create-domain", "handbook")
    assert "FOLDER_REFUSED" in cli.run("knowledge", "watch", "handbook", str(docs), code=1).stderr
    cli.env["WEFT_KNOWLEDGE_FOLDERS"] = str(docs)
    made = cli.json("knowledge", "watch", "handbook", str(docs), "--prefix", "docs/")
    assert (made["kind"], made["location"], made["watch"]) == ("folder", str(docs), True)
    other = cli.json("knowledge", "watch", "handbook", str(docs / "office"), "--prefix", "o/", "--every", "3600")
    assert (other["watch"], other["every_seconds"]) == (False, 3600)


@pytest.mark.req("CE-F51", "CE-F52")
def test_models_moves_and_reindexing_are_shown_for_people(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs), "--create")
    assert "all-MiniLM-L6-v2-int8" in cli.run("knowledge", "list-models").stdout
    assert "MODEL_MOVE_NOT_FOUND" in cli.run("knowledge", "show-move", code=1).stderr
    service = {
        "WEFT_EMBEDDING_URL": "http://127.0.0.1:9",
        "WEFT_EMBEDDING_MODEL": "m",
        "WEFT_EMBEDDING_DIMENSIONS": "8",
    }
    cli.env |= service
    begun = cli.run("knowledge", "start-move", "remote:m@8").stdout
    assert begun == "all-MiniLM-L6-v2-int8 -> remote:m@8: embedding\n0 of 2 chunks embedded.\n"
    assert "cancelled" in cli.run("knowledge", "cancel-move").stdout
    assert "handbook: 2 documents left" in cli.run("knowledge", "reindex-all").stdout
    assert cli.run("knowledge", "show-reindexing").stdout.startswith("handbook: ")


def test_a_server_takes_files_of_any_size_and_indexes_them_by_itself(tmp_path: Path, docs: Path) -> None:
    (docs / "large.txt").write_text(TRAVEL * 80_000)
    (tmp_path / "server").mkdir()
    with server_process(tmp_path / "server") as server:
        line = CommandLine(tmp_path / "unused", {"WEFT_URL": server.url, "WEFT_API_KEY": server.admin_key})
        told = line.json("knowledge", "add", "handbook", str(docs / "large.txt"), str(docs / "leave.md"), "--create")
        assert told["documents"] == ["large.txt", "leave.md"]
        assert told["pending"] > 0
        waited = line.json("knowledge", "add", "handbook", str(docs / "leave.md"), "--wait")
        assert (waited["unchanged"], waited["pending"], waited["failed"]) == (1, 0, [])
        assert line.json("knowledge", "get-document", "handbook", "leave.md")["state"] == "indexed"
        assert line.json("knowledge", "get-document", "handbook", "large.txt")["bytes"] > 5_000_000
        line.run("knowledge", "delete-document", "handbook", "large.txt")
