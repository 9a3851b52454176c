"""Who calls the model proxy: by their key on a server, one person on a machine of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import AuthenticationError
from weftline.models.language_models.chat_model import ChatCaller
from weftline.transports.http.http_io import note_caller
from weftline.transports.proxy.errors import ProxyKeyMissing

if TYPE_CHECKING:
    from starlette.types import Scope

    from weftline.app.app import App
    from weftline.app.proxied_calls import CallGuard, ProxiedCalls
    from weftline.providers.provider_keys import ProviderKeys


class KeyCallers:
    """Callers with a Weftline key."""

    def __init__(self, app: App, keys: ProviderKeys) -> None:
        self._app = app
        self._keys = keys

    def context(self, key: str | None, scope: Scope) -> CallContext:
        client = scope.get("client")
        return CallContext(key, client[0] if client else "local")

    async def find(self, key: str | None, scope: Scope) -> ChatCaller:
        try:
            actor = await self._app.identify(self.context(key, scope))
        except AuthenticationError as error:
            if key is None:
                raise ProxyKeyMissing from None
            # Authorization is the provider's.
            error.hint = ProxyKeyMissing.hint
            raise
        note_caller(scope, actor)
        return ChatCaller(actor.tenant, actor.principal_id)

    async def check(self, caller: ChatCaller) -> None:
        await self._app.proxied_usage.check(caller)

    async def guard(self, key: str | None, scope: Scope) -> CallGuard | None:
        return await self._app.proxied_calls.guard(self.context(key, scope))

    def fails_closed(self, key: str | None) -> bool:
        return self._app.proxied_calls.fails_closed(key)

    def keeps_key(self, route: str) -> bool:
        return self._keys.has(route)

    async def provider_key(self, route: str, key: str | None, scope: Scope) -> bytes | None:
        return self._keys.find(route, await self._app.identify(self.context(key, scope)))


class OneCaller:
    """The person who runs the proxy."""

    def __init__(self, caller: ChatCaller, calls: ProxiedCalls | None = None) -> None:
        self._caller = caller
        self._calls = calls

    def context(self, key: str | None, scope: Scope) -> CallContext:  # noqa: ARG002 - likewise
        return CallContext(Local(self._caller.tenant, self._caller.agent_id, by_owner=True))

    async def find(self, key: str | None, scope: Scope) -> ChatCaller:  # noqa: ARG002 - needs none
        return self._caller

    async def check(self, caller: ChatCaller) -> None:
        """Refuse nothing: it is the person's own machine."""

    async def guard(self, key: str | None, scope: Scope) -> CallGuard | None:
        return None if self._calls is None else await self._calls.guard(self.context(key, scope))

    def fails_closed(self, key: str | None) -> bool:  # noqa: ARG002 - likewise
        return False

    def keeps_key(self, route: str) -> bool:  # noqa: ARG002 - likewise
        return False

    async def provider_key(self, route: str, key: str | None, scope: Scope) -> bytes | None:  # noqa: ARG002 - likewise
        """Return none: the person has their own."""
        return None
