# Written by scripts/generate.py from _client.py; change that instead.
"""The blocking client: every operation of a Weft server, typed."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from copy import copy
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar, Unpack
from urllib.parse import quote

import httpx2

from weft.capabilities.knowledge.document_operations import DocumentPut, FileTerms
from weft.capabilities.transfer.export import FACTS_HEADER, ContextExported, ExportOptions
from weft.capabilities.transfer.importer import ContextImported
from weft.client._calling import given
from weft.client._sync_operations import SyncOperations
from weft.client._wire import (
    CHUNK_BYTES,
    EXPORT_STREAM,
    IMPORT_STREAM,
    LONG_SECONDS,
    SILENCE_SECONDS,
    UPLOAD,
    Address,
    Outgoing,
    Retries,
    decoded,
    outgoing,
    pause_after,
    query,
    refusal,
    reported,
    stream_target,
    unreachable,
)
from weft.kernel.correlation import UNRELATED, Correlation
from weft.kernel.errors import RateLimited, Unavailable
from weft.kernel.events import Event
from weft.kernel.trace_context import Ids, correlated, headers_of

T = TypeVar("T")


class SyncClient(SyncOperations):
    """A Weft server, reached over HTTP.

    ``url`` and ``api_key`` default to WEFT_URL and WEFT_API_KEY; a token serves as well as an API key.
    Calls that were refused for their rate, and reads that got no answer, are made again up to ``retries`` times.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        retries: int = 2,
        longest_wait_seconds: float = 30.0,
        reconnects: int = 10,
    ) -> None:
        self._connection = _Connection(
            Address.resolve(url, api_key), timeout_seconds, Retries(retries, longest_wait_seconds)
        )
        self._reconnects = reconnects
        super().__init__(self._connection)

    def __repr__(self) -> str:
        return f"SyncClient({self._connection.address.url!r})"

    def during(self, **ids: Unpack[Ids]) -> Self:
        """Return this client for calls that are part of a turn, a task, a trace; all they do can be found by its id.

        Both use the same connections. Where no ``traceparent`` is named, it is the span that OpenTelemetry says is
        current when a call is made.
        """
        client, connection = copy(self), self._connection.within(correlated(ids, self._connection.during))
        client._connection = connection  # noqa: SLF001 - another of this very class
        SyncOperations.__init__(client, connection)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def export_to(self, file: BinaryIO, **what: Unpack[ExportOptions]) -> ContextExported:
        """Export into a file, of whatever size: a session, or what a part of it is about.

        Takes what ``bundle.export`` takes.
        """
        return self._connection.download(outgoing("bundle.export", what), file)

    def import_from(
        self,
        file: BinaryIO,
        *,
        expected_digest: str | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
    ) -> ContextImported:
        """Import a bundle from a file that was opened to read bytes: all of it, or nothing.

        Its session is opened under its own id, or under the ``session_id`` you give it.
        """
        said = given(expected_digest=expected_digest, session_id=session_id, dry_run=dry_run or None)
        return self._connection.upload("POST", f"{IMPORT_STREAM}{query(said)}", file, ContextImported)

    def add_file(self, domain: str, document_id: str, file: BinaryIO, **about: Unpack[FileTerms]) -> DocumentPut:
        """Put a file that was opened to read bytes into a domain, of any kind and size that a document may have.

        Takes what ``knowledge.add_document`` takes beside.
        """
        target = UPLOAD.format(domain=quote(domain, safe=""))
        said = query({**about, "document_id": document_id})
        return self._connection.upload("PUT", f"{target}{said}", file, DocumentPut)

    def follow(
        self,
        session_id: str | None = None,
        keys: Sequence[str] = ("*",),
        after: int | None = None,
        *,
        types: Sequence[str] = ("*",),
        personal: bool = False,
    ) -> Generator[Event, None, None]:
        """Yield events as they happen, in order and without a gap, until you stop.

        Begins behind the seq ``after``, or with what happens from the first step on. A lost connection is taken up
        again where it broke off; an error that repeating cannot cure is raised.
        """
        if after is None:
            # Known before the stream begins, so that a connection lost before the first event loses none.
            present = self.events.read(session_id=session_id, keys=keys, types=types, personal=personal)
            after = present.next_after
        wanted = {"session_id": session_id, "keys": keys, "types": types, "personal": personal}
        failures = 0
        while True:
            pause = pause_after(failures)
            try:
                with closing(self._connection.stream(stream_target(wanted, after))) as stream:
                    for event in stream:
                        failures = 0
                        if event is not None:
                            after = event.seq
                            yield event
            except Unavailable as error:
                failures += 1
                if failures > self._reconnects:
                    raise
                if isinstance(error, RateLimited):
                    pause = float(error.context.get("retry_after_seconds", pause))
            time.sleep(pause)


class _Connection:
    """Carries calls over HTTP."""

    def __init__(self, address: Address, timeout_seconds: float, retries: Retries) -> None:
        self.address = address
        self.during = UNRELATED
        self._timeout_seconds = timeout_seconds
        self._retries = retries
        self._http = httpx2.Client(
            base_url=address.url,
            headers=address.headers,
            # Reading the certificates takes 0.1 s, and no proxy can reach this machine's own loopback.
            verify=address.secure,
            trust_env=not address.loopback,
        )

    def within(self, during: Correlation) -> _Connection:
        """Return the same connection for calls that are part of something."""
        connection = copy(self)
        connection.during = during
        return connection

    def close(self) -> None:
        self._http.close()

    def call(self, operation: str, arguments: dict[str, Any], response: type[T], /) -> T:
        """Perform an operation, again if need be."""
        request = outgoing(operation, arguments)
        tried = 0
        while True:
            tried += 1
            try:
                return decoded(self._send(request), response, self.address)
            except Unavailable as error:
                pause = self._retries.pause(request.method, error, tried)
                if pause is None:
                    raise
            time.sleep(pause)

    def stream(self, target: str) -> Generator[Event | None, None, None]:
        """Yield None once the stream stands, then events until it ends."""
        timeout = httpx2.Timeout(self._timeout_seconds, read=SILENCE_SECONDS)
        try:
            with self._http.sse(target, timeout=timeout) as source:
                if not source.response.is_success:
                    raise refusal(source.response, source.response.read())
                yield None
                for message in source:
                    if message.event == "error":
                        raise reported(message.data, self.address)
                    if message.data:
                        yield decoded(message.data, Event, self.address)
        except httpx2.RequestError as error:
            raise unreachable(self.address, error) from error

    def download(self, request: Outgoing, file: BinaryIO) -> ContextExported:
        """Write an export into a file as it comes, and return what it is."""
        headers = {**headers_of(self.during), "Content-Type": "application/json"}
        timeout = httpx2.Timeout(self._timeout_seconds, read=LONG_SECONDS)
        try:
            with self._http.stream(
                "POST", EXPORT_STREAM, content=request.content, headers=headers, timeout=timeout
            ) as reply:
                if not reply.is_success:
                    raise refusal(reply, reply.read())
                for chunk in reply.iter_bytes():
                    file.write(chunk)
                return decoded(reply.headers.get(FACTS_HEADER, ""), ContextExported, self.address)
        except httpx2.RequestError as error:
            raise unreachable(self.address, error) from error

    def upload(self, method: str, target: str, file: BinaryIO, answer: type[T]) -> T:
        """Send a file as it is read, and return what was made of it."""
        timeout = httpx2.Timeout(self._timeout_seconds, read=LONG_SECONDS)
        try:
            reply = self._http.request(
                method, target, content=_chunks(file), headers=headers_of(self.during), timeout=timeout
            )
        except httpx2.RequestError as error:
            raise unreachable(self.address, error) from error
        if not reply.is_success:
            raise refusal(reply, reply.content)
        return decoded(reply.content, answer, self.address)

    def _send(self, request: Outgoing) -> bytes:
        timeout = self._timeout_seconds + request.wait_seconds
        headers = headers_of(self.during)
        if request.content is not None:
            headers["Content-Type"] = "application/json"
        try:
            reply = self._http.request(
                request.method, request.target, content=request.content, headers=headers, timeout=timeout
            )
        except httpx2.RequestError as error:
            raise unreachable(self.address, error) from error
        if not reply.is_success:
            raise refusal(reply, reply.content)
        return reply.content


def _chunks(file: BinaryIO) -> Generator[bytes, None, None]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk
