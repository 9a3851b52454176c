"""The console with a large tenant: CPU of each page, a page that is live under many updates, memory of open pages.

The tenant has 100,000 items: messages of many agents, all of them indexed. A session of its own has what pages show: a
full board with a long history and branches, a window, prompts with receipts, documents. Pages are opened one after the
other, as an admin; CPU is that of the server's process with all its threads, so other programs do not count. Search is
by words: the server would embed 100,000 messages for an hour, and that would count as the CPU of the pages.

A live page does what the script in the browser does: it follows the event stream and fetches its live part again, at
most twice a second.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from benchmarks.grown_tenant import Size, fill, phrases
from benchmarks.harness import Row, cpu_seconds, limited, resident_bytes
from benchmarks.servers import ROOMY, call, folder, open_app, weftline_server
from benchmarks.wire import Connection, Refused, request, run_async
from weftline.transports.console.pages import PAGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.servers import Served
    from weftline.app.app import App

_SESSION, _WRITER = "console", "console-writer"
_PAGE_MS = 100.0
_UPDATES_A_SECOND = 500
_LEAST_SECONDS_BETWEEN_FETCHES = 0.5
_WRITERS = 16
_OPEN_PAGES = 200
# Longer than the intervals of the server's caches and statistics.
_MAX_GROWTH_MB = 5.0
_INDEXING_SECONDS = 600
_PERCENTILE = 0.95


class Scale(NamedTuple):
    """Owners of items and items each, keys of the board, opens of each page, and seconds of the live parts."""

    owners: int
    each: int
    keys: int
    documents: int
    opens: int
    seconds: float


_FULL = Scale(owners=200, each=500, keys=500, documents=100, opens=40, seconds=10)
_QUICK = Scale(owners=4, each=10, keys=10, documents=3, opens=2, seconds=1)
_QUERIES = {
    "/search": f"?q={quote(phrases()[0])}",
    "/history/{context_id}/rollback": "?version=1",
    "/knowledge/{domain}/document": "?document=d1",
    "/agents/{agent_id}/memory": "?inspect=1",
}
# Held calls and recommendations need agents that break rules and calls that were answered: only their lists are opened.
_WITHOUT_DATA = {"/approvals/{approval_id}", "/advice/{recommendation_id}"}


def run(*, quick: bool) -> list[Row]:
    with folder() as data:
        return run_async(_measure(data, _QUICK if quick else _FULL))


async def _measure(data: Path, scale: Scale) -> list[Row]:
    await fill(str(data / "weftline.db"), Size(scale.owners, scale.each, memory=False))
    key, parts = await _prepare(str(data / "weftline.db"), scale)
    with weftline_server(data, settings={"WEFTLINE_SEMANTIC_SEARCH": "off"}) as served:
        await _until_indexed(served, key)
        browser = await Browser.sign_in(served.port, key)
        pages = await _pages(browser, served, parts, scale)
        live = await _live(browser, served, key, scale)
        memory = await _memory(browser, served, key, scale)
    return [*pages, *live, *memory]


class Browser:
    """A signed-in browser with one connection."""

    def __init__(self, port: int, connection: Connection, cookies: str) -> None:
        self._port = port
        self._connection = connection
        self._cookies = cookies

    @classmethod
    async def sign_in(cls, port: int, api_key: str) -> Browser:
        connection = await Connection.open(port)
        form = urlencode({"api_key": api_key}).encode()
        head = request(
            "POST",
            "/console/sign-in",
            None,
            content_type="application/x-www-form-urlencoded",
            content_length=str(len(form)),
        )
        answer = await connection.exchange(head + form)
        found = re.findall(rb"set-cookie: ([^;]+);", answer.head, re.IGNORECASE)
        if not found:
            raise Refused(f"{answer.status} {answer.body[:500]!r}")
        return cls(port, connection, b"; ".join(found).decode())

    async def open(self, path: str) -> bytes:
        answer = await self._connection.exchange(request("GET", f"/console{path}", None, cookie=self._cookies))
        if answer.status != 200:
            raise Refused(f"{path}: {answer.status} {answer.body[:500]!r}")
        return answer.body

    async def follow(self, changed: asyncio.Event, session_id: str = _SESSION) -> None:
        """Read an event stream; note each time that something changed."""
        stream = await Connection.open(self._port)
        asked = request("GET", f"/console/events?session_id={session_id}", None, cookie=self._cookies)
        async for chunk in stream.chunks(asked):
            if b"data: changed" in chunk:
                changed.set()


async def _prepare(url: str, scale: Scale) -> tuple[str, dict[str, str]]:
    """Create what pages show; return the admin's key and the parts of their addresses."""
    app = await open_app(url)
    try:
        key = (await call(app, "key.create", agent_id="admin"))["api_key"]
        await call(app, "agent.create", agent_id=_WRITER)
        members = ["*"]
        await call(app, "session.create", purpose="many updates", session_id=_SESSION, config=ROOMY, members=members)
        parts = {"session_id": _SESSION, "key": "key_0", "agent_id": "agent_1", "team": "research"}
        parts |= {"domain": "handbook", "context_id": f"board:{_SESSION}"}
        parts |= await _board(app, scale.keys) | await _prompts(app, scale)
        await call(app, "team.create", team="research")
        await call(app, "layer.define", layer="tenant", text="Answer in English.")
        await call(app, "knowledge.create_domain", domain="handbook")
        for number in range(scale.documents):
            text = "\n\n".join(phrases()[number % 400 : number % 400 + 20])
            await call(app, "knowledge.add_document", domain="handbook", document_id=f"d{number}", text=text)
        hook = await call(app, "webhook.create", url="https://example.com/hook", types=["session.archived"])
        return key, parts | {"webhook_id": hook["webhook_id"]}
    finally:
        await app.close()


async def _board(app: App, keys: int) -> dict[str, str]:
    """Fill a board, change keys on two branches, and leave a merge to decide."""
    board = f"board:{_SESSION}"

    async def write(key: str, value: str, **where: str) -> None:
        await call(app, "board.write", session_id=_SESSION, key=key, value=value, **where)

    for number in range(keys):
        await write(f"key_{number}", phrases()[number % 400])
    for branch in ("one", "two"):
        made = await call(app, "history.branch", context_id=board, branch=branch)
        for number in range(min(keys, 20)):
            await write(f"key_{number}", f"{branch} {phrases()[number]}", branch=branch)
    for number in range(min(keys, 20)):
        await write(f"key_{number}", f"main {phrases()[number]}")
    merge = await call(app, "history.merge", context_id=board, from_context_id=made["context_id"])
    return {"review_id": merge["review_id"]}


async def _prompts(app: App, scale: Scale) -> dict[str, str]:
    """Fill a window, compact it and assemble prompts of it."""
    events = [{"event_id": f"e{number}", "content": phrases()[number % 400]} for number in range(scale.keys)]
    of_admin = {"session_id": _SESSION}
    for start in range(0, len(events), 100):
        await call(app, "context.ingest", **of_admin, events=events[start : start + 100])
    compacted: dict[str, Any] = {}
    if scale is _FULL:
        compacted = await call(app, "context.compact", **of_admin, wait_seconds=30)
    for number in range(5):
        assembled = await call(
            app, "context.assemble", **of_admin, task_description=phrases()[number], token_budget=20_000
        )
    return {"receipt_id": assembled["receipt_id"], "compaction_id": compacted.get("compaction_id", "")}


async def _until_indexed(served: Served, key: str) -> None:
    """Wait for the jobs of a server that was just started, so that they are not measured."""
    connection, deadline = await Connection.open(served.port), time.monotonic() + _INDEXING_SECONDS
    while time.monotonic() < deadline:
        answer = await connection.ask(request("GET", "/v1/performance", key))
        if b'"index_lag_events":0,' in answer.body:
            return
        await asyncio.sleep(0.5)
    raise TimeoutError(f"the index is not complete after {_INDEXING_SECONDS} s")


async def _pages(browser: Browser, served: Served, parts: Mapping[str, str], scale: Scale) -> list[Row]:
    rows = []
    for page in PAGES:
        names = re.findall(r"{(\w+)", page.path)
        if page.path in _WITHOUT_DATA or not all(parts.get(name) or name == "agent_id" for name in names):
            continue
        filled = parts | ({"agent_id": "admin"} if "windows" in page.path else {})
        path = re.sub(r"{(\w+)(?::path)?}", lambda found, filled=filled: quote(filled[found[1]], safe=""), page.path)
        path += _QUERIES.get(page.path, "")
        await browser.open(path)
        spent = []
        for _ in range(scale.opens):
            before = cpu_seconds(served.pid)
            await browser.open(path)
            spent.append((cpu_seconds(served.pid) - before) * 1_000)
        rows.append(limited(f"console.page.{page.show.__name__}", _p95(spent), "ms of CPU, p95", below=_PAGE_MS))
    slowest = max(rows, key=lambda row: row.value)
    return [*rows, limited("console.slowest_page", slowest.value, "ms of CPU, p95", below=_PAGE_MS)]


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * _PERCENTILE)]


async def _live(browser: Browser, served: Served, key: str, scale: Scale) -> list[Row]:
    """Measure a page that is open while a board gets many updates a second, against the same updates without it."""
    without = await _updates(served, key, scale.seconds)
    changed, fetched = asyncio.Event(), list[float]()
    following = asyncio.create_task(browser.follow(changed))
    page = asyncio.create_task(_live_page(browser, changed, fetched))
    with_page = await _updates(served, key, scale.seconds)
    for task in (following, page):
        task.cancel()
    await asyncio.gather(following, page, return_exceptions=True)
    cost = with_page.cpu / with_page.seconds - without.cpu / without.seconds
    most = 1 / _LEAST_SECONDS_BETWEEN_FETCHES
    rate = len(fetched) / with_page.seconds
    is_met = 0 < rate <= most + 0.1
    return [
        Row("console.live.updates", round(with_page.updates / with_page.seconds), "updates/s"),
        Row("console.live.fetches", round(rate, 2), "fetches/s", target=f"at most {most:g}", met=is_met),
        Row("console.live.cpu", round(max(0.0, cost) * 100, 1), "% of a core more"),
        limited("console.live.fetch", _p95(fetched) * 1_000 if fetched else 0.0, "ms, p95", below=1_000),
    ]


async def _live_page(browser: Browser, changed: asyncio.Event, fetched: list[float]) -> None:
    """Fetch the page when something changed, at most twice a second, as the script in the browser does."""
    while True:
        await changed.wait()
        changed.clear()
        started = time.monotonic()
        await browser.open(f"/sessions/{_SESSION}")
        taken = time.monotonic() - started
        fetched.append(taken)
        await asyncio.sleep(max(0.0, _LEAST_SECONDS_BETWEEN_FETCHES - taken))


class Updates(NamedTuple):
    """Board writes of a while, and the CPU of the server meanwhile."""

    updates: int
    seconds: float
    cpu: float


async def _updates(served: Served, key: str, seconds: float) -> Updates:
    """Write to the board at the rate of the target, from several connections."""
    connections = [await Connection.open(served.port) for _ in range(_WRITERS)]
    started, before, done = time.monotonic(), cpu_seconds(served.pid), 0

    async def write(connection: Connection, place: int) -> None:
        nonlocal done
        turn = 0
        while (due := started + (turn * _WRITERS + place) / _UPDATES_A_SECOND) < started + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if time.monotonic() > started + seconds:
                return
            value = {"value": f"update {turn} of writer {place}"}
            await connection.ask(request("PUT", f"/v1/sessions/{_SESSION}/context/live_{place}", key, value))
            turn, done = turn + 1, done + 1

    await asyncio.gather(*(write(connection, place) for place, connection in enumerate(connections)))
    taken = time.monotonic() - started
    spent = Updates(done, taken, cpu_seconds(served.pid) - before)
    for connection in connections:
        await connection.close()
    return spent


async def _memory(browser: Browser, served: Served, key: str, scale: Scale) -> list[Row]:
    """Measure the server's memory with many open pages, while updates happen; it must not grow with time."""
    await _updates(served, key, scale.seconds)
    closed = resident_bytes(served.pid)
    changed = asyncio.Event()
    pages = [asyncio.create_task(browser.follow(changed)) for _ in range(_OPEN_PAGES)]
    await _updates(served, key, scale.seconds)
    opened = resident_bytes(served.pid)
    for _ in range(2):
        await _updates(served, key, scale.seconds)
    grown = (resident_bytes(served.pid) - opened) / 1_000_000
    alive = sum(not page.done() for page in pages)
    for page in pages:
        page.cancel()
    await asyncio.gather(*pages, return_exceptions=True)
    return [
        Row("console.open_pages", alive, "event streams", target=f"all {_OPEN_PAGES}", met=alive == _OPEN_PAGES),
        Row("console.open_pages.each", round(max(0, opened - closed) / _OPEN_PAGES / 1_000, 1), "kB"),
        limited("console.open_pages.growth", max(0.0, grown), "MB", below=_MAX_GROWTH_MB),
    ]
