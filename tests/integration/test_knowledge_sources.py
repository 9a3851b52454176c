"""Knowledge sources: folders, URLs and hooks keep a domain up to date."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook as Signer

from support.document_server import document_server
from support.jobs import pause_jobs
from support.webhooks import wait_until
from support.world import arriving, refused
from weftline.app.dispatch import CallContext
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import SystemUnavailable
from weftline.kernel.fields import new_id
from weftline.knowledge import source_operations
from weftline.knowledge.source_sync import SourceDocuments
from weftline.knowledge.sources import (
    KnowledgeSource,
    SourceFile,
    document_id_of_url,
    is_included,
    listing_fingerprint,
)
from weftline.providers.http_fetcher import HttpFetcher
from weftline.providers.local_folders import AllowedFolders
from weftline.sessions.events.webhooks import signed_headers

if TYPE_CHECKING:
    from pathlib import Path

    from support.world import Caller, World
    from weftline.settings import Settings

pytestmark = pytest.mark.req("CE-F43")
DOMAIN = "handbook"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that sources may read."""
    source_of_folder = tmp_path / "roots" / "docs"
    source_of_folder.mkdir(parents=True)
    return source_of_folder


@pytest.fixture
def settings(settings: Settings, folder: Path) -> Settings:
    return replace(settings, knowledge_folders=str(folder.parent), fetch_private_hosts="127.0.0.1")


@pytest.fixture(autouse=True)
def _jobs_run_when_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, "knowledge.sync", "knowledge.reindex", "knowledge.ingest")


@pytest.fixture
async def library(world: World) -> World:
    await world.admin.call("knowledge.create_domain", domain=DOMAIN)
    return world


async def add(caller: Caller, kind: str, **what: Any) -> Any:
    return await caller.call("knowledge.add_source", domain=DOMAIN, kind=kind, **what)


async def run_sync(world: World) -> None:
    await world.app.scheduler.drain("knowledge.sync")


async def shown(world: World, source: Any) -> Any:
    listed = await world.admin.call("knowledge.list_sources", domain=DOMAIN)
    found = next(each for each in listed["sources"] if each["source_id"] == source["source_id"])
    failures = found["last_sync"].pop("failures")
    return {**found, "failures": {each["document_id"]: each["reason"] for each in failures}}


async def update(world: World, source: Any, **changes: Any) -> Any:
    return await world.admin.call("knowledge.update_source", domain=DOMAIN, source_id=source["source_id"], **changes)


async def sync(world: World, source: Any, **how: Any) -> None:
    await world.admin.call("knowledge.sync_source", domain=DOMAIN, source_id=source["source_id"], **how)
    await run_sync(world)


async def documents(world: World) -> dict[str, int]:
    """Return the stored documents with their versions."""
    listed = await world.admin.call("knowledge.list_documents", domain=DOMAIN)
    return {each["document_id"]: each["version"] for each in listed["documents"]}


async def source_events(world: World) -> list[str]:
    events = (await world.admin.events())["events"]
    return [event["type"] for event in events if event["type"].startswith("knowledge_source.")]


def sync_result(**figures: int) -> dict[str, int]:
    return {"added": 0, "updated": 0, "removed": 0, "unchanged": 0, "failed": 0, **figures}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


async def test_the_files_of_a_folder_become_documents(library: World, folder: Path) -> None:
    write(folder, "start.md", "# Start")
    write(folder, "guides/leave.md", "# Leave")
    write(folder, ".git/config", "hidden")
    source = await add(library.admin, "folder", folder=str(folder), prefix="docs/")
    await run_sync(library)
    assert await documents(library) == {"docs/guides/leave.md": 1, "docs/start.md": 1}
    seen = await shown(library, source)
    assert (seen["last_sync"], seen["error"], seen["sync_requested"]) == (sync_result(added=2), None, False)
    assert await source_events(library) == ["knowledge_source.added", "knowledge_source.synced"]


async def test_a_sync_updates_changed_files_and_removes_deleted_ones(library: World, folder: Path) -> None:
    changing = write(folder, "changing.md", "one")
    write(folder, "same.md", "same")
    gone = write(folder, "gone.md", "gone")
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    changing.write_text("another")
    gone.unlink()
    write(folder, "new.md", "new")
    await sync(library, source)
    assert await documents(library) == {"changing.md": 2, "new.md": 1, "same.md": 1}
    assert (await shown(library, source))["last_sync"] == sync_result(added=1, updated=1, removed=1, unchanged=1)


async def test_a_file_with_a_new_mtime_only_is_no_new_version(library: World, folder: Path) -> None:
    path = write(folder, "same.md", "same")
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    os.utime(path, ns=(1, 1))
    await sync(library, source)
    assert await documents(library) == {"same.md": 1}
    assert (await shown(library, source))["last_sync"] == sync_result(unchanged=1)


async def test_patterns_select_the_files(library: World, folder: Path) -> None:
    for name in ("a.md", "b.txt", "drafts/c.md", "guides/d.md"):
        write(folder, name, name)
    source = await add(library.admin, "folder", folder=str(folder), include=["*.md"], exclude=["drafts/*"])
    await run_sync(library)
    assert await documents(library) == {"a.md": 1, "guides/d.md": 1}
    await update(library, source, include=["*.txt"])
    await run_sync(library)
    assert await documents(library) == {"b.txt": 1}


async def test_a_source_is_synced_when_due(library: World, folder: Path) -> None:
    source = await add(library.admin, "folder", folder=str(folder), every_seconds=60)
    await run_sync(library)
    write(folder, "late.md", "late")
    await run_sync(library)
    assert await documents(library) == {}
    library.clock.advance(seconds=61)
    await run_sync(library)
    assert await documents(library) == {"late.md": 1}
    await update(library, source, every_seconds=0)
    assert (await shown(library, source))["next_sync_at"] is None


async def test_a_watched_folder_is_synced_on_change(
    library: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.jobs.source_sync._WATCH_SECONDS", 0.05)
    await add(library.admin, "folder", folder=str(folder), watch=True)
    app = await library.another_app()
    app.scheduler.paused.clear()
    app.scheduler.wake("knowledge.sync")

    async def holds(expected: dict[str, int]) -> bool:
        return await documents(library) == expected

    path = write(folder, "seen.md", "one")
    await wait_until(lambda: holds({"seen.md": 1}))
    path.write_text("two words")
    await wait_until(lambda: holds({"seen.md": 2}))
    path.unlink()
    await wait_until(lambda: holds({}))


async def test_a_full_sync_reads_every_file_again(library: World, folder: Path) -> None:
    path = write(folder, "a.md", "one")
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    stamp = path.stat().st_mtime_ns
    path.write_text("two")
    os.utime(path, ns=(stamp, stamp))
    await sync(library, source)
    assert await documents(library) == {"a.md": 1}
    await sync(library, source, full=True)
    assert await documents(library) == {"a.md": 2}


async def test_links_out_of_the_folder_are_not_followed(library: World, folder: Path, tmp_path: Path) -> None:
    secret = write(tmp_path, "secret/passwords.md", "secret")
    (folder / "file.md").symlink_to(secret)
    (folder / "inside").symlink_to(secret.parent)
    write(folder, "own.md", "own")
    await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    assert await documents(library) == {"own.md": 1}
    folders = AllowedFolders([str(folder.parent)])
    source = source_of_folder(folder)
    for path in ("file.md", "inside/passwords.md", "../../secret/passwords.md"):
        with pytest.raises(OSError, match=r"passwords|levels|directory|file\.md"):
            await folders.read(library.tenant, source, path, 100)


async def test_a_hard_link_is_refused_and_named(library: World, folder: Path, tmp_path: Path) -> None:
    secret = write(tmp_path, "secret/passwords.md", "secret")
    (folder / "file.md").hardlink_to(secret)
    write(folder, "own.md", "own")
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    assert await documents(library) == {"own.md": 1}
    assert "hard links" in (await shown(library, source))["failures"]["file.md"]
    (folder / "file.md").unlink()
    write(folder, "file.md", "a copy")
    await sync(library, source)
    assert await documents(library) == {"own.md": 1, "file.md": 1}


def source_of_folder(folder: Path) -> KnowledgeSource:
    return KnowledgeSource(
        source_id="source_0",
        domain=DOMAIN,
        kind="folder",
        location=str(folder),
        prefix="",
        secret="",
        token_digest="",
        principal_id="admin",
        created_at=0,
    )


async def test_special_files_are_ignored(library: World, folder: Path) -> None:
    os.mkfifo(folder / "pipe.md")
    await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    assert await documents(library) == {}
    with pytest.raises(FileNotFoundError):
        await AllowedFolders([str(folder.parent)]).read(library.tenant, source_of_folder(folder), "pipe.md", 100)


async def test_a_missing_folder_and_one_not_allowed_give_different_errors(library: World, folder: Path) -> None:
    with refused("FOLDER_REFUSED") as caught:
        await add(library.admin, "folder", folder=str(folder / "nowhere"))
    assert caught.value.message == f"There is no folder '{folder / 'nowhere'}'."


@pytest.mark.parametrize("place", ["..", "../..", "/", "/etc", "/nowhere", "link"])
async def test_folders_that_are_not_allowed_are_refused(library: World, folder: Path, place: str) -> None:
    (folder / "link").symlink_to("/etc")
    with refused("FOLDER_REFUSED") as caught:
        await add(library.admin, "folder", folder=str(folder / place if place != ".." else folder / "../.."))
    assert "WEFTLINE_KNOWLEDGE_FOLDERS" in str(caught.value.hint)


async def test_each_tenant_reads_only_its_own_folder(world: World, folder: Path) -> None:
    app = await world.another_app(knowledge_folders=f"{folder.parent}/{{tenant}}")
    for tenant in (world.tenant, world.other_tenant):
        (folder.parent / tenant).mkdir()
    await world.admin.call("knowledge.create_domain", domain=DOMAIN)
    admin = world.admin.at(app)
    await add(admin, "folder", folder=str(folder.parent / world.tenant))
    with refused("FOLDER_REFUSED"):
        await add(admin, "folder", folder=str(folder.parent / world.other_tenant), prefix="other/")


async def test_documents_of_a_missing_folder_are_kept(library: World, folder: Path) -> None:
    write(folder, "kept.md", "kept")
    source = await add(library.admin, "folder", folder=str(folder), watch=True)
    await run_sync(library)
    moved = folder.rename(folder.with_name("moved"))  # noqa: ASYNC240 - takes no time
    await run_sync(library)
    assert await documents(library) == {"kept.md": 1}
    assert "There is no folder" in (await shown(library, source))["error"]
    moved.rename(folder)
    await run_sync(library)
    assert (await shown(library, source))["error"] is not None
    library.clock.advance(seconds=61)
    await run_sync(library)
    assert (await shown(library, source))["error"] is None
    assert await documents(library) == {"kept.md": 1}
    assert await source_events(library) == [
        *("knowledge_source.added", "knowledge_source.synced", "knowledge_source.failed", "knowledge_source.synced"),
    ]


async def test_failed_syncs_are_reported_and_retried_with_backoff(
    library: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await add(library.admin, "folder", folder=str(folder), watch=True)
    tries = 0

    async def fail(tenant: str, _: KnowledgeSource) -> Any:
        nonlocal tries
        tries += tenant == library.tenant
        raise RecursionError

    with monkeypatch.context() as patched:
        patched.setattr(library.app.source_sync._folders, "files", fail)
        for _ in range(8 * 6):
            await run_sync(library)
            library.clock.advance(seconds=10)
        assert tries == 4  # at once, and after one, two and four minutes more
        assert "RecursionError" in (await shown(library, source))["error"]
    await sync(library, source)
    assert (await shown(library, source))["error"] is None


async def test_a_refused_file_does_not_block_others(
    library: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "good.md", "good")
    write(folder, "large.md", "x" * 100)
    write(folder, "new\nline.md", "odd name")
    (folder / os.fsdecode(b"caf\xe9.md")).write_text("no text of ours can hold this name")
    monkeypatch.setattr("weftline.knowledge.documents.MAX_DOCUMENT_BYTES", 50)
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    seen = await shown(library, source)
    assert seen["last_sync"] == sync_result(added=2, failed=2)
    assert "50 bytes" in seen["failures"]["large.md"]
    await sync(library, source)
    again = await shown(library, source)
    assert (again["last_sync"], again["failures"].keys()) == (
        sync_result(unchanged=2, failed=2),
        seen["failures"].keys(),
    )
    assert len(await documents(library)) == 2


async def test_a_refused_file_is_retried(library: World, folder: Path) -> None:
    write(folder, "own.md", "from the folder")
    await library.admin.call("knowledge.add_document", domain=DOMAIN, document_id="own.md", text="own")
    source = await add(library.admin, "folder", folder=str(folder), watch=True)
    for _ in range(3):
        await run_sync(library)
        assert list((await shown(library, source))["failures"]) == ["own.md"]
        library.clock.advance(seconds=61)
    assert await source_events(library) == ["knowledge_source.added", "knowledge_source.synced"]
    await library.admin.call("knowledge.delete_document", domain=DOMAIN, document_id="own.md")
    library.clock.advance(seconds=240)
    await run_sync(library)
    seen = await shown(library, source)
    assert (seen["last_sync"], seen["failures"], seen["next_sync_at"]) == (sync_result(added=1), {}, None)
    assert await documents(library) == {"own.md": 1}


async def test_a_refused_url_document_is_fetched_again(library: World) -> None:
    async with document_server() as server:
        await library.admin.call("knowledge.add_document", domain=DOMAIN, document_id="page.md", text="own")
        source = await add(library.admin, "url", url=server.url, prefix="page.md")
        await run_sync(library)
        assert list((await shown(library, source))["failures"]) == ["page.md"]
        await sync(library, source)
        assert list((await shown(library, source))["failures"]) == ["page.md"]
        await library.admin.call("knowledge.delete_document", domain=DOMAIN, document_id="page.md")
        await sync(library, source)
        assert ((await shown(library, source))["last_sync"], await documents(library)) == (
            sync_result(added=1),
            {"page.md": 1},
        )


async def test_files_are_synced_in_batches_by_one_process_at_a_time(library: World, folder: Path) -> None:
    for number in range(45):
        write(folder, f"{number:02}.md", f"text {number}")
    other = await library.another_app()
    await add(library.admin, "folder", folder=str(folder))
    await asyncio.gather(library.app.scheduler.drain("knowledge.sync"), other.scheduler.drain("knowledge.sync"))
    assert await documents(library) == {f"{number:02}.md": 1 for number in range(45)}


async def test_slow_sources_do_not_block_others(library: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, waiting = library.app.scheduler, 0

    async def never(*_: Any) -> None:
        nonlocal waiting
        waiting += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(HttpFetcher, "fetch", never)
    await library.stranger.call("knowledge.create_domain", domain=DOMAIN)
    for number in range(4):
        await add(library.stranger, "url", url=f"http://127.0.0.1:9/{number}")
    scheduler.paused.clear()
    scheduler.wake("knowledge.sync")
    write(folder, "a.md", "a")
    source = await add(library.admin, "folder", folder=str(folder))
    scheduler.wake("knowledge.sync")

    async def is_synced() -> bool:
        return waiting > 0 and (await shown(library, source))["synced_at"] is not None

    await wait_until(is_synced)
    assert await documents(library) == {"a.md": 1}
    assert waiting == 2


async def test_a_source_resumes_where_another_process_died(
    library: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(45):
        write(folder, f"{number:02}.md", f"text {number}")
    source = await add(library.admin, "folder", folder=str(folder))
    reads = 0
    read = library.app.source_sync._folders.read

    async def dying(*what: Any) -> bytes:
        nonlocal reads
        reads += 1
        if reads == 30:
            raise KeyboardInterrupt
        return await read(*what)

    with monkeypatch.context() as patched:
        patched.setattr(library.app.source_sync._folders, "read", dying)
        with pytest.raises(KeyboardInterrupt):
            await library.app.source_sync.sync(library.tenant, source["source_id"])
    assert len(await documents(library)) == 20
    library.clock.advance(seconds=61)
    await run_sync(library)
    assert await documents(library) == {f"{number:02}.md": 1 for number in range(45)}
    assert (await shown(library, source))["last_sync"] == sync_result(added=25, unchanged=20)


async def test_a_url_is_fetched_conditionally(library: World) -> None:
    async with document_server() as server:
        source = await add(library.admin, "url", url=server.url, every_seconds=60)
        await run_sync(library)
        assert await documents(library) == {"127.0.0.1/docs/start.md": 1}
        read = await library.admin.call("knowledge.get_document", domain=DOMAIN, document_id="127.0.0.1/docs/start.md")
        assert read["bytes"] == len(server.body)
        await sync(library, source)
        assert server.requests[-1]["if-none-match"] == '"one"'
        assert (await shown(library, source))["last_sync"] == sync_result(unchanged=1)
        server.body, server.tag = b"# Changed", '"two"'
        library.clock.advance(seconds=61)
        await run_sync(library)
        assert await documents(library) == {"127.0.0.1/docs/start.md": 2}
        server.status = 410
        await sync(library, source)
        assert await documents(library) == {}


async def test_a_failing_url_keeps_its_document_and_reports_the_error(library: World) -> None:
    async with document_server() as server:
        source = await add(library.admin, "url", url=server.url, prefix="start.md")
        await run_sync(library)
        server.status = 500
        await sync(library, source)
        assert "answered 500" in (await shown(library, source))["error"]
        server.status, server.location = 302, "http://localhost:1/elsewhere"
        await sync(library, source)
        assert "address_refused" in (await shown(library, source))["error"]
    await sync(library, source)
    assert "connection_failed" in (await shown(library, source))["error"]
    assert await documents(library) == {"start.md": 1}


@pytest.mark.parametrize("tag", ['"caf\u00e9"', '"' + "x" * 200 + '"'])
async def test_invalid_etags_and_media_types_of_a_url_are_ignored(library: World, tag: str) -> None:
    async with document_server() as server:
        server.tag, server.media_type = tag, "text/" + "x" * 100 + "<script>"
        source = await add(library.admin, "url", url=server.url, prefix="start.md")
        await run_sync(library)
        await sync(library, source)
        assert "if-none-match" not in server.requests[-1]
        seen = await shown(library, source)
        assert (seen["error"], seen["last_sync"]) == (None, sync_result(unchanged=1))
        read = await library.admin.call("knowledge.get_document", domain=DOMAIN, document_id="start.md")
        assert "script" not in read["media_type"]


async def test_redirects_are_followed_to_allowed_hosts_only() -> None:
    fetcher = HttpFetcher(["127.0.0.1"])
    async with document_server() as server, document_server() as first:
        first.status, first.location = 301, server.url
        assert (await fetcher.fetch(first.url, "", 1_000)).content == server.body
        first.location = first.url
        assert (await fetcher.fetch(first.url, "", 1_000)).error == "redirected"
        assert (await fetcher.fetch(server.url, "", 5)).error == "too_large"
        server.status = 404
        assert (await fetcher.fetch(server.url, "", 1_000)).gone


@pytest.mark.parametrize(
    "url", ["http://localhost/x", "http://10.0.0.1/x", "http://[::1]/x", "http://169.254.169.254/"]
)
async def test_private_urls_are_refused(library: World, url: str) -> None:
    with refused("ADDRESS_REFUSED") as caught:
        await add(library.admin, "url", url=url)
    assert "WEFTLINE_FETCH_PRIVATE_HOSTS" in str(caught.value.hint)


def parts(hook: str) -> tuple[str, str, str]:
    tenant, source_id, token = hook.removeprefix("/v1/knowledge/hooks/").split("/")
    return tenant, source_id, token


async def call(world: World, hook: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Any:
    return await world.app.receive_hook(parts(hook), headers or {}, arriving(body), CallContext(None))


def signed(world: World, source: Any, body: bytes, *, call_id: str = "", ahead_seconds: int = 0) -> dict[str, str]:
    at = to_micros(world.clock.now()) // 1_000_000 + ahead_seconds
    return signed_headers(source["secret"], call_id or new_id("call"), at, body)


def hook_body(**texts: str) -> bytes:
    """Return the body of a hook call with documents, by name without extension."""
    return json.dumps(
        {"documents": [{"document_id": f"{name}.md", "text": text} for name, text in texts.items()]}
    ).encode()


async def push(world: World, source: Any, body: bytes) -> Any:
    return await call(world, source["hook"], signed(world, source, body), body)


async def test_a_hook_call_syncs_its_source(library: World, folder: Path) -> None:
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    write(folder, "new.md", "new")
    assert (await call(library, source["hook"])).sync
    await run_sync(library)
    assert await documents(library) == {"new.md": 1}


async def test_a_signed_hook_call_adds_and_removes_documents(library: World) -> None:
    source = await add(library.admin, "hook", prefix="wiki/")
    pdf = base64.b64encode(b"%PDF-1.7").decode()
    body = json.dumps(
        {
            "documents": [
                {"document_id": "a.md", "text": "# A", "metadata": {"team": "core"}},
                {"document_id": "b.pdf", "content": pdf},
            ]
        }
    ).encode()
    answer = await call(library, source["hook"], signed(library, source, body), body)
    assert (answer.accepted, answer.removed) == (2, 0)
    assert await documents(library) == {"wiki/a.md": 1, "wiki/b.pdf": 1}
    body = b'{"removed": ["a.md", "never"]}'
    assert (await call(library, source["hook"], signed(library, source, body), body)).removed == 1
    assert await documents(library) == {"wiki/b.pdf": 1}
    assert (await shown(library, source))["last_sync"] == sync_result(removed=1)


async def test_signatures_of_the_standard_webhooks_library_are_accepted(library: World) -> None:
    source = await add(library.admin, "hook")
    body = '{"documents": [{"document_id": "a", "text": "x"}]}'
    now = library.clock.now()
    signature = Signer(source["secret"]).sign("call-7", now, body)
    headers = {
        "webhook-id": "call-7",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": f"v1,bm90IHRoaXMgb25l {signature}",
    }
    assert (await call(library, source["hook"], headers, body.encode())).accepted == 1


async def test_unauthenticated_hook_calls_get_the_same_error(library: World, folder: Path) -> None:
    source = await add(library.admin, "hook", prefix="wiki/")
    tenant, source_id, token = parts(source["hook"])
    body = b'{"documents": [{"document_id": "a", "text": "x"}]}'
    good = signed(library, source, body)
    other = await add(library.admin, "hook", prefix="other/")
    tries = [
        ((tenant, source_id, "x" * len(token)), good),
        ((library.other_tenant, source_id, token), good),
        ((tenant, "source_0000000000000000", token), good),
        (("no such tenant", source_id, token), good),
        (("nobody", source_id, token), good),
        ((tenant, source_id, token), {}),
        ((tenant, source_id, token), signed(library, other, body)),
        ((tenant, source_id, token), signed(library, source, body + b" ")),
        ((tenant, source_id, token), signed(library, source, body, ahead_seconds=-301)),
        ((tenant, source_id, token), signed(library, source, body, ahead_seconds=301)),
        ((tenant, source_id, token), {**good, "webhook-timestamp": "soon"}),
        ((tenant, source_id, token), {**good, "webhook-id": ""}),
        ((tenant, source_id, token), signed(library, source, body, call_id="caf\u00e9")),
        ((tenant, source_id, token), signed(library, source, body, call_id="x" * 257)),
    ]
    errors = set()
    for hook, headers in tries:
        with refused("HOOK_REFUSED") as caught:
            await library.app.receive_hook(hook, headers, arriving(body), CallContext(None))
        errors.add((caught.value.message, caught.value.http_status))
    assert len(errors) == 1
    assert await documents(library) == {}


async def test_a_replayed_hook_call_gets_the_same_answer_and_changes_nothing(library: World) -> None:
    source = await add(library.admin, "hook")
    old = hook_body(a="old")
    headers = signed(library, source, old)
    first = await call(library, source["hook"], headers, old)
    await push(library, source, hook_body(a="new"))
    assert await call(library, source["hook"], headers, old) == first
    library.clock.advance(seconds=300)
    assert await call(library, source["hook"], headers, old) == first
    assert await documents(library) == {"a.md": 2}
    library.clock.advance(seconds=1)
    with refused("HOOK_REFUSED"):
        await call(library, source["hook"], headers, old)


async def test_a_retried_hook_call_cannot_be_replayed_after_the_first_expires(library: World) -> None:
    source = await add(library.admin, "hook")
    body = hook_body(a="old")
    first = await call(library, source["hook"], signed(library, source, body, call_id="one"), body)
    library.clock.advance(seconds=200)
    again = signed(library, source, body, call_id="one")
    assert await call(library, source["hook"], again, body) == first
    library.clock.advance(seconds=200)
    await push(library, source, hook_body(a="new"))
    assert await call(library, source["hook"], again, body) == first
    assert await documents(library) == {"a.md": 2}


async def test_hook_calls_are_accepted_in_any_order(library: World) -> None:
    source = await add(library.admin, "hook")
    late = hook_body(late="text")
    headers = signed(library, source, late)
    library.clock.advance(seconds=10)
    await push(library, source, hook_body(early="text"))
    assert (await call(library, source["hook"], headers, late)).accepted == 1
    assert await documents(library) == {"early.md": 1, "late.md": 1}


async def test_concurrent_duplicates_of_a_hook_call_are_applied_once(library: World) -> None:
    source = await add(library.admin, "hook")
    body = json.dumps({"documents": [{"document_id": "a", "text": text} for text in ("one", "two")]}).encode()
    headers = signed(library, source, body)
    one, other = await asyncio.gather(*(call(library, source["hook"], headers, body) for _ in range(2)))
    assert one == other
    assert await documents(library) == {"a": 2}


async def test_expired_hook_calls_are_deleted(library: World) -> None:
    source = await add(library.admin, "hook")
    await push(library, source, hook_body(a="one"))
    library.clock.advance(seconds=301)
    await push(library, source, hook_body(a="two"))
    assert len(await library.rows("SELECT 1 FROM knowledge_hook_calls WHERE tenant = $1", library.tenant)) == 1


async def test_a_hook_changes_only_its_own_documents(library: World) -> None:
    await library.admin.call("knowledge.add_document", domain=DOMAIN, document_id="wiki/own.md", text="own")
    source = await add(library.admin, "hook", prefix="wiki/")
    answer = await push(library, source, hook_body(own="another's", new="new"))
    assert (answer.accepted, [each.document_id for each in answer.refused]) == (1, ["own.md"])
    assert "by someone else" in answer.refused[0].reason
    assert (await push(library, source, b'{"removed": ["own.md"]}')).removed == 0
    assert await documents(library) == {"wiki/new.md": 1, "wiki/own.md": 1}
    seen = await shown(library, source)
    assert (seen["last_sync"], seen["failures"]) == (sync_result(), {})


async def test_a_document_replaced_by_a_person_no_longer_belongs_to_the_source(library: World) -> None:
    source = await add(library.admin, "hook")
    await push(library, source, hook_body(a="brought", b="brought"))
    await library.admin.call("knowledge.add_document", domain=DOMAIN, document_id="a.md", text="mended by hand")
    answer = await push(library, source, hook_body(a="brought again", b="brought again"))
    assert (answer.accepted, [each.document_id for each in answer.refused]) == (1, ["a.md"])
    assert (await push(library, source, b'{"removed": ["a.md", "b.md"]}')).removed == 1
    assert await documents(library) == {"a.md": 2}


async def test_a_folder_does_not_replace_documents_of_others_and_reports_it(library: World, folder: Path) -> None:
    write(folder, "own.md", "from the folder")
    large = write(folder, "large.md", "small as yet")
    await library.admin.call("knowledge.add_document", domain=DOMAIN, document_id="own.md", text="own")
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    seen = await shown(library, source)
    assert (seen["last_sync"], list(seen["failures"])) == (sync_result(added=1, failed=1), ["own.md"])
    large.write_bytes(b"x" * (16 * 2**20 + 1))
    await sync(library, source)
    large.write_text("small again")
    await sync(library, source)
    assert (await shown(library, source))["last_sync"] == sync_result(updated=1, failed=1)
    for file in ("own.md", "large.md"):
        (folder / file).unlink()
    await sync(library, source)
    assert await documents(library) == {"own.md": 1}


async def test_a_hook_does_not_reveal_domains_to_its_caller(library: World) -> None:
    creator = await library.admin.create_agent("keeper", permissions=["read", "write", "admin"], clearance=2)
    await library.admin.call("knowledge.create_domain", domain="handbook2")
    source = await add(creator, "hook")
    await library.admin.call("knowledge.update_domain", domain=DOMAIN, clearance=3)
    with refused("HOOK_REFUSED") as caught:
        await push(library, source, hook_body(a="text"))
    assert (DOMAIN in str(caught.value.message), caught.value.context) == (False, {})
    assert DOMAIN in (await shown(library, source))["error"]
    await library.admin.call("knowledge.update_domain", domain=DOMAIN, clearance=1)
    await push(library, source, hook_body(a="text"))
    assert (await shown(library, source))["error"] is None


async def test_a_hook_reports_an_exceeded_plan_without_figures(library: World) -> None:
    await library.sql("INSERT INTO tenant_plans (tenant, plan, since) VALUES ($1, 'free', 0)", library.tenant)
    await library.sql("UPDATE domains SET bytes = $1 WHERE tenant = $2", 2**30, library.tenant)
    source = await add(library.admin, "hook")
    with refused("QUOTA_EXCEEDED") as caught:
        await push(library, source, hook_body(a="text"))
    assert (any(map(str.isdigit, caught.value.message)), caught.value.context) == (False, {})
    assert "GiB" in (await shown(library, source))["error"]


async def test_a_document_id_too_long_with_its_prefix_is_refused(library: World) -> None:
    source = await add(library.admin, "hook", prefix="p" * 200)
    with refused("INVALID_INPUT_FORMAT"):
        await push(library, source, hook_body(**{"x" * 298: "text"}))
    assert (await push(library, source, hook_body(**{"x" * 297: "text"}))).accepted == 1


async def test_an_invalid_hook_body_is_refused(library: World) -> None:
    source = await add(library.admin, "hook")
    bad = (
        b"[]",
        b"not json",
        b'{"documents": [{"document_id": "a", "text": "x"}, {"document_id": "../b", "text": "x"}]}',
        b'{"documents": [{"document_id": "a", "text": "x", "content": "eA=="}]}',
        b'{"unknown": 1}',
    )
    for body in bad:
        with refused("INVALID_INPUT_FORMAT"):
            await call(library, source["hook"], signed(library, source, body), body)
    assert await documents(library) == {}


async def test_a_source_is_disabled_when_its_creator_loses_access(library: World, folder: Path) -> None:
    write(folder, "a.md", "a")
    creator = await library.admin.create_agent("keeper", permissions=["read", "write", "admin"], clearance=2)
    source = await add(creator, "folder", folder=str(folder), prefix="docs/")
    pushed = await add(creator, "hook", prefix="push/")
    await library.admin.call("knowledge.update_domain", domain=DOMAIN, clearance=3)
    await run_sync(library)
    assert "no domain" in (await shown(library, source))["error"]
    await library.admin.call("knowledge.update_domain", domain=DOMAIN, clearance=1)
    await library.admin.call("agent.update", agent_id="keeper", permissions=["read", "write"])
    await sync(library, source)
    seen = await shown(library, source)
    assert (seen["enabled"], "no longer an admin" in seen["error"]) == (False, True)
    body = b'{"documents": [{"document_id": "a", "text": "x"}]}'
    with refused("HOOK_REFUSED"):
        await push(library, pushed, body)
    seen = await shown(library, pushed)
    assert (seen["enabled"], "no longer an admin" in seen["error"]) == (False, True)
    assert await documents(library) == {}


async def test_a_disabled_source_is_not_read_until_it_is_enabled(library: World, folder: Path) -> None:
    source = await add(library.admin, "folder", folder=str(folder), watch=True)
    await run_sync(library)
    await update(library, source, enabled=False)
    write(folder, "a.md", "a")
    await run_sync(library)
    assert await documents(library) == {}
    with refused("INVALID_INPUT_FORMAT"):
        await sync(library, source)
    with refused("HOOK_REFUSED"):
        await call(library, source["hook"])
    await update(library, source, enabled=True)
    await run_sync(library)
    assert await documents(library) == {"a.md": 1}


async def test_a_source_disabled_during_a_sync_stops(
    library: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(45):
        write(folder, f"{number:02}.md", f"text {number}")
    source = await add(library.admin, "folder", folder=str(folder))
    read, count = library.app.source_sync._read, 0

    async def stopping(*what: Any) -> Any:
        nonlocal count
        count += 1
        if count == 25:
            await update(library, source, enabled=False)
        return await read(*what)

    monkeypatch.setattr(library.app.source_sync, "_read", stopping)
    await run_sync(library)
    seen = await shown(library, source)
    assert (len(await documents(library)), seen["enabled"], seen["error"]) == (20, False, None)
    remove = {"domain": DOMAIN, "source_id": source["source_id"], "documents": True}
    assert (await library.admin.call("knowledge.remove_source", **remove))["documents"] == 20


async def test_documents_of_a_removed_source_go_in_batches_and_a_repeated_call_continues(
    library: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        write(folder, f"{number:02}.md", f"text {number}")
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    monkeypatch.setattr(source_operations, "_REMOVAL_BATCH", 7)
    remove_some, batches = SourceDocuments.remove_some, 0

    async def stopping(*what: Any) -> tuple[int, bool]:
        nonlocal batches
        batches += 1
        if batches == 3:
            raise SystemUnavailable
        return await remove_some(*what)

    monkeypatch.setattr(SourceDocuments, "remove_some", stopping)
    remove = {"domain": DOMAIN, "source_id": source["source_id"], "documents": True}
    with refused(SystemUnavailable.code):
        await library.admin.call("knowledge.remove_source", **remove)
    assert (len(await documents(library)), (await shown(library, source))["enabled"]) == (6, False)
    assert (await library.admin.call("knowledge.remove_source", **remove))["documents"] == 6
    assert (batches, await documents(library)) == (4, {})


@pytest.mark.parametrize("with_documents", [False, True])
async def test_removing_a_source_keeps_its_documents_by_default(
    library: World, folder: Path, *, with_documents: bool
) -> None:
    write(folder, "a.md", "a")
    await library.admin.call("knowledge.add_document", domain=DOMAIN, document_id="own.md", text="own")
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    answer = await library.admin.call(
        "knowledge.remove_source", domain=DOMAIN, source_id=source["source_id"], documents=with_documents
    )
    assert answer["documents"] == int(with_documents)
    assert await documents(library) == ({"own.md": 1} if with_documents else {"a.md": 1, "own.md": 1})
    with refused("SOURCE_NOT_FOUND"):
        await sync(library, source)
    with refused("HOOK_REFUSED"):
        await call(library, source["hook"])
    assert not await library.rows("SELECT 1 FROM knowledge_source_files WHERE tenant = $1", library.tenant)


async def test_deleting_a_domain_deletes_its_sources(library: World, folder: Path) -> None:
    write(folder, "a.md", "a")
    source = await add(library.admin, "folder", folder=str(folder), watch=True)
    await run_sync(library)
    await library.admin.call("knowledge.delete_domain", domain=DOMAIN)
    await run_sync(library)
    for table in ("knowledge_sources", "knowledge_source_files"):
        assert not await library.rows(f"SELECT 1 FROM {table} WHERE tenant = $1", library.tenant)  # two names
    with refused("HOOK_REFUSED"):
        await call(library, source["hook"])


async def test_only_admins_manage_sources_and_secrets_are_shown_once(library: World, folder: Path) -> None:
    source = await add(library.admin, "folder", folder=str(folder))
    assert source["secret"].startswith("whsec_")
    assert {"secret", "hook"}.isdisjoint(await shown(library, source))
    for operation, fields in (
        ("knowledge.add_source", {"kind": "hook"}),
        ("knowledge.list_sources", {}),
        ("knowledge.sync_source", {"source_id": source["source_id"]}),
    ):
        with refused("PERMISSION_DENIED"):
            await library.planner.call(operation, domain=DOMAIN, **fields)
    entries = await library.admin.audit()
    assert any(entry["action"] == "knowledge.add_source" for entry in entries)
    assert source["secret"] not in str(entries)


@pytest.mark.parametrize(
    "what",
    [
        {"kind": "folder"},
        {"kind": "url"},
        {"kind": "hook", "url": "https://example.com/a"},
        {"kind": "hook", "every_seconds": 60},
        {"kind": "hook", "watch": True},
        {"kind": "hook", "secret": "whsec_" + "A" * 33},
        {"kind": "hook", "prefix": "../up/"},
        {"kind": "url", "url": "https://user:password@example.com/a"},
    ],
)
async def test_invalid_sources_are_refused(library: World, what: dict[str, Any]) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await add(library.admin, **what)


@pytest.mark.parametrize(("one", "other"), [("", ""), ("", "a/"), ("a/b/", "a/"), ("a", "ab/")])
async def test_overlapping_prefixes_of_sources_are_refused(library: World, one: str, other: str) -> None:
    await add(library.admin, "hook", prefix=one)
    with refused("SOURCES_OVERLAP"):
        await add(library.admin, "hook", prefix=other)


async def test_a_url_source_occupies_one_document_id(library: World) -> None:
    async with document_server() as server:
        await add(library.admin, "url", url=server.url, prefix="docs/start")
        await add(library.admin, "url", url=server.url, prefix="docs/start/more.md")
        for kind, what in (("url", {"url": server.url, "prefix": "docs/start"}), ("hook", {"prefix": "docs/"})):
            with refused("SOURCES_OVERLAP"):
                await add(library.admin, kind, **what)


async def test_the_number_of_sources_of_a_tenant_is_limited(library: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.knowledge.source_operations.MAX_SOURCES", 1)
    await add(library.admin, "hook")
    with refused("TOO_MANY_SOURCES"):
        await add(library.admin, "hook", prefix="more/")


async def test_an_exceeded_plan_is_reported_and_other_sources_continue(library: World, folder: Path) -> None:
    write(folder, "a.md", "a")
    await library.sql("INSERT INTO tenant_plans (tenant, plan, since) VALUES ($1, 'free', 0)", library.tenant)
    await library.sql("UPDATE domains SET bytes = $1 WHERE tenant = $2", 2**30, library.tenant)
    source = await add(library.admin, "folder", folder=str(folder))
    await run_sync(library)
    assert "plan" in (await shown(library, source))["error"]
    assert await documents(library) == {}


def test_patterns_without_a_slash_match_file_names() -> None:
    assert is_included("a/b/c.md", ["*.md"], [])
    assert not is_included("a/b/c.md", ["b/*"], [])
    assert is_included("a/b/c.md", ["a/*"], ["*.txt"])
    assert not is_included("a/b/c.md", ["*"], ["a/*"])


def test_the_fingerprint_of_a_folder_depends_on_every_file() -> None:
    fingerprints = {
        listing_fingerprint([SourceFile("a", 1, 1)]),
        listing_fingerprint([SourceFile("a", 2, 1)]),
        listing_fingerprint([SourceFile("a", 1, 2)]),
        listing_fingerprint([]),
    }
    assert len(fingerprints) == 4


def test_a_document_id_is_derived_from_the_url() -> None:
    assert document_id_of_url("https://example.com/a/../b.html?x=1") == "example.com/a/b.html"
    assert document_id_of_url("https://example.com") == "example.com"
