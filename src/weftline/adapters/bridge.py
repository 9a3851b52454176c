"""What all adapters share: one body for code with and without ``await``, and what happens when Weftline fails."""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings
from collections import deque
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakValueDictionary

from weftline.client._operations import SyncOperations

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from concurrent.futures import Future

    from weftline.client._operations import Operations

_Result = TypeVar("_Result")
_Instead = TypeVar("_Instead")
_Self = TypeVar("_Self")
_Arguments = ParamSpec("_Arguments")
_logger = logging.getLogger(__name__)
_KEPT_FAILURES = 100


class AdapterWarning(UserWarning):
    """Weftline failed, and an agent goes on without it."""


def missing_framework(extra: str, error: ImportError) -> ImportError:
    """Return the error of an adapter whose framework is not installed."""
    return ImportError(
        f"This adapter needs a framework that is not installed: pip install 'weftline[{extra}]'.", name=error.name
    )


class Bridge:
    """Runs the steps of an adapter with any of the four clients, from code with or without ``await``.

    Steps are written for a blocking client: ``entry = yield weftline.board.read(...)``. With an async client, what is
    yielded is awaited.

    ``failures``: the latest errors of Weftline that the agent was spared.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        strict: bool = False,
        raised: tuple[type[Exception], ...] = (),
    ) -> None:
        """Bridge to a client; errors that are ``raised`` are answers of the adapter, and never replaced."""
        # Typed as blocking, since steps receive responses.
        self.weftline = cast("SyncOperations", weftline)
        self.strict = strict
        self._raised = raised
        self.failures: deque[Exception] = deque(maxlen=_KEPT_FAILURES)
        self._is_blocking = isinstance(weftline, SyncOperations)
        self._loop = _running_loop()
        self._has_warned = False
        self._locks = WeakValueDictionary[str, Any]()

    def run(self, steps: Generator[Any, Any, _Result]) -> _Result:
        """Run steps from code without ``await``."""
        if self._is_blocking:
            return _run_blocking(steps)
        if self._loop is None or self._loop is _running_loop():
            steps.close()
            raise RuntimeError(
                "An async Weftline client cannot be waited for here: use the framework's async methods, or give the "
                "adapter a SyncClient or the Weftline of Weftline.open_sync."
            )
        return asyncio.run_coroutine_threadsafe(_run_async(steps), self._loop).result()

    async def arun(self, steps: Generator[Any, Any, _Result]) -> _Result:
        """Run steps from code with ``await``."""
        if self._is_blocking:
            return await asyncio.to_thread(_run_blocking, steps)
        here = asyncio.get_running_loop()
        self._loop = self._loop or here
        if self._loop is here:
            return await _run_async(steps)
        # The connections of a client belong to the loop that opened them.
        running: Future[_Result] = asyncio.run_coroutine_threadsafe(_run_async(steps), self._loop)
        return await asyncio.wrap_future(running)

    def guarded(
        self, steps: Generator[Any, Any, _Result], instead: Callable[[], _Instead]
    ) -> Generator[Any, Any, _Result | _Instead]:
        """Return steps that end with what ``instead`` returns if Weftline fails, unless the adapter is strict."""
        try:
            return (yield from steps)
        except Exception as error:
            if self.strict or isinstance(error, self._raised):
                raise
            self.note(error)
            return instead()

    def lock(self, name: str) -> Any:  # noqa: ANN401 - of threads or of tasks
        """Return the lock of a name, for steps: ``yield lock.acquire()``, then ``lock.release()``."""
        return self._locks.setdefault(name, Lock() if self._is_blocking else asyncio.Lock())

    def note(self, error: Exception) -> None:
        """Keep a failure, and warn of the first one. The log has no values, only the kind of error."""
        self.failures.append(error)
        code = getattr(error, "code", type(error).__name__)
        _logger.info("Weftline failed (%s); the agent goes on without it.", code)
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"Weftline failed ({code}); the agent goes on without it. Later failures are logged only.",
                AdapterWarning,
                stacklevel=2,
            )


def with_and_without_await(
    steps: Callable[Concatenate[_Self, _Arguments], Generator[Any, Any, _Result]],
) -> tuple[
    Callable[Concatenate[_Self, _Arguments], _Result],
    Callable[Concatenate[_Self, _Arguments], Coroutine[Any, Any, _Result]],
]:
    """Return a method of an adapter that has a ``bridge``, for code without ``await`` and for code with it."""

    @wraps(steps)
    def method(self: _Self, *args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        result: _Result = self.bridge.run(steps(self, *args, **options))  # type: ignore[attr-defined]
        return result

    @wraps(steps)
    async def async_method(self: _Self, *args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        result: _Result = await self.bridge.arun(steps(self, *args, **options))  # type: ignore[attr-defined]
        return result

    # mypy: wraps returns another kind of callable, which it does not unify with these.
    return method, async_method  # type: ignore[return-value]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _run_blocking(steps: Generator[Any, Any, _Result]) -> _Result:
    response = None
    while True:
        try:
            response = steps.send(response)
        except StopIteration as end:
            return cast("_Result", end.value)


async def _run_async(steps: Generator[Any, Any, _Result]) -> _Result:
    response, error = None, None
    while True:
        try:
            step = steps.send(response) if error is None else steps.throw(error)
        except StopIteration as end:
            return cast("_Result", end.value)
        response, error = None, None
        try:
            response = await step if inspect.isawaitable(step) else step
        except Exception as failure:  # noqa: BLE001 - raised in the steps, where a blocking client raises it
            error = failure
