"""Calling webhooks over HTTP, and only where that is allowed.

A receiver's address is looked up and checked right before each connection, and the connection goes to the address that
was checked: a name that answers differently the next time leads nowhere else. Certificates are checked by the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING

import httpcore2

from weft.capabilities.events.webhooks.model import AddressNotAllowed, Attempt, host_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TIMEOUT_SECONDS = 10.0
_LOOKUP_SECONDS = 3.0
_CONNECTIONS = 256
_IDLE_SECONDS = 15.0
# An answer is read, so that the connection can be used again, but nobody wants a long one.
_READ_AT_MOST = 65_536
_RETRY_AFTER = b"retry-after"
# Addresses of IPv6 that end with the one of IPv4 they stand for.
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
# What an address of IPv6 has before its last part if that is the one of IPv4 it leads to (ISATAP).
_TUNNELLED = frozenset({0x0000_5EFE, 0x0200_5EFE})
# Of carriers, protocols, relays, sites and documents: to Python, in this version or that, these are public.
_APART = tuple(map(ipaddress.ip_network, ("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "3fff::/20")))
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
    """Posts events to receivers. What their answers say beyond a status is of no interest."""

    def __init__(self, private_hosts: Iterable[str] = (), trusted: ssl.SSLContext | None = None) -> None:
        self._reach = Reach(frozenset(host.lower() for host in private_hosts))
        self._trusted = trusted
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    async def check(self, url: str) -> None:
        """Refuse an address that must not be called; one that nobody knows yet may still come to be."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LOOKUP_SECONDS):
                await self._reach.addresses(host_of(url), 0)

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await self._post(url, headers, body)
        except Exception as error:  # noqa: BLE001 - a receiver may do whatever it likes, and no call of ours fails by it
            return Attempt(error=failure_of(error))

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        async with self._pool(url).stream("POST", url, headers=list(headers.items()), content=body) as response:
            size = 0
            async for part in response.aiter_stream():
                size += len(part)
                if size > _READ_AT_MOST:
                    break
            wait = next((value for name, value in response.headers if name.lower() == _RETRY_AFTER), b"")
            error = None if 200 <= response.status < 300 else _refusal(response.status)  # noqa: PLR2004 - success
            return Attempt(response.status, error, int(wait) if wait.isdigit() and len(wait) < 6 else 0)  # noqa: PLR2004

    def _pool(self, url: str) -> httpcore2.AsyncConnectionPool:
        """Return the connections for a scheme; reading the certificates takes long enough to wait until it must be."""
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
    """Says which addresses a name may lead to."""

    def __init__(self, private_hosts: Collection[str]) -> None:
        self._private_hosts = private_hosts

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return where a name leads now; refuse it if any of that is not public and the name is not listed."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise AddressNotAllowed(f"'{host}' is not the name of a host.") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if host.lower() not in self._private_hosts and not all(map(is_public, addresses)):
            raise AddressNotAllowed(f"'{host}' does not lead to a public address.")
        return addresses


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were checked, never to a name."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._network = httpcore2.AnyIOBackend()

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
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
        return await self._network.connect_tcp(last, port, timeout, local_address, socket_options)


def is_public(address: str) -> bool:
    """Tell whether an address belongs to the open network: to no machine, link, site, carrier or group of its own."""
    return all(map(_is_public, _meant_by(ipaddress.ip_address(address.partition("%")[0]))))


def _is_public(address: Address) -> bool:
    special = address.is_multicast or address.is_reserved or address.is_unspecified
    return address.is_global and not special and not any(address in network for network in _APART)


def _meant_by(address: Address) -> list[Address]:
    """Return where a call to an address would end: one of IPv6 may stand for some of IPv4."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address in _TRANSLATED:
        return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    if int(address) >> 32 & 0xFFFF_FFFF in _TUNNELLED:
        return [address, ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    inner = (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()))
    return [each for each in inner if each is not None] or [address]


def _refusal(status: int) -> str:
    return "redirected" if 300 <= status < 400 else "refused"  # noqa: PLR2004 - the statuses of redirection


def failure_of(error: BaseException) -> str:
    """Return the class of a failure; what the error says in full may quote the receiver, or the address."""
    if _is_about_certificates(error):
        return "certificate_refused"
    return next((name for kind, name in _FAILURES if isinstance(error, kind)), "not_http")


def _is_about_certificates(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
