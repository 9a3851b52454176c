"""What ``weftline demo --stay`` leaves is worth looking at: no page of the console is empty."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from html import unescape
from typing import TYPE_CHECKING

import httpx2
import pytest

from support.staying_demo import listed_keys, staying_demo

if TYPE_CHECKING:
    from collections.abc import Iterator

LINK = re.compile(r"^(http://127\.0\.0\.1:\d+)/console/sign-in#\S+$")
HREF = re.compile(r'href="(/console[^"#]*)"')
EMPTY = re.compile(r'<p class="empty">(.*?)</p>', re.DOTALL)
# Every page of the console; {} is one part of a path.
PAGES = (
    "",
    "/sessions",
    "/sessions/{}",
    "/sessions/{}/keys/{}",
    "/sessions/{}/messages",
    "/sessions/{}/windows",
    "/sessions/{}/windows/{}",
    "/sessions/{}/prompts",
    "/sessions/{}/timeline",
    "/prompts",
    "/prompts/{}",
    "/prompts/{}/receipt",
    "/prompts/{}/try",
    "/prompts/{}/replay",
    "/prompts/{}/changes",
    "/agents",
    "/agents/{}",
    "/agents/{}/context",
    "/agents/{}/memory",
    "/teams",
    "/teams/{}",
    "/tenant",
    "/knowledge",
    "/knowledge/{}",
    "/knowledge/{}/document",
    "/search",
    "/history/{}",
    "/history/{}/graph",
    "/history/{}/verify",
    "/history/{}/diff",
    "/history/{}/blame",
    "/history/{}/rollback",
    "/reviews",
    "/reviews/{}",
    "/sessions/{}/windows/{}/compactions",
    "/compactions/{}",
    "/approvals",
    "/approvals/{}",
    "/guardrails",
    "/audit",
    "/usage",
    "/alerts",
    "/advice",
    "/advice/{}",
    "/webhooks",
    "/webhooks/{}",
    "/health",
)
# The session of the week before is first: it has prompts whose answers were reported.
START = ("/sessions/november-sale/prompts", "/history/board:november-sale", "/search?q=price+cache", "", "/usage")
# A link of each kind is followed this often.
FOLLOWED = 4
# What every page of its kind says, whether it is empty or not.
NOTE = "The same on the command line"
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Play the demo; return what it prints."""
    folder = tmp_path_factory.mktemp("demo")
    with staying_demo(folder, "--data-dir", "kept", WEFTLINE_RATE_LIMITS="off") as output:
        yield output


@pytest.fixture(scope="module")
def browser(output: list[str]) -> Iterator[httpx2.Client]:
    """Sign in by the link that the demo prints."""
    link = next(found for line in output if (found := LINK.match(line)))
    with httpx2.Client(base_url=link[1], timeout=120) as browser:
        assert browser.post("/console/sign-in", data={"api_key": link[0]}).status_code == 303
        _wait_until_indexed(browser)
        yield browser


def _wait_until_indexed(browser: httpx2.Client) -> None:
    """Wait for what the server does in the background: indexing, alerts, the check of documents."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        held = browser.get("/console/knowledge/operations?state=quarantined").text
        pending = browser.get("/console/knowledge/operations?state=pending").text
        if "supplier-notice.md" in held and "No document to show" in pending:
            return
        time.sleep(0.2)
    raise AssertionError("the documents of the demo were not indexed")


@pytest.fixture(scope="module")
def pages(browser: httpx2.Client) -> dict[str, dict[str, str]]:
    """Return the pages that links lead to, by their kind and address."""
    patterns = {page: re.compile(f"/console{page.replace('{}', '[^/]+')}") for page in PAGES}
    shown: dict[str, dict[str, str]] = defaultdict(dict)
    waiting = [f"/console{path}" for path in START]
    while waiting:
        address = waiting.pop(0)
        kind = next((page for page, pattern in patterns.items() if pattern.fullmatch(address.partition("?")[0])), None)
        if kind is None or address in shown[kind] or len(shown[kind]) >= FOLLOWED:
            continue
        answer = browser.get(address)
        assert answer.status_code == 200, (address, answer.text[-2_000:])
        shown[kind][address] = answer.text
        waiting += [link for link in map(unescape, HREF.findall(answer.text)) if "sort=" not in link]
    return shown


@pytest.mark.req("SC-21")
def test_stay_keeps_serving_the_session_of_the_demo(output: list[str]) -> None:
    assert "decisions_made" in listed_keys(output)


@pytest.mark.parametrize("page", PAGES)
def test_no_page_of_the_demo_is_empty(pages: dict[str, dict[str, str]], page: str) -> None:
    assert pages[page], f"no link leads to {page}"
    empty = {
        address: [each for each in EMPTY.findall(text) if not each.startswith(NOTE)]
        for address, text in pages[page].items()
    }
    # One of its kind is enough: the first prompt of an agent, for example, has none before it.
    assert not all(empty.values()), empty


def test_the_demo_leaves_work_for_a_human(pages: dict[str, dict[str, str]], browser: httpx2.Client) -> None:
    overview = pages[""]["/console"]
    assert re.search(r"<h2>Alerts</h2><p class=\"figure\">[1-9]", overview)
    assert re.search(r"<h2>Approvals</h2><p class=\"figure\">[1-9]", overview)
    assert "start-earlier" in "".join(pages["/history/{}"].values())
    assert "rollback" in "".join(pages["/history/{}"].values()).lower()
    assert 'class="reply"' in "".join(pages["/sessions/{}/messages"].values())
    assert re.search(r"[1-9]\d* failed", "".join(pages["/webhooks/{}"].values()))
    guardrails = browser.get("/console/guardrails?agent=planner").text
    assert re.search(r"production-is-read-only.*?<td class=\"number\">[1-9]", guardrails, re.DOTALL)
    assert "Held since" in browser.get("/console/knowledge/operations/document?document=supplier-notice.md").text
    assert len(re.findall(r"<tr><td class=\"name\">\d{4}-\d{2}-\d{2}", pages["/usage"]["/console/usage"])) >= 5
