"""A bare proxy: Starlette takes requests, httpx sends them on, and answers are streamed back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import httpx2
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse
from starlette.routing import Route

from benchmarks.baselines.uvicorn_server import serve

if TYPE_CHECKING:
    from starlette.requests import Request

_http = httpx2.AsyncClient(base_url=os.environ["UPSTREAM"], timeout=None, limits=httpx2.Limits(max_connections=500))
_LEFT_OUT = {"host", "connection", "transfer-encoding"}


async def forward(request: Request) -> StreamingResponse:
    headers = [(name, value) for name, value in request.headers.items() if name not in _LEFT_OUT]
    content = await request.body()
    sent = _http.build_request(request.method, request.url.path, headers=headers, content=content or None)
    answer = await _http.send(sent, stream=True)
    kept = {name: value for name, value in answer.headers.items() if name not in _LEFT_OUT}
    return StreamingResponse(answer.aiter_raw(), answer.status_code, kept, background=BackgroundTask(answer.aclose))


if __name__ == "__main__":
    serve(Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST"])]))
