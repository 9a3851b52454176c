"""No statement scans a whole tenant where an index exists."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import apsw
import pytest

import weft.storage.sql.access
import weft.storage.sql.agent_context
import weft.storage.sql.blobs
import weft.storage.sql.board
import weft.storage.sql.checkouts
import weft.storage.sql.collections
import weft.storage.sql.deferred_deletions
import weft.storage.sql.embeddings
import weft.storage.sql.events
import weft.storage.sql.history
import weft.storage.sql.history_verify
import weft.storage.sql.inbox
import weft.storage.sql.jobs
import weft.storage.sql.knowledge
import weft.storage.sql.knowledge_sources
import weft.storage.sql.memory
import weft.storage.sql.messages
import weft.storage.sql.model_migrations
import weft.storage.sql.policies
import weft.storage.sql.pruning
import weft.storage.sql.records
import weft.storage.sql.retention
import weft.storage.sql.reviews
import weft.storage.sql.search_health
import weft.storage.sql.session_content
import weft.storage.sql.session_index
import weft.storage.sql.sessions
import weft.storage.sql.teams
import weft.storage.sql.token_factors
import weft.storage.sql.version_lookup
import weft.storage.sql.webhooks
from weft import Weft
from weft.kernel.clock import SystemClock
from weft.storage.migrations.runner import migrate
from weft.storage.sql.database import SYSTEM, connect
from weft.storage.sql.dialects.sqlite import DIALECT
from weft.storage.sql.dialects.sqlite_planner import teach_planner

pytestmark = pytest.mark.both_databases

STORES = (
    weft.storage.sql.access,
    weft.storage.sql.blobs,
    weft.storage.sql.board,
    weft.storage.sql.deferred_deletions,
    weft.storage.sql.agent_context,
    weft.storage.sql.embeddings,
    weft.storage.sql.token_factors,
    weft.storage.sql.events,
    weft.storage.sql.session_index,
    weft.storage.sql.history,
    weft.storage.sql.jobs,
    weft.storage.sql.knowledge,
    weft.storage.sql.knowledge_sources,
    weft.storage.sql.inbox,
    weft.storage.sql.memory,
    weft.storage.sql.messages,
    weft.storage.sql.model_migrations,
    weft.storage.sql.version_lookup,
    weft.storage.sql.policies,
    weft.storage.sql.pruning,
    weft.storage.sql.records,
    weft.storage.sql.retention,
    weft.storage.sql.reviews,
    weft.storage.sql.search_health,
    weft.storage.sql.session_content,
    weft.storage.sql.sessions,
    weft.storage.sql.collections,
    weft.storage.sql.checkouts,
    weft.storage.sql.history_verify,
    weft.storage.sql.teams,
    weft.storage.sql.webhooks,
)
# Small tables, and statements that page through a tenant in order.
SMALL_TABLES = re.compile(
    r"\b(conventions|signing_keys|audit_log|tenants|doubtful_blobs|knowledge_sources|model_migrations|tenant_models|deferred_deletions|webhooks|domains|collections|tenant_plans)\b"
)
# Subqueries, common table expressions and values of the statement itself.
OWN_ROWS = re.compile(
    r"^SCAN (a\d+|above|below|below_it|latest|listed|near|page|parts|senders|touched|"
    r"\d+-ROW VALUES CLAUSE|\d+ CONSTANT ROWS|json_each VIRTUAL TABLE .*)$"
)


def statements(module: ModuleType) -> list[str]:
    """Return the SQL of every call to a transaction in a module."""
    known = {name: value for name, value in vars(module).items() if isinstance(value, str)}
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    # Values of names in statements that are built at run time.
    built = {
        "table": "lines",
        "self": SimpleNamespace(_table="jobs"),
        "changes": "holder = $1 WHERE tenant = $2 AND job = $3",
    }
    texts = [
        eval(compile(ast.Expression(call.args[0]), module.__name__, "eval"), {**known, **built})
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in {"one", "all", "run", "changed", "many"}
        and not isinstance(call.args[0], ast.Subscript)
    ]
    chosen_at_run_time = [value for value in vars(module).values() if isinstance(value, dict)]
    texts += [text for choice in chosen_at_run_time for text in choice.values() if "SELECT" in str(text)]
    return [text.format_map(DIALECT) for text in texts]


async def test_the_planner_gets_statistics_for_every_index(tmp_path: Path) -> None:
    async with Weft.open(tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "weft.db"))
    statistics = database.execute("SELECT tbl, idx FROM sqlite_stat1").fetchall()
    indexes = database.execute("SELECT tbl_name, name FROM sqlite_schema WHERE type = 'index'").fetchall()
    trees = database.execute("SELECT name, name FROM pragma_table_list WHERE wr AND schema = 'main'").fetchall()
    assert sorted(statistics) == sorted(indexes + trees)


async def test_planner_statistics_are_written_once(tmp_path: Path) -> None:
    database = connect(str(tmp_path / "weft.db"))
    await database.open()
    await migrate(database, SystemClock())
    assert not await database.write(SYSTEM, teach_planner)
    await database.close()


@pytest.mark.parametrize("module", STORES, ids=lambda module: module.__name__.rpartition(".")[2])
async def test_every_statement_uses_an_index_beyond_the_tenant(module: ModuleType, tmp_path: Path) -> None:
    async with Weft.open(tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "weft.db"))
    database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    found = statements(module)
    assert found
    for sql in found:
        if "DELETE FROM lines WHERE tenant = $1 AND session_id" in sql:
            continue  # a statement built for several tables, of which this is not one
        values = [None] * len(set(re.findall(r"\$\d+", sql)))
        steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        scans = [
            s
            for s in steps
            if (s.startswith("SCAN") or "(tenant=?)" in s) and not (SMALL_TABLES.search(s) or OWN_ROWS.match(s))
        ]
        assert not scans, sql


@pytest.mark.parametrize("column", [name for name in weft.storage.sql.events._SEARCHES if name is not None])
async def test_event_queries_use_the_index_of_their_filter(column: str, tmp_path: Path) -> None:
    async with Weft.open(tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "weft.db"))
    database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    sql = weft.storage.sql.events._SEARCHES[column].format_map(DIALECT)
    values = [None] * len(set(re.findall(r"\$\d+", sql)))
    step, *members = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    # The members of the event's session.
    assert members == ["CORRELATED SCALAR SUBQUERY 1", "SEARCH s USING PRIMARY KEY (tenant=? AND session_id=?)"]
    assert f"events_by_{column.removesuffix('_id')} (tenant=? AND {column}=? AND seq>? AND seq<?)" in step


async def test_sources_that_are_not_due_are_skipped(tmp_path: Path) -> None:
    async with Weft.open(tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "weft.db"))
    (sql,) = [text for text in statements(weft.storage.sql.knowledge_sources) if "watch = 1 OR" in text]
    steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert steps == ["SEARCH knowledge_sources USING INDEX knowledge_sources_to_look_at (enabled=?)"]
