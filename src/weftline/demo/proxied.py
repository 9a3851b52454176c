"""The demo's last scene: an agent that knows nothing of Weftline, without and with the model proxy."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from socket import socket
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from weftline.demo.project import FINDER, MODEL, TRACED, long_lookups
from weftline.kernel.errors import SystemUnavailable
from weftline.models.language_models.catalog import load_catalog
from weftline.providers.prices import PriceTable
from weftline.testing.prompt_cache import CacheSimulator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request

    from weftline.demo.run import Narrator
    from weftline.models.language_models.catalog import ModelInfo, Rates
    from weftline.settings import Settings

_TASK = "Find out which part of an order became slow. Look at every part before you answer."
_ANSWER = "price.fetch takes 540 ms and more; everything else is as fast as before."
_SECONDS_BETWEEN_CALLS = 20
_CACHED = {"type": "ephemeral"}
_PATIENCE_SECONDS = 30
_START = "export ANTHROPIC_BASE_URL="


class _Run(NamedTuple):
    """What the provider has charged for a run, and the last request that it received."""

    calls: int
    sent: int
    from_cache: int
    cost: float
    last: str


@dataclass(slots=True)
class _Provider:
    """A provider with the API of Anthropic: a script as its model, and the usage of a simulated prompt cache."""

    info: ModelInfo
    rates: Rates | None
    cache: CacheSimulator = field(init=False)
    last: str = ""
    _lookups: Sequence[tuple[str, str, str]] = field(default_factory=long_lookups)

    def __post_init__(self) -> None:
        self.cache = CacheSimulator(self.info, self.rates)

    async def answer(self, request: Request) -> JSONResponse:
        """Answer ``POST /v1/messages``."""
        self.last = (await request.body()).decode()
        body = await request.json()
        done = sum(message["role"] == "assistant" for message in body["messages"])
        call = self.cache.call("anthropic", body, len(self.cache.calls) * _SECONDS_BETWEEN_CALLS, output_tokens=60)
        usage = call.usage
        content: dict[str, Any] = {"type": "text", "text": _ANSWER}
        if done < len(self._lookups):
            name, part, _ = self._lookups[done]
            content = {"type": "tool_use", "id": f"call_{done}", "name": name, "input": {"span": part}}
        return JSONResponse(
            {
                "id": f"msg_{done}",
                "type": "message",
                "role": "assistant",
                "model": body["model"],
                "content": [content],
                "stop_reason": content["type"].replace("text", "end_turn"),
                "usage": {
                    "input_tokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
                    "cache_read_input_tokens": usage.cache_read_tokens,
                    "cache_creation_input_tokens": usage.cache_write_tokens,
                    "output_tokens": usage.output_tokens,
                },
            }
        )

    def run(self) -> _Run:
        """Return what was charged since the last time, and begin again with an empty cache."""
        calls = self.cache.calls
        self.cache = CacheSimulator(self.info, self.rates)
        return _Run(
            len(calls),
            sum(call.usage.input_tokens for call in calls),
            sum(call.usage.cache_read_tokens for call in calls),
            float(sum(call.cost or 0 for call in calls)),
            self.last,
        )


async def play_proxied(settings: Settings, narrator: Narrator) -> None:
    """Run the agent twice, and show tokens and money side by side."""
    narrator.chapter("11 · Without a line of code: the same agent without and with `weftline proxy`")
    narrator.aside(
        f"It looks at {len(TRACED)} parts of an order, sends its whole conversation with each call and marks it for "
        "the provider's cache. The provider is a script on this machine."
    )
    async with _serving() as (provider, url):
        await _work(url)
        alone = provider.run()
        async with _proxy(settings, url) as (proxied_url, output):
            narrator.commands(["$ weftline proxy", f"{_START}{proxied_url}"])
            await _work(proxied_url)
            proxied = provider.run()
            async with asyncio.timeout(_PATIENCE_SECONDS):
                lines = [(await output.readline()).decode() for _ in range(proxied.calls)]
            narrator.commands(["…", lines[-1].strip()])
        narrator.table(_comparison(alone, proxied))
        fault = long_lookups()[-1][2].splitlines()[-2]
        narrator.result(f"the last request {'has' if fault in proxied.last else 'lacks'} “{fault}”")
    narrator.aside(
        "Long results of tools were shortened before they were sent for the first time, and are sent the same way in "
        "each later call, so that the cache holds. Each names a handle, with which the model gets the whole text."
    )


def _comparison(alone: _Run, proxied: _Run) -> list[list[str]]:
    rows = [["", "calls", "tokens in", "from cache", "money", "saved"]]
    for name, run in (("without", alone), ("with", proxied)):
        saved = f"{1 - run.cost / alone.cost:.0%}"
        share = f"{run.from_cache / run.sent:.0%}"
        rows.append([name, str(run.calls), f"{run.sent:,}", share, f"${run.cost:.4f}", saved])
    return rows


async def _work(url: str) -> None:
    """Be an agent: call the model, run the tool that it asks for, and go on until it answers."""
    results = {part: output for _, part, output in long_lookups()}
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": _TASK}]}]
    async with httpx2.AsyncClient(timeout=30) as http:
        while True:
            block = messages[-1]["content"][-1]
            block["cache_control"] = _CACHED
            body = {"model": MODEL, "max_tokens": 1_000, "messages": messages}
            answer = await http.post(f"{url}/v1/messages", json=body, headers={"x-api-key": "none"})
            answer.raise_for_status()
            del block["cache_control"]
            said = answer.json()["content"]
            messages.append({"role": "assistant", "content": said})
            if said[0]["type"] == "text":
                return
            result = {
                "type": "tool_result",
                "tool_use_id": said[0]["id"],
                "content": results[said[0]["input"]["span"]],
            }
            messages.append({"role": "user", "content": [result]})


@asynccontextmanager
async def _serving() -> AsyncIterator[tuple[_Provider, str]]:
    """Run the provider, with the prices of today; yield it and its address."""
    prices = PriceTable()
    await prices.load()
    info = load_catalog().find(MODEL)
    provider = _Provider(info, prices.rates(info, datetime.now(UTC)))
    application = Starlette(routes=[Route("/v1/messages", provider.answer, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(application, log_level="critical", lifespan="off"))
    with socket() as listening:
        listening.bind(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield provider, f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def _proxy(settings: Settings, upstream: str) -> AsyncIterator[tuple[str, asyncio.StreamReader]]:
    """Run ``weftline proxy`` in front of the provider; yield its address and the lines that it prints for calls."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weftline", "--as", FINDER, "proxy", "--port", "0", "--mode", "trim"),
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C is for the demo.
        start_new_session=True,
        env={
            **os.environ,
            "WEFTLINE_LOG_LEVEL": "ERROR",
            "WEFTLINE_DATA_DIR": settings.data_dir,
            "WEFTLINE_DATABASE_URL": settings.storage_url,
            "WEFTLINE_PROXY_UPSTREAMS": f"anthropic={upstream}",
            # What is not ready in time is forwarded as it is: the demo shows the same on a busy machine.
            "WEFTLINE_PROXY_WAIT_MS": "5000",
        },
    )
    try:
        output = process.stdout
        if output is None:
            raise SystemUnavailable("The model proxy of the demo has no output.")
        url = ""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not (line := (await output.readline()).decode()).startswith("#"):
                if not line:
                    raise SystemUnavailable("The model proxy of the demo did not start.")
                url = line.removeprefix(_START).strip() if line.startswith(_START) else url
        yield url, output
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
