"""Object storage in an S3 bucket: durability and error reporting."""

from __future__ import annotations

import http.client
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from support.jobs import sweep_objects
from support.s3 import CREDENTIALS, REGION, SharedBucket, new_bucket, s3_service
from support.world import World, refused
from weft.app.diagnostics.checks import CheckStatus, check_objects
from weft.app.objects import Objects
from weft.capabilities.object_storage.model import Pointer
from weft.capabilities.object_storage.store import keep_staged
from weft.providers.object_storage import Bucket, connect_objects
from weft.settings import Settings
from weft.storage.sql.database import Scope
from weft.storage.sql.object_storage import SqlObjectIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUE = b"a value too large for the database" * 1_000
OTHER = b"other bytes, as many as before!!!!" * 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What the S3 service answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


# Is given the way to the service, and returns what the caller is answered; None for a connection that breaks.
Mishap = Callable[[Callable[[], Answer]], Answer | None]


@dataclass(slots=True)
class Line:
    """The line to the S3 service, on which something may happen to requests, one after the other."""

    upstream: str
    address: str = ""
    requests: list[str] = field(default_factory=list)
    mishaps: deque[Mishap | None] = field(default_factory=deque)
    always: Mishap | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def next_mishap(self) -> Mishap | None:
        return self.mishaps.popleft() if self.mishaps else self.always


def lose_the_answer(forward: Callable[[], Answer]) -> Answer | None:
    forward()
    return None


def lose_the_request(_: Callable[[], Answer]) -> Answer | None:
    return None


def fail(_: Callable[[], Answer]) -> Answer | None:
    return Answer(503, [("Content-Length", "0")], b"")


def without_version(forward: Callable[[], Answer]) -> Answer:
    answer = forward()
    headers = [header for header in answer.headers if header[0].lower() != "x-amz-version-id"]
    return Answer(answer.status, headers, answer.body)


def version_called_null(forward: Callable[[], Answer]) -> Answer:
    answer = without_version(forward)
    return Answer(answer.status, [*answer.headers, ("x-amz-version-id", "null")], answer.body)


def flip_a_byte(forward: Callable[[], Answer]) -> Answer:
    answer = forward()
    return Answer(answer.status, answer.headers, bytes([answer.body[0] ^ 1]) + answer.body[1:])


@contextmanager
def line_to(upstream: str) -> Iterator[Line]:
    line = Line(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def relay(self) -> None:
            line.requests.append(self.command)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            mishap = line.next_mishap()
            forward = _forwarding(line.upstream, self, body)
            answer = forward() if mishap is None else mishap(forward)
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_PUT = do_DELETE = relay  # noqa: N815 - the names it has in the base

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name it has in the base
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    line.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield line
    finally:
        line.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _forwarding(upstream: str, request: BaseHTTPRequestHandler, body: bytes) -> Callable[[], Answer]:
    def forward() -> Answer:
        connection = http.client.HTTPConnection(upstream.removeprefix("http://"))
        try:
            connection.request(request.command, request.path, body, dict(request.headers.items()))
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        headers = [
            (name, value)
            for name, value in response.getheaders()
            if name.lower() not in {"transfer-encoding", "connection", "date", "server"}
        ]
        return Answer(response.status, headers, content)

    return forward


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Return the address of an S3 service on this machine."""
    with s3_service() as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(s3: str) -> Iterator[SharedBucket]:
    """Return a fresh bucket with versions."""
    with new_bucket(s3) as bucket:
        yield bucket


@pytest.fixture
def line(s3: str) -> Iterator[Line]:
    with line_to(s3) as line:
        yield line


@pytest.fixture
def settings_of_bucket(bucket: SharedBucket, line: Line) -> Settings:
    return Settings(
        object_store_url=f"s3://{bucket.name}/some/prefix",
        object_store_endpoint=line.address,
        object_store_region=REGION,
        object_store_versioning="required",
        object_store_timeout_seconds=20,
    )


@pytest.fixture
def objects(world: World, settings_of_bucket: Settings) -> Objects:
    return Objects(world.app.database, connect_objects(settings_of_bucket), world.clock)


def impatient(bucket: SharedBucket, endpoint: str) -> Bucket:
    return Bucket(bucket.name, prefix="", endpoint=endpoint, region=REGION, versioned=True, timeout_seconds=0.5)


def wait_until_the_end(line: Line) -> Mishap:
    def wait(_: Callable[[], Answer]) -> Answer | None:
        line.over.wait(60)
        return None

    return wait


async def stage_and_keep(world: World, objects: Objects, content: bytes = VALUE) -> Pointer:
    await objects.stage(world.tenant, "planner", [content])
    pointer = Pointer.to(world.tenant, "planner", content)
    await world.app.database.write(Scope(world.tenant), lambda tx: keep_staged([pointer], SqlObjectIndex(tx)))
    return pointer


async def stored_version(world: World, pointer: Pointer) -> str | None:
    found = await world.app.database.read(Scope(world.tenant), lambda tx: SqlObjectIndex(tx).find(pointer.object))
    assert found is not None
    return found.version


async def index(world: World) -> list[tuple[str, str | None]]:
    rows = await world.rows("SELECT state, version FROM objects WHERE tenant = $1", world.tenant)
    return [tuple(row) for row in rows]


@pytest.mark.req("CE-F4")
@pytest.mark.req("CE-F2")
async def test_a_value_is_stored_under_tenant_and_agent_and_read_back_unchanged(
    world: World, objects: Objects, bucket: SharedBucket
) -> None:
    pointer = await stage_and_keep(world, objects)
    key = f"some/prefix/{world.tenant}/planner/{pointer.sha256}"
    assert bucket.names() == [key]
    assert bucket.versions(key) == [await stored_version(world, pointer)]
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
async def test_a_large_value_is_one_upload(world: World, objects: Objects, line: Line) -> None:
    content = secrets.token_bytes(12_000_000)
    pointer = await stage_and_keep(world, objects, content)
    assert line.requests == ["PUT"]
    assert await objects.fetch(world.tenant, pointer) == content


@pytest.mark.req("CE-F4")
async def test_a_value_that_someone_overwrote_or_deleted_is_read_by_its_version(
    world: World, objects: Objects, bucket: SharedBucket
) -> None:
    pointer = await stage_and_keep(world, objects)
    [key] = bucket.names()
    bucket.overwrite(key, OTHER)
    assert await objects.fetch(world.tenant, pointer) == VALUE
    bucket.client.delete_object(Bucket=bucket.name, Key=key)
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
async def test_what_is_doomed_leaves_the_bucket_and_what_is_kept_stays(
    world: World, objects: Objects, bucket: SharedBucket
) -> None:
    doomed, kept = await stage_and_keep(world, objects), await stage_and_keep(world, objects, OTHER)
    await world.app.database.write(Scope(world.tenant), lambda tx: SqlObjectIndex(tx).doom(doomed.object))
    await sweep_objects(objects)
    assert await objects.fetch(world.tenant, doomed) == VALUE
    world.clock.advance(minutes=5)
    await sweep_objects(objects)
    assert [key.rpartition("/")[2] for key in bucket.names()] == [kept.sha256]
    assert [state for state, _ in await index(world)] == ["kept"]
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, doomed)
    await stage_and_keep(world, objects)
    assert await objects.fetch(world.tenant, doomed) == VALUE


@pytest.mark.req("CE-F4")
async def test_an_answer_that_is_lost_costs_nothing_but_a_repetition(
    world: World, objects: Objects, bucket: SharedBucket, line: Line
) -> None:
    line.mishaps.append(lose_the_answer)
    pointer = await stage_and_keep(world, objects)
    assert line.requests == ["PUT", "PUT"]
    [key] = bucket.names()
    # The bucket holds the value twice under one name; the version that was acknowledged is the one that counts.
    assert len(bucket.versions(key)) == 2
    assert await stored_version(world, pointer) in bucket.versions(key)
    line.mishaps.append(lose_the_answer)
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
async def test_an_answer_to_a_removal_that_is_lost_is_a_removal(
    world: World, objects: Objects, bucket: SharedBucket, line: Line
) -> None:
    await objects.stage(world.tenant, "planner", [VALUE])
    world.clock.advance(hours=1)
    line.mishaps.append(lose_the_answer)
    await sweep_objects(objects)
    world.clock.advance(minutes=5)
    await sweep_objects(objects)
    assert (bucket.names(), await index(world)) == ([], [])


@pytest.mark.parametrize("mishap", [lose_the_request, fail])
async def test_a_short_trouble_goes_unnoticed(world: World, objects: Objects, line: Line, mishap: Mishap) -> None:
    line.mishaps += [mishap, mishap]
    pointer = await stage_and_keep(world, objects)
    line.mishaps += [mishap]
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("mishap", [lose_the_request, lose_the_answer, fail])
async def test_a_persistent_failure_is_reported_and_nothing_counts_as_stored(
    world: World, objects: Objects, line: Line, bucket: SharedBucket, mishap: Mishap
) -> None:
    line.always = mishap
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await objects.stage(world.tenant, "planner", [VALUE])
    assert await index(world) == [("pending", None)]
    line.always = None
    world.clock.advance(hours=1)
    await sweep_objects(objects)
    assert (bucket.names(), await index(world)) == ([], [])


@pytest.mark.req("CE-F4")
async def test_a_bucket_timeout_is_reported(world: World, objects: Objects, bucket: SharedBucket, line: Line) -> None:
    pointer = await stage_and_keep(world, objects)
    line.always = wait_until_the_end(line)
    hasty = Objects(world.app.database, impatient(bucket, line.address), world.clock)
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await hasty.stage(world.tenant, "planner", [OTHER])
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await hasty.fetch(world.tenant, pointer)
    assert sorted(state for state, _ in await index(world)) == ["kept", "pending"]


@pytest.mark.req("CE-F4")
async def test_an_unreachable_service_is_reported(world: World, bucket: SharedBucket) -> None:
    store = impatient(bucket, "http://127.0.0.1:9")
    with refused("OBJECT_STORAGE_UNAVAILABLE") as caught:
        await Objects(world.app.database, store, world.clock).stage(world.tenant, "planner", [VALUE])
    assert "127.0.0.1" not in caught.value.message
    assert await index(world) == [("pending", None)]
    world.clock.advance(hours=1)
    await sweep_objects(Objects(world.app.database, store, world.clock))
    assert await index(world) == [("deleting", None)]


async def test_a_missing_bucket_is_reported_and_not_treated_as_empty(s3: str) -> None:
    store = Bucket("no-such-bucket", prefix="", endpoint=s3, region=REGION, versioned=False, timeout_seconds=5)
    for work in (store.put("a", VALUE), store.get("a", None, 1), store.delete("a")):
        with refused("OBJECT_STORAGE_UNAVAILABLE") as caught:
            await work
        assert caught.value.message == "There is no bucket 'no-such-bucket'."


@pytest.mark.req("CE-F4")
async def test_wrong_bytes_are_never_returned(world: World, objects: Objects, line: Line) -> None:
    pointer = await stage_and_keep(world, objects)
    line.mishaps.append(flip_a_byte)
    with refused("OBJECT_DAMAGED"):
        await objects.fetch(world.tenant, pointer)
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("content", [OTHER, OTHER + b"!", b""])
async def test_a_value_overwritten_in_a_bucket_without_versions_is_damaged(
    world: World, bucket: SharedBucket, s3: str, content: bytes
) -> None:
    bucket.set_versioning("Suspended")
    store = Bucket(bucket.name, prefix="", endpoint=s3, region=REGION, versioned=False, timeout_seconds=20)
    objects = Objects(world.app.database, store, world.clock)
    pointer = await stage_and_keep(world, objects)
    assert (await stored_version(world, pointer), await objects.fetch(world.tenant, pointer)) == (None, VALUE)
    bucket.overwrite(bucket.names()[0], content)
    with refused("OBJECT_DAMAGED"):
        await objects.fetch(world.tenant, pointer)


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("mishap", [without_version, version_called_null])
async def test_where_versions_are_required_an_answer_without_one_is_refused(
    world: World, objects: Objects, line: Line, mishap: Mishap
) -> None:
    line.always = mishap
    with refused("OBJECT_STORAGE_UNAVAILABLE") as caught:
        await objects.stage(world.tenant, "planner", [VALUE])
    assert "WEFT_OBJECT_STORE_VERSIONING" in caught.value.message
    assert await index(world) == [("pending", None)]


async def test_the_doctor_tries_the_bucket_and_its_versions(
    settings_of_bucket: Settings, bucket: SharedBucket, line: Line
) -> None:
    finding = await check_objects(settings_of_bucket)
    assert (finding.state, finding.detail.endswith("with versions"), bucket.names()) == (CheckStatus.OK, True, [])
    line.always = without_version
    assert "WEFT_OBJECT_STORE_VERSIONING=off" in (await check_objects(settings_of_bucket)).next_step
    line.always = None
    line.mishaps += [None, flip_a_byte]
    assert (await check_objects(settings_of_bucket)).state is CheckStatus.PROBLEM


async def test_the_doctor_does_not_wait_for_a_bucket_for_long(
    settings_of_bucket: Settings, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.app.diagnostics.checks._TIMEOUT_SECONDS", 0.2)
    line.always = wait_until_the_end(line)
    finding = await check_objects(settings_of_bucket)
    assert (finding.state, finding.detail.endswith("does not answer")) == (CheckStatus.PROBLEM, True)
