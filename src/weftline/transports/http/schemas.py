"""Public JSON Schemas of record types."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from weftline.records.model import RECORD_TYPES
from weftline.records.schemas import (
    MEDIA_TYPE,
    SCHEMAS,
    published_schema,
    schema_file,
    schema_id,
    schema_url,
)
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.transports.http.http_io import context_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from weftline.app.app import App

_JSON = "application/json"
# Schemas of a version do not change, but a release may reword descriptions: cache for a day.
_CACHING = "public, max-age=86400"


class _Document:
    """Published file that does not change while the server runs."""

    def __init__(self, app: App, body: bytes, media_type: str) -> None:
        self._app = app
        self._body = body
        self._media_type = media_type
        self._headers = {"etag": f'"{sha256(body).hexdigest()[:32]}"', "cache-control": _CACHING}

    async def __call__(self, request: Request) -> Response:
        await self._app.admit_without_credential(context_of(request.scope))
        known = request.headers.get("if-none-match", "")
        if known == "*" or self._headers["etag"] in known:
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers, media_type=self._media_type)


def schema_routes(app: App) -> Iterator[Route]:
    # A method, because Starlette takes any other callable object for an ASGI application.
    yield Route(f"/{SCHEMAS}", _Document(app, msgspec.json.encode(_index()), _JSON).__call__)
    for name in RECORD_TYPES:
        yield Route(schema_url(name), _Document(app, schema_file(name), MEDIA_TYPE).__call__)


def schema_paths(refusal: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI paths of the schemas; ``refusal`` is the response for an unknown one."""
    record_type = {"name": "type", "in": "path", "required": True, "schema": {"enum": list(RECORD_TYPES)}}
    return {
        f"/{SCHEMAS}": {"get": _described("schemas_list", "List the schemas of all record types.", _JSON, _INDEX)},
        schema_url("{type}"): {
            "parameters": [{**record_type, "description": "The type of record."}],
            "get": _described(
                "schemas_get", "Read the JSON Schema of a record type.", MEDIA_TYPE, {"type": "object"}, refusal
            ),
        },
    }


_INDEX = {
    "type": "object",
    "properties": {
        "schema_version": {"type": "string"},
        "schemas": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("type", "id", "url", "description")},
                "required": ["type", "id", "url", "description"],
            },
        },
    },
    "required": ["schema_version", "schemas"],
}


def _index() -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "schemas": [
            {
                "type": name,
                "id": schema_id(name),
                "url": schema_url(name),
                "description": published_schema(name)["description"],
            }
            for name in RECORD_TYPES
        ],
    }


def _described(
    name: str, summary: str, media_type: str, schema: dict[str, Any], refusal: dict[str, Any] | None = None
) -> dict[str, Any]:
    found = {"description": summary, "content": {media_type: {"schema": schema}}}
    return {
        "operationId": name,
        "tags": [SCHEMAS],
        "summary": summary,
        "security": [],
        "responses": {"200": found, **({} if refusal is None else {"404": refusal})},
    }
