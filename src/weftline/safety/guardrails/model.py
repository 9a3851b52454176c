"""Guardrails: their fields, limits and errors."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec

from weftline.access.patterns import Pattern
from weftline.kernel.errors import Forbidden, InvalidInput
from weftline.kernel.fields import Name, ShortText

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
