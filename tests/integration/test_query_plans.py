"""No statement scans a whole tenant where an index exists."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import apsw
import pytest

import weftline.access.sql
import weftline.access.teams
import weftline.exchange.transfer.policies
import weftline.history.blobs
import weftline.history.erasure
import weftline.history.line_damage
import weftline.history.lines
import weftline.history.sql
import weftline.history.value_pruning
import weftline.history.version_lookup
import weftline.indexing.embeddings
import weftline.indexing.model_migration
import weftline.indexing.sql
import weftline.kernel.job_store
import weftline.kernel.outbox
import weftline.knowledge.source_store
import weftline.knowledge.sql
import weftline.models.sql
import weftline.records.sql
import weftline.sessions.erasure
import weftline.sessions.events.sql
import weftline.sessions.events.webhooks
import weftline.sessions.messages.sql
import weftline.sessions.messages.store
import weftline.sessions.sql
import weftline.state.agent_context.sql
import weftline.state.board.sql
import weftline.state.memory.sql
import weftline.storage.sql.session_index
from weftline import Weftline
from weftline.kernel.clock import SystemClock
from weftline.storage.migrations.runner import migrate
from weftline.storage.sql.database import SYSTEM, connect
from weftline.storage.sql.dialects.sqlite import DIALECT, teach_planner

pytestmark = pytest.mark.both_databases

STORES = (
    weftline.access.sql,
    weftline.history.blobs,
    weftline.history.erasure,
    weftline.state.board.sql,
    weftline.indexing.sql,
    weftline.state.agent_context.sql,
    weftline.indexing.embeddings,
    weftline.models.sql,
    weftline.sessions.events.sql,
    weftline.storage.sql.session_index,
    weftline.history.lines,
    weftline.kernel.job_store,
    weftline.kernel.outbox,
    weftline.knowledge.sql,
    weftline.knowledge.source_store,
    weftline.sessions.messages.sql,
    weftline.state.memory.sql,
    weftline.sessions.messages.store,
    weftline.indexing.model_migration,
    weftline.history.version_lookup,
    weftline.exchange.transfer.policies,
    weftline.history.value_pruning,
    weftline.records.sql,
    weftline.history.sql,
    weftline.storage.sql.session_index,
    weftline.sessions.erasure,
    weftline.sessions.sql,
    weftline.indexing.sql,
    weftline.history.line_damage,
    weftline.access.teams,
    weftline.sessions.events.webhooks,
)
# Small tables, and statements that page through a tenant in order.
SMALL_TABLES = re.compile(
    r"\b(conventions|signing_keys|audit_log|tenants|doubtful_blobs|knowledge_sources|model_migrations|tenant_models|deferred_deletions|webhooks|domains|collections|tenant_plans)\b"
)
# Subqueries, common table expressions and values of the statement itself.
OWN_ROWS = re.compile(
    r"^SCAN (a\d+|above|below|below_it|latest|listed|near|page|parts|senders|touched|"
    r"\d+-ROW VALUES CLAUSE|CONSTANT ROW|\d+ CONSTANT ROWS|json_each VIRTUAL TABLE .*)$"
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
        # Not those that are built of local values.
        and {each.id for each in ast.walk(call.args[0]) if isinstance(each, ast.Name)} <= {*known, *built}
    ]
    chosen_at_run_time = [value for value in vars(module).values() if isinstance(value, dict)]
    texts += [text for choice in chosen_at_run_time for text in choice.values() if "SELECT" in str(text)]
    return [text.format_map(DIALECT) for text in texts]


async def test_the_planner_gets_statistics_for_every_index(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "weftline.db"))
    statistics = database.execute("SELECT tbl, idx FROM sqlite_stat1").fetchall()
    indexes = database.execute("SELECT tbl_name, name FROM sqlite_schema WHERE type = 'index'").fetchall()
    trees = database.execute("SELECT name, name FROM pragma_table_list WHERE wr AND schema = 'main'").fetchall()
    assert sorted(statistics) == sorted(indexes + trees)


async def test_planner_statistics_are_written_once(tmp_path: Path) -> None:
    database = connect(str(tmp_path / "weftline.db"))
    await database.open()
    await migrate(database, SystemClock())
    assert not await database.write(SYSTEM, teach_planner)
    await database.close()


@pytest.mark.parametrize("module", STORES, ids=lambda module: module.__name__.rpartition(".")[2])
async def test_every_statement_uses_an_index_beyond_the_tenant(module: ModuleType, tmp_path: Path) -> None:
    async with Weftline.open(tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "weftline.db"))
    database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    found = statements(module)
    assert found
    for sql in found:
        # A statement built for several tables, of which this is not one, and that on the schema.
        if re.search(r"DELETE FROM lines WHERE tenant = \$1 AND session_id|AS schema_columns", sql):
            continue
        # Budgets and roll-ups are read by tenant and over all tenants.
        if module is weftline.models.sql and "token_factors" not in sql:
            continue
        values = [None] * len(set(re.findall(r"\$\d+", sql)))
        steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        scans = [
            s
            for s in steps
            if (s.startswith("SCAN") or "(tenant=?)" in s) and not (SMALL_TABLES.search(s) or OWN_ROWS.match(s))
        ]
        assert not scans, sql


@pytest.mark.parametrize("column", [name for name in weftline.sessions.events.sql._SEARCHES if name is not None])
async def test_event_queries_use_the_index_of_their_filter(column: str, tmp_path: Path) -> None:
    async with Weftline.open(tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "weftline.db"))
    database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    sql = weftline.sessions.events.sql._SEARCHES[column].format_map(DIALECT)
    values = [None] * len(set(re.findall(r"\$\d+", sql)))
    step, *members = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    # The members of the event's session.
    assert members == ["CORRELATED SCALAR SUBQUERY 1", "SEARCH s USING PRIMARY KEY (tenant=? AND session_id=?)"]
    assert f"events_by_{column.removesuffix('_id')} (tenant=? AND {column}=? AND seq>? AND seq<?)" in step


async def test_sources_that_are_not_due_are_skipped(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "weftline.db"))
    (sql,) = [text for text in statements(weftline.knowledge.source_store) if "watch = 1 OR" in text]
    steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert steps == ["SEARCH knowledge_sources USING INDEX knowledge_sources_to_look_at (enabled=?)"]
