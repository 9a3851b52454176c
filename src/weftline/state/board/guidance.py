"""Board guidance: key conventions of a domain, and advice on writing and reading, as text for system prompts."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.fields import Name
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, admin_write, operation
from weftline.safety.trust.gate import GATE_ERRORS, ContentGate, submitted_value
from weftline.sessions.model import (
    DEFAULT_CONVENTIONS_NAME,
    ConventionsNotFound,
    SessionId,
    SessionNotFound,
    convention_names,
    conventions_not_found,
    find_session,
)
from weftline.sessions.sql import ConventionStore, SessionStore

GuidancePart = Literal["all", "conventions", "writing", "reading"]
_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f]+\Z")]


class KeyConvention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key everyone in the domain agrees on."""

    key: Annotated[str, msgspec.Meta(pattern=r"^(?:[a-z0-9_]{1,64}:)?[a-z0-9_]{1,64}\Z", description="The key.")]
    purpose: Annotated[_Line, msgspec.Meta(description="What it holds, in one line.")]


class ConventionGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys that belong together."""

    title: Annotated[_Line, msgspec.Meta(description="What the keys have in common.")]
    keys: Annotated[list[KeyConvention], msgspec.Meta(min_length=1, max_length=100, description="The keys.")]


class DefineConventions(Request):
    """The key conventions of a domain."""

    name: Annotated[Name, msgspec.Meta(description="The domain's name.")]
    groups: Annotated[
        list[ConventionGroup], msgspec.Meta(min_length=1, max_length=50, description="The keys, in groups.")
    ]


class ConventionsDefined(Response, kw_only=True, omit_defaults=False):
    """The conventions are in force for every session that names them."""

    success: Literal[True] = True
    name: str
    key_count: int


class ListConventions(Request):
    """All names."""


class ConventionNames(Response):
    """The conventions there are."""

    names: list[str]


class GetGuidance(Request):
    """Conventions to use, and the part of the text to return."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Use the conventions this session was created with.")
    ] = None
    conventions: Annotated[Name | None, msgspec.Meta(description="Or name the conventions yourself.")] = None
    part: Annotated[GuidancePart, msgspec.Meta(description="The whole text or one part of it.")] = "all"


class Guidance(Response):
    """Text for an agent's system prompt."""

    conventions: str
    text: str


_DEFAULT_KEYS = {
    "Where the work stands": {
        "current_phase": "the phase the work is in now",
        "phase_status": "what this phase has finished and what comes next",
        "blocking_issues": "whatever keeps the work from going on",
    },
    "What the task is": {
        "problem_summary": "the goal or problem in a few sentences",
        "scope": "what is part of the task and what is not",
        "constraints": "rules and limits that must be respected",
    },
    "What is known": {
        "findings_summary": "the results so far and what they mean",
        "open_questions": "what still has to be answered, and by whom",
        "decisions_made": "what the user decided, each with its reason",
    },
    "What has been delivered": {
        "deliverables_status": "which results exist and which are outstanding",
        "quality_checks": "which checks passed or failed, and why",
    },
}
DEFAULT_CONVENTIONS = [
    ConventionGroup(title=title, keys=[KeyConvention(key=key, purpose=purpose) for key, purpose in keys.items()])
    for title, keys in _DEFAULT_KEYS.items()
]

WRITING = """\
Writing to the board (tool shared_context, action write):

Worth keeping:
  - what is true now: conclusions, the state of the work, blockers
  - what the user decided, and why
  - findings, reduced to what they mean for the task
  - ids of records and documents, so that others can fetch them
  - questions that somebody must answer

Keep elsewhere:
  - raw output, whole documents, transcripts, text copied from a source
  - what the system of record is there to hold
  - personal data, credentials and other secrets
  - thinking in progress

Habits:
  - Shorten what exceeds 500 tokens: is it a conclusion or raw material?
  - One topic, one key: update a key before inventing another.
  - A result that someone will review belongs in the system of record as well.
  - Delete what is settled, such as an answered question.
  - When others may change the same key, read it first and pass its version as if_version."""

_READING = """\
Reading from the board (tool shared_context):

  1. Begin with list_keys: it shows what there is, how large and how recent, without the values.
  2. Read what your task needs, several keys at once with read_batch. Leave the rest.
  3. value_size_tokens tells what a key will cost you; a large one must be worth it.
  4. What a user has approved{approvals} is settled: build on it.
  5. What only another agent wrote is a proposal: weigh it, do not repeat it as fact.
  6. A missing key is normal. The board is a digest: what it lacks is in the source."""
# Keys that tell what is approved, where the conventions have them.
_APPROVALS = ("decisions_made", "phase_status")


_read_operation = partial(operation, permission=Permission.READ, rate=RateClass.BOARD, effect=Effect.READ)


@_read_operation(
    "board.guidance",
    tool="get_board_guidance",
    http="GET /v1/board-guidance",
    errors=(SessionNotFound, ConventionsNotFound),
)
async def get_guidance(
    request: GetGuidance, actor: Actor, sessions: SessionStore, conventions: ConventionStore
) -> Guidance:
    """Get the text for an agent's system prompt that explains how to use the board."""
    name = request.conventions or DEFAULT_CONVENTIONS_NAME
    if request.session_id is not None and request.conventions is None:
        name = (await find_session(request.session_id, actor, sessions)).config.conventions
    groups = await _groups(name, conventions)
    parts = {"conventions": _render(groups), "writing": WRITING, "reading": _reading(groups)}
    chosen = list(parts.values()) if request.part == "all" else [parts[request.part]]
    return Guidance(conventions=name, text="\n\n".join(chosen))


def _definition(request: DefineConventions) -> dict[str, Any]:
    return {"groups": msgspec.to_builtins(request.groups)}


@admin_write(
    "conventions.define",
    tool="define_conventions",
    http="PUT /v1/conventions/{name}",
    errors=GATE_ERRORS,
    content=lambda request: (submitted_value(_definition(request)),),
    session=SessionUse.NONE,
)
async def define_conventions(
    request: DefineConventions, actor: Actor, conventions: ConventionStore, clock: Clock, gate: ContentGate
) -> ConventionsDefined:
    """Define the keys a domain's agents agree on; sessions name them in their config."""
    definition = await gate.admit_value("conventions", request.name, _definition(request))
    await conventions.put(request.name, definition, actor.principal_id, to_micros(clock.now()))
    return ConventionsDefined(name=request.name, key_count=sum(len(group.keys) for group in request.groups))


@_read_operation("conventions.list", tool="list_conventions", http="GET /v1/conventions", session=SessionUse.NONE)
async def list_conventions(request: ListConventions, conventions: ConventionStore) -> ConventionNames:
    """List the key conventions that sessions can name."""
    del request
    return ConventionNames(names=convention_names(await conventions.names()))


async def _groups(name: str, conventions: ConventionStore) -> list[ConventionGroup]:
    stored = await conventions.get(name)
    if stored is not None:
        return msgspec.convert(stored["groups"], list[ConventionGroup])
    if name == DEFAULT_CONVENTIONS_NAME:
        return DEFAULT_CONVENTIONS
    raise conventions_not_found(name)


def _reading(groups: list[ConventionGroup]) -> str:
    agreed = {key.key for group in groups for key in group.keys}
    named = [key for key in _APPROVALS if key in agreed]
    return _READING.format(approvals=f" (see {' and '.join(named)})" if named else "")


def _render(groups: list[ConventionGroup]) -> str:
    width = max(len(key.key) for group in groups for key in group.keys) + 2
    lines = ["Keys everyone here uses on the board (others are allowed, these come first):"]
    for group in groups:
        lines += ["", f"{group.title}:", *(f"  {key.key:<{width}}{key.purpose}" for key in group.keys)]
    return "\n".join(lines)
