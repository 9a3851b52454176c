"""Paths of the model proxy: /PROVIDER/PATH, or /PROVIDER/KEY/PATH for programs that cannot send a header."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

from weftline.kernel.errors import InvalidInput, NotFound
from weftline.providers.model_upstreams import PROVIDERS
from weftline.transports.proxy.headers import own_key

if TYPE_CHECKING:
    from starlette.types import Scope

_NAMES = {name.encode(): name for name in PROVIDERS}
_KEY_START = b"weftline."
# How many times a path is percent-decoded before it is checked: servers on the way may each decode it once.
_MAX_DECODED = 3
_SEPARATOR = re.compile(rb"[/\\]")


class ProxyRoute(NamedTuple):
    """A request's provider, its path at the provider, and the Weftline key that it came with."""

    provider: str
    path: bytes
    key: str | None


def provider_of(scope: Scope) -> str | None:
    """Return the provider whose route a request calls; None if it is none of the proxy."""
    start, *names = scope.get("raw_path", b"").split(b"/", 2)
    return _NAMES.get(names[0]) if names and not start else None


def route_of(scope: Scope) -> ProxyRoute:
    """Take a request's path apart; a key in a header goes before one in the path."""
    _, provider, *path = scope["raw_path"].split(b"/", 2)
    key = b""
    if path and path[0].startswith(_KEY_START):
        key, *path = path[0].split(b"/", 1)
    key = own_key(scope["headers"]) or key
    return ProxyRoute(provider.decode(), b"".join(b"/" + rest for rest in path), key.decode("latin-1") or None)


def check_path(path: bytes) -> None:
    """Refuse a path that is none of the provider's API."""
    if not path:
        raise NotFound(
            "The path ends with the provider.", hint="Add the path of the provider's API, such as /v1/messages."
        )
    if _leads_out(path):
        raise InvalidInput("The path has segments of dots.", hint="Send the path of the provider's API.")


def _leads_out(path: bytes) -> bool:
    """Tell whether a path may lead out of that of the upstream, for a server that decodes more of it than others."""
    for _ in range(_MAX_DECODED):
        path = unquote_to_bytes(path)
    return any(segment.partition(b";")[0] in {b".", b".."} for segment in _SEPARATOR.split(path))
