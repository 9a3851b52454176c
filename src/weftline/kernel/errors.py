"""Base classes of all errors, and their hints.

WeftlineError
├── NotFound      404  the resource does not exist, or is not visible to this caller
├── Conflict      409  the resource exists, but is not in the state the call needs
├── Rejected      400  the request is invalid
├── Forbidden     403  the caller may not do this
└── Unavailable   503  Weftline cannot answer now; a retry may succeed

The five kinds decide how each transport answers. Their subclasses are defined in the capability that raises them and
carry a stable ``code``, a ``hint`` for the next step and ``related`` tools.

A hint names operations in backticks: "List them with `session.list`." Each interface renders it with its own name: the
Python clients a method, MCP a tool and action, REST a route, the command line a command.
"""

from __future__ import annotations

import re
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.kernel.identity import HoldReason

    # Returns what an interface calls an operation, given its name; None if there is no such operation.
    Reference = Callable[[str], str | None]

Severity = Literal["warning", "error", "critical"]
# What a security event is about: the rule of trust that a call broke, or the damage that it found.
Violation = Literal[
    "self_modification",
    "layer_violation",
    "tampering",
    "guardrail",
    "injection",
    "quarantine",
    "cross_tenant",
    "forged_token",
]
# Above this number of names a list is more useful than a guess, and comparing them takes too long.
MAX_COMPARED = 200
_MAX_MATCHES = 5
_MIN_SIMILARITY = 0.5
_MAX_NAME_LENGTH = 200
_CURSOR_HINT = "Pass the cursor of the previous page unchanged, or leave it out to read the first page."
_PARAMETER_TYPE = re.compile(r":[a-z]+}")
_REFERENCE = re.compile(r"`([a-z_]+\.[a-z_]+)`")


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error as every interface reports it."""

    success: Literal[False] = False
    error: str
    code: str
    severity: Severity
    recoverable: bool
    suggestions: list[str]
    context: dict[str, Any]
    related_resources: list[str]
    timestamp: str


class WeftlineError(Exception):
    """Base of every error a caller can receive."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    # As a class attribute and as an argument a template; the hint of a raised error names Python methods.
    hint: str = "Report this to the operator; the server log has the details."
    related: tuple[str, ...] = ()
    http_status: ClassVar[int] = 500
    severity: ClassVar[Severity] = "error"
    recoverable: ClassVar[bool] = True
    # Denials are audited, also those that tell the caller NOT_FOUND to hide that the resource exists.
    denial: bool = False
    # Set by errors that hold a call until somebody approves it: ``approval`` lets the caller wait, ``quarantine``
    # answers at once. ``hold_reason`` says which check holds it.
    hold: ClassVar[Literal["approval", "quarantine"] | None] = None
    hold_reason: HoldReason | None = None
    # Audited too, and published as the event security.violation.
    violation: Violation | None = None

    def __init__(
        self,
        message: str | None = None,
        /,
        *,
        hint: str | None = None,
        related: tuple[str, ...] | None = None,
        **context: Any,  # noqa: ANN401 - JSON of any shape
    ) -> None:
        self.message = message or (self.__doc__ or "").strip().splitlines()[0]
        self.hint_template = hint or self.hint
        self.hint = render_hint(self.hint_template, method_reference)
        self.related = self.related if related is None else related
        self.context = context
        super().__init__(self.message)

    def body(self, timestamp: str, reference: Reference | None = None) -> ErrorBody:
        """Return the error as an interface shows it that calls operations by ``reference``."""
        hint = self.hint if reference is None else render_hint(self.hint_template, reference)
        return ErrorBody(
            error=self.message,
            code=self.code,
            severity=self.severity,
            recoverable=self.recoverable,
            suggestions=[hint],
            context=self.context,
            related_resources=list(self.related),
            timestamp=timestamp,
        )


def is_audited(error: WeftlineError) -> bool:
    """Tell whether an error has a row in the audit log: denials and security events."""
    return error.denial or error.violation is not None


class NotFound(WeftlineError):
    """The resource does not exist."""

    code = "NOT_FOUND"
    hint = "Check the path against GET /openapi.json, which lists every route."
    http_status = 404


class Conflict(WeftlineError):
    """The resource is not in the state this call needs."""

    http_status = 409


class Rejected(WeftlineError):
    """The request is invalid."""

    http_status = 400


class Forbidden(WeftlineError):
    """The caller may not do this."""

    http_status = 403
    denial = True


class QuotaExceeded(Conflict):
    """A limit of the tenant is reached."""

    code = "QUOTA_EXCEEDED"
    hint = "Remove what is no longer needed, or ask the operator for a higher limit."


class Unavailable(WeftlineError):
    """Weftline cannot answer this call now."""

    http_status = 503


class InvalidInput(Rejected):
    """A parameter is missing, unknown, out of range or of the wrong type."""

    code = "INVALID_INPUT_FORMAT"
    hint = "Compare the call with the operation's schema: names, types, ranges and required fields must match."


def invalid_cursor(field: str) -> InvalidInput:
    """Return the error of a cursor that this operation never returned."""
    return InvalidInput(f"{field}: not a next_{field} of this operation", hint=_CURSOR_HINT, field=field)


class ContentTooLarge(Rejected):
    """The request is larger than Weftline accepts."""

    code = "CONTENT_TOO_LARGE"
    hint = "Send a summary, or a reference to where the full content is stored."
    http_status = 413


class MethodNotAllowed(Rejected):
    """This path does not support this HTTP method."""

    code = "METHOD_NOT_ALLOWED"
    hint = "Use one of the methods in the Allow header; GET /openapi.json lists every route."
    http_status = 405


class HostNotAllowed(Forbidden):
    """The Host or Origin header names a host that this server does not serve."""

    code = "HOST_NOT_ALLOWED"
    hint = "The operator can allow it with WEFTLINE_ALLOWED_HOSTS or WEFTLINE_ALLOWED_ORIGINS."


class UnknownOperation(NotFound):
    """No operation has this name."""

    code = "UNKNOWN_OPERATION"
    hint = "List the operations with tools/list over MCP, GET /openapi.json over HTTP, or weftline --help."


class PermissionDenied(Forbidden):
    """The caller lacks the permission this operation needs."""

    code = "PERMISSION_DENIED"
    hint = "Ask an admin of your tenant to grant it with `agent.update`."
    related: tuple[str, ...] = ("update_agent",)
    recoverable = False


class SelfModification(Forbidden):
    """An agent cannot change its own definition, its rights, or the layers that bind it."""

    code = "SELF_MODIFICATION"
    hint = "Ask the agent above you, or a human, to change it with `agent.define`."
    related = ("push_context",)
    recoverable = False
    violation: Violation | None = "self_modification"


class AuthenticationError(Forbidden):
    """The call carries no credential that Weftline accepts."""

    code = "AUTHENTICATION_ERROR"
    hint = "Send 'Authorization: Bearer <API key or token>'; get a token with `token.issue`."
    related: tuple[str, ...] = ("authenticate_agent",)
    http_status = 401


class InvalidApiKey(AuthenticationError):
    """The API key is not valid."""

    code = "INVALID_API_KEY"
    hint = "Check the key for a copying error; an admin can issue a new one with `key.rotate`."
    related = ("rotate_key",)


class TokenExpired(AuthenticationError):
    """The token has expired."""

    code = "TOKEN_EXPIRED"
    hint = "Get a new token with `token.issue` and your API key; `token.refresh` extends one that is still valid."
    related = ("authenticate_agent", "refresh_token")


class RateLimited(Unavailable):
    """The caller has exceeded its rate limit for this class of calls."""

    code = "RATE_LIMITED"
    hint = "Wait for context.retry_after_seconds, then retry."
    http_status = 429
    severity = "warning"


class ServerBusy(Unavailable):
    """The server does as much for you as your share allows."""

    code = "SERVER_BUSY"
    hint = "Nothing was changed. Wait for context.retry_after_seconds, then retry; send fewer calls at the same time."
    severity = "warning"


class SystemUnavailable(Unavailable):
    """Weftline cannot reach its storage."""

    code = "SYSTEM_UNAVAILABLE"
    hint = "Nothing was changed. Retry after a short wait; weftline doctor shows what is wrong."
    severity = "critical"


class DiskFull(Unavailable):
    """The disk or database that holds Weftline's data is full."""

    code = "DISK_FULL"
    hint = "Nothing was changed. Free disk space in the data folder, then retry."
    http_status = 507
    severity = "critical"


class PoolNotInitialized(Unavailable):
    """Weftline is starting or shutting down."""

    code = "POOL_NOT_INITIALIZED"
    hint = "Retry after a short wait; GET /ready answers 200 when Weftline accepts calls."


class InternalError(WeftlineError):
    """Something went wrong inside Weftline."""

    severity = "critical"
    recoverable = False


def render_hint(template: str, reference: Reference) -> str:
    """Return a hint that calls operations by ``reference``; what names no operation stays as it is."""
    if "`" not in template:
        return template
    return _REFERENCE.sub(lambda found: reference(found[1]) or found[0], template)


def method_reference(name: str) -> str:
    """Return the method of the Python clients, which the documentation calls ``weftline``."""
    return f"weftline.{name}{'_' if iskeyword(name.partition('.')[2]) else ''}()"


def shown_path(path: str) -> str:
    """Return the path of a route without the types of its parameters."""
    return _PARAMETER_TYPE.sub("}", path)


def close_names(name: str, known: Sequence[str]) -> list[str]:
    """Return the known names that are most similar to a mistyped one, best first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for errors

    # Comparing takes time in proportion to the length, and a caller may give a text of megabytes.
    return get_close_matches(name[:_MAX_NAME_LENGTH], known, n=_MAX_MATCHES, cutoff=_MIN_SIMILARITY)
