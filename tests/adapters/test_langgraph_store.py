"""LangGraph's store over Weftline: items, namespaces, filters, queries by meaning, times to live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp

from weftline import SyncClient, Weftline
from weftline.access.model import DEFAULT_TENANT
from weftline.adapters.bridge import AdapterWarning
from weftline.adapters.langgraph import WeftlineStore
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.tenants import ADMIN
from weftline.client._operations import SyncOperations
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock


@pytest.fixture
def store(opened: Weftline) -> WeftlineStore:
    return WeftlineStore(opened, strict=True)


@pytest.fixture
async def timed(folder: Path, clock: FrozenClock) -> AsyncIterator[WeftlineStore]:
    """Open a store whose time the test moves."""
    app = App(Settings(data_dir=str(folder), database_url=str(folder / "weftline.db"), rate_limits="off"), clock=clock)
    await app.open(background=False)
    await app.tenants.ensure_default()
    yield WeftlineStore(Weftline(app, Local(DEFAULT_TENANT, ADMIN, by_owner=True)), strict=True)
    await app.close()


async def test_items_are_written_read_changed_and_deleted_with_every_client(any_client: Any) -> None:
    store, namespace = WeftlineStore(any_client, strict=True), ("users", "ada lovelace/1")
    if isinstance(any_client, SyncOperations):
        store.put(namespace, "food", {"likes": "lasagne"})
        store.put(namespace, "food", {"likes": "pizza"})
        item = store.get(namespace, "food")
        store.delete(namespace, "food")
        gone = store.get(namespace, "food")
    else:
        await store.aput(namespace, "food", {"likes": "lasagne"})
        await store.aput(namespace, "food", {"likes": "pizza"})
        item = await store.aget(namespace, "food")
        await store.adelete(namespace, "food")
        gone = await store.aget(namespace, "food")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (namespace, "food", {"likes": "pizza"})
    assert item.created_at < item.updated_at
    assert gone is None


@pytest.mark.parametrize("key", ["a/b", "a:b", ".hidden", "~", "50 %", "Übung", "a.b", ":", "%2E", "", "..", "a/../b"])
async def test_any_name_is_a_key_and_a_label(store: WeftlineStore, key: str) -> None:
    label = key or "label"
    await store.abatch([PutOp((label, label), key, {"is": key}), PutOp((label,), "other", {"is": "other"})])
    # In a batch, where LangGraph does not check labels.
    item, namespaces, found = await store.abatch(
        [GetOp((label, label), key), ListNamespacesOp(), SearchOp((label, label))]
    )
    assert item.value == {"is": key}
    assert namespaces == [(label,), (label, label)]
    assert [each.key for each in found] == [key]


async def test_a_batch_reads_before_it_writes_and_the_last_write_of_a_key_counts(store: WeftlineStore) -> None:
    await store.aput(("n",), "k", {"at": 0})
    results = await store.abatch(
        [PutOp(("n",), "k", {"at": 1}), GetOp(("n",), "k"), PutOp(("n",), "k", {"at": 2}), SearchOp(("n",))]
    )
    assert [results[0], results[2]] == [None, None]
    assert results[1].value == {"at": 0}
    assert [item.value for item in results[3]] == [{"at": 0}]
    assert (await store.aget(("n",), "k")).value == {"at": 2}


async def test_a_search_stays_below_its_namespace_and_is_paged(store: WeftlineStore) -> None:
    await store.abatch([PutOp(("a", str(n)), "key", {"n": n}) for n in range(5)])
    await store.abatch([PutOp(("ab",), "key", {"n": 9})])
    assert [item.value["n"] for item in await store.asearch(("a",))] == [0, 1, 2, 3, 4]
    assert [item.value["n"] for item in await store.asearch(("a",), offset=1, limit=2)] == [1, 2]
    assert len(await store.asearch(())) == 6
    assert await store.asearch(("nowhere",)) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"kind": "report"}, [1, 3]),
        ({"kind": {"$ne": "report"}}, [2, 4]),
        ({"score": {"$gt": 2}}, [3]),
        ({"score": {"$gte": 2, "$lt": 3}}, [2]),
        ({"score": {"$lte": 1}}, [1]),
        ({"kind": {"$eq": "report"}, "score": 3}, [3]),
        ({"tags": {"a": [1]}}, [4]),
        ({"none": 1}, []),
    ],
)
async def test_a_search_filters_by_values(store: WeftlineStore, wanted: dict[str, Any], found: list[int]) -> None:
    values = [
        {"kind": "report", "score": 1},
        {"kind": "note", "score": 2},
        {"kind": "report", "score": 3},
        {"kind": "note", "tags": {"a": [1]}},
    ]
    await store.abatch([PutOp(("docs",), str(n), value) for n, value in enumerate(values, 1)])
    assert [int(item.key) for item in await store.asearch(("docs",), filter=wanted)] == found


async def test_a_query_finds_by_meaning_the_best_first(store: WeftlineStore) -> None:
    texts = {
        "music": "Bo plays the cello in an orchestra",
        "food": "Bo likes lasagne with spinach",
        "work": "Bo repairs bicycles",
    }
    await store.abatch([PutOp(("users", "bo"), key, {"text": text}) for key, text in texts.items()])
    await store.aput(("users", "cy"), "music", {"text": "Cy plays the drums"})
    found = await store.asearch(("users", "bo"), query="Which instrument does he play?", limit=2)
    assert found[0].key == "music"
    assert found[0].score is not None
    assert {item.namespace for item in found} == {("users", "bo")}
    filtered = await store.asearch(("users",), query="music", filter={"text": texts["food"]})
    assert {item.key for item in filtered} <= {"food"}


async def test_what_is_not_indexed_is_found_by_its_key_only(store: WeftlineStore) -> None:
    await store.aput(("n",), "shown", {"text": "the cello"})
    await store.aput(("n",), "silent", {"text": "the cello"}, index=False)
    assert [item.key for item in await store.asearch(("n",), query="cello")] == ["shown"]
    assert await store.aget(("n",), "silent") is not None


async def test_namespaces_are_listed_by_conditions_and_depth(store: WeftlineStore) -> None:
    paths = [("users", "ada", "v1"), ("users", "bo", "v2"), ("docs", "ada", "v1"), ("docs",)]
    await store.abatch([PutOp(path, "k", {}) for path in paths])
    assert await store.alist_namespaces() == sorted(paths)
    assert await store.alist_namespaces(prefix=("users",)) == paths[:2]
    assert await store.alist_namespaces(prefix=("*", "ada")) == [paths[2], paths[0]]
    assert await store.alist_namespaces(suffix=("*", "v1")) == [paths[2], paths[0]]
    assert await store.alist_namespaces(max_depth=1) == [("docs",), ("users",)]
    assert await store.alist_namespaces(max_depth=2, limit=1, offset=1) == [("docs", "ada")]


async def test_a_time_to_live_starts_again_with_each_read(timed: WeftlineStore, clock: FrozenClock) -> None:
    await timed.aput(("n",), "k", {"v": 1}, ttl=1)
    written = (await timed.aget(("n",), "k", refresh_ttl=False)).updated_at
    clock.advance(seconds=50)
    assert (await timed.aget(("n",), "k")).updated_at == written
    clock.advance(seconds=50)
    assert len(await timed.asearch(("n",))) == 1
    clock.advance(seconds=50)
    item = await timed.aget(("n",), "k", refresh_ttl=False)
    assert (item.value, item.updated_at) == ({"v": 1}, written)
    clock.advance(seconds=50)
    assert await timed.aget(("n",), "k") is None
    assert await timed.asearch(("n",)) == []
    assert await timed.alist_namespaces() == []


async def test_a_default_time_to_live_is_that_of_new_items(timed: WeftlineStore, clock: FrozenClock) -> None:
    timed.ttl_config = {"default_ttl": 0.5, "refresh_on_read": False}
    await timed.aput(("n",), "k", {"v": 1})
    clock.advance(seconds=20)
    assert await timed.aget(("n",), "k") is not None
    clock.advance(seconds=20)
    assert await timed.aget(("n",), "k") is None


async def test_bad_input_raises_what_langgraph_s_stores_raise(store: WeftlineStore) -> None:
    with pytest.raises(InvalidNamespaceError):
        await store.aput(("a.b",), "k", {})
    with pytest.raises(TypeError, match="not JSON serializable"):
        await store.aput(("n",), "k", {"set": {1}})
    with pytest.raises(ValueError, match="ttl"):
        await store.aput(("n",), "k", {}, ttl=-1)
    with pytest.raises(ValueError, match="255 characters"):
        await store.aput(("n",), "k" * 300, {})
    with pytest.raises(ValueError, match="Unsupported operator"):
        await store.asearch(("n",), filter={"v": {"$near": 1}})
    condition = MatchCondition("infix", ("n",))
    with pytest.raises(ValueError, match="Unsupported match type"):
        await store.abatch([ListNamespacesOp((condition,))])
    with pytest.raises(ValueError, match="Unknown operation"):
        await store.abatch(["put"])


async def test_only_the_agent_itself_has_its_items(opened: Weftline) -> None:
    for agent in ("ada", "bo"):
        await opened.agent.create(agent)
    await WeftlineStore(opened.acting_as("ada"), strict=True).aput(("n",), "k", {"text": "the cello"})
    other = WeftlineStore(opened.acting_as("bo"), strict=True)
    assert await other.aget(("n",), "k") is None
    assert await other.asearch((), query="cello") == []
    assert await other.alist_namespaces() == []


def test_a_graph_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        store = WeftlineStore(nobody)
        with pytest.warns(AdapterWarning, match="SYSTEM_UNAVAILABLE"):
            store.put(("n",), "k", {"v": 1})
        item = store.get(("n",), "k")
        assert item is not None
        assert item.value == {"v": 1}
        assert len(store.bridge.failures) == 2
