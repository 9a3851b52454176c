"""Runs a bare application with the uvicorn settings of Weftline's server."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import TYPE_CHECKING

import uvicorn
import uvloop

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def serve(application: ASGIApp) -> None:
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
    )
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 1_000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve())
