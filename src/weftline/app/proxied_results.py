"""Results of tools in requests of tenants that fail closed: what the gate holds is not forwarded.

The program has read such a result already, but the model has not. A notice takes its place in every call of the
conversation, until a human releases the event that was recorded of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.history.lines import LineStore
from weftline.history.model import LATEST, line_name
from weftline.kernel.errors import InvalidInput, Unavailable
from weftline.kernel.operation import SubmittedText
from weftline.models.language_models.conversation_requests import (
    client_of,
    parse_message,
    previous_of,
    scope_of,
    turn_of,
)
from weftline.models.language_models.request_spans import has_messages, read_spans
from weftline.safety.trust.gate import withheld_because
from weftline.safety.trust.model import Source
from weftline.storage.sql.unit_of_work import SystemTransactions
from weftline.windows.conversations.edits import Splice, edited_body
from weftline.windows.conversations.model import event_id
from weftline.windows.conversations.recognition import request_keys
from weftline.windows.conversations.sql import ConversationStore
from weftline.windows.model import window_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.app.proxied_edits import GivenRequest
    from weftline.kernel.identity import Actor
    from weftline.models.language_models.conversation_requests import Turn
    from weftline.models.language_models.request_spans import SpannedRequest, ToolResult
    from weftline.safety.trust.model import TrustPolicy
    from weftline.safety.trust.scanner import ContentScanner
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector

_log = logging.getLogger("weftline.proxy")
_ENCODING = b"content-encoding"
# A scan takes about 10 ms for 1,000 tokens.
_SCAN_SECONDS = 60.0
# Threads of a conversation, and repetitions of a result in it, in which a release is looked for.
_THREADS, _OCCURRENCES = 3, 3
_MEDIA_TYPES = ("media_type", "mimeType", "mime_type")
_OUTPUTS = frozenset({"stdout", "stderr", "text", "output"})
_encode = msgspec.json.Encoder().encode


class ResultsUnchecked(Unavailable):
    """The results of tools in a request cannot be checked, and the tenant or the server lets nothing pass unchecked."""

    code = "RESULTS_UNCHECKED"
    hint = (
        "Send a request of at most 32 MiB that is valid and not compressed, or try again. The tenant's policy "
        "(proxy_fails_closed) or WEFTLINE_PROXY_FAIL_CLOSED refuses such requests."
    )


class _Stores(msgspec.Struct, frozen=True):
    conversations: ConversationStore
    lines: LineStore


class ProxiedResults:
    """Decides which results of tools are forwarded."""

    def __init__(self, database: Database, injector: Injector, scanner: ContentScanner) -> None:
        self._scanner = scanner
        self._stores = SystemTransactions(database, injector, _Stores)

    async def withhold(self, actor: Actor, policy: TrustPolicy, request: GivenRequest | None) -> bytes:
        """Return the body to forward, with notices in place of what the gate holds; raises ResultsUnchecked."""
        if request is None or request.headers.get(_ENCODING, b"identity") != b"identity":
            raise ResultsUnchecked("The request is compressed or too large.")
        try:
            async with asyncio.timeout(_SCAN_SECONDS):
                return await self._withhold(actor, policy, request)
        except ResultsUnchecked:
            raise
        except Exception as error:
            _log.exception("cannot check the results of tools in a proxied request")
            raise ResultsUnchecked("The results of tools in the request cannot be checked now.") from error

    async def _withhold(self, actor: Actor, policy: TrustPolicy, request: GivenRequest) -> bytes:
        spans = read_spans(request.form, request.body)
        if spans is None:
            if has_messages(request.form, request.body):
                raise ResultsUnchecked("The messages of the request cannot be read.")
            return request.body
        texts = {at: _text(result) for at, result in enumerate(spans.results)}
        verdicts = await self._scanner.prepare(
            actor, [SubmittedText(text, data=True) for text in texts.values() if text]
        )
        held: dict[int, str] = {}
        for at, text in texts.items():
            verdict = verdicts.get((text, True))
            if verdict is not None:
                pii = () if policy.pii.write != "block" else self._scanner.pii(text, verdict)
                held[at] = withheld_because(policy, verdict, Source.TOOL, pii)
        splices = [
            Splice(spans.span(result.content), _notice(spans, result, reason))
            for at, reason in held.items()
            if reason
            and (result := spans.results[at]).content is not None
            and not await self._is_released(actor, request, spans, result)
        ]
        return edited_body(request.body, splices) if splices else request.body

    async def _is_released(
        self, actor: Actor, request: GivenRequest, spans: SpannedRequest, result: ToolResult
    ) -> bool:
        """Tell whether a human has released the event of a result."""
        client, client_id = client_of(spans.given, request.headers)
        try:
            turns = [turn for at in range(len(spans.messages)) for _, turn in _said(spans, at)]
            own = [turn for call_id, turn in _said(spans, result.message) if call_id in {result.call_id, None}]
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidInput):
            return False
        keys = request_keys(previous_of(spans.given), client, client_id, scope_of(spans.given), turns)
        names = [event_id(turn, number) for turn in own for number in range(1, _OCCURRENCES + 1)]
        agent_id = actor.principal_id

        async def read(stores: _Stores) -> bool:
            for thread in await stores.conversations.find(agent_id, keys, _THREADS):
                line_id = line_name(window_line(thread.session_id, agent_id), thread.branch or None)
                for version in await stores.lines.latest_of_each(line_id, names, LATEST):
                    label = version.change.meta.trust
                    if label is not None and label.approved_by is not None and not label.held:
                        return True
            return False

        return await self._stores.read(actor.tenant, read)


def _said(spans: SpannedRequest, at: int) -> Iterator[tuple[str | None, Turn]]:
    """Yield the turns of a message; of results of tools, with the ids of their calls."""
    for message in parse_message(spans.form, bytes(spans.messages[at].raw)):
        yield message.tool_call_id, turn_of(message)


def _text(result: ToolResult) -> str:
    """Return all texts of a result, however they are nested."""
    return "" if result.content is None else "\n".join(_strings(msgspec.json.decode(result.content)))


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        if value.strip() and not value.startswith("data:"):
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        kind = next((value[name] for name in _MEDIA_TYPES if name in value), None)
        is_media = isinstance(kind, str) and not kind.startswith("text/")
        for name, each in value.items():
            if not (is_media and name == "data"):
                yield from _strings(each)


def _notice(spans: SpannedRequest, result: ToolResult, reason: str) -> bytes:
    """Return what is forwarded in place of a result, in a shape that its provider takes."""
    text = (
        f"[Weftline withholds this result of a tool: {reason}. A human of the tenant can release it. Go on without "
        "it, and do not call the tool again for it.]"
    )
    if spans.form == "gemini":
        return _encode({"output": text})
    given = None if result.texts or result.content is None else msgspec.json.decode(result.content)
    return _encode(_replaced(given, text) if isinstance(given, list) else text)


def _replaced(value: Any, text: str) -> Any:  # noqa: ANN401 - JSON
    """Return a value with another text in place of each output in it."""
    if isinstance(value, list):
        return [_replaced(each, text) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: text if name in _OUTPUTS and isinstance(each, str) and each else _replaced(each, text)
        for name, each in value.items()
    }
