"""Object storage in an S3 bucket: durability and error reporting."""

from __future__ import annotations

import http.client
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from support.jobs import sweep_objects
from support.s3 import CREDENTIALS, REGION, SharedBucket, new_bucket, s3_service
from support.world import World, refused
from weftline.app.diagnostics.checks import CheckStatus, check_objects
from weftline.app.objects import Objects
from weftline.history.object_storage import ObjectIndex, Pointer, keep_staged
from weftline.providers import object_storage
from weftline.providers.object_storage import Bucket, S3Location, connect_objects, turn_on_versioning
from weftline.settings import Settings
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUE = b"a value too large for the database" * 1_000
OTHER = b"other bytes, as many as before!!!!" * 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the S3 service."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


# Gets a function that forwards the request; returns the response, or None to close the connection.
Fault = Callable[[Callable[[], Answer]], Answer | None]


@dataclass(slots=True)
class FaultyProxy:
    """A proxy to the S3 service that applies faults to requests in order."""

    upstream: str
    address: str = ""
    requests: list[str] = field(default_factory=list)
    faults: deque[Fault | None] = field(default_factory=deque)
    always: Fault | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    # Refuses requests about the bucket itself: their method, and the status of the response.
    about_bucket: tuple[str, int] | None = None

    def next_fault(self) -> Fault | None:
        return self.faults.popleft() if self.faults else self.always


def drop_response(forward: Callable[[], Answer]) -> Answer | None:
    forward()
    return None


def drop_request(_: Callable[[], Answer]) -> Answer | None:
    return None


def fail(_: Callable[[], Answer]) -> Answer | None:
    return Answer(503, [("Content-Length", "0")], b"")


def refuse(status: int) -> Fault:
    return lambda _: Answer(status, [("Content-Length", "0")], b"")


def without_version(forward: Callable[[], Answer]) -> Answer:
    answer = forward()
    headers = [header for header in answer.headers if header[0].lower() != "x-amz-version-id"]
    return Answer(answer.status, headers, answer.body)


def with_null_version(forward: Callable[[], Answer]) -> Answer:
    answer = without_version(forward)
    return Answer(answer.status, [*answer.headers, ("x-amz-version-id", "null")], answer.body)


def flip_a_byte(forward: Callable[[], Answer]) -> Answer:
    answer = forward()
    return Answer(answer.status, answer.headers, bytes([answer.body[0] ^ 1]) + answer.body[1:])


@contextmanager
def proxy_to(upstream: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def relay(self) -> None:
            proxy.requests.append(self.command)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.next_fault()
            if proxy.about_bucket and proxy.about_bucket[0] == self.command and "versioning" in self.path:
                fault = refuse(proxy.about_bucket[1])
            forward = _forwarding(proxy.upstream, self, body)
            answer = forward() if fault is None else fault(forward)
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
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closed.set()
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
    """Return the URL of a local S3 service."""
    with s3_service() as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(s3: str) -> Iterator[SharedBucket]:
    """Return a new bucket with versioning."""
    with new_bucket(s3) as bucket:
        yield bucket


@pytest.fixture
def proxy(s3: str) -> Iterator[FaultyProxy]:
    with proxy_to(s3) as proxy:
        yield proxy


@pytest.fixture
def settings_of_bucket(bucket: SharedBucket, proxy: FaultyProxy) -> Settings:
    return Settings(
        object_store_url=f"s3://{bucket.name}/some/prefix",
        object_store_endpoint=proxy.address,
        object_store_region=REGION,
        object_store_versioning="required",
        object_store_timeout_seconds=20,
    )


@pytest.fixture
def objects(world: World, settings_of_bucket: Settings) -> Objects:
    return Objects(world.app.database, connect_objects(settings_of_bucket), world.clock)


def bucket_with_short_timeout(bucket: SharedBucket, endpoint: str) -> Bucket:
    return Bucket(bucket.name, prefix="", endpoint=endpoint, region=REGION, versioning="required", timeout_seconds=0.5)


def wait_until_closed(proxy: FaultyProxy) -> Fault:
    def wait(_: Callable[[], Answer]) -> Answer | None:
        proxy.closed.wait(60)
        return None

    return wait


async def stage_and_keep(world: World, objects: Objects, content: bytes = VALUE) -> Pointer:
    await objects.stage(world.tenant, "planner", [content])
    pointer = Pointer.to(world.tenant, "planner", content)
    await world.app.database.write(Scope(world.tenant), lambda tx: keep_staged([pointer], ObjectIndex(tx)))
    return pointer


async def stored_version(world: World, pointer: Pointer) -> str | None:
    found = await world.app.database.read(Scope(world.tenant), lambda tx: ObjectIndex(tx).find(pointer.object))
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
async def test_a_large_value_is_one_upload(world: World, objects: Objects, proxy: FaultyProxy) -> None:
    content = secrets.token_bytes(12_000_000)
    pointer = await stage_and_keep(world, objects, content)
    assert proxy.requests == ["PUT"]
    assert await objects.fetch(world.tenant, pointer) == content


@pytest.mark.req("CE-F4")
async def test_an_overwritten_or_deleted_value_is_read_by_its_version(
    world: World, objects: Objects, bucket: SharedBucket
) -> None:
    pointer = await stage_and_keep(world, objects)
    [key] = bucket.names()
    bucket.overwrite(key, OTHER)
    assert await objects.fetch(world.tenant, pointer) == VALUE
    bucket.client.delete_object(Bucket=bucket.name, Key=key)
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
async def test_dropped_objects_are_deleted_and_kept_ones_stay(
    world: World, objects: Objects, bucket: SharedBucket
) -> None:
    dropped, kept = await stage_and_keep(world, objects), await stage_and_keep(world, objects, OTHER)
    await world.app.database.write(Scope(world.tenant), lambda tx: ObjectIndex(tx).doom(dropped.object))
    await sweep_objects(objects)
    assert await objects.fetch(world.tenant, dropped) == VALUE
    world.clock.advance(minutes=5)
    await sweep_objects(objects)
    assert [key.rpartition("/")[2] for key in bucket.names()] == [kept.sha256]
    assert [state for state, _ in await index(world)] == ["kept"]
    with refused("OBJECT_MISSING"):
        await objects.fetch(world.tenant, dropped)
    await stage_and_keep(world, objects)
    assert await objects.fetch(world.tenant, dropped) == VALUE


@pytest.mark.req("CE-F4")
async def test_a_lost_upload_response_is_retried(
    world: World, objects: Objects, bucket: SharedBucket, proxy: FaultyProxy
) -> None:
    proxy.faults.append(drop_response)
    pointer = await stage_and_keep(world, objects)
    assert proxy.requests == ["PUT", "PUT"]
    [key] = bucket.names()
    # The bucket has two versions of the value; the index refers to the acknowledged one.
    assert len(bucket.versions(key)) == 2
    assert await stored_version(world, pointer) in bucket.versions(key)
    proxy.faults.append(drop_response)
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
async def test_a_lost_delete_response_is_retried(
    world: World, objects: Objects, bucket: SharedBucket, proxy: FaultyProxy
) -> None:
    await objects.stage(world.tenant, "planner", [VALUE])
    world.clock.advance(hours=1)
    proxy.faults.append(drop_response)
    await sweep_objects(objects)
    world.clock.advance(minutes=5)
    await sweep_objects(objects)
    assert (bucket.names(), await index(world)) == ([], [])


@pytest.mark.parametrize("fault", [drop_request, fail])
async def test_a_transient_failure_is_retried(world: World, objects: Objects, proxy: FaultyProxy, fault: Fault) -> None:
    proxy.faults += [fault, fault]
    pointer = await stage_and_keep(world, objects)
    proxy.faults += [fault]
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("fault", [drop_request, drop_response, fail])
async def test_a_persistent_failure_is_reported_and_nothing_counts_as_stored(
    world: World, objects: Objects, proxy: FaultyProxy, bucket: SharedBucket, fault: Fault
) -> None:
    proxy.always = fault
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await objects.stage(world.tenant, "planner", [VALUE])
    assert await index(world) == [("pending", None)]
    proxy.always = None
    world.clock.advance(hours=1)
    await sweep_objects(objects)
    assert (bucket.names(), await index(world)) == ([], [])


@pytest.mark.req("CE-F4")
async def test_a_bucket_timeout_is_reported(
    world: World, objects: Objects, bucket: SharedBucket, proxy: FaultyProxy
) -> None:
    pointer = await stage_and_keep(world, objects)
    proxy.always = wait_until_closed(proxy)
    hasty = Objects(world.app.database, bucket_with_short_timeout(bucket, proxy.address), world.clock)
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await hasty.stage(world.tenant, "planner", [OTHER])
    with refused("OBJECT_STORAGE_UNAVAILABLE"):
        await hasty.fetch(world.tenant, pointer)
    assert sorted(state for state, _ in await index(world)) == ["kept", "pending"]


@pytest.mark.req("CE-F4")
async def test_an_unreachable_service_is_reported(world: World, bucket: SharedBucket) -> None:
    store = bucket_with_short_timeout(bucket, "http://127.0.0.1:9")
    with refused("OBJECT_STORAGE_UNAVAILABLE") as caught:
        await Objects(world.app.database, store, world.clock).stage(world.tenant, "planner", [VALUE])
    assert "127.0.0.1" not in caught.value.message
    assert await index(world) == [("pending", None)]
    world.clock.advance(hours=1)
    await sweep_objects(Objects(world.app.database, store, world.clock))
    assert await index(world) == [("deleting", None)]


async def test_a_missing_bucket_is_reported_and_not_treated_as_empty(s3: str) -> None:
    store = Bucket("no-such-bucket", prefix="", endpoint=s3, region=REGION, versioning="off", timeout_seconds=5)
    for work in (store.put("a", VALUE), store.get("a", None, 1), store.delete("a")):
        with refused("OBJECT_STORAGE_UNAVAILABLE") as caught:
            await work
        assert caught.value.message == "There is no bucket 'no-such-bucket'."


@pytest.mark.req("CE-F4")
async def test_wrong_bytes_are_never_returned(world: World, objects: Objects, proxy: FaultyProxy) -> None:
    pointer = await stage_and_keep(world, objects)
    proxy.faults.append(flip_a_byte)
    with refused("OBJECT_DAMAGED"):
        await objects.fetch(world.tenant, pointer)
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("content", [OTHER, OTHER + b"!", b""])
async def test_a_value_overwritten_in_a_bucket_without_versions_is_damaged(
    world: World, bucket: SharedBucket, s3: str, content: bytes
) -> None:
    bucket.set_versioning("Suspended")
    store = Bucket(bucket.name, prefix="", endpoint=s3, region=REGION, versioning="off", timeout_seconds=20)
    objects = Objects(world.app.database, store, world.clock)
    pointer = await stage_and_keep(world, objects)
    assert (await stored_version(world, pointer), await objects.fetch(world.tenant, pointer)) == (None, VALUE)
    bucket.overwrite(bucket.names()[0], content)
    with refused("OBJECT_DAMAGED"):
        await objects.fetch(world.tenant, pointer)


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize("fault", [without_version, with_null_version])
async def test_a_response_without_a_required_version_is_refused(
    world: World, objects: Objects, proxy: FaultyProxy, fault: Fault
) -> None:
    proxy.always = fault
    with refused("OBJECT_STORAGE_UNAVAILABLE") as caught:
        await objects.stage(world.tenant, "planner", [VALUE])
    assert "WEFTLINE_OBJECT_STORE_VERSIONING" in caught.value.message
    assert await index(world) == [("pending", None)]


async def test_the_doctor_checks_the_bucket_and_its_versioning(
    settings_of_bucket: Settings, bucket: SharedBucket, proxy: FaultyProxy
) -> None:
    finding = await check_objects(settings_of_bucket)
    assert (finding.state, finding.detail.endswith("with versions"), bucket.names()) == (CheckStatus.OK, True, [])
    proxy.always = without_version
    assert "WEFTLINE_OBJECT_STORE_VERSIONING=off" in (await check_objects(settings_of_bucket)).next_step
    proxy.always = None
    proxy.faults += [None, flip_a_byte]
    assert (await check_objects(settings_of_bucket)).state is CheckStatus.PROBLEM


@pytest.fixture
def unversioned(bucket: SharedBucket) -> SharedBucket:
    """Return a new bucket whose versioning was never turned on."""
    name = f"{bucket.name}-new"
    bucket.client.create_bucket(Bucket=name)
    return SharedBucket(name, bucket.client)


@pytest.fixture
def default_settings(unversioned: SharedBucket, settings_of_bucket: Settings) -> Settings:
    """Return settings for that bucket that do not mention versioning."""
    return replace(
        settings_of_bucket,
        object_store_url=f"s3://{unversioned.name}/some/prefix",
        object_store_versioning=Settings().object_store_versioning,
    )


def versioning(bucket: SharedBucket) -> str | None:
    status: str | None = bucket.client.get_bucket_versioning(Bucket=bucket.name).get("Status")
    return status


@pytest.mark.req("CE-F4")
async def test_versioning_is_turned_on_by_the_first_upload(
    world: World, unversioned: SharedBucket, default_settings: Settings
) -> None:
    objects = Objects(world.app.database, connect_objects(default_settings), world.clock)
    assert versioning(unversioned) is None
    pointer = await stage_and_keep(world, objects)
    assert versioning(unversioned) == "Enabled"
    assert await stored_version(world, pointer) in unversioned.versions(unversioned.names()[0])
    unversioned.overwrite(unversioned.names()[0], OTHER)
    assert await objects.fetch(world.tenant, pointer) == VALUE


@pytest.mark.req("CE-F4")
async def test_versioning_that_is_off_leaves_the_bucket_as_it_is(
    world: World, unversioned: SharedBucket, default_settings: Settings
) -> None:
    settings = replace(default_settings, object_store_versioning="off")
    await stage_and_keep(world, Objects(world.app.database, connect_objects(settings), world.clock))
    assert versioning(unversioned) is None
    finding = await check_objects(settings)
    assert (finding.state, finding.detail.endswith("WEFTLINE_OBJECT_STORE_VERSIONING is off")) == (CheckStatus.OK, True)


@pytest.mark.req("CE-F4")
async def test_a_bucket_whose_owner_suspended_versioning_is_used_and_the_doctor_says_so(
    world: World, unversioned: SharedBucket, default_settings: Settings, proxy: FaultyProxy
) -> None:
    unversioned.set_versioning("Suspended")
    objects = Objects(world.app.database, connect_objects(default_settings), world.clock)
    first = await stage_and_keep(world, objects)
    await stage_and_keep(world, objects, OTHER)
    assert (versioning(unversioned), await stored_version(world, first)) == ("Suspended", None)
    assert await objects.fetch(world.tenant, first) == VALUE
    # It asks about versioning once, not for every upload.
    assert proxy.requests == ["PUT", "GET", "PUT", "GET"]
    finding = await check_objects(default_settings)
    assert finding.state is CheckStatus.WARNING
    assert finding.detail.endswith("without versions: its owner suspended it")


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize(
    ("method", "status", "reason"),
    [
        ("GET", 403, "the credentials do not allow s3:GetBucketVersioning"),
        ("PUT", 403, "the credentials do not allow s3:PutBucketVersioning"),
        ("PUT", 501, "the service does not support it (status 501)"),
    ],
)
async def test_the_reason_is_given_where_versioning_cannot_be_turned_on(
    unversioned: SharedBucket, default_settings: Settings, proxy: FaultyProxy, method: str, status: int, reason: str
) -> None:
    proxy.about_bucket = (method, status)
    finding = await check_objects(default_settings)
    assert (finding.state, finding.detail.partition("without versions: ")[2]) == (CheckStatus.WARNING, reason)
    finding = await check_objects(replace(default_settings, object_store_versioning="required"))
    assert (finding.state, reason in finding.detail) == (CheckStatus.PROBLEM, True)
    assert versioning(unversioned) is None


@pytest.mark.req("CE-F4")
async def test_without_keys_in_the_environment_versioning_is_not_turned_on(
    unversioned: SharedBucket, default_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = S3Location(unversioned.name, default_settings.object_store_endpoint, REGION)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "AWS_ACCESS_KEY_ID" in (await turn_on_versioning(location, 5)).reason


@pytest.mark.req("CE-F4")
@pytest.mark.parametrize(("method", "body"), [("GET", b""), ("PUT", b"<Status>Enabled</Status>")])
@pytest.mark.parametrize("token", [None, "a-token"])
def test_requests_about_a_bucket_are_signed_as_by_amazon_s_own_library(
    method: str, body: bytes, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    location, at = S3Location("a-bucket", "", "eu-central-1"), datetime(2026, 5, 24, 1, 2, 3, tzinfo=UTC)
    headers = object_storage._signed_headers(location, method, body, at)
    given = {name: value for name, value in headers.items() if name not in {"authorization", "host"}}
    request = AWSRequest(method, f"{location.url}?versioning=", data=body, headers=given)
    request.context["timestamp"] = given["x-amz-date"]
    signer = S3SigV4Auth(Credentials(*CREDENTIALS.values(), token), "s3", "eu-central-1")
    canonical = signer.string_to_sign(request, signer.canonical_request(request))
    assert headers["authorization"].endswith(f"Signature={signer.signature(canonical, request)}")


async def test_the_doctor_s_bucket_check_times_out(
    settings_of_bucket: Settings, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.app.diagnostics.checks._TIMEOUT_SECONDS", 0.2)
    proxy.always = wait_until_closed(proxy)
    finding = await check_objects(settings_of_bucket)
    assert (finding.state, finding.detail.endswith("does not answer")) == (CheckStatus.PROBLEM, True)
