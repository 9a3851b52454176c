"""Host and Origin checks against DNS rebinding: a web page must not reach a local server through the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weftline.kernel.errors import HostNotAllowed, RateLimited
from weftline.transports.http.http_io import context_of, refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from weftline.app.app import App
    from weftline.kernel.errors import WeftlineError

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
# Health probes may use any host name; these paths reveal nothing.
_OPEN_PATHS = frozenset({"/health", "/ready"})


class HostGuard:
    """Middleware that accepts only known Host headers and trusted origins; others are limited by address."""

    def __init__(self, app: App, guarded: ASGIApp) -> None:
        self._app = app
        self._guarded = guarded
        settings = app.settings
        bound = set() if settings.listens_everywhere else {settings.url_host.lower()}
        hosts = LOOPBACK_HOSTS | bound | set(settings.allowed_hosts.lower().split())
        self._names = HostNames(hosts, frozenset(settings.allowed_origins.lower().split()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
            refusal = self._names.refusal(scope)
            if refusal is not None:
                await self._refuse(scope, send, refusal)
                return
        await self._guarded(scope, receive, send)

    async def _refuse(self, scope: Scope, send: Send, refusal: WeftlineError) -> None:
        try:
            await self._app.admit_wrong_host(context_of(scope))
        except RateLimited as limited:
            refusal = limited
        await refuse(scope, send, refusal, self._app.clock)


class HostNames:
    """Accepted Host headers and origins."""

    def __init__(self, hosts: frozenset[str], origins: frozenset[str]) -> None:
        self._hosts = hosts
        self._origins = origins

    def refusal(self, scope: Scope) -> HostNotAllowed | None:
        host = origin = None
        for name, value in scope["headers"]:
            # Of two headers a proxy may go by the other one.
            if name == b"host":
                host = value.decode("latin-1").lower() if host is None else ""
            elif name == b"origin":
                origin = value.decode("latin-1").lower() if origin is None else ""
        if host is None or (host not in self._hosts and _without_port(host) not in self._hosts):
            return HostNotAllowed(f"The host name '{(host or '')[:100]}' is not allowed.")
        if origin is not None and not self._trusts(origin, host):
            return HostNotAllowed(f"The origin '{origin[:100]}' is not allowed.")
        return None

    def _trusts(self, origin: str, host: str) -> bool:
        # A page of this server may call it under whatever allowed name it was opened.
        if origin in self._origins or origin in {f"https://{host}", f"http://{host}"}:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in {"http", "https"} and _without_port(parts.netloc) in LOOPBACK_HOSTS


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
