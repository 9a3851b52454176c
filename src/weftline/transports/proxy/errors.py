"""Errors of the proxy itself, in the form of the provider whose route was called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.errors import AuthenticationError, PermissionDenied, Unavailable
from weftline.models.budgets import BudgetExceeded
from weftline.transports.http.http_io import delay_refusal, error_headers

if TYPE_CHECKING:
    from starlette.types import Scope, Send

    from weftline.kernel.errors import WeftlineError
    from weftline.models.language_models.content import WireForm

# Types of providers by status; of other statuses, that of the server's errors.
_ANTHROPIC = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
_ANTHROPIC |= {
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_OPENAI = {400: "invalid_request_error", 401: "invalid_request_error", 403: "invalid_request_error"}
_OPENAI |= {
    404: "invalid_request_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}

_GEMINI = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
_GEMINI |= {405: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED"}
_QUOTA = 429


class UpstreamUnreachable(Unavailable):
    """The provider behind the model proxy cannot be reached, or closed the connection without an answer."""

    code = "UPSTREAM_UNREACHABLE"
    http_status = 502
    hint = "Try again. If it goes on, check the network, HTTPS_PROXY and WEFTLINE_PROXY_UPSTREAMS of the model proxy."


class CallerUnknown(Unavailable):
    """It cannot be found out now who calls the model proxy, and such requests are refused."""

    code = "CALLER_UNKNOWN"
    hint = "Try again. The tenant, the server (WEFTLINE_PROXY_FAIL_CLOSED) or a provider's key on it asks for that."


class ProxyKeyMissing(AuthenticationError):
    """A request to the model proxy of a server names no Weftline key."""

    code = "PROXY_KEY_MISSING"
    hint = "Send your Weftline key in X-Weftline-Key, or put it into the path, such as /openai/KEY/v1."
    related = ()


class NoProviderKey(PermissionDenied):
    """A request has no key of the provider, and that of the server is only for calls of models that are metered."""

    code = "NO_PROVIDER_KEY"
    hint = (
        "The server's key of the provider is for calls of models that are metered. Send a key of your own for others."
    )
    related = ()


class KeyMisplaced(AuthenticationError):
    """A request to the model proxy has a Weftline key where the provider would see it."""

    code = "KEY_MISPLACED"
    hint = (
        "It was not forwarded. Send the provider's key there, and the Weftline key in X-Weftline-Key or at the "
        "beginning of the path, such as /openai/KEY/v1."
    )
    related = ()


def error_event(provider: str, form: WireForm | None, error: WeftlineError) -> bytes:
    """Return an error within a stream, in the provider's form."""
    body = _body(provider, error)
    if form == "openai_responses":
        problem = body["error"]
        body = {"type": "error", **(problem if isinstance(problem, dict) else {})}
    name = b"event: error\n" if form in {"anthropic", "openai_responses"} else b""
    return b"%bdata: %b\n\n" % (name, msgspec.json.encode(body))


async def refuse(scope: Scope, send: Send, provider: str, error: WeftlineError) -> None:
    """Send an error in the provider's form."""
    await delay_refusal(scope, error)
    body = msgspec.json.encode(_body(provider, error))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *error_headers(error).items(),
    ]
    if isinstance(error, BudgetExceeded):
        # The SDKs would try again.
        headers.append((b"x-should-retry", b"false"))
    await send({"type": "http.response.start", "status": _status(error), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _status(error: WeftlineError) -> int:
    """Return the status by which a provider says the same: a spent budget is a quota that is used up."""
    return _QUOTA if isinstance(error, BudgetExceeded) else error.http_status


def _body(provider: str, error: WeftlineError) -> dict[str, object]:
    message = f"Weftline: {error.message} {error.hint or ''}".strip()
    http_status = _status(error)
    if provider == "anthropic":
        kind = _ANTHROPIC.get(http_status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if provider == "gemini":
        status = _GEMINI.get(http_status, "UNAVAILABLE")
        return {"error": {"code": http_status, "message": message, "status": status}}
    kind = "insufficient_quota" if isinstance(error, BudgetExceeded) else _OPENAI.get(http_status, "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": error.code.lower()}}
