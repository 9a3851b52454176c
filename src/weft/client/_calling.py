"""What a generated method needs of whoever carries its call."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Caller(Protocol):
    """Carries calls: over HTTP, or straight into an App of this process."""

    async def call(self, operation: str, arguments: dict[str, Any], response: type[T], /) -> T:
        """Perform an operation and return its typed response, or raise the WeftError it ended with."""
        ...


class SyncCaller(Protocol):
    """Carries calls, blocking until each is answered."""

    def call(self, operation: str, arguments: dict[str, Any], response: type[T], /) -> T:
        """Perform an operation and return its typed response, or raise the WeftError it ended with."""
        ...


def given(**optional: Any) -> dict[str, Any]:  # noqa: ANN401 - arguments of any operation
    """Return those arguments that say something; None leaves the choice to the operation."""
    return {name: value for name, value in optional.items() if value is not None}
