"""Helpers for agents that push, pull and read their context."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from support.world import Caller, World


_counts = contextvars.ContextVar("counts", default=False)


class Stopped(Exception):
    """The process dies here."""


def knowledge_entry(key: str, value: Any = "text", **fields: Any) -> dict[str, Any]:
    return {"key": key, "value": value, **fields}


def artifact(key: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {**knowledge_entry(key, content, **fields), "memory_type": "work_artifacts"}


async def push(agent: Caller, *knowledge: dict[str, Any], **options: Any) -> Any:
    return await agent.call("context.push", knowledge=list(knowledge), **options)


async def pull(agent: Caller, **filters: Any) -> Any:
    return await agent.call("context.pull", **{"session_id": agent.session, **filters})


async def read_context(agent: Caller, **filters: Any) -> Any:
    return await agent.call("context.read", **{"session_id": agent.session, **filters})


async def value_of(agent: Caller, key: str, **filters: Any) -> Any:
    """Return the value of an entry of the agent's context."""
    (entry,) = (await read_context(agent, key=key, **filters))["entries"]
    return entry["base64"] if "base64" in entry else entry["value"]


async def version_of(agent: Caller, **filters: Any) -> int:
    return (await agent.call("context.status", **filters))["version"]


def entries(pulled: Any) -> dict[str, Any]:
    """Return the values of all entries that a pull shows, by key."""
    return {e["key"]: e.get("value") for listed in pulled["context"]["memory"].values() for e in listed}


def keys(differences: list[dict[str, Any]]) -> list[str]:
    return [difference["key"] for difference in differences]


async def problems(world: World) -> list[tuple[str, str]]:
    """Return the lines of the tenant that fail verification, with the reason."""
    found = []
    for (line_id,) in await world.rows("SELECT line_id FROM lines WHERE tenant = $1 ORDER BY line_id", world.tenant):
        answer = await world.admin.call("history.verify", context_id=line_id) if "memory:" not in line_id else {}
        if not answer.get("intact", True):
            found.append((line_id, answer["problem"]))
    return found


class CountingTransaction:
    """A transaction that counts its statements and fails from one of them on."""

    def __init__(self, transaction: Any, ran: list[str], last: int) -> None:
        vars(self).update(transaction=transaction, ran=ran, last=last)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.transaction, name)
        return functools.partial(self._counted, found) if name in {"one", "all", "run", "changed"} else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.transaction, name, value)

    async def _counted(self, found: Any, sql: str, *values: Any) -> Any:
        self.ran.append(sql)
        if len(self.ran) >= self.last:
            raise Stopped
        return await found(sql, *values)


@contextlib.contextmanager
def stop_at_statement(world: World, monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[list[str]]:
    """Fail at the statement with this number; yields the list of statements that ran."""
    ran: list[str] = []
    database = world.app.database
    original = database.write
    # Background work runs in another context and is not counted.
    _counts.set(True)

    async def write(scope: Any, work: Any) -> Any:
        if not _counts.get():
            return await original(scope, work)
        return await original(scope, lambda transaction: work(CountingTransaction(transaction, ran, number)))

    with monkeypatch.context() as patch:
        patch.setattr(database, "write", write)
        yield ran
    _counts.set(False)
