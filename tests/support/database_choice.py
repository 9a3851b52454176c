"""Which of the two databases a test runs on.

Both, for tests marked ``both_databases``. Every other test runs on one, chosen by a hash of its id: every fourth on
PostgreSQL, where a test takes twice as long, and every second of those with concurrent calls or several processes:
there the database matters most. A full run runs all tests on both, and so does naming a database on pytest's command
line (``-k postgres``).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING

from support.full_run import FULL

if TYPE_CHECKING:
    import pytest

KINDS = ("sqlite", "postgres")
_KIND = re.compile(r"(?<=[\[-])(?:sqlite|postgres)(?=[]-])")
_CONCURRENT = frozenset({"TaskGroup", "another_app", "create_task", "gather"})


def runs_everything(config: pytest.Config) -> bool:
    """Return whether every test runs on both databases."""
    named = [config.getoption("keyword"), *(argument.partition("[")[2] for argument in config.args)]
    return FULL or any(kind in name for name in named for kind in KINDS)


def on_chosen_database(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests without those that run on the other database only."""
    variants = Counter(_without_kind(item) for item in items)
    return [item for item in items if variants[_without_kind(item)] < len(KINDS) or _needs_both(item) or _chosen(item)]


def _without_kind(item: pytest.Item) -> str:
    return _KIND.sub("*", item.nodeid, count=1)


def _kind(item: pytest.Item) -> str | None:
    return item.callspec.params.get("database_url") if hasattr(item, "callspec") else None


def _needs_both(item: pytest.Item) -> bool:
    return _kind(item) is None or item.get_closest_marker("both_databases") is not None


def _chosen(item: pytest.Item) -> bool:
    number = zlib.crc32(_without_kind(item).encode())
    is_postgres = number % 4 == 1 or (number % 4 == 3 and _is_concurrent(item))
    return _kind(item) == ("postgres" if is_postgres else "sqlite")


def _is_concurrent(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    names = function.__code__.co_names if hasattr(function, "__code__") else ()
    return not _CONCURRENT.isdisjoint(names)
