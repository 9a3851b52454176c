"""Long-term memory of LangGraph: the private memory of the agent that the client acts as.

An item is an entry ``langgraph/NAMESPACE/KEY``. It is found by words and meaning without an embedding function, expires
exactly, and is in the agent's searches and prompts like everything else that it remembers.
"""

from __future__ import annotations

import json
import operator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.keys import escape, unescape
from weftline.errors import MemoryNotFound, VersionConflict

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
    )
    from langgraph.store.memory import InMemoryStore
except ImportError as error:
    raise missing_framework("langgraph", error) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from weftline.client._operations import Operations, SyncOperations

_ROOT = "langgraph/"
_PAGE = 200
_MAX_KEY = 255
_MAX_RESULTS = 100
_YEAR_SECONDS = 31_536_000
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class WeftlineStore(BaseStore):
    """A store over any client of Weftline, for graphs with and without ``await``.

    Every item is indexed as a whole; one put with ``index=False`` is not found by queries. If Weftline fails, a call
    works on a store in this process, with a warning; with ``strict``, it fails.
    """

    supports_ttl = True

    def __init__(
        self, weftline: Operations | SyncOperations, *, ttl: TTLConfig | None = None, strict: bool = False
    ) -> None:
        self.ttl_config = ttl
        self.bridge = Bridge(weftline, strict=strict)
        self._weftline = self.bridge.weftline
        self._local = InMemoryStore()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self.bridge.run(self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self.bridge.arun(self._batch(list(ops)))

    def _batch(self, ops: Sequence[Op]) -> Generator[Any, Any, list[Result]]:
        for op in ops:
            _check(op)
        return (yield from self.bridge.guarded(self._perform(ops), lambda: self._local.batch(ops)))

    def _perform(self, ops: Sequence[Op]) -> Generator[Any, Any, list[Result]]:
        """Read first, then write; of several writes of one key, only the last: as LangGraph's stores do."""
        results: list[Result] = []
        writes: dict[str, PutOp] = {}
        for op in ops:
            result: Result = None
            if isinstance(op, GetOp):
                result = yield from self._get(op)
            elif isinstance(op, SearchOp):
                result = yield from self._search(op)
            elif isinstance(op, ListNamespacesOp):
                result = yield from self._list_namespaces(op)
            else:
                writes[_key(op.namespace, op.key)] = op
            results.append(result)
        for key, put in writes.items():
            yield from self._put(key, put)
        return results

    def _get(self, op: GetOp) -> Generator[Any, Any, Item | None]:
        entry = yield from self._read(_key(op.namespace, op.key), refresh=op.refresh_ttl)
        return Item(**_fields(entry)) if entry else None

    def _read(self, key: str, *, refresh: bool) -> Generator[Any, Any, Any]:
        """Return an entry, or None, and start its time to live again."""
        try:
            entry = yield self._weftline.memory.get(key)
        except MemoryNotFound:
            return None
        if refresh:
            yield from self._refresh(entry)
        return entry

    def _refresh(self, entry: Any) -> Generator[Any, Any, None]:  # noqa: ANN401 - of a list, or read alone
        minutes = entry.metadata.get("ttl")
        if minutes is None:
            return
        metadata = {"updated_at": entry.updated_at.isoformat(), **entry.metadata}
        with suppress(VersionConflict, MemoryNotFound):  # somebody has written it since
            yield self._weftline.memory.set(
                entry.key, entry.value, expires_in=_seconds(minutes), metadata=metadata, if_version=entry.version
            )

    def _put(self, key: str, op: PutOp) -> Generator[Any, Any, None]:
        if op.value is None:
            with suppress(MemoryNotFound):
                yield self._weftline.memory.delete(key)
            return
        metadata: dict[str, Any] = {} if op.ttl is None else {"ttl": op.ttl}
        if op.index is False:
            metadata["index"] = False
        expires_in = None if op.ttl is None else _seconds(op.ttl)
        yield self._weftline.memory.set(key, dict(op.value), expires_in=expires_in, metadata=metadata)

    def _search(self, op: SearchOp) -> Generator[Any, Any, list[SearchItem]]:
        end = op.offset + op.limit
        prefix = _prefix(op.namespace_prefix)
        if op.query:
            entries = yield from self._found(prefix, op.query, _MAX_RESULTS if op.filter else end)
        else:
            entries = yield from self._listed(prefix, op.filter, end)
        matching = [(entry, score) for entry, score in entries if _matches(entry.value, op.filter)][op.offset : end]
        if op.refresh_ttl:
            for entry, _ in matching:
                yield from self._refresh(entry)
        return [SearchItem(**_fields(entry), score=score) for entry, score in matching]

    def _found(self, prefix: str, query: str, limit: int) -> Generator[Any, Any, list[tuple[Any, float | None]]]:
        """Return the entries that a query finds, best first; one of which several passages are found counts once."""
        answer = yield self._weftline.search.query(
            query, sources=["memory"], prefix=prefix, top_k=min(max(limit, 1), _MAX_RESULTS), low_confidence=True
        )
        best: dict[str, float] = {}
        for passage in answer.results:
            if passage.key and not passage.memory_type and not passage.session_id:
                best.setdefault(passage.key, passage.score)
        found: list[tuple[Any, float | None]] = []
        for key, score in best.items():
            entry = yield from self._read(key, refresh=False)
            if entry is not None and entry.metadata.get("index") is not False:
                found.append((entry, score))
        return found

    def _listed(
        self, prefix: str, wanted: dict[str, Any] | None, limit: int
    ) -> Generator[Any, Any, list[tuple[Any, float | None]]]:
        """Return at least the first entries under a prefix that have the wanted fields, in the order of their keys."""
        found: list[tuple[Any, float | None]] = []
        cursor = None
        while len(found) < limit:
            page = yield self._weftline.memory.list(prefix=prefix, values=True, limit=_PAGE, cursor=cursor)
            found += [(entry, None) for entry in page.entries if _matches(entry.value, wanted)]
            cursor = page.next_cursor
            if not page.has_more:
                break
        return found

    def _list_namespaces(self, op: ListNamespacesOp) -> Generator[Any, Any, list[tuple[str, ...]]]:
        namespaces, cursor, has_more = set[tuple[str, ...]](), None, True
        while has_more:
            page = yield self._weftline.memory.list(prefix=_ROOT, limit=_PAGE, cursor=cursor)
            namespaces |= {_path(entry.key)[:-1] for entry in page.entries}
            cursor, has_more = page.next_cursor, page.has_more
        conditions = op.match_conditions or ()
        matching = {
            namespace[: op.max_depth]
            for namespace in namespaces
            if all(_is_at(namespace, condition) for condition in conditions)
        }
        return sorted(matching)[op.offset : op.offset + op.limit]


def _check(op: Op) -> None:
    """Raise what LangGraph's stores raise for what cannot be stored."""
    if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
        raise ValueError(f"Unknown operation type: {type(op)}")  # noqa: TRY004 - LangGraph's type
    if isinstance(op, SearchOp):
        _matches({}, op.filter)
    if isinstance(op, ListNamespacesOp):
        all(_is_at((), condition) for condition in op.match_conditions or ())
    if isinstance(op, PutOp) and op.value is not None:
        json.dumps(dict(op.value))
        if op.ttl is not None:
            _seconds(op.ttl)
    if isinstance(op, PutOp | GetOp) and len(_key(op.namespace, op.key)) > _MAX_KEY:
        raise ValueError(f"A namespace and its key may have {_MAX_KEY} characters together.")


def _seconds(minutes: float) -> int:
    seconds = round(minutes * 60)
    if minutes <= 0 or seconds > _YEAR_SECONDS:
        raise ValueError("A ttl is a number of minutes above 0, of one year at most.")
    return max(1, seconds)


def _key(namespace: Iterable[str], key: str) -> str:
    return f"{_prefix(namespace)}{escape(key)}"


def _prefix(namespace: Iterable[str]) -> str:
    return _ROOT + "".join(f"{escape(label)}/" for label in namespace)


def _path(key: str) -> tuple[str, ...]:
    return tuple(unescape(part) for part in key.removeprefix(_ROOT).split("/"))


def _fields(entry: Any) -> dict[str, Any]:  # noqa: ANN401 - of a list, or read alone
    *namespace, key = _path(entry.key)
    return {
        "namespace": tuple(namespace),
        "key": key,
        "value": entry.value,
        "created_at": datetime.fromtimestamp(entry.created_at, UTC),
        # A read that starts the time to live again is no update.
        "updated_at": entry.metadata.get("updated_at", entry.updated_at),
    }


def _matches(value: dict[str, Any], wanted: dict[str, Any] | None) -> bool:
    return all(_compares(value.get(name), condition) for name, condition in (wanted or {}).items())


def _compares(value: Any, condition: Any) -> bool:  # noqa: ANN401 - JSON of any shape
    if not isinstance(condition, dict) or not any(name.startswith("$") for name in condition):
        return bool(value == condition)
    if unknown := condition.keys() - _OPERATORS.keys():
        raise ValueError(f"Unsupported operator: {min(unknown)}")
    for name, operand in condition.items():
        try:
            if not _OPERATORS[name](value, operand):
                return False
        except TypeError:  # such as None and a number
            return False
    return True


def _is_at(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = condition.path
    if condition.match_type not in {"prefix", "suffix"}:
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :] if path else ()
    return len(part) == len(path) and all(label in {"*", own} for label, own in zip(path, part, strict=True))
