"""Windows, their events and settings, and the errors of both."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.access.model import AgentId
from weftline.history.item_ids import VersionId
from weftline.history.model import blob_hash, line_name, trunk_of
from weftline.kernel.errors import Conflict, NotFound, SelfModification
from weftline.kernel.fields import Fraction, Name, ShortText
from weftline.kernel.identity import HUMAN, SUBAGENT, SYSTEM_ID, PrincipalKind, principal_of
from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.content import ConversationMessage
from weftline.models.language_models.wire_forms import plain_text
from weftline.safety.trust.model import DerivedFrom, TrustLabel
from weftline.sessions.messages.model import ProtectedCategory
from weftline.state.agent_context.permissions import EDITOR_CLEARANCE, check_may_define, find_agent
from weftline.state.agent_context.views import persona_text
from weftline.windows.agent_settings import defined_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.access.model import Principal
    from weftline.access.sql import AccessStore
    from weftline.history.lines import LineStore
    from weftline.history.model import Version
    from weftline.kernel.identity import Actor
    from weftline.models.language_models.catalog import Catalog


PREFIX = "window"
DEFAULT_MODEL_TOKENS = 128_000
DEFAULT_RESERVED_TOKENS = 4_096
# Small models reserve at most this part of their context for the answer.
_RESERVED_PART = 8
MAX_CONTENT_BYTES = 1_048_576
# Events that one call adds or releases.
MAX_EVENTS = 200
# Longer contents are stored as separate values in history, so that equal ones are stored once.
INLINE_BYTES = 4_096
# Between agent and event in the id of a copied event; the ids that callers choose cannot contain it.
ORIGIN_MARK = "/"
_CONTENT = "#content"
_CALL_TOKENS = 8
# The ids of messages that are given inline, which follow from their content. Nobody else chooses such an id.
INLINE_ID = "inline_"
EVENT_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}\Z"

EventKind = Literal["message", "tool_output", "workflow"]
EventId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=EVENT_ID_PATTERN,
        description="Your id of the event, unique in the window; the same id again adds nothing.",
    ),
]
WindowAgent = Annotated[
    AgentId | None, msgspec.Meta(description="The agent whose window; yourself by default, or an agent below you.")
]
MessageType = Annotated[Name, msgspec.Meta(description="The kind of message, such as request or result.")]


class Category(StrEnum):
    """The part that an event plays in a conversation; each has its share of the window."""

    SYSTEM = "SYSTEM"
    CONTEXT = "CONTEXT"
    DIALOG = "DIALOG"
    SYSTEM_OUTPUT = "SYSTEM_OUTPUT"
    ERROR = "ERROR"
    INTERNAL = "INTERNAL"


# What a sub-agent starts with.
INHERITED = frozenset({Category.SYSTEM, Category.CONTEXT})
DEFAULT_SHARES: Mapping[Category, float] = {
    Category.SYSTEM: 0.15,
    Category.CONTEXT: 0.25,
    Category.DIALOG: 0.40,
    Category.SYSTEM_OUTPUT: 0.15,
    Category.ERROR: 0.03,
    Category.INTERNAL: 0.02,
}
_BY_ROLE = {
    "system": Category.SYSTEM,
    "user": Category.DIALOG,
    "assistant": Category.DIALOG,
    "tool": Category.SYSTEM_OUTPUT,
}
# Type of the notes that Weftline adds to a window; sub-agents do not inherit them.
CLAMP_NOTE = "window_clamped"


class WindowNotFound(NotFound):
    """The agent has no window in this session, or it is not yours to read."""

    code = "WINDOW_NOT_FOUND"
    hint = "Create it with `window.create`, or add its first event with `context.ingest`."
    related = ("context_window", "ingest_event")


class WindowExists(Conflict):
    """The agent already has a window in this session."""

    code = "WINDOW_EXISTS"
    hint = "Read it with `window.show`, or change its settings with `window.update`."
    related = ("context_window",)


class EventExists(Conflict):
    """The window has an event with this id and other content."""

    code = "EVENT_EXISTS"
    hint = "Events do not change. Use a new event_id; to send an event again, repeat it unchanged."
    related = ("ingest_event",)


class EventNotFound(NotFound):
    """The window has no event with this id."""

    code = "EVENT_NOT_FOUND"
    hint = "`window.events` lists the events of the window."
    related = ("context_window",)


class WindowChanged(Conflict):
    """The window changed while a prompt was assembled from it."""

    code = "WINDOW_CHANGED"
    hint = "Try again."
    related = ("assemble_context",)


class WindowTooSmall(Conflict):
    """What must stay in the window exceeds its limit."""

    code = "WINDOW_TOO_SMALL"
    hint = "Shorten the events in context.events, unpin some, or give the agent a model with a larger context."
    related = ("context_window",)


class WindowInUse(Conflict):
    """Other agents share this window."""

    code = "WINDOW_IN_USE"
    hint = "Let the agents in context.agents leave it first, with `window.leave`."
    related = ("context_window",)


class EventDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event to add. Category and kind follow from the role of its message unless given."""

    event_id: EventId
    message: ConversationMessage
    kind: EventKind | None = None
    category: Category | None = None
    importance: Annotated[
        Fraction | None, msgspec.Meta(description="How much the event matters, from 0 to 1; unknown by default.")
    ] = None
    pinned: Annotated[bool, msgspec.Meta(description="Part of every prompt, whatever its age.")] = False
    recipient_id: Annotated[Name | None, msgspec.Meta(description="The agent that the event is addressed to.")] = None
    message_type: MessageType = "message"
    references: Annotated[
        tuple[ShortText, ...], msgspec.Meta(max_length=100, description="Ids of events and items that it refers to.")
    ] = ()
    source_refs: Annotated[
        tuple[ShortText, ...], msgspec.Meta(max_length=100, description="Ids of the sources of its content.")
    ] = ()
    derived_from: DerivedFrom = ()
    occurred_at: int | None = None
    step: Name | None = None
    reason: ShortText | None = None


class WindowEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a window, the envelope of a message.

    ``agent_id`` is the agent whose event it is: for a copied or routed event another than the window's. ``at`` is the
    time, in microseconds, at which it entered the window, ``occurred_at`` the one at which it happened, if that was
    given. ``content_hash`` is set if the content is a value of its own
    in history, ``origin`` if the event was copied: the record item it was copied from. ``item_id`` is its own record
    item; it, the flags and ``trust`` are set when an event is read. ``superior``: an ancestor of the reader routes it.
    ``registered`` is stored: an agent handed over the system prompt that its definition has, which the layers of its
    prompts say already. ``as_data``: an instruction that nobody above the reader gave, which prompts quote as data.
    """

    event_id: str
    number: int
    category: Category
    message: ConversationMessage
    kind: EventKind
    at: int
    author: str
    agent_id: str
    tokens: int
    importance: float | None = None
    pinned: bool = False
    recipient_id: str | None = None
    message_type: str = "message"
    references: tuple[str, ...] = ()
    source_refs: tuple[str, ...] = ()
    content_hash: str | None = None
    origin: str | None = None
    item_id: str = ""
    routed: bool = False
    superior: bool = False
    redacted: bool = False
    registered: bool = False
    as_data: bool = False
    trust: TrustLabel | None = None
    occurred_at: int | None = None
    step: str | None = None
    reason: str | None = None

    @property
    def time(self) -> int:
        """Return when it happened, as far as that is known. The order of events is that of their recording."""
        return self.at if self.occurred_at is None else self.occurred_at

    def repeats(self, draft: EventDraft) -> bool:
        """Tell whether a draft is this event again; one without a time, whenever that happened."""
        if draft.occurred_at not in {None, self.time}:
            return False
        mine = EventDraft(
            event_id=self.event_id,
            message=self.message,
            kind=self.kind,
            category=self.category,
            importance=self.importance,
            pinned=self.pinned,
            recipient_id=self.recipient_id,
            message_type=self.message_type,
            references=self.references,
            source_refs=self.source_refs,
        )
        return mine == structs.replace(
            draft,
            kind=kind_of_draft(draft),
            category=category_of(draft),
            derived_from=(),
            occurred_at=None,
            step=None,
            reason=None,
        )


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A window as it is stored.

    ``last_number`` is the number of its newest event, ``stored_bytes`` the size of all; both also of those rolled back.
    """

    session_id: str
    agent_id: str
    model: str | None = None
    model_max_tokens: int | None = None
    shared_cw_max_tokens: int | None = None
    reserved_tokens: int | None = None
    shares: dict[Category, float] | None = None
    parent_id: str | None = None
    shares_with: str | None = None
    compaction_threshold: float | None = None
    autosave: bool = True
    last_number: int = 0
    stored_bytes: int = 0
    unsaved_since: int | None = None
    created_at: int = 0
    updated_at: int = 0

    @property
    def line_id(self) -> str:
        return window_line(self.session_id, self.agent_id)


class WindowLimit(NamedTuple):
    """Context of a window's model, the tokens kept free for its answer, and what is left for a prompt."""

    model_tokens: int
    reserved: int

    @property
    def tokens(self) -> int:
        return self.model_tokens - self.reserved


def limit_of(settings: WindowSettings, catalog: Catalog) -> WindowLimit:
    """Return the limit of a window: the context of its model, or the tokens given, less the reserved output."""
    model = catalog.find(settings.model) if settings.model is not None else None
    known = model.context_window if model is not None else DEFAULT_MODEL_TOKENS
    given = settings.model_max_tokens or known
    tokens = max(min(given, settings.shared_cw_max_tokens or given), 1)
    if settings.reserved_tokens is not None:
        return WindowLimit(tokens, min(settings.reserved_tokens, tokens // 2))
    output = DEFAULT_RESERVED_TOKENS if model is None else min(model.max_output_tokens, DEFAULT_RESERVED_TOKENS)
    return WindowLimit(tokens, min(output, tokens // _RESERVED_PART))


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's window, opened for one caller.

    ``events_of`` is the agent whose events it shows: another one while the agent shares that one's window. ``limit`` is
    ``model_tokens`` less ``reserved``, and the minimum over all agents that share the window. ``branch`` is the branch
    that the agent switched to.
    """

    settings: WindowSettings
    agent_type: str
    events_of: str
    model_tokens: int
    reserved: int
    limit: int
    budgets: dict[Category, int]
    branch: str | None = None

    @property
    def session_id(self) -> str:
        return self.settings.session_id

    @property
    def agent_id(self) -> str:
        return self.settings.agent_id

    @property
    def line_id(self) -> str:
        """Return the line of history that holds the events."""
        return line_name(window_line(self.session_id, self.events_of), self.branch)


class WindowRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A route: events of one category in an agent's window are shown to an agent, all agents of a type, or a team."""

    session_id: str
    agent_id: str
    category: Category
    to_agent: str | None = None
    to_type: str | None = None
    to_team: str | None = None


def window_line(session_id: str, agent_id: str) -> str:
    """Return the id of the line that holds the events of a window."""
    return f"{PREFIX}:{session_id}:{agent_id}"


def content_key(event_id: str) -> str:
    """Return the key that holds the long content of an event."""
    return event_id + _CONTENT


def is_content(key: str) -> bool:
    return key.endswith(_CONTENT)


def kind_of_draft(draft: EventDraft) -> EventKind:
    return draft.kind or ("tool_output" if draft.message.role == "tool" else "message")


def category_of(draft: EventDraft) -> Category:
    """Return the category given, or that of the role; workflow events are internal."""
    if draft.category is not None:
        return draft.category
    return Category.INTERNAL if draft.kind == "workflow" else _BY_ROLE[draft.message.role]


def message_tokens(message: ConversationMessage) -> int:
    """Estimate the tokens of a message with its tool calls."""
    if message.native is not None:
        return approximate_tokens(msgspec.json.encode(message.native).decode())
    calls = sum(_CALL_TOKENS + approximate_tokens(f"{call.name}{call.arguments}") for call in message.tool_calls)
    return approximate_tokens(message.content) + calls


_encode = msgspec.json.Encoder(order="deterministic").encode
_decoder = msgspec.json.Decoder(WindowEvent)


def encode_event(event: WindowEvent) -> tuple[str, str | None]:
    """Return the stored value of an event and, if its content is long, that content as a second value."""
    stored = structs.replace(event, item_id="", routed=False, superior=False, redacted=False, as_data=False, trust=None)
    if event.content_hash is None:
        return _encode(stored).decode(), None
    bare = structs.replace(event.message, content="")
    return _encode(structs.replace(stored, message=bare)).decode(), event.message.content


def encode_whole_event(event: WindowEvent) -> str:
    """Return an event with its content as one value, however long that is."""
    return _encode(structs.replace(event, item_id="", trust=None)).decode()


def decode_whole_event(text: str) -> WindowEvent | None:
    """Return an event that is one value with its content; None if the text is something else."""
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return None


def decode_event(line_id: str, version: Version, content: str | None) -> WindowEvent:
    """Return a stored event, with its content if that is a value of its own."""
    event = _decoder.decode(version.value or "")
    change = version.change
    item_id = str(VersionId(line_id, change.key, change.incarnation, change.version))
    if content is None:
        return structs.replace(event, item_id=item_id, trust=change.meta.trust)
    message = structs.replace(event.message, content=content)
    return structs.replace(event, item_id=item_id, trust=change.meta.trust, message=message)


def copy_of(version: Version, source: str, *, into: str) -> Version:
    """Return a stored event as a copy in another window: it names its origin, so that a redaction of that finds it."""
    if version.value is None:
        return version
    event = decode_event(source, version, None)
    origin = event.origin or event.item_id
    name = VersionId.parse(origin)
    # What comes back to where it was is no copy.
    is_back = name is not None and (trunk_of(name.line_id), name.key) == (trunk_of(into), version.change.key)
    text, _ = encode_event(structs.replace(event, origin=None if is_back else origin))
    meta = structs.replace(version.change.meta, size=len(text.encode()))
    return structs.replace(
        version, value=text, change=structs.replace(version.change, blob_hash=blob_hash(text), meta=meta)
    )


def agent_of(line_id: str) -> str:
    """Return the agent whose window a line holds."""
    return trunk_of(line_id).rpartition(":")[2]


def session_of(line_id: str) -> str:
    """Return the session of the window that a line holds."""
    return line_id.split(":", 2)[1]


def is_instruction(event: WindowEvent) -> bool:
    """Tell whether an event is an instruction to the model, which is never trimmed."""
    return event.category is Category.SYSTEM or event.message.role == "system"


def as_read_by(event: WindowEvent, agent_id: str) -> WindowEvent:
    """Return an event as it appears to an agent: instructions of another sub-agent are context."""
    if principal_of(event.author) == agent_id or not is_instruction(event):
        return event
    # Only its own prompts begin with the definition that has the text.
    event = structs.replace(event, registered=False) if event.registered else event
    return as_context(event) if event.author.startswith(SUBAGENT) else event


def is_from_user(event: WindowEvent) -> bool:
    """Tell whether an event is what the user said: not an instruction or a context that somebody else handed over."""
    return event.message.role == "user" and event.category is Category.DIALOG


def is_from_agent(event: WindowEvent) -> bool:
    """Tell whether an agent wrote an event: neither a human nor Weftline itself."""
    return not event.author.startswith(HUMAN) and event.author != SYSTEM_ID


def as_context(event: WindowEvent, *, as_data: bool = False) -> WindowEvent:
    """Return an instruction as a message of the category CONTEXT."""
    category = Category.CONTEXT if event.category is Category.SYSTEM else event.category
    return structs.replace(event, category=category, message=quoted_message(event.message), as_data=as_data)


def quoted_message(message: ConversationMessage) -> ConversationMessage:
    """Return an instruction as a message that is none."""
    return structs.replace(message, role="user", form=None, native=None)


def content_hash(message: ConversationMessage) -> str | None:
    """Return the hash of a content that is too long to be stored with its event."""
    return blob_hash(message.content).hex() if len(message.content.encode()) > INLINE_BYTES else None


def event_version(event: WindowEvent) -> str:
    """Return incarnation and version: an event that was rolled back may be added again with other content."""
    return event.item_id.rpartition("/")[2]


def event_weight(event: WindowEvent) -> int:
    """Return about how much memory an event takes, in bytes."""
    message = event.message
    native: Any = message.native
    # A character takes up to four bytes.
    texts = [message.content, *(call.arguments for call in message.tool_calls), *event.references, *event.source_refs]
    return 1_000 + sum(map(sys.getsizeof, texts)) + (0 if native is None else len(msgspec.json.encode(native)))


# Who gives an agent instructions: events of the role system or the category SYSTEM.
#
# Those above it: its ancestors, and humans who may define it. An agent itself only hands over the system prompt that
# its definition has. Whatever else it writes as system text is refused, or quoted as data.

_REGISTER = (
    "Leave it out: your prompts begin with what your definition says. To hand over the fixed system prompt of your "
    "runtime, let the agent above you, or a human, register the same text as your system_prompt with `agent.define`."
)


async def registered(events: Sequence[WindowEvent], agent_id: str, lines: LineStore) -> frozenset[str]:
    """Return the ids of the events whose text the definition of the agent has: all of it, or whole paragraphs."""
    if not events:
        return frozenset()
    defined = f"\n\n{persona_text(*await defined_texts(agent_id, lines))}\n\n"
    return frozenset(event.event_id for event in events if f"\n\n{_text(event)}\n\n" in defined or not _text(event))


async def check_may_instruct(actor: Actor, readers: AbstractSet[str], access: AccessStore) -> None:
    """Raise unless the caller may give instructions to every agent that reads the window."""
    if actor.is_subagent:
        raise ProtectedCategory(
            "Sub-agents add no SYSTEM events, and none of the role system, to the windows of others: only "
            "orchestrators and humans instruct others."
        )
    for reader in sorted(readers - {actor.principal_id}):
        await check_may_define(actor, await find_agent(reader, access), access)


def is_own(actor: Actor, readers: AbstractSet[str]) -> bool:
    """Tell whether the caller is an agent that would read its own instruction."""
    return actor.kind is PrincipalKind.AGENT and actor.principal_id in readers


def self_written() -> SelfModification:
    return SelfModification(
        "You cannot write your own system text: only those above you define it.", hint=_REGISTER, related=()
    )


def left_behind() -> SelfModification:
    return SelfModification(
        "You cannot remove the instructions that those above you gave you.",
        hint="Keep them: merge the branch that has them, or ask the agent above you, or a human, to make this change.",
        related=(),
    )


def is_from_above(event: WindowEvent, agent_id: str) -> bool:
    """Tell whether an event, as an agent reads it, is an instruction that somebody above the agent gave."""
    return is_instruction(event) and not _is_of_weftline(event) and principal_of(event.author) != agent_id


def doubtful(events: Sequence[WindowEvent], agent_id: str) -> list[WindowEvent]:
    """Return the instructions that are system text only if their authors may instruct the reader."""
    return [
        event
        for event in events
        if is_instruction(event) and not _is_registered(event, agent_id) and not _is_of_weftline(event)
    ]


def may_instruct(
    event: WindowEvent, reader: Principal, above: AbstractSet[str], authors: Mapping[str, Principal]
) -> bool:
    """Tell whether an instruction is of somebody who may define the agent that reads it.

    ``authors`` are the humans among the authors, by id.
    """
    author_id = principal_of(event.author)
    if is_from_agent(event):
        is_author = author_id in above
    else:
        author = authors.get(author_id)
        is_author = author_id == reader.principal_id or (
            author is not None and author.clearance >= max(EDITOR_CLEARANCE, reader.clearance)
        )
    return is_author


def _is_registered(event: WindowEvent, agent_id: str) -> bool:
    return event.registered and principal_of(event.author) == agent_id


def _is_of_weftline(event: WindowEvent) -> bool:
    return principal_of(event.author) == SYSTEM_ID


def _text(event: WindowEvent) -> str:
    return plain_text(event.message).strip()
