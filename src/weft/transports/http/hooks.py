"""Webhooks of knowledge sources: a call to the secret URL starts a synchronisation; a signed one adds documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from weft.kernel.errors import WeftError
from weft.transports.http.http_io import ClientGone, arrival_of, read_body, send_error, send_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from weft.app.app import App

_ACCEPTED = 202


class HookEndpoint:
    """Endpoint of a source's hook; authenticated by its URL and signature instead of a credential."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(scope, receive, self._app.settings.max_body_bytes)
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            named = scope["path_params"]
            hook = (named["tenant"], named["source_id"], named["token"])
            answer = await self._app.receive_hook(hook, headers, body, arrival_of(scope))
        except WeftError as error:
            await send_error(send, error, self._app.clock)
        except ClientGone:
            return
        else:
            await send_json(send, _ACCEPTED, answer)


def hook_routes(app: App) -> Iterator[Route]:
    path = "/v1/knowledge/hooks/{tenant}/{source_id}/{token}"
    yield Route(path, endpoint=HookEndpoint(app), methods=["POST"], name="knowledge.hook")
