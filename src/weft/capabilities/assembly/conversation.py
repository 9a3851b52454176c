"""The events of a window as the conversation of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import structs

from weft.capabilities.assembly.model import Candidate, Omission, PlannedBlock, Shortening
from weft.capabilities.assembly.plan import FittedConversation
from weft.capabilities.language_models.content import Media
from weft.capabilities.language_models.model import ConversationMessage
from weft.capabilities.language_models.rendering import message_parts, plain_text
from weft.capabilities.layers.prefix import sanitise_message
from weft.capabilities.windows.budget import SizedEvent, budgets_for, fit, required_tokens, shorten
from weft.capabilities.windows.model import Category, window_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.assembly.packers import CountMessages
    from weft.capabilities.windows.model import WindowEvent

# An event above this part of the limit is shortened in the middle, so that it does not evict all others.
_LARGEST_PART = 4
_REDACTED = "redacted"


@dataclass(frozen=True)
class WindowConversation:
    """A conversation for a prompt of at most ``limit`` tokens.

    ``shares`` are those of the window's categories. Sizes and shortened texts depend on the event and the limit alone,
    so they are the same in every call.
    """

    line_id: str
    session_id: str
    events: Sequence[WindowEvent]
    limit: int
    shares: Mapping[Category, float] | None
    modalities: frozenset[str]
    count: CountMessages

    @cached_property
    def blocks(self) -> list[PlannedBlock]:
        return [self._block(event) for event in self._shown]

    @property
    def candidates(self) -> list[Candidate]:
        events = [
            Candidate(ref=ref, kind="event", tokens=block.tokens, version=version)
            for block in self.blocks
            for ref, version in block.items.items()
        ]
        return [*events, *(Candidate(ref=each.ref, kind="event", tokens=0) for each in self.omissions)]

    @cached_property
    def omissions(self) -> list[Omission]:
        """Return the images, audio and files that the model cannot read; a note takes their place."""
        return [
            Omission(f"{self.ref_of(event)}#{place}", "unsupported_media", part.kind)
            for event in self.events
            if event.message.native is not None
            for place, part in enumerate(message_parts(event.message))
            if isinstance(part, Media) and part.kind not in self.modalities
        ]

    @cached_property
    def required_tokens(self) -> int:
        return required_tokens(self._sized)

    @cached_property
    def shortened(self) -> list[Shortening]:
        return [
            Shortening(self.ref_of(event), size, block.tokens)
            for event, block in zip(self.events, self.blocks, strict=True)
            if self._may_shorten(event) and (size := self.count((event.message,))) > self._longest
        ]

    def fit(self, room: int) -> FittedConversation:
        budgets = budgets_for(room, self.shares)
        found = fit(self._sized, room, budgets, low_water=1.0, longest=self._longest)
        kept = frozenset(found.kept)
        by_id = zip(self._sized, self.blocks, strict=True)
        blocks = [block for event, block in by_id if event.event_id in kept]
        refs = {ref for block in blocks for ref in block.items}
        gone = [ref for block in self.blocks for ref in block.items if ref not in refs]
        omitted = [Omission(ref, "budget", "trimmed, oldest first") for ref in gone]
        return FittedConversation(blocks, omitted, [each for each in self.shortened if each.ref in refs])

    def is_question(self, block: PlannedBlock) -> bool:
        message = block.messages[-1]
        return block.kind == "conversation" and message.role == "user"

    @property
    def newest_question(self) -> str | None:
        """Return the text of the newest event, if it is a message of the user."""
        if not self.events or self.events[-1].routed or self.events[-1].message.role != "user":
            return None
        return self.events[-1].message.content

    def ref_of(self, event: WindowEvent) -> str:
        """Return the ref of an event: its key in the line of the window that it is in."""
        line_id = window_line(self.session_id, event.agent_id) if event.routed else self.line_id
        return f"{line_id}/{event.event_id}"

    @property
    def _longest(self) -> int:
        return self.limit // _LARGEST_PART

    @cached_property
    def _shown(self) -> list[WindowEvent]:
        return [self._shortened(event) for event in self.events]

    @cached_property
    def _sized(self) -> list[SizedEvent]:
        # Ids are unique in a window only; events of other windows may be routed to it.
        return [
            _sized(event, block.tokens, str(place))
            for place, (event, block) in enumerate(zip(self._shown, self.blocks, strict=True))
        ]

    def _shortened(self, event: WindowEvent) -> WindowEvent:
        message = sanitise_message(_attributed(event) if event.routed else event.message)
        if self._may_shorten(event) and self.count((message,)) > self._longest:
            message = structs.replace(message, content=shorten(message.content, self._longest, self._count_text))
        return structs.replace(event, message=message)

    @staticmethod
    def _may_shorten(event: WindowEvent) -> bool:
        """Tell whether the middle of an event may be cut out: not of system messages, pins and native content."""
        return event.category is not Category.SYSTEM and not event.pinned and event.message.native is None

    def _count_text(self, text: str) -> int:
        return self.count((structs.replace(self.events[0].message, content=text, tool_calls=()),))

    def _block(self, event: WindowEvent) -> PlannedBlock:
        ref = self.ref_of(event)
        return PlannedBlock(
            block_id=f"event:{ref}",
            kind="conversation",
            messages=(event.message,),
            tokens=self.count((event.message,)),
            items={ref: _REDACTED if event.redacted else _version_of(event)},
        )


def _sized(event: WindowEvent, tokens: int, event_id: str) -> SizedEvent:
    """Return an event with its size; the newest message of the user is never one that another agent routed here."""
    sized = SizedEvent.of(event, tokens)
    return structs.replace(sized, event_id=event_id, is_user=sized.is_user and not event.routed)


def _attributed(event: WindowEvent) -> ConversationMessage:
    """Return an event of another agent as a quotation: neither the user nor this agent said it, or called its tools."""
    message = event.message
    if message.role == "system":
        return message
    calls = (f"{call.name}({call.arguments})" for call in message.tool_calls)
    text = "\n".join(filter(None, (plain_text(message), *calls)))
    return ConversationMessage(role="user", content=f"[From {event.agent_id}]\n{text}")


def _version_of(event: WindowEvent) -> str:
    """Return incarnation and version: an event that was rolled back may be added again with other content."""
    return event.item_id.rpartition("/")[2]
