"""The console in a real browser: every page is whole and usable by everyone, and what people do there works."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import expect

from support.browsers import DESKTOP, PATIENCE_MS, PHONE, Watch, sign_in, sign_out, violations
from support.console_content import BOARD, ORDERS, held_deletion, open_review
from weftline.transports.console.actions import DONE
from weftline.transports.console.pages import PAGES

if TYPE_CHECKING:
    from playwright.async_api import Page

    from support.browsers import Console
    from support.world import Caller

# What depends on the theme or the width; the other rules were checked before these change.
THEMED = ("color-contrast", "target-size", "scrollable-region-focusable", "link-in-text-block")
WITH_PARAMETERS = [page.path for page in PAGES if "{" in page.path]
# Tables that can only be read by scrolling sideways; a graph may be wide.
CUT_OFF = """() => [...document.querySelectorAll(".scroll:not(:has(.graph))")]
    .filter((table) => table.scrollWidth > table.clientWidth + 1)
    .map((table) => table.innerText.slice(0, 80))"""
ASSETS = Path(__file__).parent / "assets"
BOARD_PAGE = f"/console/sessions/{ORDERS}"
# What moved, after the page was shown.
FOLLOW_SHIFTS = """() => {
    window.shifted = [];
    new PerformanceObserver((list) => {
        for (const { sources } of list.getEntries()) {
            window.shifted.push(...sources.map(({ node }) => node?.parentElement?.outerHTML.slice(0, 200)));
        }
    }).observe({ type: "layout-shift" });
}"""

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def planner(console: Console) -> Caller:
    return console.world.planner.in_session(ORDERS)


async def follows(page: Page, path: str) -> None:
    """Open a page and wait until it is told about changes."""
    async with page.expect_response(lambda response: "/console/events" in response.url):
        await page.goto(path)


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_every_page_is_whole_and_accessible(console: Console, path: str) -> None:
    watch = Watch(console.url)
    # A change of the theme takes effect at once for readers who want no motion.
    async with console.opened(reduced_motion="reduce") as page:
        await page.set_viewport_size(DESKTOP)
        await page.emulate_media(color_scheme="light")
        with watch.of(page):
            answer = await page.goto(console.planted.address(path))
            assert answer is not None
            assert answer.status == 200
            assert await violations(page) == []
            assert await page.evaluate(CUT_OFF) == []
            await page.set_viewport_size(PHONE)
            await page.emulate_media(color_scheme="dark")
            assert await violations(page, THEMED) == []
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide == 0, "the page is wider than a phone"
            assert await page.evaluate(CUT_OFF) == []
        assert watch.problems == []


async def test_pages_without_a_signed_in_reader_are_accessible(console: Console) -> None:
    async with console.anonymous(color_scheme="dark") as page:
        await page.goto("/console/sign-in")
        assert await violations(page) == []
        await page.get_by_label("API key").fill("wrong")
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(page.get_by_role("alert")).to_be_visible()
        assert await violations(page) == []
    async with console.opened() as page:
        await page.goto("/console/sessions/absent")
        assert await violations(page) == []


async def test_a_reader_signs_in_and_out(console: Console) -> None:
    async with console.anonymous() as page:
        await page.goto(BOARD_PAGE)
        await page.get_by_label("API key").fill(console.world.planner.credential)
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Find out why orders became slow")
        assert await page.evaluate("document.cookie") == ""
        await sign_out(page)
        await page.goto(BOARD_PAGE)
        await expect(page.get_by_label("API key")).to_be_visible()


async def test_a_write_is_seen_on_the_board_without_a_reload(
    console: Console, planner: Caller, request: pytest.FixtureRequest
) -> None:
    await planner.write("live", "before")
    async with console.opened() as page:
        await follows(page, BOARD_PAGE)
        await page.evaluate("window.loaded = 'once'")
        await page.evaluate(FOLLOW_SHIFTS)
        row = page.locator("#key-live")
        await expect(row).to_contain_text("before")
        started = time.monotonic()
        await planner.write("live", "behind")
        await expect(row).to_contain_text("behind")
        request.node.user_properties.append(("seconds_until_seen", round(time.monotonic() - started, 3)))
        assert await page.evaluate("window.loaded") == "once"
        # Nothing but the changed row may move.
        assert [each for each in await page.evaluate("window.shifted") if 'id="key-live"' not in each] == []


async def test_a_live_update_leaves_what_is_open_and_the_scroll_position(console: Console, planner: Caller) -> None:
    async with console.opened(viewport=PHONE) as page:
        await follows(page, f"{BOARD_PAGE}/timeline?after={await console.world.last_event() - 20}")
        await page.locator("#live details > summary").first.click()
        await page.evaluate("window.scrollTo(0, 200)")
        await planner.write("later", "something")
        await expect(page.locator(".timeline > li").last).to_contain_text("later")
        await expect(page.locator("#live details").first).to_have_attribute("open", "")
        assert await page.evaluate("window.scrollY") == 200


async def test_a_page_whose_reader_was_signed_out_asks_to_sign_in_again(console: Console, planner: Caller) -> None:
    async with console.anonymous() as page:
        await sign_in(page, console.world.planner.credential)
        await follows(page, BOARD_PAGE)
        elsewhere = await page.context.new_page()
        await elsewhere.goto("/console")
        await sign_out(elsewhere)
        await planner.write("after", "signing out")
        # The stream may end first: then the page stays as it is until it is used.
        await page.reload()
        await expect(page.get_by_label("API key")).to_be_visible()


async def test_a_prompt_is_read_and_replayed(console: Console) -> None:
    async with console.opened() as page:
        await page.goto("/console/prompts")
        await page.locator("tbody a[href^='/console/prompts/']").first.click()
        await expect(page.get_by_role("heading", level=1)).not_to_contain_text("Prompt of")
        await expect(page.locator(".turn-system")).to_be_visible()
        await page.get_by_role("link", name="Receipt").click()
        await expect(page.get_by_text("in the prompt").first).to_be_visible()
        digest = (await page.locator("code.id", has_text="sha256:").last.text_content() or "").strip()
        await page.get_by_role("link", name="Replay").click()
        await expect(page.get_by_text("same bytes")).to_be_visible()
        await expect(page.get_by_text(digest)).to_be_visible()


async def test_a_rollback_is_previewed_and_made(console: Console, planner: Caller) -> None:
    await planner.write("plan", "first idea")
    version = (await planner.call("history.log", context_id=BOARD, limit=1))["commits"][0]["version"]
    await planner.write("plan", "second idea")
    async with console.opened() as page:
        await page.goto(f"/console/history/{BOARD}")
        await page.locator(f"a[href$='rollback?version={version}']").first.click()
        before, after = (page.locator("tr.changed", has_text="second idea").locator("td.code").nth(at) for at in (0, 1))
        await expect(before).to_contain_text("second idea")
        await expect(after).to_contain_text("first idea")
        assert await planner.value("plan") == "second idea"
        await page.get_by_label("Reason").fill("back to the first")
        await page.get_by_role("button", name=f"Roll back to version {version}").click()
        await expect(page.get_by_role("status")).to_have_text(DONE["history.rollback"])
    assert await planner.value("plan") == "first idea"


async def test_a_merge_is_reviewed_and_decided(console: Console, planner: Caller) -> None:
    review_id = await open_review(planner, "headline")
    async with console.opened() as page:
        await page.goto("/console/reviews")
        await page.locator(f"a[href$='{review_id}']").first.click()
        await page.get_by_label("Incoming").check()
        await page.get_by_role("button", name="Decide the merge").click()
        await expect(page.get_by_role("status")).to_have_text(DONE["history.resolve"])
    assert await planner.value("headline") == "Orders take four seconds because the price cache is short."


async def test_a_held_call_is_approved(console: Console, planner: Caller) -> None:
    await planner.write("decision_on_budget", "At most 12,000 euros.")
    approval_id = await held_deletion(console.world, planner, "decision_on_budget")
    async with console.opened() as page:
        await page.goto("/console/approvals?state=pending")
        await page.locator(f"a[href$='{approval_id}']").first.click()
        await expect(page.get_by_text("Decisions of the user are deleted only with an approval.").first).to_be_visible()
        approve = page.locator("form[action$='approval.approve']")
        await approve.get_by_label("Reason").fill("agreed")
        await approve.get_by_role("button", name="Approve").click()
        await expect(page.get_by_role("status")).to_have_text(DONE["approval.approve"])
    assert "decision_on_budget" not in await planner.keys()


async def test_a_person_writes_a_key_and_edits_it(console: Console, planner: Caller) -> None:
    async with console.opened() as page:
        await page.goto(BOARD_PAGE)
        await page.locator("summary", has_text="Write a key").click()
        assert await violations(page) == []
        await page.get_by_label("Key", exact=True).fill("by_hand")
        await page.get_by_label("Value").fill("first line\nsecond line")
        await page.locator(".fields").get_by_role("button", name="Write a key").click()
        await expect(page.get_by_role("status")).to_have_text(DONE["board.write"])
        await page.get_by_role("link", name="by_hand", exact=True).click()
        await page.locator("summary", has_text="Edit").click()
        await expect(page.get_by_label("Value")).to_have_value("first line\nsecond line")
        await page.get_by_label("Value").fill("better")
        await page.get_by_role("button", name="Save as a new version").click()
        await expect(page.get_by_role("heading", name="Version 2")).to_be_visible()
    assert await planner.value("by_hand") == "better"


async def test_search_is_reached_by_a_key_and_explains_its_scores(console: Console) -> None:
    async with console.opened() as page:
        await page.goto("/console")
        await page.keyboard.press("/")
        await page.keyboard.type("price cache")
        await page.keyboard.press("Enter")
        first = page.locator(".results > li").first
        await expect(first).to_contain_text("price")
        await first.get_by_text("Why this score").click()
        assert await first.locator("dl dt").count() > 1
        await expect(page.get_by_role("main")).to_contain_text("Searched by words only: turned off by the operator")
        await page.goto("/console/health")
        await expect(page.get_by_role("main")).to_contain_text("Search by meaning is off: turned off by the operator")


async def test_keys_open_pages_and_their_list(console: Console) -> None:
    async with console.opened() as page:
        await page.goto("/console")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
        await page.keyboard.press("g")
        await page.keyboard.press("s")
        await page.wait_for_url("**/console/sessions")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()


async def test_rows_of_tables_are_read_one_below_the_other_on_a_phone(console: Console, planner: Caller) -> None:
    """Cells have the names of their columns, also those that a live update brings; tables stay tables for readers."""
    await planner.write("narrow", "before")
    async with console.opened(viewport=PHONE) as page:
        await follows(page, BOARD_PAGE)
        await planner.write("narrow", "behind")
        row = page.locator("#key-narrow")
        await expect(row).to_contain_text("behind")
        named = await row.locator("td").evaluate_all("cells => cells.map((cell) => cell.dataset.name)")
        assert named == ["Key", "Value", "Version", "By", "When", "Tokens"]
        value, by = [await row.locator("td").nth(place).bounding_box() for place in (1, 3)]
        assert value is not None
        assert by is not None
        assert by["y"] >= value["y"] + value["height"]
        await expect(page.get_by_role("row").filter(has_text="narrow").get_by_role("cell").nth(1)).to_contain_text(
            "behind"
        )
        await page.get_by_role("columnheader").get_by_role("link", name="Tokens").click()
        await page.wait_for_url("**sort=value_size_tokens**")


async def test_a_compaction_is_shown_next_to_what_it_replaced(console: Console) -> None:
    async with console.opened() as page:
        await page.goto(console.planted.address("/sessions/{session_id}/windows/{agent_id}/compactions"))
        await page.locator("tbody a[href^='/console/compactions/']").first.click()
        await expect(page.get_by_role("heading", name="Originals").first).to_be_visible()
        await expect(page.get_by_role("heading", name="Summary").first).to_be_visible()


async def test_the_menu_of_a_phone_opens_without_covering_anything_before(console: Console) -> None:
    async with console.opened(viewport=PHONE) as page:
        await page.goto("/console")
        await expect(page.get_by_role("link", name="Sessions", exact=True)).to_be_hidden()
        await page.get_by_role("button", name="Menu").click()
        assert await violations(page) == []
        await page.get_by_role("link", name="Sessions", exact=True).click()
        await page.wait_for_url("**/console/sessions")


async def test_a_stranger_reaches_nothing_of_another_tenant_by_guessing_addresses(console: Console) -> None:
    async with console.opened(console.world.stranger) as page:
        for path in WITH_PARAMETERS:
            answer = await page.goto(console.planted.address(path))
            assert answer is not None
            text = await page.locator("main").inner_text()
            for secret in ("price cache", "Ines", "CHG-118", "runbook", "how the shop is run"):
                assert secret.lower() not in text.lower(), path


async def test_every_page_can_be_read_without_scripts(console: Console) -> None:
    async with console.opened(java_script_enabled=False) as page:
        # What the server sends is all there is without scripts: it has to be drawn for few pages only.
        for each in PAGES:
            answer = await page.context.request.get(console.planted.address(each.path))
            assert answer.status == 200, each.path
            assert (await answer.text()).count("<h1") == 1, each.path
        for path in ("/prompts/{receipt_id}/receipt", "/history/{context_id}/diff", "/usage"):
            await page.goto(console.planted.address(path))
            await expect(page.locator("h1")).to_be_visible()
            await expect(page.locator("table").first).to_be_visible()
        await page.goto(BOARD_PAGE)
        await expect(page.locator("#key-findings_summary time")).to_contain_text("UTC")
        await page.get_by_role("link", name="Messages", exact=True).click()
        await expect(page.get_by_text("filed as change CHG-118").first).to_be_visible()


async def test_times_are_in_the_zone_of_the_reader_and_utc_is_their_title(console: Console) -> None:
    async with console.opened(timezone_id="Asia/Kolkata") as page:
        await page.goto(BOARD_PAGE)
        shown = page.locator("#key-findings_summary time")
        at = datetime.fromisoformat(await shown.get_attribute("datetime") or "")
        there = at.astimezone(ZoneInfo("Asia/Kolkata"))
        await expect(shown).to_have_text(f"{there:%Y-%m-%d %H:%M}")
        exact, utc = f"{there:%Y-%m-%d %H:%M:%S} GMT+5:30", f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}"
        assert await shown.get_attribute("title") == f"{exact}, {utc}"
        await expect(page.locator("#zone")).to_contain_text("(GMT+5:30)")
        # A time of today is shown by how long ago it was.
        await shown.evaluate("time => { time.dateTime = new Date(Date.now() - 7.2e6).toISOString() }")
        await page.evaluate("showLocalTimes(document)")
        await expect(shown).to_have_text("2 hr. ago")


async def test_nothing_moves_for_readers_who_want_no_motion(console: Console) -> None:
    async with console.opened(reduced_motion="reduce") as page:
        await page.goto(BOARD_PAGE)
        moving = await page.evaluate(
            """() => [...document.querySelectorAll("*")].filter((element) => {
                const style = getComputedStyle(element);
                return style.transitionDuration !== "0s" || style.animationName !== "none"
                    || style.scrollBehavior !== "auto";
            }).length"""
        )
        assert moving == 0


async def test_an_id_is_copied(console: Console) -> None:
    async with console.opened(permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.goto(BOARD_PAGE)
        await page.get_by_role("button", name="Copy").first.click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == ORDERS


def test_vendored_files_of_tests_are_what_their_list_says() -> None:
    listed = json.loads((ASSETS / "vendored.json").read_text("utf-8"))
    assert set(listed) == {file.name for file in ASSETS.glob("*.js")}
    for name, about in listed.items():
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == about["sha256"], name
