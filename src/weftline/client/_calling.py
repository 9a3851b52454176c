"""Transport port of the generated clients."""

from __future__ import annotations

from typing import Any, Protocol


class Caller(Protocol):
    """Sends calls over HTTP, or to an App in this process."""

    async def call(self, operation: str, arguments: dict[str, Any], /) -> Any:  # noqa: ANN401 - the operation's response
        """Call an operation and return its typed response; raise its WeftlineError."""
        ...


class SyncCaller(Protocol):
    """Sends calls and blocks until each is answered."""

    def call(self, operation: str, arguments: dict[str, Any], /) -> Any:  # noqa: ANN401 - the operation's response
        """Call an operation and return its typed response; raise its WeftlineError."""
        ...


def given(**optional: Any) -> dict[str, Any]:  # noqa: ANN401 - arguments of any operation
    """Return the arguments that are not None; for the others the operation uses its default."""
    return {name: value for name, value in optional.items() if value is not None}
