"""Where the model proxy forwards to: the addresses, and connections to them.

A host that was given by name is resolved and checked before each connection, as for webhooks; an address in the setting
was chosen by the operator. If the environment names a proxy for HTTPS or HTTP, connections go through it, and it is the
proxy that resolves names.
"""

from __future__ import annotations

import ipaddress
import urllib.request
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import httpcore2

from weftline.providers.asyncio_network import AsyncioNetwork
from weftline.providers.webhook_sender import CheckedNetwork, Reach
from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    Header = tuple[bytes, bytes]

OFF = "off"
# The names of the routes, and where their providers are.
PROVIDERS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
_CONNECT_SECONDS = 10.0
_CONNECTIONS = 2_000
_KEPT_CONNECTIONS = 200
# Shorter than providers keep idle connections: a request on one that they are about to close would be lost.
_IDLE_SECONDS = 30.0
# Models think for minutes, and clients have timeouts of their own.
_TIMEOUTS = {"connect": _CONNECT_SECONDS, "pool": _CONNECT_SECONDS, "read": None, "write": None}
_VERSION = "/v1"


class Upstream(NamedTuple):
    """A server that requests are forwarded to; ``path`` goes before that of a request.

    ``route``: what the setting calls it, such as openai or openai:llama*.
    """

    url: httpcore2.URL
    host: bytes
    path: bytes
    route: str = ""


class _Route(NamedTuple):
    """Models whose name begins with ``prefix``, or is it if ``exact``."""

    prefix: str
    exact: bool
    upstream: Upstream

    def takes(self, model: str) -> bool:
        return model == self.prefix if self.exact else model.startswith(self.prefix)


class Upstreams:
    """Finds the upstream of a request by the name of its route and its model."""

    def __init__(self, setting: str) -> None:
        self._routes: dict[str, list[_Route]] = {name: [] for name in PROVIDERS}
        given = [] if setting.strip() == OFF else setting.split()
        for entry in given:
            self._add(entry)
        for name, routes in self._routes.items():
            if not any(route.prefix == "" for route in routes):
                routes.append(_Route("", exact=False, upstream=_upstream(name, PROVIDERS[name])))
            # The most specific name first.
            routes.sort(key=lambda route: (route.exact, len(route.prefix)), reverse=True)

    def depends_on_model(self, name: str) -> bool:
        return len(self._routes[name]) > 1

    def find(self, name: str, model: str = "") -> Upstream:
        return next(route.upstream for route in self._routes[name] if route.takes(model))

    @property
    def literal_hosts(self) -> frozenset[str]:
        """Return the hosts that were given as addresses."""
        hosts = (route.upstream.url.host.decode() for routes in self._routes.values() for route in routes)
        return frozenset(host for host in hosts if _is_address(host))

    def _add(self, entry: str) -> None:
        route, _, url = entry.partition("=")
        name, colon, model = route.partition(":")
        if name not in self._routes or not url or bool(colon) != bool(model):
            raise InvalidSetting(
                f"WEFTLINE_PROXY_UPSTREAMS: '{route[:100]}' must be one of {', '.join(PROVIDERS)}, then ':MODEL' if it "
                "is for some models only, then '=URL'."
            )
        exact = bool(model) and not model.endswith("*")
        self._routes[name].append(_Route(model.removesuffix("*"), exact, _upstream(route, url)))


class UpstreamConnections:
    """Connections to upstreams, kept for further requests."""

    def __init__(self, upstreams: Upstreams, private_hosts: Iterable[str] = ()) -> None:
        allowed = {host.lower() for host in private_hosts} | upstreams.literal_hosts
        self._reach = Reach(frozenset(allowed))
        self._pools: dict[tuple[bytes, bytes], httpcore2.AsyncConnectionPool] = {}
        self._certificates: ssl.SSLContext | None = None

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def send(
        self, upstream: Upstream, method: str, target: bytes, headers: list[Header], body: AsyncIterator[bytes] | None
    ) -> AbstractAsyncContextManager[httpcore2.Response]:
        """Send a request and return its response, whose body has not been read."""
        # The path and query go out as they came in; a URL would be normalised.
        extensions = {"timeout": _TIMEOUTS, "target": upstream.path + target}
        return self._pool(upstream).stream(method, upstream.url, headers=headers, content=body, extensions=extensions)

    def _pool(self, upstream: Upstream) -> httpcore2.AsyncConnectionPool:
        origin = upstream.url.scheme, upstream.host
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = self._new_pool(upstream)
        return pool

    def _new_pool(self, upstream: Upstream) -> httpcore2.AsyncConnectionPool:
        scheme, host = upstream.url.scheme.decode(), upstream.url.host.decode()
        proxy = environment_proxy(scheme, host, urllib.request.getproxies())
        if self._certificates is None and scheme == "https":
            # Once, and only if needed: loading them is slow.
            self._certificates = httpcore2.default_ssl_context()
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._certificates,
            proxy=None if proxy is None else _proxy(proxy),
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_KEPT_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
            retries=1,
            network_backend=CheckedNetwork(self._reach) if proxy is None else AsyncioNetwork(),
        )


def environment_proxy(scheme: str, host: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for a host, as other programs read it; None for this machine."""
    proxy = environment.get(scheme) or environment.get("all")
    if not proxy or host == "localhost" or _is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _upstream(route: str, text: str) -> Upstream:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise InvalidSetting("WEFTLINE_PROXY_UPSTREAMS: a URL must be http:// or https:// with a host, and no query.")
    # Requests bring the version of their path themselves.
    path = parts.path.rstrip("/").removesuffix(_VERSION)
    url = httpcore2.URL(scheme=parts.scheme, host=parts.hostname, port=port, target=path or "/")
    return Upstream(url, parts.netloc.encode(), path.encode(), route)


def _proxy(url: str) -> httpcore2.Proxy:
    parts = urlsplit(url)
    auth = (parts.username, parts.password or "") if parts.username else None
    return httpcore2.Proxy(f"{parts.scheme}://{parts.hostname}:{parts.port or _port(parts.scheme)}", auth)


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
