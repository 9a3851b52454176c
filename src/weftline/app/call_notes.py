"""Stores calls through the model proxy: their messages, what was decided about them, and their usage."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from weftline.app.authentication import Local
from weftline.app.call_meter import ProxiedAs
from weftline.app.dispatch import CallContext
from weftline.app.proxied_conversations import ConversationCall
from weftline.app.proxied_edits import EditNote
from weftline.kernel.errors import SystemUnavailable, WeftlineError
from weftline.models.language_models.chat_model import ChatCaller
from weftline.models.metering import UsageSums

if TYPE_CHECKING:
    from weftline.app.proxied_conversations import ProxiedConversations
    from weftline.app.proxied_edits import ProxiedEdits
    from weftline.models.metering import CallKind

# The calls after one that cannot be metered wait for it.
_METER_SECONDS = 5.0
# A conversation that was long before its first call takes long once: what is not recorded in time would never be.
_RECORDED_BYTES_PER_SECOND = 10_000
_log = logging.getLogger("weftline.proxy")


class CallNote(msgspec.Struct, frozen=True):
    """An ended call of a model. It can be sent to another process, and holds no credential of a provider.

    ``call_id`` names its receipt, so that storing it again adds nothing. ``at``: when it ended.
    ``key``, ``person`` and ``peer``: who made it, as in CallContext. ``conversation``: request and answer, if they are
    to be recorded; ``edits``: what was decided about the request.
    """

    call_id: str
    at: datetime
    caller: ChatCaller
    model: str
    sums: UsageSums
    seconds: float
    key: str | None = None
    person: Local | None = None
    peer: str = "local"
    conversation: ConversationCall | None = None
    edits: EditNote | None = None

    @property
    def context(self) -> CallContext:
        return CallContext(self.key if self.person is None else self.person, self.peer)

    def as_usage(self) -> CallNote:
        """Return the note without messages and without who made the call, but for the agent."""
        edits = None if self.edits is None else EditNote(self.edits.mode, self.edits.conversation)
        return replace(self, key=None, person=None, peer="local", conversation=None, edits=edits)


class Meter(Protocol):
    """Keeps the usage of calls."""

    async def add(
        self,
        kind: CallKind,
        caller: ChatCaller,
        model: str,
        sums: UsageSums,
        seconds: float,
        proxied: ProxiedAs | None = None,
    ) -> None:
        """Add a call that ends now and took this long."""
        ...


class CallNotes:
    """Records the messages of calls, then meters them in the sessions that they are recorded in."""

    def __init__(self, conversations: ProxiedConversations, edits: ProxiedEdits, meter: Meter) -> None:
        self._conversations = conversations
        self._edits = edits
        self._meter = meter

    async def store(self, note: CallNote) -> None:
        """Store a call; raises WeftlineError if it cannot be metered. What is stored already is not added again."""
        caller = await self._record(note)
        await self._store_edits(note, caller)
        try:
            async with asyncio.timeout(_METER_SECONDS):
                await self._meter.add("proxy", caller, note.model, note.sums, note.seconds, _proxied_as(note))
        except TimeoutError:
            raise SystemUnavailable from None

    async def _record(self, note: CallNote) -> ChatCaller:
        """Record the conversation of a call; return the caller with its session."""
        call = note.conversation
        if call is None:
            return note.caller
        try:
            async with asyncio.timeout(_METER_SECONDS + len(call.request) / _RECORDED_BYTES_PER_SECOND):
                session_id = await self._conversations.record(note.caller, note.context, call)
        except (WeftlineError, TimeoutError) as error:
            # The next call of the conversation repeats its messages.
            _log.info("a proxied conversation is not recorded: %s", getattr(error, "code", "timeout"))
            return note.caller
        except Exception:  # noqa: BLE001 - a call is metered whatever its messages are
            _log.exception("cannot record a proxied conversation")
            return note.caller
        return note.caller._replace(session_id=session_id)

    async def _store_edits(self, note: CallNote, caller: ChatCaller) -> None:
        if note.edits is None:
            return
        try:
            async with asyncio.timeout(_METER_SECONDS):
                await self._edits.note(caller, note.edits, caller.session_id)
        except (WeftlineError, TimeoutError) as error:
            _log.info("what was forwarded whole is not stored: %s", getattr(error, "code", "timeout"))


def _proxied_as(note: CallNote) -> ProxiedAs:
    conversation, mode = ("", "observe") if note.edits is None else (note.edits.conversation, note.edits.mode)
    return ProxiedAs(conversation, mode, note.call_id, note.at)
