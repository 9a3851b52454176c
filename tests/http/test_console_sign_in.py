"""Signing in to the console by a one-time link, its expiry, and signing out everywhere."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest

from support.http_server import served
from weftline.transports.console.paths import link_to
from weftline.transports.console.sign_in import FORM_COOKIE, TOKEN_COOKIE, link_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import World
    from weftline.app.app import App

FORM_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


@asynccontextmanager
async def browsers(number: int, *apps: App) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """Run a server for each app, and browsers without scripts that use them in turn."""
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(served(app))).url for app in apps]
        yield [
            await stack.enter_async_context(httpx2.AsyncClient(base_url=urls[each % len(urls)], timeout=60))
            for each in range(number)
        ]


async def opened(browser: httpx2.AsyncClient, link: str) -> httpx2.Response:
    """Send the form that the page of a link shows."""
    return await browser.post("/console/sign-in", data={"api_key": link, "return_to": "/console/sessions"})


async def is_signed_in(browser: httpx2.AsyncClient) -> bool:
    return (await browser.get("/console/sessions")).status_code == 200


async def sign_out(browser: httpx2.AsyncClient, **fields: str) -> httpx2.Response:
    form = FORM_TOKEN.search((await browser.get("/console")).text)
    assert form is not None
    return await browser.post("/console/sign-out", data={"form_token": form[1], **fields})


async def link(world: World, principal: str = "admin") -> str:
    return link_to("http://127.0.0.1", await link_token(world.app, world.tenant, principal))


@pytest.mark.parametrize("whole", [True, False], ids=["link", "token"])
async def test_a_link_signs_in_once(world: World, *, whole: bool) -> None:
    made = await link(world, "planner")
    presented = made if whole else made.partition("#")[2]
    async with browsers(2, world.app) as (first, second):
        # What fetches pages ahead, and a reader who only looks, use nothing up: the token is behind the #.
        for browser in (first, second):
            assert 'id="by-link"' in (await browser.get("/console/sign-in")).text
        signed = await opened(first, presented)
        assert (signed.status_code, signed.headers["location"]) == (303, "/console/sessions")
        assert ">planner<" in (await first.get("/console")).text
        refused = await opened(second, presented)
        assert (refused.status_code, "set-cookie" in refused.headers) == (401, False)
        assert "weftline console" in re.sub(r"<form.*?</form>", "", refused.text, flags=re.DOTALL)
        assert "used already" in refused.text
        assert await is_signed_in(first)
        assert not await is_signed_in(second)


@pytest.mark.both_databases
async def test_of_many_clicks_at_once_on_two_servers_one_signs_in(world: World) -> None:
    made = await link(world)
    async with browsers(8, world.app, await world.another_app()) as clicking:
        answers = await asyncio.gather(*(opened(browser, made) for browser in clicking))
        assert sorted(answer.status_code for answer in answers) == [303] + [401] * 7
        assert sum([await is_signed_in(browser) for browser in clicking]) == 1


async def test_a_link_expires_and_is_for_its_own_server(world: World) -> None:
    made, kept = await link(world), await link(world)
    forged = kept[:-5] + ("AAAAA" if not kept.endswith("AAAAA") else "BBBBB")
    async with browsers(1, world.app) as (browser,):
        assert (await opened(browser, forged)).status_code == 401
        assert (await opened(browser, kept)).status_code == 303
        browser.cookies.clear()
        world.clock.advance(minutes=5)
        refused = await opened(browser, made)
        assert (refused.status_code, "older than five minutes" in refused.text) == (401, True)


async def test_the_token_of_a_link_is_no_credential(world: World) -> None:
    made = await link(world)
    headers = {"authorization": f"Bearer {made.partition('#')[2]}"}
    async with browsers(1, world.app) as (browser,):
        for path in ("/v1/sessions", "/v1/events/stream", "/v1/agents"):
            assert (await browser.get(path, headers=headers)).status_code == 401, path
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        assert (await browser.post("/mcp", json=call, headers=headers)).status_code == 401
        browser.cookies.set(TOKEN_COOKIE, made.partition("#")[2], path="/console")
        assert not await is_signed_in(browser)
        browser.cookies.clear()
        assert (await opened(browser, made)).status_code == 303


async def test_nothing_of_a_link_is_logged_or_sent_back(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = await link(world)
    secret = made.partition("#")[2].rpartition(".")[2]
    async with browsers(2, world.app) as (first, second):
        page = await first.get("/console/sign-in")
        # no-referrer would make browsers send the origin "null" with the form, which is refused.
        assert page.headers["referrer-policy"] == "same-origin"
        answers = [page, await opened(first, made), await opened(second, made), await first.get("/console")]
        seen = [answer.text + str(answer.headers) for answer in answers]
    audited = str(await world.admin.audit())
    assert "token.issue" in audited
    logged = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    # The client of this test logs what it requests, as the log of a proxy would.
    assert "/console/sign-in" in logged
    assert not [text for text in (*seen, audited, logged) if secret in text]


async def test_signing_out_everywhere_ends_every_browser_of_the_principal(world: World) -> None:
    other_server = await world.another_app()
    async with browsers(3, world.app, other_server) as (here, there, neighbour):
        for browser, principal in ((here, "admin"), (there, "admin"), (neighbour, "planner")):
            assert (await opened(browser, await link(world, principal))).status_code == 303
        unused = await link(world)
        async with there.stream("GET", "/console/events") as stream:
            received = stream.aiter_text()
            assert ": open" in await anext(received)
            assert (await sign_out(here, everywhere="1")).headers["location"] == "/console/sign-in"
            async with asyncio.timeout(60):
                # A page that is open is no longer told of changes.
                [_ async for _ in received]
        for browser in (here, there):
            assert not await is_signed_in(browser)
        assert (await opened(there, unused)).status_code == 401
        assert await is_signed_in(neighbour)
        assert (await opened(there, world.admin.credential)).status_code == 303


async def test_a_form_of_a_browser_that_was_signed_out_says_what_to_do(world: World) -> None:
    async with browsers(2, world.app) as (here, there):
        for browser in (here, there):
            await opened(browser, await link(world))
        form = FORM_TOKEN.search((await there.get("/console")).text)
        assert form is not None
        await sign_out(here, everywhere="1")
        sent = {"form_token": form[1], "alert_id": "alert_1"}
        refused = await there.post("/console/actions/alerts.resolve", data=sent)
        assert refused.status_code == 401
        assert "sign in and send the form again" in refused.text
        assert "Authorization" not in refused.text


async def test_signing_out_ends_this_browser_only(world: World) -> None:
    async with browsers(2, world.app) as (here, there):
        for browser in (here, there):
            await opened(browser, await link(world))
        await sign_out(here)
        assert (await is_signed_in(here), await is_signed_in(there)) == (False, True)


async def with_cookies(browser: httpx2.AsyncClient, token: str, secret: str) -> httpx2.Response:
    """Open a page with cookies that were copied from another browser."""
    browser.cookies.clear()
    return await browser.get("/console/sessions", headers={"cookie": f"{TOKEN_COOKIE}={token}; {FORM_COOKIE}={secret}"})


@pytest.mark.both_databases
async def test_signing_out_ends_the_earlier_and_later_tokens_of_the_same_sign_in(world: World) -> None:
    async with browsers(3, world.app) as (browser, other, thief):
        for each in (browser, other):
            assert (await opened(each, await link(world))).status_code == 303
        first, secret = browser.cookies[TOKEN_COOKIE], browser.cookies[FORM_COOKIE]
        world.clock.advance(minutes=31)
        # The token is replaced; who copied it has it replaced too.
        assert await is_signed_in(browser)
        assert browser.cookies[TOKEN_COOKIE] != first
        copied = (await with_cookies(thief, first, secret)).cookies[TOKEN_COOKIE]
        assert copied not in {first, browser.cookies[TOKEN_COOKIE]}
        await sign_out(browser)
        for token in (first, copied):
            assert (await with_cookies(thief, token, secret)).status_code == 303
        assert await is_signed_in(other)


async def test_another_site_cannot_sign_out_everywhere(world: World) -> None:
    async with browsers(1, world.app) as (browser,):
        await opened(browser, await link(world))
        refused = await browser.post("/console/sign-out", data={"everywhere": "1", "form_token": "0" * 64})
        assert refused.status_code == 403
        assert await is_signed_in(browser)


async def test_a_browser_that_is_not_used_is_signed_out(world: World) -> None:
    async with browsers(1, world.app) as (browser,):
        await opened(browser, world.admin.credential)
        for _ in range(4):
            world.clock.advance(minutes=45)
            assert await is_signed_in(browser)
        world.clock.advance(minutes=61)
        left = await browser.get("/console/sessions")
        assert (left.status_code, left.headers["location"]) == (303, "/console/sign-in?return_to=/console/sessions")
        assert TOKEN_COOKIE not in browser.cookies


async def test_a_page_that_is_only_left_open_counts_as_unused(world: World) -> None:
    async with browsers(1, world.app) as (browser,):
        await opened(browser, world.admin.credential)
        for expected in (200, 200, 401):
            update = await browser.get("/console", headers={"hx-request": "true"})
            assert update.status_code == expected
            assert "set-cookie" not in update.headers
            world.clock.advance(minutes=35 if expected == 200 else 0)


@pytest.mark.parametrize("by", ["key", "link"])
async def test_a_browser_in_constant_use_signs_in_again_after_a_day(world: World, by: str) -> None:
    async with browsers(1, world.app) as (browser,):
        await opened(browser, world.admin.credential if by == "key" else await link(world))
        minutes = 0
        while await is_signed_in(browser):
            world.clock.advance(minutes=25)
            minutes += 25
            assert minutes <= 26 * 60
    # The last token is issued within a day and lasts an hour; that of a link ends with its key, after exactly a day.
    assert 24 * 60 <= minutes <= (25 * 60 + 25 if by == "key" else 24 * 60 + 25)


async def test_a_link_to_an_unknown_principal_is_refused(world: World) -> None:
    with pytest.raises(Exception, match="nobody"):
        await link(world, "nobody")
