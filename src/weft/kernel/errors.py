"""Every error Weft answers with.

WeftError
├── NotFound      404  the thing named does not exist, or not for this caller
├── Conflict      409  the thing exists, but not in the state the call needs
├── Rejected      400  the request itself cannot be accepted
├── Forbidden     403  the caller may not do this
└── Unavailable   503  Weft cannot answer now; the same call may succeed later

The five kinds decide how each transport answers. Leaves live beside the capability that raises them
and carry a stable ``code``, a ``hint`` that says what to do next, and the operations worth calling.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

Severity = Literal["warning", "error", "critical"]


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The one shape in which every face reports an error."""

    success: Literal[False] = False
    error: str
    code: str
    severity: Severity
    recoverable: bool
    suggestions: list[str]
    context: dict[str, Any]
    related_resources: list[str]
    timestamp: str


class WeftError(Exception):
    """The base of every error a caller can meet."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    hint: str = "Report this to whoever runs Weft; the server log has the details."
    related: tuple[str, ...] = ()
    http_status: ClassVar[int] = 500
    severity: ClassVar[Severity] = "error"
    recoverable: ClassVar[bool] = True
    # A denial is put on record, whatever the caller is told: to some, what they may not see does not exist.
    denial: bool = False

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
        self.hint = hint or self.hint
        self.related = self.related if related is None else related
        self.context = context
        super().__init__(self.message)

    def body(self, timestamp: str) -> ErrorBody:
        return ErrorBody(
            error=self.message,
            code=self.code,
            severity=self.severity,
            recoverable=self.recoverable,
            suggestions=[self.hint],
            context=self.context,
            related_resources=list(self.related),
            timestamp=timestamp,
        )


class NotFound(WeftError):
    """The thing named does not exist."""

    code = "NOT_FOUND"
    hint = "Check the path against GET /openapi.json, which lists every route."
    http_status = 404


class Conflict(WeftError):
    """The thing is not in the state this call needs."""

    http_status = 409


class Rejected(WeftError):
    """The request cannot be accepted as it is."""

    http_status = 400


class Forbidden(WeftError):
    """The caller may not do this."""

    http_status = 403
    denial = True


class Unavailable(WeftError):
    """Weft cannot answer this call now."""

    http_status = 503


class InvalidInput(Rejected):
    """A parameter is missing, unknown, out of range or of the wrong type."""

    code = "INVALID_INPUT_FORMAT"
    hint = "Compare the call with the operation's schema: names, types, ranges and required fields must match."


class ContentTooLarge(Rejected):
    """The request is larger than Weft accepts."""

    code = "CONTENT_TOO_LARGE"
    hint = "Send a distilled version, or a reference to where the full content is kept."
    http_status = 413


class MethodNotAllowed(Rejected):
    """This path does not take this HTTP method."""

    code = "METHOD_NOT_ALLOWED"
    hint = "Use one of the methods in the Allow header; GET /openapi.json lists every route."
    http_status = 405


class HostNotAllowed(Forbidden):
    """The request came by a host name or from a web page this server does not serve."""

    code = "HOST_NOT_ALLOWED"
    hint = "Whoever runs Weft can allow it with WEFT_ALLOWED_HOSTS or WEFT_ALLOWED_ORIGINS."


class UnknownOperation(NotFound):
    """No operation has this name."""

    code = "UNKNOWN_OPERATION"
    hint = "List what you may call: tools/list over MCP, GET /openapi.json over HTTP, or weft --help."


class PermissionDenied(Forbidden):
    """The caller lacks the permission this operation needs."""

    code = "PERMISSION_DENIED"
    hint = "Ask an admin of your tenant to grant it with update_agent; it cannot be requested by the caller."
    related = ("update_agent",)
    recoverable = False


class AuthenticationError(Forbidden):
    """The call carries no credential that Weft accepts."""

    code = "AUTHENTICATION_ERROR"
    hint = "Send 'Authorization: Bearer <API key or token>'; get a token with authenticate_agent."
    related: tuple[str, ...] = ("authenticate_agent",)
    http_status = 401


class InvalidApiKey(AuthenticationError):
    """The API key is not valid."""

    code = "INVALID_API_KEY"
    hint = "Check the key for a copying error; an admin can issue a new one with rotate_key."
    related = ("rotate_key",)


class TokenExpired(AuthenticationError):
    """The token has expired."""

    code = "TOKEN_EXPIRED"
    hint = "Call authenticate_agent with your API key for a new token; refresh_token extends one that is still valid."
    related = ("authenticate_agent", "refresh_token")


class RateLimited(Unavailable):
    """The caller has used up its allowance for this kind of call."""

    code = "RATE_LIMITED"
    hint = "Wait for the number of seconds in context.retry_after_seconds, then repeat the same call."
    http_status = 429
    severity = "warning"


class SystemUnavailable(Unavailable):
    """Weft cannot reach its storage at the moment."""

    code = "SYSTEM_UNAVAILABLE"
    hint = "Nothing was changed. Repeat the same call after a short wait; weft doctor shows what is wrong."
    severity = "critical"


class StorageFull(Unavailable):
    """The disk or database that holds Weft's data is full."""

    code = "STORAGE_FULL"
    hint = "Nothing was changed. Free space where the data folder lives, then repeat the same call."
    http_status = 507
    severity = "critical"


class PoolNotInitialized(Unavailable):
    """Weft is starting or stopping and takes no calls now."""

    code = "POOL_NOT_INITIALIZED"
    hint = "Repeat the same call after a short wait; GET /ready answers 200 when calls are taken."


class InternalError(WeftError):
    """Something went wrong inside Weft."""

    severity = "critical"
    recoverable = False
