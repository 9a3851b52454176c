"""Guardrails: their fields, limits and errors."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol

import msgspec

from weftline.access.model import Pattern
from weftline.kernel.errors import Forbidden, InvalidInput
from weftline.kernel.fields import Name, ShortText
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation
    from weftline.safety.guardrails.rules import CompiledRule, Counts, RuleSet


ViolationResponse = Literal["block", "redact", "warn", "terminate", "ask"]
Label = Literal["secret", "pii", "injection", "untrusted"]
# Levels of the layers that have guardrails.
PLATFORM, TENANT, TEAM, PERSONA = 1, 2, 3, 4
MAX_GUARDRAILS = 200
MAX_CONDITION = 2_000
# Characters of all conditions of a layer: compiling them takes up to 10 microseconds each, and cannot be interrupted.
MAX_CONDITIONS = 30_000
MAX_BYTES = 262_144
# Responses that refuse the call; the first such rule ends the check.
REFUSALS: frozenset[ViolationResponse] = frozenset({"block", "terminate", "ask"})

ActionPattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9_.:/*-]+\Z",
        description="An operation, tool or tool.action, with * as wildcard.",
        extra_json_schema={"examples": ["board.delete", "shared_context.write", "github.*"]},
    ),
]
Mask = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=500,
        pattern=r"^[^\x00]+\Z",
        description="secrets, pii, or a text that is masked wherever it occurs.",
    ),
]
Condition = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=MAX_CONDITION,
        pattern=r"^[^\x00]+\Z",
        description="CEL expression over tool, operation, arguments, agent, session_id, step, now, calls, labels, "
        "answer; without one the action is always prohibited.",
    ),
]


class Guardrail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule: what callers in its scope may not do. It holds from the next call of every running session."""

    name: Annotated[Name, msgspec.Meta(description="Unique in its layer.")]
    prohibited_action: Annotated[
        tuple[ActionPattern, ...],
        msgspec.Meta(min_length=1, max_length=50, description="Operations and tools that the rule is about."),
    ]
    scope: Annotated[
        tuple[Pattern, ...],
        msgspec.Meta(
            min_length=1, max_length=50, description="Callers it holds for, as in ACLs; by default all of its layer."
        ),
    ] = ("*",)
    condition: Condition | None = None
    violation_response: Annotated[
        ViolationResponse,
        msgspec.Meta(
            description="block refuses the call, redact masks values in it, warn lets it pass with a warning, "
            "terminate ends the agent's session, ask holds the call for approval."
        ),
    ] = "block"
    on_error: Annotated[
        Literal["closed", "open"],
        msgspec.Meta(description="What an error of the condition means: closed: prohibited, open: allowed."),
    ] = "closed"
    dry_run: Annotated[bool, msgspec.Meta(description="Only count what it would prohibit.")] = False
    message: Annotated[ShortText | None, msgspec.Meta(description="Shown to the caller.")] = None
    mask: Annotated[tuple[Mask, ...], msgspec.Meta(min_length=1, max_length=20, description="What redact masks.")] = (
        "secrets",
        "pii",
    )
    approver: Annotated[
        Literal["human", "client"],
        msgspec.Meta(description="Who decides on ask: a human of the tenant, or also the user of the MCP client."),
    ] = "human"

    @property
    def refuses(self) -> bool:
        return not self.dry_run and self.violation_response in REFUSALS


class InvalidGuardrail(InvalidInput):
    """A guardrail cannot be used as it is written."""

    code = "INVALID_GUARDRAIL"
    hint = "Correct the rule that the message names; try it with `guardrail.test` before you define it."
    related = ("guardrails",)


class GuardrailViolation(Forbidden):
    """A guardrail prohibits this call."""

    code = "GUARDRAIL_VIOLATION"
    hint = "Do not repeat the call. Do the task in another way, or ask a human. `guardrail.list` shows your guardrails."
    related = ("guardrails",)
    severity = "critical"
    recoverable = False
    violation = "guardrail"


class GuardrailApproval(GuardrailViolation):
    """A guardrail holds this call until it is approved."""

    code = "APPROVAL_REQUIRED"
    hint = "Nothing was done. Continue with other work until the call is approved."
    hold = "approval"
    recoverable = True


def digest_of(guardrail: Guardrail) -> str:
    """Return what identifies a rule as it is written now."""
    encoded = msgspec.json.encode(guardrail, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


# Names of actions that guardrails prohibit: an operation, its tool, and the action of a grouped tool.


def names_of(operation: Operation) -> tuple[str, ...]:
    """Return the names of an operation, such as board.write, shared_context and shared_context.write."""
    if operation.action is None:
        return operation.name, operation.tool
    return operation.name, operation.tool, f"{operation.tool}.{operation.action}"


class KnownActions:
    """The operations and tools of Weftline by name. All of them are loaded on first use."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._operations = operations

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for operation in self._operations for name in names_of(operation))

    def find(self, action: str) -> Operation | None:
        """Return the operation with this name; None for a tool of others, and for a tool with several actions."""
        return self._by_name.get(action)

    @cached_property
    def groups(self) -> frozenset[str]:
        """Return the first parts of the names."""
        return frozenset(name.partition(".")[0] for name in self.names)

    def names_for(self, action: str) -> tuple[str, ...]:
        """Return all names of an action; mcp__github__create_issue of a coding agent is github.create_issue too."""
        operation = self.find(action)
        if operation is not None:
            return names_of(operation)
        server, dots, tool = action.removeprefix("mcp__").partition("__")
        return (action, f"{server}.{tool}") if dots else (action,)

    @cached_property
    def _by_name(self) -> dict[str, Operation]:
        named: dict[str, Operation] = {}
        for operation in self._operations:
            unique = [name for name in names_of(operation) if operation.action is None or name != operation.tool]
            named |= dict.fromkeys(unique, operation)
        return named


# Ports of guardrails: the rules of a caller, rates, and the log of hits.


class CallerGuardrails(Protocol):
    """The guardrails that hold for callers now."""

    def cached(self, actor: Actor) -> RuleSet | None:
        """Return the caller's rules if they are in memory and current."""
        ...

    async def load(self, actor: Actor) -> RuleSet:
        """Return the caller's rules; raises AccessChanged if the caller has to be identified again."""
        ...

    async def confirm(self, actor: Actor) -> None:
        """Raise AccessChanged if rules have changed since: a refused call opens no transaction that would notice."""
        ...

    async def latest(self, actor: Actor) -> RuleSet:
        """Return the caller's rules after its call, which may have changed them itself."""
        ...


class CallRates(Protocol):
    """Counts the calls of a caller by kind of action, in all processes that share rate limits."""

    async def count(self, actor: Actor, actions: Sequence[str]) -> Mapping[str, Counts]:
        """Count a call for each kind of action, and return the counts with it."""
        ...

    async def uncount(self, actor: Actor, actions: Sequence[str]) -> None:
        """Take back a call that was refused: it does not bring the next one closer to a limit."""
        ...


class HitLog(Protocol):
    """Counts the hits of rules. They are written together, a few seconds later."""

    def note(
        self, actor: Actor, rule: CompiledRule, action: str, session_id: str | None, *, is_error: bool
    ) -> None: ...


# Hit counts of guardrails in SQL.

_ADD = """
INSERT INTO guardrail_hits (tenant, layer, name, digest, hits, errors, since, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant, layer, name, digest) DO UPDATE SET hits = guardrail_hits.hits + excluded.hits,
    errors = guardrail_hits.errors + excluded.errors, last_at = excluded.last_at
"""
_OF_LAYER = """
SELECT layer, name, digest, hits, errors, since, last_at FROM guardrail_hits
WHERE tenant = $1 AND layer = $2 ORDER BY name, digest
"""
_REMOVE = "DELETE FROM guardrail_hits WHERE tenant = $1 AND layer = $2 AND name = $3 AND digest = $4"


class RuleKey(NamedTuple):
    """A rule as it is written now: a changed rule is counted from zero."""

    layer: str
    name: str
    digest: str


class HitCount(NamedTuple):
    """How often a rule was violated since its first hit, and how often because its condition failed."""

    key: RuleKey
    hits: int
    errors: int
    since: int
    last_at: int


class HitStore(SqlStore):
    """Hit counts of a tenant."""

    async def add(self, counts: Sequence[HitCount]) -> None:
        """Add to the counts of rules."""
        for each in counts:
            await self._tx.run(_ADD, self._tenant, *each.key, each.hits, each.errors, each.since, each.last_at)

    async def counts(self, layers: Sequence[str]) -> Sequence[HitCount]:
        rows = [row for layer in layers for row in await self._tx.all(_OF_LAYER, self._tenant, layer)]
        return [HitCount(RuleKey(*row[:3]), *row[3:]) for row in rows]

    async def remove_others(self, layer: str, digests: Sequence[str]) -> None:
        """Remove the counts of rules that a layer no longer has."""
        kept = set(digests)
        for each in await self.counts([layer]):
            if each.key.digest not in kept:
                await self._tx.run(_REMOVE, self._tenant, *each.key)
