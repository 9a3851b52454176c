"""Object stores: a private folder by default, or an S3 bucket through obstore."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args
from urllib.parse import quote, urlsplit

import httpx2

from weftline.history.object_storage import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable
from weftline.kernel.errors import DiskFull
from weftline.kernel.thread_pools import SHORT_THREADS
from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import S3Config, S3Store

    from weftline.history.object_storage import ObjectStore
    from weftline.settings import Settings


# Versioning of an S3 bucket: whether it is on, and turning it on.
#
# Signed here with AWS Signature Version 4, because obstore has no requests about buckets.

_STATUS = re.compile(rb"<Status>\s*(\w+)\s*</Status>")
_QUERY = "versioning="
_ENABLED = (
    b'<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Status>Enabled</Status></VersioningConfiguration>"
)
_MAX_ANSWER_BYTES = 10_000
_OK = 200
_REFUSED = frozenset({401, 403})


class VersioningState(NamedTuple):
    """Whether a bucket now keeps versions, whether this call turned that on, and otherwise why not."""

    on: bool
    switched_on: bool = False
    reason: str = ""


class S3Location(NamedTuple):
    """A bucket and the service that has it; an empty endpoint is Amazon's, an empty region AWS_REGION."""

    bucket: str
    endpoint: str
    region: str

    @property
    def signed_region(self) -> str:
        names = ("AWS_REGION", "AWS_DEFAULT_REGION")
        return self.region or next((os.environ[name] for name in names if os.environ.get(name)), "us-east-1")

    @property
    def url(self) -> str:
        endpoint = self.endpoint or f"https://s3.{self.signed_region}.amazonaws.com"
        return f"{endpoint.rstrip('/')}/{quote(self.bucket)}"


async def turn_on_versioning(where: S3Location, timeout_seconds: float) -> VersioningState:
    """Turn versioning on for a bucket that never had it. One whose owner suspended it is left as it is."""
    if not (os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY")):
        return VersioningState(on=False, reason="only credentials from AWS_ACCESS_KEY_ID can turn it on")
    try:
        async with httpx2.AsyncClient(timeout=timeout_seconds, follow_redirects=False) as http:
            asked = await _send(http, where, "GET")
            if asked.status_code != _OK:
                return VersioningState(on=False, reason=_refusal(asked.status_code, "s3:GetBucketVersioning"))
            found = _STATUS.search(asked.content[:_MAX_ANSWER_BYTES])
            if found is not None:
                return _present_state(found[1])
            answer = await _send(http, where, "PUT", _ENABLED)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return VersioningState(on=False, reason=f"the service did not answer ({type(error).__name__})")
    if answer.status_code != _OK:
        return VersioningState(on=False, reason=_refusal(answer.status_code, "s3:PutBucketVersioning"))
    return VersioningState(on=True, switched_on=True)


def _present_state(status: bytes) -> VersioningState:
    if status == b"Enabled":
        return VersioningState(on=True)
    return VersioningState(on=False, reason="its owner suspended it")


def _refusal(status: int, permission: str) -> str:
    if status in _REFUSED:
        return f"the credentials do not allow {permission}"
    return f"the service does not support it (status {status})"


async def _send(
    http: httpx2.AsyncClient, where: S3Location, method: Literal["GET", "PUT"], body: bytes = b""
) -> httpx2.Response:
    headers = _signed_headers(where, method, body, datetime.now(UTC))
    return await http.request(method, f"{where.url}?{_QUERY}", headers=headers, content=body)


def _signed_headers(where: S3Location, method: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of a request with its signature."""
    at, digest, url = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest(), urlsplit(where.url)
    headers = {"host": url.netloc, "x-amz-content-sha256": digest, "x-amz-date": at}
    if body:
        headers["content-md5"] = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    if os.environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = os.environ["AWS_SESSION_TOKEN"]
    return {**headers, "authorization": _authorization(where, method, url.path, headers, at)}


def _authorization(where: S3Location, method: str, path: str, headers: Mapping[str, str], at: str) -> str:
    names = ";".join(sorted(headers))
    listed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join([method, path, _QUERY, listed, names, headers["x-amz-content-sha256"]])
    scope = f"{at[:8]}/{where.signed_region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    return f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"


# on: with versions where the bucket can; required: only with versions; off: the bucket stays as it is.
Versioning = Literal["on", "required", "off"]
_log = logging.getLogger("weftline.objects")
# No tenant name begins with a dot.
_INCOMING = ".incoming"
_ABANDONED_SECONDS = 3_600
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_RETRIES = 3
# Windows would translate line endings without it.
_BINARY = getattr(os, "O_BINARY", 0)
# How long a bucket without versions is used before Weftline tries again to turn them on.
_VERSIONING_RETRY_SECONDS = 900.0
# An upload must end before its grace period does.
_MAX_TIMEOUT_SECONDS = 120


def connect_objects(settings: Settings) -> ObjectStore:
    """Return the configured store, without connecting to it."""
    versioning = settings.object_store_versioning
    if versioning not in get_args(Versioning):
        raise InvalidSetting(f"WEFTLINE_OBJECT_STORE_VERSIONING: '{versioning}' is none of on, off and required.")
    if settings.object_store_url:
        return _bucket(settings, cast("Versioning", versioning))
    if versioning == "required":
        raise InvalidSetting(
            "WEFTLINE_OBJECT_STORE_VERSIONING: a folder has no object versions, but keeps every value as a file of its "
            "own; name a bucket, or leave it on."
        )
    return ObjectFolder(settings.object_store_folder)


def _bucket(settings: Settings, versioning: Versioning) -> Bucket:
    where = urlsplit(settings.object_store_url)
    if where.scheme != "s3" or not where.netloc:
        raise InvalidSetting(
            f"WEFTLINE_OBJECT_STORE_URL: '{settings.object_store_url}' is not s3://BUCKET or s3://BUCKET/PREFIX."
        )
    if not 1 <= settings.object_store_timeout_seconds <= _MAX_TIMEOUT_SECONDS:
        raise InvalidSetting(f"WEFTLINE_OBJECT_STORE_TIMEOUT_SECONDS: choose from 1 to {_MAX_TIMEOUT_SECONDS}.")
    return Bucket(
        where.netloc,
        prefix=where.path.strip("/"),
        endpoint=settings.object_store_endpoint,
        region=settings.object_store_region,
        versioning=versioning,
        timeout_seconds=settings.object_store_timeout_seconds,
    )


class ObjectFolder:
    """Objects as files in a folder with mode 0700. Paths contain the hash of the value, so each value has its own file.

    Written here and not by obstore's LocalStore, whose put returns before anything is on disk: it renames without an
    fsync of file or folder, and lets others read what it makes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._durable: set[Path] = set()

    async def put(self, path: str, content: bytes) -> str | None:
        await SHORT_THREADS.run(self._put, self._file(path), content)
        return None

    async def get(self, path: str, version: str | None, size: int) -> bytes:
        del version  # a folder has none
        return await SHORT_THREADS.run(self._get, self._file(path), size)

    async def delete(self, path: str) -> None:
        await SHORT_THREADS.run(self._delete, self._file(path))

    def _file(self, path: str) -> Path:
        # Some file systems ignore case, and would mix up the files of two agents.
        return self._folder / re.sub("[A-Z]", lambda letter: f"^{letter[0].lower()}", path)

    def _put(self, file: Path, content: bytes) -> None:
        part = self._folder / _INCOMING / secrets.token_hex(16)
        with _translate_disk_errors():
            self._make_private(part.parent)
            self._make_private(file.parent)
            _remove_abandoned(part.parent)
            try:
                _write_durably(part, content)
                part.replace(file)
            except OSError:
                part.unlink(missing_ok=True)
                raise
            _sync_folder(file.parent)

    def _get(self, file: Path, size: int) -> bytes:
        with _translate_disk_errors():
            try:
                with file.open("rb") as opened:
                    _check_size(os.fstat(opened.fileno()).st_size, size)
                    return opened.read()
            except FileNotFoundError as error:
                raise ObjectMissing from error

    def _delete(self, file: Path) -> None:
        with _translate_disk_errors(), suppress(FileNotFoundError):
            file.unlink()
            _sync_folder(file.parent)

    def _make_private(self, folder: Path) -> None:
        """Create a folder and its parents durably."""
        ours = folder.is_relative_to(self._folder)
        # A parent that another process just created may not be on disk yet.
        if folder.is_dir() and (folder in self._durable or not ours):
            return
        self._make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(folder.parent)
        self._durable.add(folder)


class Bucket:
    """Objects in an S3 bucket, with versions unless ``versioning`` is off.

    An upload that gets no version turns versioning on for the bucket. Where that is not possible, ``no_versions`` is
    the reason, and uploads go on without, or fail if ``versioning`` is required. A bucket with versions keeps old
    versions of deleted objects for as long as its lifecycle rules define.
    """

    def __init__(
        self, bucket: str, *, prefix: str, endpoint: str, region: str, versioning: Versioning, timeout_seconds: float
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._endpoint = endpoint
        self._region = region
        self._versioning = versioning
        self._timeout_seconds = timeout_seconds
        self._retry_at = 0.0
        self.no_versions = ""

    async def put(self, path: str, content: bytes) -> str | None:
        version = await self._upload(path, content)
        if version is None and self._versioning != "off" and await self._turn_on_versioning():
            version = await self._upload(path, content)
        if version is not None:
            self.no_versions = ""
        elif self._versioning == "required":
            raise ObjectStorageUnavailable(
                f"The bucket '{self._bucket}' keeps no versions ({self.no_versions}), though "
                "WEFTLINE_OBJECT_STORE_VERSIONING requires them.",
                hint=(
                    "Turn versioning on for the bucket, or set "
                    "WEFTLINE_OBJECT_STORE_VERSIONING=off; nothing was changed."
                ),
            )
        return version

    async def _upload(self, path: str, content: bytes) -> str | None:
        with self._translate_errors():
            async with asyncio.timeout(self._timeout_seconds):
                # In one request, so that an aborted upload leaves no parts in the bucket.
                stored = await self._store.put_async(path, content, use_multipart=False)
        # A bucket with suspended versioning returns "null" for every version.
        return stored["version"] if stored["version"] != "null" else None

    async def _turn_on_versioning(self) -> bool:
        """Turn versioning on; return whether it was turned on now. Tried again from time to time."""
        if time.monotonic() < self._retry_at:
            return False
        self._retry_at = time.monotonic() + _VERSIONING_RETRY_SECONDS
        state = await turn_on_versioning(S3Location(self._bucket, self._endpoint, self._region), self._timeout_seconds)
        # Right after it was turned on, Amazon may take some minutes until uploads get versions.
        self.no_versions = "uploads get no version yet" if state.on else state.reason
        fields = {"bucket": self._bucket, "reason": self.no_versions}
        if state.switched_on:
            _log.warning("versioning of the bucket turned on", extra={"fields": {"bucket": self._bucket}})
        else:
            _log.warning("large values have no versions", extra={"fields": fields})
        return state.switched_on

    async def get(self, path: str, version: str | None, size: int) -> bytes:
        try:
            with self._translate_errors():
                async with asyncio.timeout(self._timeout_seconds):
                    found = await self._store.get_async(path, options={"version": version} if version else None)
                    _check_size(found.meta["size"], size)
                    return bytes(await found.bytes_async())
        except FileNotFoundError as error:
            raise ObjectMissing from error

    async def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), self._translate_errors():
            async with asyncio.timeout(self._timeout_seconds):
                await self._store.delete_async(path)

    @cached_property
    def _store(self) -> S3Store:
        from obstore.store import S3Store  # noqa: PLC0415 - only if it is used

        timeout = timedelta(seconds=self._timeout_seconds)
        # Not all S3 services support bulk delete; credentials come from AWS_* variables.
        config: S3Config = {"disable_bulk_delete": True}
        if self._endpoint:
            config["endpoint"] = self._endpoint
        if self._region:
            config["region"] = self._region
        return S3Store(
            self._bucket,
            prefix=self._prefix or None,
            config=config,
            client_options={"timeout": timeout, "allow_http": self._endpoint.startswith("http://")},
            retry_config={"max_retries": _RETRIES, "retry_timeout": timeout},
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate obstore's exceptions, except for a missing object."""
        from obstore.exceptions import BaseError  # noqa: PLC0415 - only if it is used

        try:
            yield
        except TimeoutError as error:
            message = f"The bucket '{self._bucket}' did not answer within {self._timeout_seconds} seconds."
            raise ObjectStorageUnavailable(message) from error
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise ObjectStorageUnavailable(f"There is no bucket '{self._bucket}'.") from error
            raise
        except (BaseError, OSError, ValueError) as error:
            message = f"The bucket '{self._bucket}' cannot be used right now ({type(error).__name__})."
            raise ObjectStorageUnavailable(message) from error


def _check_size(found: int, expected: int) -> None:
    """Reject a wrong size before reading it into memory."""
    if found != expected:
        raise ObjectDamaged


def _write_durably(file: Path, content: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode=0o600), "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def _sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk; not possible on Windows."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_abandoned(incoming: Path) -> None:
    """Remove temporary files of processes that died."""
    for part in incoming.iterdir():
        with suppress(FileNotFoundError):
            if part.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                part.unlink()


@contextmanager
def _translate_disk_errors() -> Iterator[None]:
    """Translate OSError."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFull from error
        reason = error.strerror or type(error).__name__
        raise ObjectStorageUnavailable(f"The folder for large values cannot be used: {reason}.") from error
