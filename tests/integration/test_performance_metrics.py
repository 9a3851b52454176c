"""Performance metrics for admins, of their tenant only."""

from __future__ import annotations

import asyncio
from types import NoneType
from typing import TYPE_CHECKING, Any

import pytest

from support.world import Caller, World, refused
from weftline.storage.sql.database import SYSTEM, Scope, connect

if TYPE_CHECKING:
    from pathlib import Path

    from weftline.kernel.transaction import Transaction
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.req("MS-08")

# The names and types of the collaboration API, tool and resource together; null where nothing was measured yet.
SHAPE: dict[str, Any] = {
    "success": bool,
    "timestamp": str,
    "database_performance": {
        "connection_stats": {
            "total_connections": int,
            "active_connections": int,
            "peak_connections": int,
            "total_queries": int,
            "avg_query_time": float,
            "slow_queries": int,
            "connection_errors": int,
        },
        "pool_stats": {
            "pool_size": int,
            "available_connections": int,
            "checked_out_connections": int,
            "pool_utilization": float,
            "wait_time_avg": float,
        },
        "cache_stats": {
            "cached_queries": int,
            "l1_cache_size": int,
            "l2_cache_size": int,
            "cache_hit_ratio": (float, NoneType),
            "cache_misses": int,
            "evictions": int,
        },
    },
    "system_info": {
        "pool_initialized": bool,
        "database_url": str,
        "min_pool_size": int,
        "max_pool_size": (int, NoneType),
        "connection_timeout": float,
    },
    "performance_targets": {
        "session_creation": str,
        "message_insertion": str,
        "message_retrieval_50": str,
        "fuzzy_search_1000": str,
        "concurrent_agents": str,
        "cache_hit_ratio": str,
    },
    "requesting_agent": str,
    "system_performance": {
        "memory_usage_mb": float,
        "cpu_usage_percent": float,
        "active_sessions": int,
        "active_agents": int,
        "messages_per_second": float,
        "search_operations_per_minute": int,
    },
    "performance_trends": {
        "response_time_trend": str,
        "throughput_trend": str,
        "error_rate_trend": str,
        "cache_efficiency_trend": str,
    },
    "resource_info": {
        "collection_interval": int,
        "retention_hours": int,
        "supports_subscriptions": bool,
        "admin_only": bool,
    },
    "operations": dict,
    "chat_model": {
        "calls": int,
        "errors": int,
        "seconds": float,
        "input_tokens": int,
        "cached_tokens": int,
        "output_tokens": int,
    },
    "background": {"index_lag_events": int, "jobs": list},
    "measured_since": str,
    "history": list,
}


async def read_metrics(caller: Caller, **request: Any) -> Any:
    return await caller.call("performance.read", **request)


@pytest.fixture
async def operator(world: World) -> Caller:
    """The admin of the only tenant, which is the operator's."""
    others = "DELETE FROM tenants WHERE tenant <> $1"
    await world.app.database.write(SYSTEM, lambda transaction: transaction.run(others, world.tenant))
    return world.admin


def mismatches(answer: Any, shape: Any, path: str = "") -> list[str]:
    """Return the paths at which an answer does not match a shape."""
    if not isinstance(shape, dict):
        return [] if isinstance(answer, shape) else [f"{path} is {answer!r}"]
    if answer.keys() != shape.keys():
        return [f"{path} has {answer.keys() ^ shape.keys()}"]
    return [found for name in shape for found in mismatches(answer[name], shape[name], f"{path}.{name}")]


@pytest.mark.req("MS-09")
async def test_the_answer_has_the_fields_of_the_api_and_no_others(
    world: World, operator: Caller, clock: FrozenClock
) -> None:
    clock.advance(seconds=10)
    answer = await read_metrics(operator)
    assert mismatches(answer, SHAPE) == []
    assert answer["performance_targets"] == {
        "session_creation": "< 10ms",
        "message_insertion": "< 20ms",
        "message_retrieval_50": "< 30ms",
        "fuzzy_search_1000": "< 100ms",
        "concurrent_agents": "20+",
        "cache_hit_ratio": "> 70%",
    }
    assert answer["resource_info"] == {
        "collection_interval": 30,
        "retention_hours": 24,
        "supports_subscriptions": True,
        "admin_only": True,
    }
    assert answer["timestamp"] == "2026-02-20T14:30:10Z"
    assert answer["measured_since"] == "2026-02-20T14:30:00Z"
    assert answer["requesting_agent"] == "admin"


async def test_every_call_is_counted_once(world: World) -> None:
    for number in range(7):
        await world.planner.write(f"key_{number}")
    for _ in range(3):
        with refused("KEY_NOT_FOUND"):
            await world.analysis.read("absent")
    for name in ("scouts", "scribes", "guides"):
        await world.admin.call("team.create", team=name)
    operations = (await read_metrics(world.admin))["operations"]
    assert (operations["board.write"]["calls"], operations["board.write"]["errors"]) == (7, 0)
    assert (operations["board.read"]["calls"], operations["board.read"]["errors"]) == (3, 3)
    # Calls that change access are counted like others.
    assert operations["team.create"]["calls"] == 3
    assert "performance.read" not in operations
    assert (await read_metrics(world.admin))["operations"]["performance.read"]["calls"] == 1


@pytest.mark.req("CE-M")
async def test_logging_in_counts_for_the_tenant_of_the_key(world: World) -> None:
    await world.planner.token("planner", "planning")
    with refused("INVALID_API_KEY"):
        await world.planner.with_credential(world.planner.credential + "x").token("planner", "planning")
    operations = (await read_metrics(world.admin))["operations"]
    # A key that proves nothing counts for nobody.
    assert (operations["token.issue"]["calls"], operations["token.issue"]["errors"]) == (1, 0)
    assert "token.issue" not in (await read_metrics(world.stranger))["operations"]


async def test_every_operation_is_timed(world: World) -> None:
    await world.planner.write("key")
    for name, operation in (await read_metrics(world.admin))["operations"].items():
        assert 0 < operation["p50_ms"] <= operation["p95_ms"] <= operation["p99_ms"], name


async def test_calls_of_other_tenants_are_not_counted(world: World) -> None:
    before = await read_metrics(world.stranger)
    await world.planner.write("key")
    world.app.metrics_snapshot.sample()
    after = await read_metrics(world.stranger)
    assert before["operations"] == {}
    assert after["operations"].keys() == {"performance.read"}
    assert (after["system_performance"]["active_agents"], after["system_performance"]["active_sessions"]) == (1, 0)


def figures(value: Any, path: str = "") -> dict[str, Any]:
    """Return every figure of a report by its path."""
    if isinstance(value, dict):
        return {where: each for name in value for where, each in figures(value[name], f"{path}.{name}").items()}
    return {path: value}


async def test_nothing_that_a_tenant_does_moves_a_figure_of_another(world: World) -> None:
    """Every figure of the report is compared, also those that are added later."""
    world.app.metrics_snapshot.sample()
    await read_metrics(world.stranger, history_hours=24)
    before = figures(await read_metrics(world.stranger, history_hours=24))
    for number in range(20):
        await world.planner.write(f"key_{number}", "a value " * 50)
        await world.planner.say(f"message {number}")
        await world.planner.messages()
        await world.planner.search(f"message {number}")
        await world.planner.call("knowledge.embed", text=f"text {number}")
    await world.app.metrics_snapshot.write_history()
    after = figures(await read_metrics(world.stranger, history_hours=24))
    # The report counts the calls that ask for it.
    moved = {path for path in before | after if before.get(path) != after.get(path)}
    assert {path for path in moved if ".operations.performance.read." not in path} <= {".timestamp", ".history"}
    assert [hour["calls"] for hour in after[".history"]] == [2]
    assert {name for hour in after[".history"] for name in ("cache_hit_ratio", "avg_query_time") if hour[name]} == set()


async def test_recent_callers_count_as_active(world: World, clock: FrozenClock) -> None:
    await world.planner.write("key")
    await world.analysis.value("key")
    system = (await read_metrics(world.admin))["system_performance"]
    assert (system["active_agents"], system["active_sessions"]) == (3, 1)  # the admin made the others
    clock.advance(minutes=6)
    world.app.metrics_snapshot.sample()
    await world.planner.value("key")
    system = (await read_metrics(world.admin))["system_performance"]
    assert (system["active_agents"], system["active_sessions"]) == (1, 1)  # the call that asks is not over yet


async def test_only_admins_read_metrics_and_denials_are_audited(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await read_metrics(world.planner)
    denied = await world.admin.audit(outcome="denied")
    assert [(row["action"], row["agent_id"]) for row in denied] == [("performance.read", "planner")]


async def test_a_revoked_admin_key_reads_no_metrics(world: World) -> None:
    boss = await world.admin.create_agent("boss", permissions=["read", "write", "admin"])
    await read_metrics(boss)
    in_other_process = world.admin.at(await world.another_app())
    await in_other_process.call("key.revoke", key_id=boss.key_id)
    with refused("INVALID_API_KEY"):
        await read_metrics(boss)


# Not on PostgreSQL, where tests reuse connections that other tests have opened.
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_statements_and_transactions_are_counted(world: World, operator: Caller) -> None:
    before = (await read_metrics(operator))["database_performance"]["connection_stats"]
    await world.rows("SELECT 1")
    await world.sql("DELETE FROM entries WHERE tenant = $1", "nobody")
    after = (await read_metrics(operator))["database_performance"]["connection_stats"]
    assert after["total_queries"] >= before["total_queries"] + 2
    assert after["avg_query_time"] > 0
    assert after["connection_errors"] == 0
    assert 1 <= after["peak_connections"] <= after["total_connections"]


async def test_connections_in_use_are_counted(world: World, operator: Caller) -> None:
    seen: list[Any] = []
    idle = (await read_metrics(operator))["database_performance"]["pool_stats"]

    async def look(transaction: Transaction) -> None:
        seen.append(world.app.database.figures())
        await transaction.all("SELECT 1")

    await world.app.database.read(Scope(world.tenant), look, heavy=True)
    _, pool, _ = seen[0]
    assert pool.checked_out_connections >= 1
    assert pool.pool_size == pool.available_connections + pool.checked_out_connections
    assert 0 < pool.pool_utilization <= 1
    assert idle["pool_size"] >= 1
    assert idle["wait_time_avg"] >= 0


async def test_a_transaction_over_fifty_milliseconds_is_slow(
    world: World, operator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.storage.sql.tenants._SLOW_SECONDS", 0.0)
    before = (await read_metrics(operator))["database_performance"]["connection_stats"]["slow_queries"]
    monkeypatch.setattr("weftline.storage.sql.tenants._SLOW_SECONDS", 3600.0)
    after = (await read_metrics(operator))["database_performance"]["connection_stats"]["slow_queries"]
    assert before > 0
    assert after == before


async def test_the_database_is_named_without_path_or_credentials(world: World) -> None:
    info = (await read_metrics(world.admin))["system_info"]
    assert info["database_url"] == "weftline.db" or info["database_url"].startswith("weftline_")
    assert "/" not in info["database_url"]
    assert info["pool_initialized"] is True


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://weftline:s3cret@db.internal:5432/weftline", "db.internal/weftline"),
        ("postgresql://weftline:p%40ss@db.internal/weftline?sslpassword=s3cret", "db.internal/weftline"),
        ("postgresql://weftline:s3cret@one.internal:5432,two.internal:5432/weftline", "one.internal/weftline"),
        ("postgresql://weftline:s3cret@/weftline?host=/var/run/postgresql", "weftline"),
        ("postgresql://weftline:s3cret@[::1]:5432/weftline", "::1/weftline"),
        ("postgresql://", "postgresql"),
    ],
)
def test_a_url_is_shown_without_credentials(url: str, shown: str) -> None:
    assert connect(url).figures().system_info.database_url == shown


def test_a_database_file_is_shown_by_name_only(tmp_path: Path) -> None:
    read_metrics = connect(str(tmp_path / "secret-folder" / "team.db")).figures()
    assert read_metrics.system_info.database_url == "team.db"
    assert read_metrics.system_info.pool_initialized is False
    assert read_metrics.pool_stats.pool_utilization is None
    assert read_metrics.connection_stats.avg_query_time is None


async def test_an_unreachable_database_is_counted(tmp_path: Path) -> None:
    database = connect(f"postgresql://weftline@/weftline?host={tmp_path}")
    with refused("SYSTEM_UNAVAILABLE"):
        await database.open()
    assert database.figures().connection_stats.connection_errors == 1


async def test_samples_are_taken_periodically(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = asyncio.Event()
    monkeypatch.setattr(world.app.metrics_snapshot, "sample", taken.set)
    world.app.scheduler.wake("metrics.sample")
    async with asyncio.timeout(60):
        await taken.wait()


async def test_memory_and_cpu_are_those_of_the_process(operator: Caller) -> None:
    system = (await read_metrics(operator))["system_performance"]
    assert 10 < system["memory_usage_mb"] < 100_000
    assert system["cpu_usage_percent"] >= 0


@pytest.mark.req("MS-09")
@pytest.mark.req("MS-16")
async def test_a_day_of_history_is_kept_by_the_hour(world: World, operator: Caller, clock: FrozenClock) -> None:
    measured = world.app.metrics_snapshot
    for hour in range(30):
        await measured.collect()
        for number in range(hour + 1):
            await world.planner.say(f"message {number}")
        with refused("KEY_NOT_FOUND"):
            await world.planner.read("absent")
        clock.advance(seconds=30)
        await measured.collect()
        clock.advance(hours=1, seconds=-30)
    await measured.collect()
    history = (await read_metrics(operator, history_hours=24))["history"]
    # It is half past: of the oldest hour the second half is there.
    assert [hour["start"][11:16] for hour in history[:2]] == ["20:00", "21:00"]
    assert len(history) == 24
    assert [hour["messages"] for hour in history] == list(range(7, 31))
    assert {hour["errors"] for hour in history} == {1}
    assert all(hour["calls"] == hour["messages"] + 1 for hour in history)
    assert all(hour["avg_response_time"] > 0 and hour["avg_query_time"] > 0 for hour in history)
    assert len((await read_metrics(operator, history_hours=3))["history"]) == 4
    assert (await read_metrics(operator))["history"] == []
    (rows,) = await world.rows("SELECT COUNT(*) FROM metric_history WHERE tenant = $1", world.tenant)
    assert rows[0] <= 26


@pytest.mark.req("MS-09")
@pytest.mark.req("MS-16")
async def test_history_and_trends_cover_all_processes_and_survive_a_restart(world: World, clock: FrozenClock) -> None:
    one, other = world.app, await world.another_app()
    for app in (one, other):
        app._writes_history = True
    for _ in range(24):
        for app in (one, other):
            await app.metrics_snapshot.collect()
            for number in range(10):
                await world.planner.at(app).say(f"message {number}")
        clock.advance(minutes=5)
    await one.metrics_snapshot.collect()
    # One process more, that has counted nothing: as after a restart.
    await world.close_app(other)
    third = await world.another_app()
    report = await read_metrics(world.admin.at(third), history_hours=24)
    assert sum(hour["messages"] for hour in report["history"]) == 480
    assert report["performance_trends"]["throughput_trend"] == "stable"
    assert "message.add" not in report["operations"]
    # What a process has counted but not written yet is in its own answers, once.
    await world.planner.at(third).say("one more")
    for _ in range(2):
        report = await read_metrics(world.admin.at(third), history_hours=24)
        assert sum(hour["messages"] for hour in report["history"]) == 481
        await third.metrics_snapshot.collect()
    assert sum(hour["messages"] for hour in (await read_metrics(world.admin, history_hours=24))["history"]) == 481


@pytest.mark.req("MS-16")
async def test_history_of_other_tenants_is_not_shown(world: World) -> None:
    for number in range(5):
        await world.planner.say(f"message {number}")
    await world.app.metrics_snapshot.collect()
    assert (await read_metrics(world.stranger, history_hours=24))["history"] == []


@pytest.mark.req("MS-16")
async def test_counts_are_written_when_a_process_closes(world: World) -> None:
    other = await world.another_app()
    other._writes_history = True
    await world.planner.at(other).say("hello")
    await world.close_app(other)
    (hour,) = (await read_metrics(world.admin, history_hours=1))["history"]
    assert hour["messages"] == 1


@pytest.mark.req("MS-16")
async def test_a_failed_write_of_history_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.planner.say("hello")
    with monkeypatch.context() as broken:
        broken.setattr(world.app.database, "write", None)
        with pytest.raises(TypeError):
            await world.app.metrics_snapshot.write_history()
    await world.app.metrics_snapshot.write_history()
    rows = await world.rows("SELECT messages FROM metric_history WHERE tenant = $1", world.tenant)
    assert [row[0] for row in rows] == [1]


@pytest.mark.req("MS-16")
async def test_repeated_reads_hit_the_caches_and_queries_are_short(world: World, operator: Caller) -> None:
    """The targets: a hit ratio above 70 %, and 50 ms for the average query."""
    for number in range(5):
        await world.planner.say(f"the falcon number {number}")
    before = world.app.caches.totals()
    for _ in range(10):
        await world.planner.messages()
        await world.planner.search("falcon")
    after = world.app.caches.totals()
    lookups, hits = after.lookups - before.lookups, after.hits - before.hits
    assert lookups >= 20
    assert hits / lookups > 0.7
    database = (await read_metrics(operator))["database_performance"]
    cache, totals = database["cache_stats"], world.app.caches.totals()
    assert cache["cache_hit_ratio"] == round(totals.hits / totals.lookups, 3)
    assert cache["cache_misses"] == totals.lookups - totals.hits
    queries, seconds = world.app.database.query_totals()
    assert queries > 20
    assert seconds / queries < 0.050
    assert 0 < database["connection_stats"]["avg_query_time"] < 50


async def test_the_index_lag_is_that_of_the_callers_tenant(world: World) -> None:
    callers = (world.admin, world.stranger)
    before = [(await read_metrics(caller))["background"]["index_lag_events"] for caller in callers]
    for number in range(3):
        await world.planner.say(f"message {number}")
    after = [(await read_metrics(caller))["background"]["index_lag_events"] for caller in callers]
    assert after == [before[0] + 3, before[1]]
