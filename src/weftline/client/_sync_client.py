# Written by scripts/generate.py from _client.py; change that instead.
"""Blocking client of a Weftline server."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from copy import copy
from typing import TYPE_CHECKING, Any, BinaryIO, Self
from urllib.parse import quote

import httpx2

from weftline.client._calling import given
from weftline.client._operations import SyncOperations
from weftline.client._wire import (
    CHUNK_BYTES,
    EXPORT_STREAM,
    IMPORT_STREAM,
    STREAM_SILENCE_SECONDS,
    TRANSFER_SECONDS,
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
    response_type,
    show_warnings,
    stream_target,
    unreachable,
)
from weftline.kernel.correlation import NO_CORRELATION, make_correlation, trace_headers
from weftline.kernel.errors import RateLimited, ServerBusy, Unavailable
from weftline.kernel.events import Event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Unpack

    from weftline.exchange.transfer.export import ContextExported, ExportOptions
    from weftline.exchange.transfer.importer import ContextImported
    from weftline.kernel.correlation import Correlation, CorrelationIds
    from weftline.knowledge.document_operations import DocumentPut, FileOptions


class SyncClient(SyncOperations):
    """Calls a Weftline server over HTTP.

    ``url`` and ``api_key`` default to WEFTLINE_URL and WEFTLINE_API_KEY; the key may be a token. Calls that exceed a
    rate limit and reads without a response are retried up to ``retries`` times.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        retries: int = 2,
        max_wait_seconds: float = 30.0,
        reconnects: int = 10,
    ) -> None:
        self._connection = _Connection(
            Address.resolve(url, api_key), timeout_seconds, Retries(retries, max_wait_seconds)
        )
        self._reconnects = reconnects
        super().__init__(self._connection)

    def __repr__(self) -> str:
        return f"SyncClient({self._connection.address.url!r})"

    def with_correlation(self, **ids: Unpack[CorrelationIds]) -> Self:
        """Return this client with correlation ids (turn, task, trace) for its calls; what they do is found by the ids.

        Both use the same connections. Without a ``traceparent``, each call uses OpenTelemetry's current span.
        """
        client, connection = copy(self), self._connection.within(make_correlation(ids, self._connection.correlation))
        client._connection = connection  # noqa: SLF001 - the same class
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
        """Export a session, or a part of it, to a file; the parameters are those of ``bundle.export``."""
        return self._connection.download(outgoing("bundle.export", what), file)

    def import_from(
        self,
        file: BinaryIO,
        *,
        expected_digest: str | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
    ) -> ContextImported:
        """Import a bundle from a binary file: all of it, or nothing.

        Its session keeps its id unless ``session_id`` is given.
        """
        options = given(expected_digest=expected_digest, session_id=session_id, dry_run=dry_run or None)
        imported: ContextImported = self._connection.upload(
            "POST", f"{IMPORT_STREAM}{query(options)}", file, "bundle.import"
        )
        return imported

    def add_file(self, domain: str, document_id: str, file: BinaryIO, **about: Unpack[FileOptions]) -> DocumentPut:
        """Add a binary file to a domain as a document; further parameters are those of ``knowledge.add_document``."""
        target = UPLOAD.format(domain=quote(domain, safe=""))
        options = query({**about, "document_id": document_id})
        added: DocumentPut = self._connection.upload("PUT", f"{target}{options}", file, "knowledge.add_document")
        return added

    def follow(
        self,
        session_id: str | None = None,
        keys: Sequence[str] = ("*",),
        after: int | None = None,
        *,
        types: Sequence[str] = ("*",),
        personal: bool = False,
        addressed: bool = False,
    ) -> Generator[Event, None, None]:
        """Yield events as they happen, in order and without gaps.

        Starts after the seq ``after``, or with the next event. A lost connection is resumed at the last event; errors
        that a retry cannot fix are raised.
        """
        if after is None:
            # Read before streaming, so that a connection lost before the first event loses none.
            latest = self.events.read(
                session_id=session_id, keys=keys, types=types, personal=personal, addressed=addressed
            )
            after = latest.next_after
        event_filter = {
            "session_id": session_id,
            "keys": keys,
            "types": types,
            "personal": personal,
            "addressed": addressed,
        }
        failures = 0
        while True:
            pause = pause_after(failures)
            try:
                with closing(self._connection.stream(stream_target(event_filter, after))) as stream:
                    for event in stream:
                        failures = 0
                        if event is not None:
                            after = event.seq
                            yield event
            except Unavailable as error:
                failures += 1
                if failures > self._reconnects:
                    raise
                if isinstance(error, RateLimited | ServerBusy):
                    pause = float(error.context.get("retry_after_seconds", pause))
            time.sleep(pause)


class _Connection:
    """Sends calls over HTTP."""

    def __init__(self, address: Address, timeout_seconds: float, retries: Retries) -> None:
        self.address = address
        self.correlation = NO_CORRELATION
        self._timeout_seconds = timeout_seconds
        self._retries = retries
        self._http = httpx2.Client(
            base_url=address.url,
            headers=address.headers,
            # Loading the certificates takes 0.1 s; a proxy cannot reach the loopback of this machine.
            verify=address.secure,
            trust_env=not address.loopback,
        )

    def within(self, correlation: Correlation) -> _Connection:
        """Return the same connection with correlation ids for its calls."""
        connection = copy(self)
        connection.correlation = correlation
        return connection

    def close(self) -> None:
        self._http.close()

    def call(self, operation: str, arguments: dict[str, Any], /) -> Any:  # noqa: ANN401 - the operation's response
        """Call an operation, with retries."""
        request = outgoing(operation, arguments)
        attempts = 0
        while True:
            attempts += 1
            try:
                return decoded(self._send(request), response_type(operation), self.address)
            except Unavailable as error:
                pause = self._retries.pause(request.method, error, attempts)
                if pause is None:
                    raise
            time.sleep(pause)

    def stream(self, target: str) -> Generator[Event | None, None, None]:
        """Yield None when the stream is open, then events until it ends."""
        timeout = httpx2.Timeout(self._timeout_seconds, read=STREAM_SILENCE_SECONDS)
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
        """Write an export to a file as it arrives, and return its description."""
        from weftline.exchange.transfer.export import FACTS_HEADER  # noqa: PLC0415 - only an export needs the slice

        headers = {**trace_headers(self.correlation), "Content-Type": "application/json"}
        timeout = httpx2.Timeout(self._timeout_seconds, read=TRANSFER_SECONDS)
        try:
            with self._http.stream(
                "POST", EXPORT_STREAM, content=request.content, headers=headers, timeout=timeout
            ) as reply:
                if not reply.is_success:
                    raise refusal(reply, reply.read())
                for chunk in reply.iter_bytes():
                    file.write(chunk)
                exported: ContextExported = decoded(
                    reply.headers.get(FACTS_HEADER, ""), response_type("bundle.export"), self.address
                )
                return exported
        except httpx2.RequestError as error:
            raise unreachable(self.address, error) from error

    def upload(self, method: str, target: str, file: BinaryIO, operation: str) -> Any:  # noqa: ANN401 - its response
        """Stream a file, and return the response of the operation."""
        timeout = httpx2.Timeout(self._timeout_seconds, read=TRANSFER_SECONDS)
        try:
            reply = self._http.request(
                method, target, content=_chunks(file), headers=trace_headers(self.correlation), timeout=timeout
            )
        except httpx2.RequestError as error:
            raise unreachable(self.address, error) from error
        if not reply.is_success:
            raise refusal(reply, reply.content)
        return decoded(reply.content, response_type(operation), self.address)

    def _send(self, request: Outgoing) -> bytes:
        timeout = self._timeout_seconds + request.wait_seconds
        headers = trace_headers(self.correlation)
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
        show_warnings(reply)
        return reply.content


def _chunks(file: BinaryIO) -> Generator[bytes, None, None]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk
