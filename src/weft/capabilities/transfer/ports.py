"""What an export asks of whoever decides what may leave.

An export shows only what its caller may read anyhow, and asks about each piece of that before it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from weft.capabilities.record_log.engine_items import EngineItem
    from weft.capabilities.records.model import ContextEvent, Record
    from weft.capabilities.records.refs import Link
    from weft.capabilities.records.store import Redaction
    from weft.kernel.identity import Actor

R = TypeVar("R", bound="Record")


class Applied(Protocol):
    """A policy at work on one export. ``ref`` names it, with the digest of what it said then."""

    ref: Link
    masked: int
    omitted: int

    def item(
        self, item: EngineItem, redaction: Redaction | None, readable_by: tuple[str, ...] = ANYONE
    ) -> EngineItem | None:
        """Return an item as it may leave, with what it says as far as that may; None if it may not leave at all.

        What was redacted stays so under every policy. Items are asked about before the records that name them.
        """
        ...

    def record(self, record: R, readable_by: tuple[str, ...]) -> R | None:
        """Return another record as it may leave; None if it may not. ``readable_by`` is who may read it here."""
        ...

    def event(self, event: ContextEvent, readable_by: tuple[str, ...]) -> ContextEvent | None:
        """Return an event of the log as it may leave; None if it may not."""
        ...

    def name(self, name: str) -> str:
        """Return what somebody named something as it may leave: still a name."""
        ...

    def words(self, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        """Return what somebody wrote outside any record, a text or an object, as it may leave."""
        ...


class Policies(Protocol):
    """The policies of the transaction's tenant."""

    async def prepare(self, name: str | None, actor: Actor) -> Applied:
        """Return a policy that the caller may use, the one that holds if none is named; refuse any other."""
        ...
