"""Document upload as a request body, with a larger limit than other bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import Headers
from starlette.routing import Route

from weft.kernel.errors import InvalidInput, WeftError
from weft.transports.http.bundles import body_of
from weft.transports.http.http_io import arrival_of, send_error, send_json
from weft.transports.http.rest import OperationEndpoint

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from weft.app.app import App

# Content types of clients that do not know the type.
_UNTOLD = frozenset({"", "application/octet-stream", "application/x-www-form-urlencoded"})


class Upload(OperationEndpoint):
    """Upload endpoint: the document is the body; other parameters of knowledge.add_document are in the query."""

    def __init__(self, app: App) -> None:
        super().__init__(app, app.registry["knowledge.add_document"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            put = await self._app.uploads.receive(self._described(scope), arrival_of(scope), body_of(receive))
        except WeftError as error:
            await send_error(send, error, self._app.clock)
        else:
            await send_json(send, self._operation.route.status, put)

    def _described(self, scope: Scope) -> dict[str, Any]:
        raw = self._from_query(scope["query_string"])
        for name in ("text", "content"):
            if name in raw:
                raise InvalidInput(f"{name}: it is the body of the request", field=name)
        if "metadata" in raw:
            raw["metadata"] = _object(raw["metadata"])
        sent_as = Headers(scope=scope).get("content-type", "")
        told = {} if sent_as in _UNTOLD else {"media_type": sent_as}
        return {**told, **raw, **scope["path_params"]}


def upload_route(app: App) -> Route:
    return Route("/v1/domains/{domain}/uploads", endpoint=Upload(app), methods=["PUT"], name="knowledge.upload")


def _object(text: str) -> Any:  # noqa: ANN401 - checked by the request's own type
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise InvalidInput("metadata: not JSON", field="metadata") from None
