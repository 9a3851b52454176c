"""Every operation as a method of the clients; type checkers and editors read the stub beside this file."""

from __future__ import annotations

from weftline.client._calling import Caller, OperationGroup, SyncCaller, operation_groups


class Operations:
    """All operations, by group."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        vars(self).update({name: group(caller) for name, group in operation_groups(blocking=False).items()})


class SyncOperations:
    """All operations, by group."""

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller
        vars(self).update({name: group(caller) for name, group in operation_groups(blocking=True).items()})


def __getattr__(name: str) -> type[OperationGroup]:
    """Return the class of a group, such as ``BoardOperations``."""
    groups = operation_groups(blocking=name.startswith("Sync")).values()
    group = next((group for group in groups if group.__name__ == name), None)
    if group is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return group
