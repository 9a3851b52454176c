"""A bare Starlette application with the structs of the board's routes, without storage."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from benchmarks.baselines.uvicorn_server import serve


class Write(msgspec.Struct):
    value: str
    if_version: int | None = None
    ttl_seconds: int | None = None
    readable_by: tuple[str, ...] | None = None
    writable_by: tuple[str, ...] | None = None


class Written(msgspec.Struct):
    key: str
    version: int
    written_by: str
    written_at: datetime


class Entry(msgspec.Struct):
    key: str
    value: str
    written_by: str
    written_at: datetime
    version: int


_decode = msgspec.json.Decoder(Write).decode
_encode = msgspec.json.Encoder().encode
_last = Write("")


async def put(request: Request) -> Response:
    global _last  # noqa: PLW0603 - the only state of this server
    _last = _decode(await request.body())
    answer = Written(request.path_params["key"], 1, "subagent:benchmark:benchmark", datetime.now(UTC))
    return Response(_encode(answer), media_type="application/json")


async def get(request: Request) -> Response:
    answer = Entry(request.path_params["key"], _last.value, "subagent:benchmark:benchmark", datetime.now(UTC), 1)
    return Response(_encode(answer), media_type="application/json")


async def ready(_: Request) -> Response:
    return PlainTextResponse("ready")


if __name__ == "__main__":
    path = "/v1/sessions/{session_id}/context/{key}"
    serve(Starlette(routes=[Route(path, put, methods=["PUT"]), Route(path, get), Route("/", ready)]))
