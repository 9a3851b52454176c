"""A browser at the console: signing in, watching for what a page must not do, and accessibility."""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from browser import find_browser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Request, Response

    from support.console_content import Planted
    from support.world import Caller, World

PATIENCE_MS = 60_000
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
EVENTS = "/console/events"
_AXE = (Path(__file__).parents[1] / "browser" / "assets" / "axe.min.js").read_text("utf-8")
_LEVEL_AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_RUN_AXE = """async (options) => (await axe.run(document, options)).violations.map((found) => [
    found.id, found.help, found.nodes.slice(0, 5).map((node) => node.target.join(" ") + ": " + node.failureSummary)
])"""


@asynccontextmanager
async def system_browser() -> AsyncIterator[Browser]:
    """Start the browser of this machine; tests are skipped where there is none."""
    path = find_browser()
    if path is None:
        pytest.skip("No Chromium or Chrome was found: install one, or let `make test` do it as root on Debian.")
    playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed.")
    # Chromium does not start as root with its sandbox.
    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=options)
        yield browser
        await browser.close()


@dataclass(slots=True)
class Console:
    """A running server with content, and the browser of this machine."""

    world: World
    planted: Planted
    url: str
    browser: Browser
    _signed_in: dict[str, Any] = field(default_factory=dict)
    _tabs: dict[str, Page] = field(default_factory=dict)

    @asynccontextmanager
    async def opened(self, caller: Caller | None = None, **options: Any) -> AsyncIterator[Page]:
        """Give a tab that is signed in as a caller; by default as the admin.

        Tabs are kept: a new one is a new window of the browser, which costs much more than a page.
        """
        caller = caller or self.world.admin
        name = f"{caller.credential} {sorted(options.items())}"
        if name not in self._tabs:
            options = {"viewport": DESKTOP, "base_url": self.url, **options}
            context = await self.browser.new_context(storage_state=await self._cookies(caller), **options)
            self._tabs[name] = await new_tab(context)
        try:
            yield self._tabs[name]
        finally:
            await self._tabs[name].goto("about:blank")

    @asynccontextmanager
    async def anonymous(self, **options: Any) -> AsyncIterator[Page]:
        """Open a tab that nobody signed in."""
        context = await self.browser.new_context(viewport=DESKTOP, base_url=self.url, **options)
        try:
            yield await new_tab(context)
        finally:
            await context.close()

    async def _cookies(self, caller: Caller) -> Any:
        """Return the cookies of a caller, who signs in once."""
        if caller.credential not in self._signed_in:
            async with self.anonymous() as page:
                await sign_in(page, caller.credential)
                self._signed_in[caller.credential] = await page.context.storage_state()
        return self._signed_in[caller.credential]


async def new_tab(context: BrowserContext) -> Page:
    context.set_default_timeout(PATIENCE_MS)
    return await context.new_page()


async def sign_in(page: Page, api_key: str) -> None:
    await page.goto("/console/sign-in")
    await page.get_by_label("API key").fill(api_key)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.wait_for_url(lambda url: "sign-in" not in url)


async def sign_out(page: Page) -> None:
    await page.locator(".who summary").click()
    await page.get_by_role("button", name="Sign out", exact=True).click()
    await page.wait_for_url("**/sign-in")


@dataclass
class Watch:
    """What a page did that it must not: errors, failed requests, requests to other servers."""

    url: str
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def of(self, page: Page) -> Iterator[None]:
        """Watch a page during the block."""
        followed = {
            "console": self._said,
            "pageerror": self._erred,
            "request": self._asked,
            "requestfailed": self._failed,
            "response": self._answered,
        }
        for event, handler in followed.items():
            page.on(event, handler)
        yield
        for event, handler in followed.items():
            page.remove_listener(event, handler)

    def _erred(self, error: Error) -> None:
        self.problems.append(f"error: {error}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.url):
            self.problems.append(f"request to {request.url}")

    def _failed(self, request: Request) -> None:
        # A page that is left ends its stream of events.
        if EVENTS not in request.url:
            self.problems.append(f"failed: {request.url} {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status}: {response.url}")


async def violations(page: Page, rules: Iterable[str] = ()) -> list[str]:
    """Return what axe finds against WCAG 2.2 AA, or only by some rules."""
    if not await page.evaluate("typeof axe !== 'undefined'"):
        await page.evaluate(_AXE)
    only = {"type": "rule", "values": [*rules]} if rules else {"type": "tag", "values": _LEVEL_AA}
    found = await page.evaluate(_RUN_AXE, {"runOnly": only, "resultTypes": ["violations"]})
    return [json.dumps(each) for each in found]
