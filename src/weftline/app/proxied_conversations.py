"""Records conversations of the model proxy as windows, through the operations that agents use themselves."""

from __future__ import annotations

import logging
import secrets
from collections import Counter, OrderedDict
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.access.sql import AccessStore
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.history.lines import LineStore
from weftline.history.model import line_name
from weftline.history.sql import CheckoutStore
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import PermissionDenied, Rejected
from weftline.kernel.identity import PrincipalKind
from weftline.models.language_models.answers import read_answer_messages
from weftline.models.language_models.content import WireForm
from weftline.models.language_models.conversation_requests import (
    parse_message,
    raw_digest,
    read_request,
    turn_of,
)
from weftline.safety.trust.gate import ContentBlocked
from weftline.sessions.model import SessionArchived, SessionNotFound
from weftline.storage.sql.unit_of_work import SystemTransactions
from weftline.windows.conversations.model import MAIN, MAX_ANSWERS, Placement, Relation, StoredThread, Thread, event_id
from weftline.windows.conversations.recognition import answer_key, place_request, request_keys
from weftline.windows.conversations.sql import ConversationStore
from weftline.windows.model import MAX_CONTENT_BYTES, MAX_EVENTS, EventExists, window_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.app.app import App
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.language_models.content import ConversationMessage
    from weftline.models.language_models.conversation_requests import ConversationRequest, Turn
    from weftline.storage.sql.unit_of_work import Injector

_log = logging.getLogger("weftline.proxy")
_CANDIDATES = 50
# Turns of messages that were read, about 200 bytes each.
_MAX_KNOWN = 50_000
_MAX_COMMITS = 500
_MAX_SHORT = 200
_encode = msgspec.json.Encoder().encode


class ConversationCall(NamedTuple):
    """One call of a conversation; ``answer`` is empty if it did not end."""

    form: WireForm
    request: bytes
    headers: dict[bytes, bytes]
    answer: bytes
    is_stream: bool
    at: datetime


class _Stores(msgspec.Struct, frozen=True):
    conversations: ConversationStore
    lines: LineStore
    checkouts: CheckoutStore
    access: AccessStore


class _Said(NamedTuple):
    """A message to add, and its turn."""

    turn: Turn
    message: ConversationMessage


class ProxiedConversations:
    """Recognises the conversations of callers, and adds what is new to their windows."""

    def __init__(self, app: App, injector: Injector) -> None:
        self._app = app
        self._stores = SystemTransactions(app.database, injector, _Stores)
        self._known: OrderedDict[tuple[str, str, bytes], tuple[Turn, ...]] = OrderedDict()

    async def record(self, caller: ChatCaller, context: CallContext, call: ConversationCall) -> str:
        """Add what is new in a call to the window of its conversation; return the session, empty if there is none."""
        request = self._read(caller, call)
        if request is None:
            return ""
        keys = request_keys(request.previous, request.client, request.client_id, request.scope, request.turns)
        found = await self._stores.read(
            caller.tenant, lambda stores: stores.conversations.find(caller.agent_id, keys, _CANDIDATES)
        )
        recording = _Recording(self._app, self._stores, caller, context, call, request)
        placement = place_request(request, found)
        try:
            return await recording.run(placement, keys)
        except (SessionNotFound, SessionArchived):
            if placement.base is None:
                raise
            gone = placement.base.session_id
            await self._stores.write(caller.tenant, lambda stores: stores.conversations.forget(caller.agent_id, gone))
            everything = tuple(range(len(request.turns)))
            return await recording.run(Placement(Relation.NEW, None, 0, everything), keys)

    def turns_of(self, caller: ChatCaller, form: WireForm, raws: Sequence[bytes]) -> list[tuple[Turn, ...]]:
        """Return the turns of messages, those of known ones without parsing; raises InvalidInput."""
        owner = caller.tenant, caller.agent_id
        return [
            self._known.get((*owner, raw_digest(raw))) or tuple(map(turn_of, parse_message(form, raw))) for raw in raws
        ]

    def _read(self, caller: ChatCaller, call: ConversationCall) -> ConversationRequest | None:
        keys: list[tuple[str, str, bytes]] = []

        def known(raw: bytes) -> tuple[Turn, ...] | None:
            key = caller.tenant, caller.agent_id, raw_digest(raw)
            keys.append(key)
            turns = self._known.get(key)
            if turns is not None:
                self._known.move_to_end(key)
            return turns

        request = read_request(call.form, call.request, call.headers, known)
        for key, message in zip(keys, () if request is None else request.messages, strict=False):
            self._known[key] = message.turns
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return request


class _Recording:
    """The record of one call."""

    def __init__(
        self,
        app: App,
        stores: SystemTransactions[_Stores],
        caller: ChatCaller,
        context: CallContext,
        call: ConversationCall,
        request: ConversationRequest,
    ) -> None:
        self._app = app
        self._stores = stores
        self._caller = caller
        self._context = context
        self._call = call
        self._request = request

    async def run(self, placement: Placement, keys: Sequence[str]) -> str:
        stored, added = await self._thread(placement)
        thread, turns = stored.thread, self._request.turns
        given = thread.view[thread.sent :] if placement.relation is Relation.RETRY else []
        await self._switch(stored)
        said = _said(self._request, added)
        before = thread.view[: placement.shared] if self._request.previous else []
        thread.view = [*before, *(turn.digest for turn in turns)]
        thread.sent = len(thread.view)
        thread.size = sum(turn.size for turn in turns)
        thread.frame = self._request.frame
        await self._add(stored, said)
        answer_id = await self._add_answer(stored, given)
        keys = [*keys, *([answer_key(answer_id)] if answer_id else [])]
        await self._save(stored, keys)
        return stored.session_id

    async def _thread(self, placement: Placement) -> tuple[StoredThread, Sequence[int]]:
        """Return the thread to write to, and the places of the messages to add to it."""
        base, relation = placement.base, placement.relation
        if base is not None and relation not in {Relation.BRANCH, Relation.SUBAGENT}:
            return base, placement.added
        parent = "" if base is None else base.session_id
        if base is not None and relation == base.thread.relation == Relation.SUBAGENT:
            # Of several sub-agents none belongs to another: requests do not tell who started whom.
            parent = base.thread.parent
        point = None if base is None or relation is Relation.SUBAGENT else _branch_point(base.thread, placement.shared)
        if base is not None and point is not None:
            length, version = point
            branch = f"branch-{secrets.token_hex(3)}"
            trunk = window_line(base.session_id, self._caller.agent_id)
            await self._perform(
                "history.branch", context_id=_line(trunk, base.branch), branch=branch, from_version=version
            )
            thread = Thread(
                client=base.thread.client,
                client_id=base.thread.client_id,
                relation=relation,
                parent=_line(trunk, base.branch),
                counts=dict(Counter(base.thread.counts) - Counter(base.thread.view[length:])),
                commits=[each for each in base.thread.commits if each[0] <= length],
                answers={name: reached for name, reached in base.thread.answers.items() if reached <= length},
            )
            first = placement.added[0] if placement.added else len(self._request.turns)
            missing = 0 if self._request.previous else placement.shared - length
            return StoredThread(base.session_id, branch, thread), range(first - missing, len(self._request.turns))
        request = self._request
        about = {"client": request.client, "relation": str(relation), "parent": parent}
        session_id = await self._create_session(
            purpose=f"Conversation of {request.client or 'a program'} through the model proxy",
            metadata={"proxy": {name: value for name, value in about.items() if value}},
        )
        await self._perform("window.create", session_id=session_id, model=request.model[:_MAX_SHORT] or None)
        thread = Thread(client=request.client, client_id=request.client_id, relation=relation, parent=parent)
        everything = range(len(request.turns))
        return StoredThread(session_id, MAIN, thread), everything if relation is Relation.BRANCH else placement.added

    async def _create_session(self, **about: Any) -> str:  # noqa: ANN401 - fields of the operation
        """Create a session for the caller; that of a sub-agent is its orchestrator's, as all that it works in."""
        operation, agent_id = self._app.registry["session.create"], self._caller.agent_id
        try:
            created = await self._app.call(operation, {**about, "members": []}, self._context)
        except PermissionDenied:
            root = await self._stores.read(self._caller.tenant, lambda stores: _orchestrator(stores.access, agent_id))
            if root == agent_id:
                raise
            context = CallContext(Local(self._caller.tenant, root))
            created = await self._app.call(operation, {**about, "members": [agent_id]}, context)
        session_id: str = msgspec.to_builtins(created)["session_id"]
        return session_id

    async def _switch(self, stored: StoredThread) -> None:
        """Let the agent's calls go to the branch of the thread."""
        trunk, agent_id = window_line(stored.session_id, self._caller.agent_id), self._caller.agent_id
        checkout = await self._stores.read(self._caller.tenant, lambda stores: stores.checkouts.of(trunk, agent_id))
        if (MAIN if checkout is None else checkout.branch) != stored.branch:
            await self._perform("history.switch", context_id=trunk, branch=stored.branch or None)

    async def _add_answer(self, stored: StoredThread, given: Sequence[str]) -> str:
        """Add the answer, but not what was given to the same call before; return its id."""
        thread, call = stored.thread, self._call
        answer = read_answer_messages(call.form, call.answer, is_stream=call.is_stream) if call.answer else None
        if answer is None or not answer.messages:
            return ""
        said = [_Said(turn_of(message), message) for message in answer.messages]
        new = [each for each in said if each.turn.digest not in given]
        thread.view += [each.turn.digest for each in said]
        await self._add(stored, new)
        if answer.answer_id:
            thread.answers[answer.answer_id] = len(thread.view)
            while len(thread.answers) > MAX_ANSWERS:
                del thread.answers[next(iter(thread.answers))]
        return answer.answer_id

    async def _add(self, stored: StoredThread, said: Iterable[_Said]) -> None:
        """Add messages to the window; instructions are those of the program, and no part of the conversation."""
        events = []
        for each in said:
            occurrence = stored.thread.counts.get(each.turn.digest, 0) + 1
            stored.thread.counts[each.turn.digest] = occurrence
            if each.turn.role != "system":
                events.append(_event(each, occurrence, min(self._call.at, self._app.clock.now())))
        for first in range(0, len(events), MAX_EVENTS):
            await self._ingest(stored.session_id, events[first : first + MAX_EVENTS])
        if events:
            await self._note_version(stored)

    async def _ingest(self, session_id: str, events: list[dict[str, Any]]) -> None:
        try:
            await self._perform("context.ingest", session_id=session_id, events=events)
        except (Rejected, ContentBlocked, EventExists) as error:
            if len(events) == 1:
                _log.info("an event of a proxied conversation is not recorded: %s", error.code)
                return
            # One that is refused keeps no other from being recorded.
            for each in events:
                await self._ingest(session_id, [each])

    async def _note_version(self, stored: StoredThread) -> None:
        line_id = _line(window_line(stored.session_id, self._caller.agent_id), stored.branch)
        line = await self._stores.read(self._caller.tenant, lambda stores: stores.lines.find(line_id))
        if line is not None:
            stored.thread.commits.append((len(stored.thread.view), line.head.seq))
            del stored.thread.commits[:-_MAX_COMMITS]

    async def _save(self, stored: StoredThread, keys: Iterable[str]) -> None:
        at = to_micros(self._app.clock.now())
        await self._stores.write(
            self._caller.tenant, lambda stores: stores.conversations.save(self._caller.agent_id, stored, keys, at)
        )

    async def _perform(self, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - the operation's response
        return await self._app.call(self._app.registry[operation], raw, self._context)


async def _orchestrator(access: AccessStore, agent_id: str) -> str:
    """Return the agent at the top of an agent's tree."""
    visited: dict[str, None] = {}
    found = await access.principal(agent_id)
    while found is not None and found.kind is PrincipalKind.AGENT and found.principal_id not in visited:
        visited[found.principal_id] = None
        found = None if found.parent_id is None else await access.principal(found.parent_id)
    return next(reversed(visited), agent_id)


def _said(request: ConversationRequest, places: Sequence[int]) -> list[_Said]:
    """Return the messages at these places."""
    wanted, found, at = set(places), [], 0
    for message in request.messages:
        own = range(at, at + len(message.turns))
        at = own.stop
        if wanted.isdisjoint(own):
            continue
        parsed = parse_message(request.form, message.raw)
        found += [
            _Said(turn, each) for place, turn, each in zip(own, message.turns, parsed, strict=True) if place in wanted
        ]
    return found


def _branch_point(thread: Thread, shared: int) -> tuple[int, int] | None:
    """Return the longest beginning that a branch can share, with its version."""
    return max((each for each in thread.commits if each[0] <= shared), default=None)


def _line(trunk: str, branch: str) -> str:
    return line_name(trunk, branch or None)


def _event(said: _Said, occurrence: int, at: datetime) -> dict[str, Any]:
    message = said.message
    event: dict[str, Any] = {
        "event_id": event_id(said.turn, occurrence),
        "role": message.role,
        "content": message.content,
        "occurred_at": at.isoformat(),
        "tool_calls": [
            {
                "call_id": call.call_id[:_MAX_SHORT] or "call",
                "name": call.name[:_MAX_SHORT] or "tool",
                "arguments": call.arguments,
            }
            for call in message.tool_calls
        ],
    }
    if message.name:
        event["name"] = message.name[:_MAX_SHORT]
    if message.tool_call_id:
        event["tool_call_id"] = message.tool_call_id[:_MAX_SHORT]
    if message.native is not None and len(_encode(message.native)) <= MAX_CONTENT_BYTES:
        event |= {"form": message.form, "native": message.native}
    elif message.native is not None or len(message.content.encode()) > MAX_CONTENT_BYTES:
        text = message.content.encode()[: MAX_CONTENT_BYTES - _MAX_SHORT].decode(errors="ignore")
        event["content"] = f"{text}\n[Weftline has not recorded all of this message: it is too large.]".lstrip()
    return event
