"""Sends webhooks over HTTP, to allowed addresses only.

The host is resolved and checked before each connection, and the connection goes to the checked address, so that a
changing DNS answer (rebinding) has no effect. Certificates are verified against the host name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING

import httpcore2

from weftline.providers.asyncio_network import AsyncioNetwork
from weftline.sessions.events.webhooks import AddressNotAllowed, Attempt, host_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TIMEOUT_SECONDS = 10.0
_LOOKUP_SECONDS = 3.0
_CONNECTIONS = 256
_IDLE_SECONDS = 15.0
# The body is read so that the connection can be reused, up to this size.
_MAX_BODY_BYTES = 65_536
_RETRY_AFTER = b"retry-after"
# NAT64: IPv6 addresses that embed an IPv4 address.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# ISATAP: interface identifiers that embed an IPv4 address.
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
# Carrier-grade NAT, protocol assignments, 6to4 relays, site-local, documentation: some Pythons call these global.
_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "3fff::/20"))
)
_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (AddressNotAllowed, "address_refused"),
    (socket.gaierror, "name_not_found"),
    (TimeoutError, "timeout"),
    (httpcore2.TimeoutException, "timeout"),
    (httpcore2.ConnectError, "connection_failed"),
    (httpcore2.NetworkError, "connection_lost"),
    (OSError, "connection_failed"),
)


class HttpSender:
    """Posts events to receivers; only the status of the response is used."""

    def __init__(self, private_hosts: Iterable[str] = (), trusted: ssl.SSLContext | None = None) -> None:
        self._reach = Reach(frozenset(host.lower() for host in private_hosts))
        self._trusted = trusted
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    async def check(self, url: str) -> None:
        await self._reach.check(url)

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await self._post(url, headers, body)
        except Exception as error:  # noqa: BLE001 - whatever a receiver does must not fail the job
            return Attempt(error=failure_of(error))

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        async with self._pool(url).stream("POST", url, headers=list(headers.items()), content=body) as response:
            size = 0
            async for part in response.aiter_stream():
                size += len(part)
                if size > _MAX_BODY_BYTES:
                    break
            wait = next((value for name, value in response.headers if name.lower() == _RETRY_AFTER), b"")
            error = None if 200 <= response.status < 300 else _refusal(response.status)  # noqa: PLR2004 - success
            return Attempt(response.status, error, int(wait) if wait.isdigit() and len(wait) < 6 else 0)  # noqa: PLR2004

    def _pool(self, url: str) -> httpcore2.AsyncConnectionPool:
        """Return the connection pool of a scheme, created on first use: loading certificates is slow."""
        scheme = url.partition(":")[0]
        pool = self._pools.get(scheme)
        if pool is None:
            trusted = (self._trusted or httpcore2.default_ssl_context()) if scheme == "https" else None
            pool = self._pools[scheme] = httpcore2.AsyncConnectionPool(
                ssl_context=trusted,
                max_connections=_CONNECTIONS,
                keepalive_expiry=_IDLE_SECONDS,
                network_backend=CheckedNetwork(self._reach),
            )
        return pool


class Reach:
    """Decides which addresses a host name may resolve to."""

    def __init__(self, private_hosts: Collection[str]) -> None:
        self._private_hosts = private_hosts

    async def check(self, url: str) -> None:
        """Reject a URL that must not be called; a host that does not resolve yet is accepted."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LOOKUP_SECONDS):
                await self.addresses(host_of(url), 0)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host; reject it if any address is not public and the host is not allowed."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise AddressNotAllowed(f"'{host}' is not the name of a host.") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if host.lower() not in self._private_hosts and not all(map(is_public, addresses)):
            raise AddressNotAllowed(f"'{host}' does not lead to a public address.")
        return addresses


class CheckedNetwork(AsyncioNetwork):
    """Connects only to addresses that were checked, which prevents DNS rebinding."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as it is asked for
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await self._reach.addresses(host, port)
        for address in others:
            with contextlib.suppress(httpcore2.ConnectError):
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
        return await super().connect_tcp(last, port, timeout, local_address, socket_options)


def is_public(address: str) -> bool:
    """Return whether an address is globally routable unicast."""
    return all(map(_is_public, _effective_addresses(ipaddress.ip_address(address.partition("%")[0]))))


def _is_public(address: Address) -> bool:
    special = address.is_multicast or address.is_reserved or address.is_unspecified
    return address.is_global and not special and not any(address in network for network in _NOT_PUBLIC)


def _effective_addresses(address: Address) -> list[Address]:
    """Return the addresses that a connection would reach, with embedded IPv4 addresses."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP:
        return [address, ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    inner = (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()))
    return [each for each in inner if each is not None] or [address]


def _refusal(status: int) -> str:
    return "redirected" if 300 <= status < 400 else "refused"  # noqa: PLR2004 - the statuses of redirection


def failure_of(error: BaseException) -> str:
    """Return the class of a failure; the full text may quote the receiver or the address."""
    if _is_about_certificates(error):
        return "certificate_refused"
    return next((name for kind, name in _FAILURES if isinstance(error, kind)), "not_http")


def _is_about_certificates(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
