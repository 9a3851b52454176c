"""``weftline knowledge``: documents, sources, search and model migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cli_support import CommandLine

from support.forked_python import server_process

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


def test_documents_of_a_folder_are_searchable(cli: CommandLine, docs: Path) -> None:
    added = cli.json("knowledge", "add", "handbook", str(docs), "--create")
    assert added == {
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


def test_unchanged_files_are_not_indexed_again(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs), "--create")
    (docs / "leave.md").write_text(LEAVE + "\nUnpaid leave is agreed with the lead.\n")
    again = cli.run("knowledge", "add", "handbook", str(docs))
    assert again.stdout == "2 documents in handbook, 1 unchanged.\n"
    assert cli.json("search", "unpaid leave", "--top-k", "1")["results"][0]["document_id"] == "leave.md"


def test_document_ids_can_be_given(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs / "leave.md"), "--create", "--prefix", "guides/")
    cli.run("knowledge", "add", "handbook", "-", "--name", "input.txt", stdin="Text of standard input.")
    assert cli.run("knowledge", "read-document", "handbook", "input.txt").stdout == "Text of standard input.\n"
    listed = cli.run("knowledge", "list-documents", "handbook").stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
        ["guides/leave.md", "indexed"],
        ["input.txt", "indexed"],
    ]
    domains = cli.run("knowledge", "list-domains").stdout.splitlines()
    assert domains[1].split()[:3] == ["handbook", "2", "2"]


def test_invalid_files_are_reported_and_nothing_is_added(cli: CommandLine, docs: Path) -> None:
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
    output = cli.run("knowledge", "add", "handbook", str(docs), "--create", code=1).stdout.splitlines()
    assert output[0] == "2 documents in handbook; 1 could not be indexed:"
    assert output[1].startswith("  broken.pdf: The PDF is damaged")
    assert output[1].endswith("Save it again and add it.")
    assert cli.json("knowledge", "add", "handbook", str(docs), code=1)["failed"][0]["document_id"] == "broken.pdf"


def test_only_added_documents_count_as_pending(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs / "office"), "--create", "--no-wait")
    output = cli.run("knowledge", "add", "handbook", str(docs / "leave.md"), "--no-wait").stdout.splitlines()
    assert output == [
        "1 document in handbook.",
        "1 waiting to be indexed: weftline knowledge show-domain shows the progress.",
    ]


def test_the_current_session_does_not_filter_knowledge_searches(cli: CommandLine, docs: Path) -> None:
    cli.run("session", "create", "Plan", "--session-id", "launch")
    cli.run("knowledge", "add", "handbook", str(docs), "--create")
    everything = cli.json("search", "vacation")["results"]
    cli.env["WEFTLINE_SESSION"] = "nowhere"
    assert [each["ref"] for each in cli.json("search", "vacation")["results"]] == [each["ref"] for each in everything]
    assert cli.run("get-context", "vacation").stdout.startswith("[1]")
    cli.run("similar", everything[0]["ref"])
    for command in (["search", "vacation"], ["get-context", "vacation"], ["similar", everything[0]["ref"]]):
        assert "SESSION_NOT_FOUND" in cli.run(*command, "--session", "nowhere", code=1).stderr


def test_search_reports_no_pending_documents_after_add(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs), "--create")
    assert "pending" not in cli.json("search", "vacation")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["knowledge", "create-domain", "My Docs"], "letters, digits, _ and -"),
        (["search", "vacation", "--since", "yesterday"], "2025-01-15"),
        (["search", "vacation", "--until", "tomorrow"], "2025-01-15"),
        (["knowledge", "start-model-migration", "nosuch"], "weftline knowledge list-models"),
        (["knowledge", "allow-models", "nosuch"], "weftline knowledge list-models"),
        (["knowledge", "add-source", "handbook", "folder"], "folder: required"),
        (["knowledge", "add-source", "handbook", "url"], "url: required"),
        (["knowledge", "add-source", "handbook", "hook", "--folder", "x"], "with the kind folder give folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_has_a_hint(command: list[str], hint: str, cli: CommandLine) -> None:
    cli.run("knowledge", "create-domain", "handbook")
    assert hint.lower() in cli.run(*command, code=1).stderr.lower()


def test_get_context_and_find_similar_print_results(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs), "--create")
    context = cli.run("get-context", "How many days of vacation?", "--max-tokens", "300").stdout
    assert context.startswith("[1]")
    assert "thirty days of vacation" in context
    chunk = cli.json("search", "vacation", "--top-k", "1")["results"][0]["ref"]
    assert "office/travel.txt" in cli.run("similar", chunk).stdout
    assert cli.json("similar", "domain:handbook/9999", code=1)["code"] == "CHUNK_NOT_FOUND"


@pytest.mark.req("CE-F43")
def test_an_allowed_folder_is_watched(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "create-domain", "handbook")
    assert "FOLDER_REFUSED" in cli.run("knowledge", "watch", "handbook", str(docs), code=1).stderr
    cli.env["WEFTLINE_KNOWLEDGE_FOLDERS"] = str(docs)
    made = cli.json("knowledge", "watch", "handbook", str(docs), "--prefix", "docs/")
    assert (made["kind"], made["location"], made["watch"]) == ("folder", str(docs), True)
    other = cli.json("knowledge", "watch", "handbook", str(docs / "office"), "--prefix", "o/", "--every", "3600")
    assert (other["watch"], other["every_seconds"]) == (False, 3600)


@pytest.fixture
def source_id(cli: CommandLine, docs: Path) -> str:
    """Return a folder source, in a domain with a document named as one of its files."""
    cli.env["WEFTLINE_KNOWLEDGE_FOLDERS"] = str(docs.parent)
    cli.run("knowledge", "add", "handbook", "-", "--name", "leave.md", "--create", stdin="Put by hand.")
    made = cli.json("knowledge", "add-source", "handbook", "folder", "--folder", str(docs))
    return str(made["source_id"])


@pytest.mark.req("CE-F43")
def test_sync_source_on_a_data_folder_waits_for_the_sync(cli: CommandLine, docs: Path, source_id: str) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7 nothing of the kind")
    output = cli.run("knowledge", "sync-source", "handbook", source_id, code=1).stdout.splitlines()
    assert output[:2] == [f"{docs}: 2 added, 1 failed.", "1 file could not be read:"]
    assert output[2].startswith("  leave.md: A document with this id was put by someone else")
    assert output[3] == "1 document could not be indexed:"
    assert output[4].startswith("  broken.pdf: The PDF is damaged")
    found = cli.json("search", "approval of flights", "--top-k", "1")["results"][0]
    assert found["document_id"] == "office/travel.txt"
    (docs / "leave.md").unlink()
    (docs / "broken.pdf").unlink()
    assert cli.run("knowledge", "sync-source", "handbook", source_id).stdout == f"{docs}: 1 removed, 1 unchanged.\n"
    again = cli.json("knowledge", "sync-source", "handbook", source_id, "--full")
    assert (again["source_id"], again["error"], again["failed"]) == (source_id, None, [])
    assert again["last"]["unchanged"] == 1


@pytest.mark.req("CE-F43")
def test_sync_errors_are_printed(cli: CommandLine, docs: Path, source_id: str) -> None:
    assert "queued" in cli.run("knowledge", "list-sources", "handbook").stdout
    cli.run("knowledge", "sync-source", "handbook", source_id, code=1)
    shown = cli.run("knowledge", "list-sources", "handbook").stdout
    assert "1 added, 1 failed" in shown
    assert f"{source_id} could not read 1 file:\n  leave.md: A document with this id was put" in shown
    docs.rename(docs.parent / "away")
    output = cli.run("knowledge", "sync-source", "handbook", source_id, code=1).stdout
    assert output == f"{docs} could not be read: There is no folder '{docs}'.\n"
    assert (
        f"{source_id} failed: There is no folder '{docs}'." in cli.run("knowledge", "list-sources", "handbook").stdout
    )


@pytest.mark.req("CE-F43")
def test_the_sync_interval_of_each_source_is_shown(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "create-domain", "handbook")
    assert "has no sources" in cli.run("knowledge", "list-sources", "handbook").stdout
    cli.env["WEFTLINE_KNOWLEDGE_FOLDERS"] = str(docs)
    cli.run("knowledge", "watch", "handbook", str(docs), "--prefix", "a/")
    cli.run("knowledge", "watch", "handbook", str(docs), "--prefix", "b/", "--every", "3600")
    cli.run("knowledge", "add-source", "handbook", "hook", "--prefix", "c/")
    shown = cli.run("knowledge", "list-sources", "handbook").stdout.splitlines()[1:]
    for line, interval in zip(shown, ("watching", "every 3600 s", "when called"), strict=True):
        assert interval in line


@pytest.mark.req("CE-F51", "CE-F52")
def test_models_migrations_and_reindexing_are_printed(cli: CommandLine, docs: Path) -> None:
    cli.run("knowledge", "add", "handbook", str(docs), "--create")
    assert "all-MiniLM-L6-v2-int8" in cli.run("knowledge", "list-models").stdout
    assert "MODEL_MIGRATION_NOT_FOUND" in cli.run("knowledge", "show-model-migration", code=1).stderr
    service = {
        "WEFTLINE_EMBEDDING_URL": "http://127.0.0.1:9",
        "WEFTLINE_EMBEDDING_MODEL": "m",
        "WEFTLINE_EMBEDDING_DIMENSIONS": "8",
    }
    cli.env |= service
    started = cli.run("knowledge", "start-model-migration", "remote:m@8").stdout
    assert started == "all-MiniLM-L6-v2-int8 -> remote:m@8: embedding\n0 of 2 chunks embedded.\n"
    assert "cancelled" in cli.run("knowledge", "cancel-model-migration", "--yes").stdout
    assert "handbook: 2 documents left" in cli.run("knowledge", "reindex-all").stdout
    assert cli.run("knowledge", "show-reindexing").stdout.startswith("handbook: ")


def test_large_files_are_uploaded_to_a_server_and_indexed(tmp_path: Path, docs: Path) -> None:
    (docs / "large.txt").write_text(TRAVEL * 80_000)
    (tmp_path / "server").mkdir()
    with server_process(tmp_path / "server") as server:
        line = CommandLine(tmp_path / "unused", {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": server.admin_key})
        added = line.json("knowledge", "add", "handbook", str(docs / "large.txt"), str(docs / "leave.md"), "--create")
        assert added["documents"] == ["large.txt", "leave.md"]
        assert added["pending"] > 0
        waited = line.json("knowledge", "add", "handbook", str(docs / "leave.md"), "--wait")
        assert (waited["unchanged"], waited["pending"], waited["failed"]) == (1, 0, [])
        assert line.json("knowledge", "get-document", "handbook", "leave.md")["state"] == "indexed"
        assert line.json("knowledge", "get-document", "handbook", "large.txt")["bytes"] > 5_000_000
        line.run("knowledge", "delete-document", "handbook", "large.txt", "--yes")


def test_a_huge_template_file_is_not_parsed(cli: CommandLine, tmp_path: Path) -> None:
    own = tmp_path / "huge.toml"
    own.write_text('name = "huge"\n' + "# padding\n" * 110_000)
    refused = cli.run("knowledge", "create-domain", "handbook", "--template", str(own), code=2)
    assert "is larger than 1000000 bytes" in refused.stderr


@pytest.mark.req("CE-K")
def test_a_domain_is_created_from_a_changed_template(cli: CommandLine, docs: Path, tmp_path: Path) -> None:
    cli.run("tenant", "create", "default")
    printed = cli.run("knowledge", "show-template", "support_handbook").stdout
    own = tmp_path / "own.toml"
    question = '\n[[questions]]\nquestion = "How many days of vacation?"\ncontains = ["thirty days"]\n'
    own.write_text(printed.split("[[questions]]", maxsplit=1)[0] + question)
    added = ("knowledge", "add", "handbook", str(docs), "--create", "--template", str(own))
    cli.run(*added, "--metadata", '{"audience": "internal"}')
    evaluated = cli.json("knowledge", "evaluate-domain", "handbook")
    assert (evaluated["template"], evaluated["found"]) == ("support_handbook", 1)
    assert evaluated["questions"][0]["document_id"] == "leave.md"


def test_links_in_a_folder_are_skipped(cli: CommandLine, docs: Path, tmp_path: Path) -> None:
    secret = tmp_path / "outside" / "secret.md"
    secret.parent.mkdir()
    secret.write_text("The code is 4711.", "utf-8")
    (docs / "soft.md").symlink_to(secret)
    (docs / "hard.md").hardlink_to(secret)
    added = cli.run("knowledge", "add", "handbook", str(docs), "--create")
    assert "Links are skipped" in added.stderr
    listed = cli.json("knowledge", "list-documents", "handbook")["documents"]
    assert {"soft.md", "hard.md"}.isdisjoint(each["document_id"] for each in listed)
    assert listed
    # A link that is named is meant.
    cli.run("knowledge", "add", "handbook", str(docs / "soft.md"))
    assert "soft.md" in {
        each["document_id"] for each in cli.json("knowledge", "list-documents", "handbook")["documents"]
    }
