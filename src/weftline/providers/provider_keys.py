"""Keys of model providers that the server keeps for its callers, from the operator's setting."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.identity import may_match_callers
from weftline.providers.model_upstreams import PROVIDERS
from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.kernel.identity import Actor

_ENV = "WEFTLINE_PROXY_KEYS"


class ProviderKey(NamedTuple):
    """A key for the upstream of a route, and who of a tenant may use it."""

    route: str
    tenant: str
    who: str
    key: bytes

    def __repr__(self) -> str:
        return f"ProviderKey(route={self.route!r})"  # keeps the key out of logs and tracebacks


class ProviderKeys:
    """Finds the key that the server adds to a call."""

    def __init__(self, setting: str, environment: Mapping[str, str] = os.environ) -> None:
        self._keys = [_key(place, entry, environment) for place, entry in enumerate(setting.split(), 1)]
        self._routes = frozenset(each.route for each in self._keys)

    def has(self, route: str) -> bool:
        """Tell whether there is a key for a route, whoever may use it."""
        return route in self._routes

    def find(self, route: str, caller: Actor) -> bytes | None:
        """Return the key that a caller may use; None if there is none."""
        for each in self._keys:
            if each.route == route and each.tenant == caller.tenant and caller.matches((each.who,)):
                return each.key
        return None


def _key(place: int, entry: str, environment: Mapping[str, str]) -> ProviderKey:
    # No message quotes the entry: it may be a key in the wrong place.
    scope, equals, given = entry.partition("=")
    route, *others = scope.rsplit("/", 2)
    if not equals or len(others) != 2 or route.partition(":")[0] not in PROVIDERS or not all(others):  # noqa: PLR2004 - TENANT, WHO
        raise InvalidSetting(
            f"{_ENV}: entry {place} is not ROUTE/TENANT/WHO=KEY with a route of {', '.join(PROVIDERS)}."
        )
    tenant, who = others
    if not may_match_callers(who):
        raise InvalidSetting(f"{_ENV}: no caller can match WHO in entry {place}.")
    key = environment.get(given[1:], "").strip() if given.startswith("$") else given
    if not key or not key.isascii() or not key.isprintable():
        raise InvalidSetting(f"{_ENV}: entry {place} has no key, or names a variable that is not set.")
    return ProviderKey(route, tenant, who, key.encode())
