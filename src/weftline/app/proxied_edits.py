"""Edits requests of the model proxy, by the mode of their agent, and stores each edit before it is forwarded.

A call waits for this for a bounded time. What cannot be decided or stored in it is forwarded whole, and stays whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from weftline.access.sql import AccessStore
from weftline.app.proxied_additions import Additions, LateSearches
from weftline.history.lines import LineStore
from weftline.history.model import line_name
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InvalidInput, WeftlineError
from weftline.kernel.ports import approximate_tokens
from weftline.kernel.thread_pools import TEXT_THREADS
from weftline.models.language_models.conversation_requests import (
    client_of,
    parse_message,
    previous_of,
    scope_of,
    turn_of,
)
from weftline.models.language_models.request_spans import KnownParts, read_spans
from weftline.models.proxied_calls import EditedTokens, ProxiedCallStore
from weftline.state.agent_context.settings import ProxyMode
from weftline.storage.sql.unit_of_work import SystemTransactions
from weftline.windows.agent_settings import proxy_settings
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.conversations.compacted_prefix import (
    COMPACTED,
    MIN_COMPACTED_BYTES,
    compact_prefix,
    matching_end,
    prefix_of,
    prefix_splice,
)
from weftline.windows.conversations.edits import (
    LATE,
    STOPPED,
    Edit,
    appendable_results,
    decode_edit,
    editable_messages,
    editable_results,
    edited_body,
    encode_edit,
    replaces_end,
    splices_of,
    system_part,
    with_end,
)
from weftline.windows.conversations.handle_searches import search_of
from weftline.windows.conversations.handles import MAX_NAMED, named_handles
from weftline.windows.conversations.recognition import request_keys
from weftline.windows.conversations.shortened_results import shorten_result
from weftline.windows.conversations.sql import ConversationStore, EditStore
from weftline.windows.model import window_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weftline.app.app import App
    from weftline.app.caches import Cache
    from weftline.app.dispatch import CallContext
    from weftline.kernel.identity import Actor
    from weftline.models.language_models.catalog import CacheRules
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.language_models.content import WireForm
    from weftline.models.language_models.conversation_requests import Turn
    from weftline.models.language_models.request_spans import SpannedRequest, ToolResult
    from weftline.state.agent_context.settings import ResolvedProxy
    from weftline.storage.sql.unit_of_work import Injector
    from weftline.windows.compaction.sql import AppliedCompaction
    from weftline.windows.conversations.edits import EditablePart, Splice
    from weftline.windows.conversations.handles import NamedLines

_log = logging.getLogger("weftline.proxy")
_ENCODING = b"content-encoding"
# Conversations with decisions of this process that are not stored yet.
_MAX_UNSTORED = 10_000
# Threads of a conversation in which a message is looked for that was forwarded before it had edits.
_THREADS = 3
# What the task may need is looked for in this part of the time.
_SEARCH_PART = 0.5
# Full mode stops where these many latest calls were dearer in all.
_STOP_CALLS = 8
# Of a decision in memory, without its text.
_EDIT_BYTES = 200


class GivenRequest(NamedTuple):
    """A request as the client sent it; no call where its tokens are counted, or it is compacted by the provider."""

    form: WireForm
    headers: dict[bytes, bytes]
    body: bytes
    is_call: bool = True


class EditNote(NamedTuple):
    """What was decided about a request. ``whole``: parts that were forwarded whole, and are to stay so.

    ``mode`` is stopped for a conversation in which full mode has stopped by itself. ``tokens``: what all its edits
    leave out.
    """

    mode: ProxyMode | Literal["stopped"]
    conversation: str
    anchors: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    tokens: EditedTokens = EditedTokens()


class EditedRequest(NamedTuple):
    """The body to forward, and what was decided about it; None if nothing was."""

    body: bytes
    note: EditNote | None = None


class _Stores(msgspec.Struct, frozen=True):
    edits: EditStore
    conversations: ConversationStore
    calls: ProxiedCallStore
    compactions: CompactionStore
    lines: LineStore
    access: AccessStore


class _Settings(NamedTuple):
    """Settings of an agent, and whether any of its requests had edits, or more than shortened results."""

    settings: ResolvedProxy
    has_edits: bool
    has_additions: bool


class ProxiedEdits:
    """Decides what of a request is forwarded in another form."""

    def __init__(self, app: App, injector: Injector, decided: Cache[str], settings: Cache[_Settings]) -> None:
        self._app = app
        self._stores = SystemTransactions(app.database, injector, _Stores)
        self._decided = decided
        self._settings = settings
        self.late = LateSearches()
        # In place of the mode of agents.
        self.mode: ProxyMode | None = None
        # What was forwarded whole because it could not be stored in time that it was not.
        self._whole: OrderedDict[tuple[str, str, str], set[str]] = OrderedDict()
        self._storing: set[asyncio.Task[dict[str, str]]] = set()
        self._known_parts = KnownParts()

    async def edit(
        self, caller: ChatCaller, context: CallContext, request: GivenRequest, seconds: float
    ) -> EditedRequest:
        """Return the body to forward: the original one if it cannot be read, or decided in time."""
        original = EditedRequest(request.body)
        if request.headers.get(_ENCODING, b"identity") != b"identity":
            return original
        editing: _Editing | None = None
        try:
            async with asyncio.timeout(seconds):
                found = await self._settings_of(caller, context)
                mode = found.settings.mode
                if mode == "observe" and not found.has_edits:
                    return original
                editing = self._read(caller, request, found)
                if editing is not None:
                    await editing.decide(Additions(self._app, context, self.late, seconds * _SEARCH_PART))
        except (TimeoutError, WeftlineError, OSError) as error:
            _log.info("a proxied request is forwarded as it is: %s", getattr(error, "code", type(error).__name__))
        except Exception:  # noqa: BLE001 - a call is forwarded whatever its messages are
            _log.exception("cannot edit a proxied request")
        try:
            return original if editing is None else editing.result(is_call=request.is_call)
        except (ValueError, IndexError):
            _log.exception("cannot edit a proxied request")
            return original

    async def note(self, caller: ChatCaller, note: EditNote, session_id: str) -> None:
        """Store what was forwarded whole, and let everything stored go with the session of the conversation.

        Another process than the one that forwarded it may do that; then ``forget_whole`` follows there.
        """
        at = to_micros(self._app.clock.now())
        key = caller.tenant, caller.agent_id, note.conversation

        async def store(stores: _Stores) -> None:
            await stores.edits.set_whole(caller.agent_id, note.conversation, note.whole, at)
            if session_id:
                await stores.edits.adopt(caller.agent_id, note.conversation, session_id, note.anchors, note.handles)
            if note.mode == "full":
                nets = await stores.calls.latest_nets(caller.agent_id, note.conversation, _STOP_CALLS)
                if len(nets) == _STOP_CALLS and sum(nets) < 0:
                    stop = {STOPPED: encode_edit(Edit())}
                    held = await stores.edits.add(caller.agent_id, note.conversation, stop, at)
                    self.remember(key, held)

        if note.whole or note.mode == "full" or (session_id and note.anchors):
            await self._stores.write(caller.tenant, store)
        self.forget_whole(caller, note)

    def forget_whole(self, caller: ChatCaller, note: EditNote) -> None:
        """Take what was forwarded whole for stored."""
        key = caller.tenant, caller.agent_id, note.conversation
        for anchor in note.whole:
            self._decided.put((*key, anchor), "", _EDIT_BYTES)
        pending = self._whole.get(key)
        if pending is not None:
            pending.difference_update(note.whole)
            if not pending:
                self._whole.pop(key, None)

    async def aclose(self) -> None:
        """Let what is being stored end, and no search go on."""
        await self.late.aclose()
        await asyncio.gather(*self._storing, return_exceptions=True)

    def _read(self, caller: ChatCaller, request: GivenRequest, settings: _Settings) -> _Editing | None:
        spans = read_spans(request.form, request.body, self._known_parts, (caller.tenant, caller.agent_id))
        if spans is None:
            return None
        client, client_id = client_of(spans.given, request.headers)
        try:
            keys = request_keys(previous_of(spans.given), client, client_id, scope_of(spans.given), _first_turns(spans))
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidInput):
            return None
        return _Editing(self, caller, spans, keys, settings) if keys else None

    async def _settings_of(self, caller: ChatCaller, context: CallContext) -> _Settings:
        """Return the settings of a caller. Changes of them advance the epoch."""
        actor: Actor = await self._app.identify(context)
        key = caller.tenant, caller.agent_id, actor.epoch
        found = self._settings.get(key)
        if found is None:

            async def read(stores: _Stores) -> _Settings:
                settings = await proxy_settings(caller.agent_id, stores.lines, stores.access)
                has_edits = await stores.edits.has_any(caller.agent_id)
                has_additions = has_edits and await stores.edits.has_additions(caller.agent_id)
                return _Settings(settings, has_edits, has_additions)

            found = await self._stores.read(caller.tenant, read)
            self._settings.put(key, found, _EDIT_BYTES)
        return found if self.mode is None else found._replace(settings=found.settings._replace(mode=self.mode))

    def known(self, key: tuple[str, str, str], anchors: Iterable[str]) -> dict[str, str]:
        """Return the decisions in memory."""
        unstored = self._whole.get(key, set())
        found = {anchor: "" if anchor in unstored else self._decided.get((*key, anchor)) for anchor in anchors}
        return {anchor: edit for anchor, edit in found.items() if edit is not None}

    def remember(self, key: tuple[str, str, str], edits: Mapping[str, str]) -> None:
        for anchor, edit in edits.items():
            self._decided.put((*key, anchor), edit, len(edit) + _EDIT_BYTES)

    def keep_whole(self, key: tuple[str, str, str], anchors: Iterable[str]) -> None:
        """Remember what is forwarded whole until that is stored."""
        self._whole.setdefault(key, set()).update(anchors)
        self._whole.move_to_end(key)
        while len(self._whole) > _MAX_UNSTORED:
            self._whole.popitem(last=False)

    async def read_edits(self, key: tuple[str, str, str], anchors: Sequence[str]) -> dict[str, str]:
        tenant, agent_id, conversation = key
        found = await self._stores.read(tenant, lambda stores: stores.edits.find(agent_id, conversation, anchors))
        self.remember(key, found)
        return found

    async def read_outputs(self, key: tuple[str, str, str], handles: Sequence[str]) -> dict[str, str]:
        tenant, agent_id, _ = key
        return await self._stores.read(tenant, lambda stores: stores.edits.outputs(agent_id, handles))

    async def read_sent(self, key: tuple[str, str, str], keys: Sequence[str]) -> set[str]:
        """Return the digests of messages that were recorded as forwarded in a conversation."""
        tenant, agent_id, _ = key
        found = await self._stores.read(tenant, lambda stores: stores.conversations.find(agent_id, keys, _THREADS))
        return {digest for stored in found for digest in stored.thread.view[: stored.thread.sent]}

    async def read_compaction(self, key: tuple[str, str, str], keys: Sequence[str]) -> AppliedCompaction | None:
        """Return the compaction in effect on the window of a conversation."""
        tenant, agent_id, _ = key

        async def read(stores: _Stores) -> AppliedCompaction | None:
            for each in await stores.conversations.find(agent_id, keys, 1):
                line_id = line_name(window_line(each.session_id, agent_id), each.branch or None)
                return await stores.compactions.current(line_id)
            return None

        return await self._stores.read(tenant, read)

    def turns(self, caller: ChatCaller, request: SpannedRequest) -> list[tuple[Turn, ...]]:
        raws = [bytes(message.raw) for message in request.messages]
        return self._app.proxied_conversations.turns_of(caller, request.form, raws)

    def cache_rules(self, model: object) -> CacheRules:
        return self._app.call_prices.cache_rules(model if isinstance(model, str) else "")

    async def store(
        self, key: tuple[str, str, str], edits: Mapping[str, str], outputs: Mapping[str, str]
    ) -> dict[str, str]:
        """Store new edits and the texts they leave out; return the edits that hold, which others may have stored.

        A database that commits after the call has stopped waiting for it stores that all was forwarded whole.
        """
        tenant, agent_id, conversation = key
        at = to_micros(self._app.clock.now())
        given_up = False

        async def add(stores: _Stores) -> dict[str, str]:
            await stores.edits.add_outputs(agent_id, conversation, outputs, at)
            if given_up:
                await stores.edits.set_whole(agent_id, conversation, edits, at)
            return await stores.edits.add(agent_id, conversation, edits, at)

        async def run() -> dict[str, str]:
            held = await self._stores.write(tenant, add)
            if given_up and any(held.values()):
                await self._stores.write(
                    tenant, lambda stores: stores.edits.set_whole(agent_id, conversation, edits, at)
                )
            return held

        task = asyncio.create_task(run(), name="weftline-proxy-edits")
        self._storing.add(task)
        task.add_done_callback(self._stored)
        try:
            held = await asyncio.shield(task)
        except BaseException:
            given_up = True
            raise
        self.remember(key, held)
        return held

    def _stored(self, task: asyncio.Task[dict[str, str]]) -> None:
        self._storing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.info("edits of a proxied request are not stored: %s", type(task.exception()).__name__)


class _Editing:
    """The decisions about one request."""

    def __init__(
        self,
        edits: ProxiedEdits,
        caller: ChatCaller,
        request: SpannedRequest,
        keys: Sequence[str],
        found: _Settings,
    ) -> None:
        self._edits = edits
        self._request = request
        self._keys = keys
        self._settings = settings = found.settings
        self._key = caller.tenant, caller.agent_id, keys[0]
        # With an earlier answer, each request is a conversation by itself.
        self._may_add = not previous_of(request.given)
        # Each newest message is one to look for in the database: only where there may be something.
        has_additions = self._may_add and (settings.mode == "full" or found.has_additions)
        added = (
            [*editable_messages(request), *appendable_results(request), system_part(request)] if has_additions else []
        )
        self._parts = [*editable_results(request), *added]
        self._held: dict[str, str] = edits.known(self._key, self._anchors)
        self._caller = caller
        self._new_prefix = ""
        # Whether the newest result might have had something added, by a search that went on.
        self._may_be_late = False

    @property
    def mode(self) -> ProxyMode | Literal["stopped"]:
        """Return the mode that holds for the conversation."""
        return "stopped" if self._settings.mode == "full" and self._held.get(STOPPED) else self._settings.mode

    @property
    def _may_compact(self) -> bool:
        """Tell whether a summary may be put in: where additions were dear, one may still save, but not a second one."""
        may_pay = self.mode == "full" or (self.mode == "stopped" and not any(map(self._held.get, COMPACTED)))
        return may_pay and self._may_add and len(self._request.body) >= MIN_COMPACTED_BYTES

    @property
    def _anchors(self) -> list[str]:
        stopped = [STOPPED] if self._settings.mode == "full" else []
        is_large = self._may_add and len(self._request.body) >= MIN_COMPACTED_BYTES
        return [*(each.anchor for each in self._parts), *stopped, *(COMPACTED if is_large else ())]

    async def decide(self, additions: Additions) -> None:
        """Find the stored edits, and make and store those of what is new."""
        unknown = [anchor for anchor in self._anchors if anchor not in self._held]
        if not unknown:
            return
        self._held |= await self._edits.read_edits(self._key, unknown)
        # What is not new was forwarded before: whole, if nothing says otherwise.
        before = {each.anchor: "" for each in self._parts if not each.is_new and each.anchor not in self._held}
        if self._settings.mode != "full":
            before |= {name: "" for name in unknown if name in COMPACTED and name not in self._held}
        self._edits.remember(self._key, before)
        new = [each for each in self._parts if each.is_new and each.anchor not in self._held]
        if new and self._settings.mode != "observe":
            await self._edit_new(new, additions)
        if self._may_compact:
            await self._compact()

    async def _edit_new(self, new: Sequence[EditablePart], additions: Additions) -> None:
        made: dict[str, Edit | None] = {}
        outputs: dict[str, str] = {}
        for each in new:
            if each.anchor.startswith(LATE):
                if self.mode == "full":
                    self._may_be_late = self._edits.late.is_waiting(self._key)
                    made |= _added_edit(each, self._edits.late.take(self._key))
                continue
            if each.anchor.startswith("r"):
                made[each.anchor] = await self._make(each, outputs)
            elif self.mode == "full":
                made[each.anchor] = await self._addition(each, additions)
        edited = [each for each in new if made.get(each.anchor) is not None]
        if edited and not await self._were_sent(edited):
            stored = {anchor: encode_edit(edit) for anchor, edit in made.items()}
            self._held |= await self._edits.store(self._key, stored, outputs)
            # The same request may have been forwarded whole meanwhile, because its time was over.
            self._held |= self._edits.known(self._key, stored)

    async def _compact(self) -> None:
        """Put the view of the window's compaction in the place of the messages it covers, if that pays."""
        held = [edit for name in COMPACTED if (edit := decode_edit(self._held.get(name, ""))) is not None]
        found = await self._edits.read_compaction(self._key, self._keys)
        if found is None or len(held) == len(COMPACTED):
            return
        source = found.compaction.compaction_id
        if any(prefix_of(edit).source == source for edit in held):
            return
        turns, cache = (
            self._edits.turns(self._caller, self._request),
            self._edits.cache_rules(self._request.given.model),
        )
        saved: Counter[int] = Counter()
        for each in self._parts:
            made = decode_edit(self._held.get(each.anchor, ""))
            if made is not None and each.result is not None:
                saved[each.result.message] += made.saved
        edit = compact_prefix(self._request, turns, found.view, source, cache, saved)
        if edit is not None:
            name = COMPACTED[len(held)]
            self._held |= await self._edits.store(self._key, {name: encode_edit(edit)}, {})
            self._new_prefix = name

    def _prefix(self) -> tuple[str, Edit, int] | None:
        """Return the anchor and edit of the latest compaction that the request begins with, and where it ends."""
        held = {name: edit for name in COMPACTED if (edit := decode_edit(self._held.get(name, ""))) is not None}
        turns = self._edits.turns(self._caller, self._request) if held else []
        for name, edit in reversed(held.items()):
            end = matching_end(self._request, turns, prefix_of(edit))
            if end:
                return name, edit, end
        return None

    def result(self, *, is_call: bool) -> EditedRequest:
        """Return the request with its edits; what has none and is new was forwarded whole, if this is a call."""
        # Another call with the same parts may have decided about them since.
        self._held |= self._edits.known(self._key, [anchor for anchor in self._anchors if anchor not in self._held])
        splices: list[Splice] = []
        handles: list[str] = []
        earlier = new = rewritten = end = 0
        whole: list[str] = []
        prefix = self._prefix()
        if prefix is not None:
            name, compacted, end = prefix
            splices.append(prefix_splice(self._request, prefix_of(compacted), end))
            earlier, rewritten = compacted.saved, compacted.rewritten if name == self._new_prefix else 0
        edits = {each.anchor: decode_edit(self._held.get(each.anchor, "")) for each in self._parts}
        # What is added to a result whose last text is another one already.
        joined: set[int] = set()
        for each in self._parts:
            edit = edits[each.anchor]
            if each.result is not None and each.result.message < end:
                continue
            if edit is not None:
                late = edits.get(each.late_anchor) if each.late_anchor else None
                if late is not None and replaces_end(each.result, edit):
                    joined.add(id(each.result))
                    splices += splices_of(self._request, each.result, with_end(edit, late.added))
                elif not each.anchor.startswith(LATE) or id(each.result) not in joined:
                    splices += splices_of(self._request, each.result, edit)
                earlier, new = (earlier, new + edit.saved) if each.is_new else (earlier + edit.saved, new)
                handles += edit.handles
            elif each.is_new and each.anchor not in self._held and self._is_noted(each):
                whole.append(each.anchor)
        body = edited_body(self._request.body, splices) if splices else self._request.body
        if not is_call:
            return EditedRequest(body)
        self._edits.keep_whole(self._key, whole)
        note = EditNote(
            mode=self.mode,
            conversation=self._key[2],
            anchors=tuple(self._anchors),
            handles=tuple(dict.fromkeys(handles)),
            whole=tuple(whole),
            tokens=EditedTokens(earlier, new, rewritten),
        )
        return EditedRequest(body, note)

    def _is_noted(self, each: EditablePart) -> bool:
        """Tell whether it is stored that a part was forwarded whole: in other modes than full, only of results."""
        if each.anchor.startswith(LATE):
            return self._may_be_late
        return each.anchor.startswith("r") or self.mode == "full"

    async def _addition(self, each: EditablePart, additions: Additions) -> Edit | None:
        """Return the edit that adds what full mode adds to the system text, or to the newest message."""
        if each.result is None:
            added = await additions.layers()
        else:
            task = "\n".join(each.result.decoded(number) for number in range(len(each.result.texts)))
            added = await additions.relevant(task, self._key) if task.strip() else ""
        return _added_edit(each, added).get(each.anchor)

    async def _make(self, each: EditablePart, outputs: dict[str, str]) -> Edit | None:
        """Return the edit of a new result; None to forward it whole."""
        result = each.result
        if result is None:
            return None
        asked = named_handles(result.arguments)
        if asked:
            texts = await self._edits.read_outputs(self._key, [named.handle for named in asked])
            known = [named for named in asked if named.handle in texts]
            if known:
                return await TEXT_THREADS.run(_opened, result, known, texts, self._opened_before())
        if result.is_error:
            return None
        shortened = await TEXT_THREADS.run(shorten_result, result, self._settings.trim_tokens)
        if shortened is None:
            return None
        outputs.update((whole.handle, whole.text) for whole in shortened.whole)
        return shortened.edit

    def _opened_before(self) -> str:
        """Return what was added to results that the request still has."""
        prefix = self._prefix()
        end = prefix[2] if prefix is not None else 0
        held = [
            decode_edit(self._held.get(each.anchor, ""))
            for each in self._parts
            if each.result is not None and each.result.message >= end
        ]
        return "\n".join(edit.added for edit in held if edit is not None and edit.added)

    async def _were_sent(self, results: Iterable[EditablePart]) -> bool:
        """Tell whether any of these was forwarded already, by what is recorded of the conversation."""
        sent = await self._edits.read_sent(self._key, self._keys)
        return any(
            turn.digest in sent
            for at in {each.result.message for each in results if each.result is not None}
            for turn in _turns(self._request, at)
        )


def _opened(result: ToolResult, asked: Sequence[NamedLines], texts: Mapping[str, str], before: str) -> Edit | None:
    """Return the edit that adds texts to the result of the call that asked for them; None if it has them already.

    What was added ``before`` to a result of the same request is named, and not added again.
    """
    given = "\n".join(result.decoded(number) for number in range(len(result.texts)))
    added = ""
    for named in asked[:MAX_NAMED]:
        search = None if named.ranges else search_of(result.arguments, named.handle)
        found = search and search.opened(named.handle, texts[named.handle])
        place, text = found or named.opened(texts[named.handle])
        if not text:
            added += f"\n[Weftline: nothing is added of {place}]"
        elif text not in given:
            opened = f"\n[Weftline: the text of {place}]\n{text}\n[End of {named.handle}]"
            added += f"\n[Weftline: an earlier result has the text of {place}]" if opened in before else opened
    if len(asked) > MAX_NAMED:
        added += f"\n[Weftline: {len(asked) - MAX_NAMED} more handles are named here: ask for {MAX_NAMED} at a time]"
    return Edit(added=added, saved=-approximate_tokens(added)) if added else None


def _added_edit(part: EditablePart, added: str) -> dict[str, Edit | None]:
    """Return the edit that adds a text to a part, by its anchor; nothing for no text."""
    return {part.anchor: Edit(added=added, saved=-approximate_tokens(added))} if added else {}


def _first_turns(request: SpannedRequest) -> Iterator[Turn]:
    return (turn for at in range(len(request.messages)) for turn in _turns(request, at))


def _turns(request: SpannedRequest, at: int) -> Iterator[Turn]:
    return map(turn_of, parse_message(request.form, bytes(request.messages[at].raw)))
