"""Token limits of values and boards."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from support.world import outcome, refused
from weftline.providers import tokenizers

if TYPE_CHECKING:
    from support.world import Caller, World


def tokens(count: int) -> str:
    return "abcd" * count


@pytest.mark.req("SC-05")
@pytest.mark.req("SC-09")
async def test_a_value_of_1000_tokens_fits_and_one_of_1001_does_not(world: World) -> None:
    await world.planner.write("full", tokens(1000))
    with refused("VALUE_TOO_LARGE") as caught:
        await world.planner.write("over", tokens(1000) + "a")
    assert caught.value.context == {"value_size_tokens": 1001, "limit_tokens": 1000}
    assert await world.planner.keys() == ["full"]


@pytest.mark.req("SC-05")
@pytest.mark.parametrize(
    ("size", "remark"),
    [(499, None), (500, "raw data"), (799, "raw data"), (800, "close to the limit"), (1000, "limit")],
)
async def test_advice_starts_at_500_tokens_and_the_warning_at_800(world: World, size: int, remark: str | None) -> None:
    answer = await world.planner.write("value", tokens(size))
    if remark is None:
        assert "warning" not in answer
    else:
        assert remark in answer["warning"]


@pytest.mark.req("SC-05")
@pytest.mark.req("SC-18")
async def test_cjk_text_is_counted_against_the_limit(world: World) -> None:
    await world.planner.write("full", "漢" * 1000)
    with refused("VALUE_TOO_LARGE"):
        await world.planner.write("over", "漢" * 1001)


@pytest.mark.req("SC-18")
@pytest.mark.filterwarnings("ignore:open_binary:DeprecationWarning")
async def test_a_session_can_use_an_exact_tokenizer(world: World) -> None:
    exact = await world.planner.create_session("exact", tokenizer="o200k_base")
    for caller in (exact, world.planner):
        await caller.write("text", "antidisestablishmentarianism " * 8)
    assert (await exact.size(), await world.planner.size()) == (49, 58)


@pytest.mark.req("SC-05")
@pytest.mark.req("SC-09")
async def test_the_board_is_limited_to_10000_tokens(world: World) -> None:
    for number in range(10):
        await world.planner.write(f"k{number}", tokens(1000))
    assert await world.planner.size() == 10_000
    with refused("STORE_FULL") as caught:
        await world.planner.write("one_more", "a")
    assert caught.value.context == {"total_size_tokens": 10_000, "limit_tokens": 10_000, "value_size_tokens": 1}
    with refused("STORE_FULL"):
        await world.planner.write("empty", "")


@pytest.mark.req("SC-05")
async def test_overwriting_and_deleting_free_tokens(world: World) -> None:
    small = await world.planner.create_session("small", max_value_tokens=10, max_total_tokens=10)
    await small.write("a", tokens(10))
    await small.write("a", tokens(10))
    await small.write("a", tokens(4))
    await small.write("b", tokens(6))
    with refused("STORE_FULL"):
        await small.write("b", tokens(7))
    await small.delete("a")
    await small.write("b", tokens(10))
    assert await small.size() == 10


@pytest.mark.req("SC-05")
async def test_both_limits_are_settable_per_session(world: World) -> None:
    roomy = await world.planner.create_session(
        "roomy", max_value_tokens=3000, max_total_tokens=4000, warn_value_tokens=2500, advise_value_tokens=2000
    )
    assert "warning" not in await roomy.write("a", tokens(1999))
    assert (await roomy.list())["metadata"]["limit_tokens"] == 4000
    with refused("STORE_FULL"):
        await roomy.write("b", tokens(3000))


@pytest.mark.req("SC-05")
async def test_concurrent_writers_in_two_processes_cannot_jointly_exceed_the_limit(world: World) -> None:
    small = await world.planner.create_session("small", max_value_tokens=10, max_total_tokens=95)
    second = small.at(await world.another_app())

    outcomes = await asyncio.gather(*(outcome((small, second)[n % 2].write(f"k{n}", tokens(10))) for n in range(40)))
    assert sorted(outcomes) == ["STORE_FULL"] * 31 + ["ok"] * 9
    assert await small.size() == 90


@pytest.mark.req("SC-05")
async def test_a_restore_obeys_the_limit(world: World) -> None:
    small = await world.planner.create_session("small", max_value_tokens=10, max_total_tokens=10)
    await small.write("a", tokens(8))
    await small.snapshot("eight")
    await small.delete("a")
    await small.write("b", tokens(10))
    assert await small.restore("eight") == {"restored": "eight", "written": ["a"], "deleted": ["b"]}
    assert await small.size() == 8


@pytest.mark.req("SC-05")
async def test_advice_and_warning_scale_with_the_limit(world: World) -> None:
    planner = await world.planner.create_session("small", max_value_tokens=100)
    assert "warning" not in await planner.write("a", "x" * 4 * 49)
    assert "long for shared state" in (await planner.write("a", "x" * 4 * 50))["warning"]
    assert "close to the limit of 100" in (await planner.write("a", "x" * 4 * 80))["warning"]
    large = await world.planner.create_session("large", max_value_tokens=5_000)
    assert "warning" not in await large.write("a", "x" * 4 * 825)


async def test_writers_of_equal_values_do_not_block_each_other(world: World) -> None:
    boards = [await world.planner.create_session(f"b{number}", keep_versions=1) for number in range(6)]

    async def cycle(board: Caller) -> None:
        for turn in range(12):
            await board.write("state", ("idle", "busy", "done")[turn % 3])

    async with asyncio.timeout(60):
        await asyncio.gather(*map(cycle, boards))
    assert {await board.value("state") for board in boards} == {"done"}


@pytest.mark.req("SC-18")
async def test_a_session_with_a_tokenizer_that_is_not_installed_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers._exact.cache_clear()
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    with refused("TOKENIZER_MISSING"):
        await world.planner.create_session("exact", tokenizer="cl100k_base")
    with refused("SESSION_NOT_FOUND"):
        await world.planner.call("session.get", session_id="exact")
    approximate = await world.planner.create_session("exact")
    assert (await approximate.write("goal", "ship"))["version"] == 1
