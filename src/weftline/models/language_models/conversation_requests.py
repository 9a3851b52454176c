"""Requests of conversations in the form of any provider: their messages, and what tells conversations apart.

Messages that were seen before are not parsed again: the caller knows their turns by the digest of their bytes.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from weftline.kernel.errors import InvalidInput
from weftline.models.language_models.content import CACHE_MARKS, ConversationMessage, Role, WireForm
from weftline.models.language_models.wire_forms import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


# Digests are compared within one agent's conversations only.
_DIGEST_BYTES = 10
_MAX_NAME = 200
# Claude Code puts this first into the system text, with another value for each request.
_BILLING = "x-anthropic-billing-header"
# Headers of coding agents that name a conversation, and the agents.
_SESSION_HEADERS = {
    b"x-claude-code-session-id": "claude-code",
    b"session_id": "codex",
    b"session-id": "codex",
    b"conversation_id": "codex",
    b"x-opencode-session": "opencode",
    b"x-session-id": "",
    b"x-session-affinity": "opencode",
}
_PROGRAM = b"user-agent"
_AGENTS = {"claude-cli": "claude-code", "codex": "codex", "opencode": "opencode", "geminicli": "gemini-cli"}
_AGENT = re.compile(rb"\A([A-Za-z][A-Za-z0-9_.-]{1,40})")
_CLAUDE_SESSION = re.compile(r"_session_([0-9A-Za-z-]{8,64})\Z")
_FORMS: dict[str, WireForm] = {
    "/messages": "anthropic",
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
}
_COMPACTED = {"compaction", "compaction_summary", "context_compaction"}
_encode = msgspec.json.Encoder(order="sorted").encode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


class RequestBody(msgspec.Struct):
    """What of the body of a request is read; the parts with messages as they stand in its bytes."""

    model: Any = None
    messages: Raw | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    contents: Raw | UnsetType = UNSET
    system: Raw | UnsetType = UNSET
    instructions: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    metadata: Any = None
    prompt_cache_key: Any = None
    conversation: Any = None
    previous_response_id: Any = None
    system_instruction: Raw | UnsetType = msgspec.field(name="systemInstruction", default=UNSET)

    def part(self, field: str) -> Raw | None:
        """Return the messages or the system text, by the name of its field in the form."""
        found: Raw | UnsetType = getattr(self, _ATTRIBUTES[field]) if field else UNSET
        return None if isinstance(found, UnsetType) else found


_ATTRIBUTES = {each.encode_name: each.name for each in structs.fields(RequestBody)}


class _Kind(msgspec.Struct):
    type: Any = None


decode_body = msgspec.json.Decoder(RequestBody).decode
_kind = msgspec.json.Decoder(_Kind)


class Turn(NamedTuple):
    """One message: its digest, its role, and about its size in bytes."""

    digest: str
    role: Role
    size: int


class WireMessage(NamedTuple):
    """A message as it was sent, and what it says: in some forms one message holds several turns."""

    raw: bytes
    turns: tuple[Turn, ...]


class ConversationRequest(NamedTuple):
    """A request of a conversation.

    ``client``: the program, as far as it is known. ``client_id``: how it names the conversation. ``scope``: what it
    says about whose the conversation is, which is not enough to tell two of them apart. ``frame``: digest of system
    text and tools. ``previous``: the answer that the request continues, whose messages it does not repeat.
    ``is_compacted``: it holds a summary of the provider's own compaction.
    """

    form: WireForm
    model: str
    client: str
    client_id: str
    scope: str
    frame: str
    previous: str
    messages: tuple[WireMessage, ...]
    is_compacted: bool

    @property
    def turns(self) -> list[Turn]:
        return [turn for message in self.messages for turn in message.turns]


def form_of(path: str) -> WireForm | None:
    """Return the form of a call's conversation, whoever answers it; None if the call has none."""
    if path.rpartition(":")[2] in {"generateContent", "streamGenerateContent"}:
        return "gemini"
    return next((form for end, form in _FORMS.items() if path.endswith(end)), None)


def read_request(
    form: WireForm,
    body: bytes,
    headers: Mapping[bytes, bytes],
    known: Callable[[bytes], tuple[Turn, ...] | None],
) -> ConversationRequest | None:
    """Return the conversation in the body of a request; None if there is none that can be read.

    ``known`` returns the turns of a message by the digest of its bytes, if it was read before.
    """
    try:
        given = decode_body(body)
        raws = _messages(form, given)
        messages = tuple(WireMessage(bytes(raw), _turns(form, bytes(raw), known)) for raw in raws)
    except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError, RecursionError, ValueError):
        return None
    if not messages:
        return None
    client, client_id = client_of(given, headers)
    return ConversationRequest(
        form=form,
        model=given.model[:_MAX_NAME] if isinstance(given.model, str) else "",
        client=client,
        client_id=client_id,
        scope=scope_of(given),
        frame=_frame(given),
        previous=previous_of(given),
        messages=messages,
        is_compacted=form == "openai_responses" and any(_kind.decode(raw).type in _COMPACTED for raw in raws),
    )


def scope_of(given: RequestBody) -> str:
    """Return what a request says about whose its conversation is."""
    user = given.metadata.get("user_id") if isinstance(given.metadata, dict) else None
    return "\n".join(each for each in (given.prompt_cache_key, user) if isinstance(each, str))[:_MAX_NAME]


def previous_of(given: RequestBody) -> str:
    """Return the answer that a request continues; empty if it repeats the conversation."""
    return given.previous_response_id[:_MAX_NAME] if isinstance(given.previous_response_id, str) else ""


def raw_digest(raw: bytes) -> bytes:
    """Return what names a message in memory. Of large messages, SHA-256 takes a third of the time of BLAKE2."""
    return hashlib.sha256(raw).digest()


def parse_message(form: WireForm, raw: bytes) -> list[ConversationMessage]:
    """Return what one message of a request says; raises InvalidInput."""
    return FORMS[form].parse([msgspec.json.decode(raw)]).messages


def turn_of(message: ConversationMessage) -> Turn:
    """Return the digest of what a message says, whatever cache marks and reasoning it is sent with."""
    calls = [[call.call_id, call.name, _same_json(call.arguments)] for call in message.tool_calls]
    said: list[Any] = [message.role, message.content.strip(), calls, message.tool_call_id]
    if message.role != "assistant" and message.native is not None:
        said.append(message.native)
    text = _encode(said)
    return Turn(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest(), message.role, len(text))


def digest_of(*parts: str) -> str:
    """Return a digest that names parts together."""
    return hashlib.blake2b("\n".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _messages(form: WireForm, given: RequestBody) -> list[Raw]:
    found = given.part(FORMS[form].messages_field)
    if found is None:
        return []
    if bytes(found).startswith(b'"'):
        text = msgspec.json.decode(found)
        return (
            [Raw(_encode({"type": "message", "role": "user", "content": text}))] if form == "openai_responses" else []
        )
    return _decode_list(found)


def _turns(form: WireForm, raw: bytes, known: Callable[[bytes], tuple[Turn, ...] | None]) -> tuple[Turn, ...]:
    found = known(raw)
    return tuple(map(turn_of, parse_message(form, raw))) if found is None else found


def _same_json(text: str) -> str:
    """Return JSON in one way of writing it."""
    try:
        return _encode(msgspec.json.decode(text)).decode()
    except (msgspec.MsgspecError, RecursionError):
        return text


def conversation_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers that say which program sent a request, and of which conversation."""
    return {name: value for name, value in headers if name == _PROGRAM or name in _SESSION_HEADERS}


def client_of(given: RequestBody, headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the program that sent a request, and its id of the conversation."""
    match = _AGENT.match(headers.get(_PROGRAM, b""))
    name = match[1].decode().lower() if match else ""
    client = next((agent for start, agent in _AGENTS.items() if name.startswith(start)), name)
    for header, agent in _SESSION_HEADERS.items():
        value = headers.get(header, b"")
        if value and len(value) <= _MAX_NAME:
            return client or agent, value.decode("latin-1")
    session = _claude_session(given.metadata)
    if session:
        return client or "claude-code", session
    conversation = given.conversation
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    return client, conversation[:_MAX_NAME] if isinstance(conversation, str) else ""


def _claude_session(metadata: Any) -> str:  # noqa: ANN401 - what a client sent
    """Return the session in the user id of Claude Code: JSON, or parts of a name in earlier versions."""
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return ""
    if user.startswith("{"):
        try:
            found = msgspec.json.decode(user)
        except msgspec.MsgspecError:
            return ""
        session = found.get("session_id") if isinstance(found, dict) else None
        return session[:_MAX_NAME] if isinstance(session, str) else ""
    match = _CLAUDE_SESSION.search(user)
    return match[1] if match else ""


def _frame(given: RequestBody) -> str:
    parts = [given.instructions, given.system_instruction, given.tools]
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    if not isinstance(given.system, UnsetType):
        system = msgspec.json.decode(given.system)
        blocks = system if isinstance(system, list) else [{"type": "text", "text": system}]
        state.update(_encode([_unmarked(block) for block in blocks if not _is_billing(block)]))
    for part in parts:
        if not isinstance(part, UnsetType):
            state.update(bytes(part) if b"cache" not in bytes(part) else _encode(_unmarked(msgspec.json.decode(part))))
    return state.hexdigest()


def _is_billing(block: Any) -> bool:  # noqa: ANN401 - likewise
    return isinstance(block, dict) and str(block.get("text", "")).startswith(_BILLING)


def _unmarked(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items() if name not in CACHE_MARKS}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value
