"""Checkpoints of LangGraph: a thread is a session, and its checkpoints are the versions of a key of its board.

So a thread has what every board has: a log, diffs, branches, rollback, members and retention. The state is stored as
LangGraph serialises it, compressed, and in short words beside it, for diffs, for the console and for other agents.
"""

from __future__ import annotations

import base64
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.adapters.bridge import Bridge, missing_framework, with_and_without_await
from weftline.adapters.langgraph.threads import Threads
from weftline.adapters.packed import pack, unpack

try:
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )
    from langgraph.checkpoint.memory import InMemorySaver
except ImportError as error:
    raise missing_framework("langgraph", error) from error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from weftline.adapters.langgraph.threads import Line, Write
    from weftline.client._operations import Operations, SyncOperations

_SHOWN_CHARACTERS = 300


class _Place(NamedTuple):
    """A thread, a namespace in it, and a checkpoint if the configuration names one."""

    thread_id: str
    ns: str = ""
    checkpoint_id: str | None = None

    @classmethod
    def of(cls, config: RunnableConfig) -> _Place:
        named = config["configurable"]
        return cls(str(named["thread_id"]), named.get("checkpoint_ns", ""), get_checkpoint_id(config))


class WeftlineSaver(BaseCheckpointSaver[Any]):
    """A checkpointer over any client of Weftline, for graphs with and without ``await``.

    ``branch``: of the boards of threads, as ``history.branch`` makes them. ``readable``: store the state in short
    words, too. If Weftline fails, checkpoints stay in this process, with a warning; with ``strict``, the call fails.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        serde: SerializerProtocol | None = None,
        branch: str | None = None,
        readable: bool = True,
        strict: bool = False,
    ) -> None:
        super().__init__(serde=serde)
        self.bridge = Bridge(weftline, strict=strict)
        self._threads = Threads(self.bridge, branch)
        self._readable = readable
        self._local = InMemorySaver(serde=serde)

    # Steps of what LangGraph calls; at the end each becomes a method without and one with await.

    def _get(self, config: RunnableConfig) -> Generator[Any, Any, CheckpointTuple | None]:
        stored = yield from self.bridge.guarded(self._load(_Place.of(config)), lambda: None)
        local = self._local.get_tuple(config)
        return max((each for each in (stored, local) if each), key=lambda each: each.checkpoint["id"], default=None)

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Generator[Any, Any, RunnableConfig]:
        place = _Place.of(config)
        metadata = get_checkpoint_metadata(config, metadata)
        type_, content = self.serde.dumps_typed((checkpoint, metadata))
        document: dict[str, Any] = {
            "id": checkpoint["id"],
            "ns": place.ns,
            "parent": place.checkpoint_id,
            "run_id": metadata.get("run_id"),
            "type": type_,
            "data": pack(content),
        }
        # What is encrypted is not told in words.
        if self._readable and "+" not in type_:
            document["shown"] = _shown(checkpoint, metadata, new_versions)

        def store_locally() -> None:
            # All channels: their versions before may be in Weftline only.
            self._local.put(config, checkpoint, metadata, checkpoint["channel_versions"])

        yield from self.bridge.guarded(self._threads.write_checkpoint(place.thread_id, document), store_locally)
        return _config(place.thread_id, place.ns, checkpoint["id"])

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> Generator[Any, Any, None]:
        place, checkpoint_id = _Place.of(config), config["configurable"]["checkpoint_id"]
        rows: list[Write] = []
        for index, (channel, value) in enumerate(writes):
            type_, content = self.serde.dumps_typed(value)
            rows.append(
                (
                    task_id,
                    WRITES_IDX_MAP.get(channel, index),
                    channel,
                    task_path,
                    type_,
                    base64.b64encode(content).decode(),
                )
            )
        yield from self.bridge.guarded(
            self._threads.add_writes(place.thread_id, place.ns, checkpoint_id, rows),
            lambda: self._local.put_writes(config, writes, task_id, task_path),
        )

    def _list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Generator[Any, Any, Iterator[CheckpointTuple]]:
        stored: Sequence[CheckpointTuple] = yield from self.bridge.guarded(self._load_all(config), tuple)
        known = {(each.config["configurable"]["thread_id"], each.checkpoint["id"]) for each in stored}
        local = (
            each
            for each in self._local.list(config)
            if (each.config["configurable"]["thread_id"], each.checkpoint["id"]) not in known
        )
        end = get_checkpoint_id(before) if before else None
        only = get_checkpoint_id(config) if config else None
        wanted = (
            each
            for each in sorted((*stored, *local), key=lambda each: each.checkpoint["id"], reverse=True)
            if (not only or each.checkpoint["id"] == only)
            and (not end or each.checkpoint["id"] < end)
            and all(each.metadata.get(name) == value for name, value in (filter or {}).items())
        )
        return islice(wanted, None if limit is None else max(0, limit))

    def _delete_thread(self, thread_id: str) -> Generator[Any, Any, None]:
        self._local.delete_thread(thread_id)
        yield from self.bridge.guarded(self._threads.delete(thread_id), lambda: None)

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Generator[Any, Any, None]:
        for run_id in run_ids:
            yield from self.bridge.guarded(self._threads.remove_run(run_id), lambda: None)

    def _copy_thread(self, source_thread_id: str, target_thread_id: str) -> Generator[Any, Any, None]:
        def copy() -> Generator[Any, Any, None]:
            # With what was pruned: delta channels may need it.
            for line in (yield from self._threads.lines(source_thread_id, pruned=True)):
                for checkpoint_id, document in line.checkpoints.items():
                    yield from self._threads.write_checkpoint(target_thread_id, document)
                    if checkpoint_id in line.writes:
                        rows = line.writes[checkpoint_id]
                        yield from self._threads.add_writes(target_thread_id, line.ns, checkpoint_id, rows)

        yield from self.bridge.guarded(copy(), lambda: None)

    def _prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> Generator[Any, Any, None]:
        if strategy not in {"keep_latest", "delete"}:
            raise ValueError(f"There is no strategy {strategy!r}: use 'keep_latest' or 'delete'.")
        for thread_id in thread_ids:
            if strategy == "delete":
                yield from self._delete_thread(thread_id)
            else:
                yield from self.bridge.guarded(self._threads.prune(thread_id), lambda: None)

    def _get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Generator[Any, Any, Mapping[str, DeltaChannelHistory]]:
        place = _Place.of(config)

        def load() -> Generator[Any, Any, BaseCheckpointSaver[Any]]:
            line = yield from self._threads.line(place.thread_id, place.ns, pruned=True)
            return _Loaded({each: self._tuple(line, each) for each in line.checkpoints})

        loaded = yield from self.bridge.guarded(load(), lambda: self._local)
        return loaded.get_delta_channel_history(config=config, channels=channels)

    get_tuple, aget_tuple = with_and_without_await(_get)
    put, aput = with_and_without_await(_put)
    put_writes, aput_writes = with_and_without_await(_put_writes)
    delete_thread, adelete_thread = with_and_without_await(_delete_thread)
    delete_for_runs, adelete_for_runs = with_and_without_await(_delete_for_runs)
    copy_thread, acopy_thread = with_and_without_await(_copy_thread)
    prune, aprune = with_and_without_await(_prune)
    get_delta_channel_history, aget_delta_channel_history = with_and_without_await(_get_delta_channel_history)
    list, _alist = with_and_without_await(_list)

    async def alist(
        self,
        config: RunnableConfig | None,
        **options: Any,  # noqa: ANN401 - those of list
    ) -> AsyncIterator[CheckpointTuple]:
        for each in await self._alist(config, **options):
            yield each

    def _load(self, place: _Place) -> Generator[Any, Any, CheckpointTuple | None]:
        line = yield from self._threads.head(*place)
        wanted = place.checkpoint_id or line.latest
        return self._tuple(line, wanted) if wanted in line.checkpoints else None

    def _load_all(self, config: RunnableConfig | None) -> Generator[Any, Any, Sequence[CheckpointTuple]]:
        threads = [_Place.of(config).thread_id] if config else (yield from self._threads.all())
        found: list[CheckpointTuple] = []
        for thread_id in threads:
            for line in (yield from self._threads.lines(thread_id)):
                if config is None or config["configurable"].get("checkpoint_ns", line.ns) == line.ns:
                    found += [self._tuple(line, each) for each in line.checkpoints]
        return found

    def _tuple(self, line: Line, checkpoint_id: str) -> CheckpointTuple:
        document = line.checkpoints[checkpoint_id]
        checkpoint, metadata = self.serde.loads_typed((document["type"], unpack(document["data"])))
        parent = document["parent"]
        rows = sorted(line.writes.get(checkpoint_id, ()), key=lambda row: writes_sort_key(row[3], row[0], row[1]))
        return CheckpointTuple(
            config=_config(line.thread_id, line.ns, checkpoint_id),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=_config(line.thread_id, line.ns, parent) if parent else None,
            pending_writes=[
                (row[0], row[2], self.serde.loads_typed((row[4], base64.b64decode(row[5])))) for row in rows
            ],
        )

    def _value(self, row: Write) -> Any:  # noqa: ANN401 - of any channel
        return self.serde.loads_typed((row[4], base64.b64decode(row[5])))


class _Loaded(BaseCheckpointSaver[Any]):
    """Checkpoints of a line that were read at once, for LangGraph's walk through them."""

    def __init__(self, tuples: Mapping[str, CheckpointTuple]) -> None:
        super().__init__()
        self._tuples = tuples

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._tuples.get(get_checkpoint_id(config) or next(reversed([*self._tuples]), ""))


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _shown(checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions) -> dict[str, Any]:
    """Return a checkpoint in short words: the step, and the channels of the user's that it changed."""
    values = checkpoint["channel_values"]
    changed = [name for name in new_versions if name in values and not name.startswith(("__", "branch:"))]
    return {
        "step": metadata.get("step"),
        "source": metadata.get("source"),
        **{name: _shown_value(values[name]) for name in changed},
    }


def _shown_value(value: object) -> str:
    """Return a value in short words; of a list, its length and last item."""
    if isinstance(value, list) and value:
        return f"{len(value)}: {_shown_value(value[-1])}"
    kind, content = getattr(value, "type", None), getattr(value, "content", None)
    text = f"{kind}: {content}" if kind and content is not None else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
