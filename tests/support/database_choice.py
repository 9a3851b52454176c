"""Which of the two databases a test runs on.

Both, for tests marked ``both_databases``. Every other test runs on one, chosen by a hash of its name: every eighth on
PostgreSQL, where a test takes twice as long, and every second of those with concurrent calls or several processes:
there the database matters most. All parameters of a test run on the same one, so the others are never collected. A full
run runs all tests on both, and so does naming a database on pytest's command line (``-k postgres``).
"""

from __future__ import annotations

import zlib

import pytest

from support.full_run import FULL

KINDS = ("sqlite", "postgres")
_FIXTURE = "database_url"
_CONCURRENT = frozenset({"TaskGroup", "another_app", "create_task", "gather"})


def choose_database(metafunc: pytest.Metafunc) -> None:
    """Let a test run on one database, unless it needs both or says on which it runs."""
    test = metafunc.definition
    if _FIXTURE not in metafunc.fixturenames or test.get_closest_marker("both_databases") or _runs_all(metafunc.config):
        return
    if any(_FIXTURE in mark.args[0] for mark in test.iter_markers("parametrize")):
        return
    kind = "postgres" if _is_on_postgres(test) else "sqlite"
    test.add_marker(pytest.mark.parametrize(_FIXTURE, [kind], indirect=True))


def _runs_all(config: pytest.Config) -> bool:
    """Return whether every test runs on both databases."""
    named = [config.getoption("keyword"), *(argument.partition("[")[2] for argument in config.args)]
    return FULL or any(kind in name for name in named for kind in KINDS)


def _is_on_postgres(test: pytest.Function) -> bool:
    number = zlib.crc32(test.nodeid.encode())
    return number % 8 == 1 or (number % 8 in {3, 5, 7} and not _CONCURRENT.isdisjoint(test.function.__code__.co_names))
