"""A webhook: where events go, with whose rights, how a call is signed, and when it is made again."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from weft.capabilities.access.authentication import identify_local
from weft.capabilities.events.model import Interest
from weft.kernel.errors import AuthenticationError, Conflict, InvalidInput, NotFound, Rejected

if TYPE_CHECKING:
    from weft.capabilities.access.store import AccessStore
    from weft.kernel.events import StoredEvent
    from weft.kernel.identity import Actor

MOST_WEBHOOKS = 100
# So many that none was taken for a long time: what comes next would only be piled on top.
MOST_DEAD = 10_000
# When a call that failed is made again: more and more rarely, for most of a day.
RETRY_AFTER_SECONDS = (5, 30, 120, 600, 1_800, 7_200, 21_600, 43_200)
# Receivers that were away together should not be called again together.
_JITTER = 0.2
_LONGEST_PAUSE_SECONDS = 3_600
_GONE = 410
_BUSY = frozenset({429, 503})
_SECRET_PREFIX = "whsec_"  # noqa: S105 - what every secret begins with
_SECRET_BYTES = range(24, 65)
_SHOWN_OF_PATH = 8

State = Literal["enabled", "disabled"]
DeliveryState = Literal["pending", "dead"]

WebhookId = Annotated[str, msgspec.Meta(pattern=r"^webhook_[0-9a-f]{16}\Z", description="As list shows it.")]
Url = Annotated[
    str,
    msgspec.Meta(
        max_length=2_000,
        pattern=r"^https?://[!-~]+\Z",
        description="Where to send events: http or https, without credentials in it.",
    ),
]
Secret = Annotated[
    str,
    msgspec.Meta(
        max_length=100,
        pattern=r"^whsec_[A-Za-z0-9+/]{32,88}={0,2}\Z",
        description="What calls are signed with: whsec_ and 24 to 64 bytes in base64. One is made if left out.",
    ),
]


class WebhookNotFound(NotFound):
    """There is no such webhook."""

    code = "WEBHOOK_NOT_FOUND"
    hint = "See the webhooks there are with the action list."
    related = ("webhooks",)


class TooManyWebhooks(Conflict):
    """The tenant has as many webhooks as it may have."""

    code = "TOO_MANY_WEBHOOKS"
    hint = "Delete one that is no longer needed; one webhook can be told of many types of events."
    related = ("webhooks",)


class AddressRefused(Rejected):
    """Weft does not call this address: it is not a public one."""

    code = "ADDRESS_REFUSED"
    hint = "Use a public address, or let whoever runs Weft name the host in WEFT_WEBHOOK_PRIVATE_HOSTS."
    related = ("webhooks",)


class WebhookCannotRun(Conflict):
    """The webhook cannot be enabled: whoever made it may no longer have one."""

    code = "WEBHOOK_CANNOT_RUN"
    hint = "Create a webhook of your own for the same address, and delete this one."
    related = ("webhooks", "update_agent")


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where events go. ``cursor`` is the last event it was decided about; ``reason`` is why it is disabled."""

    webhook_id: str
    url: str
    types: tuple[str, ...]
    session_id: str | None
    description: str
    secret: str
    principal_id: str
    created_at: int
    state: State = "enabled"
    reason: str | None = None
    cursor: int = 0
    delivered: int = 0

    def __repr__(self) -> str:
        return f"Webhook({self.webhook_id!r})"

    @property
    def host(self) -> str:
        return host_of(self.url)

    @property
    def shown_url(self) -> str:
        """Return enough of the address to know it by: the rest of a path, and a query, may be as good as a secret."""
        parts = urlsplit(self.url)
        path = parts.path if len(parts.path) <= _SHOWN_OF_PATH else f"{parts.path[:_SHOWN_OF_PATH]}..."
        return f"{parts.scheme}://{parts.netloc}{path}{'?...' if parts.query else ''}"

    def wants(self, recorded: StoredEvent, maker: Actor) -> bool:
        """Tell whether an event is to be sent: it was asked for, and may be told to whoever made the webhook.

        What happened elsewhere, before it was imported, is no news.
        """
        interest = Interest(self.session_id, types=self.types)
        is_news = recorded.origin is None
        return is_news and interest.covers(recorded, maker) and interest.wants_type(recorded.event)


class Attempt(NamedTuple):
    """How a call to a receiver went: the status it answered with, or what kept it from answering."""

    status: int | None = None
    error: str | None = None
    retry_after_seconds: int = 0

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - the statuses of success

    @property
    def gone(self) -> bool:
        """Tell whether the receiver wants no more calls, ever."""
        return self.status == _GONE

    @property
    def unanswered(self) -> bool:
        return self.status is None

    @property
    def pause_seconds(self) -> int:
        """Return how long the receiver asks to be left alone; 0 if it does not."""
        if self.status not in _BUSY:
            return 0
        return min(max(self.retry_after_seconds, RETRY_AFTER_SECONDS[0]), _LONGEST_PAUSE_SECONDS)


async def maker_of(webhook: Webhook, access: AccessStore) -> Actor | str:
    """Return whose rights a webhook has, as they stand now, or why it has none."""
    try:
        maker = await identify_local(webhook.principal_id, access)
    except AuthenticationError:
        return f"'{webhook.principal_id}', who made it, no longer exists or has been disabled"
    return maker if maker.is_admin else f"'{webhook.principal_id}', who made it, is no admin any more"


def check_url(url: str) -> None:
    """Refuse an address that is none, or that would put a credential where addresses are shown."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.fragment:
        raise InvalidInput("url: give a whole address, such as https://example.com/hook.", field="url")
    if "@" in parts.netloc:
        raise InvalidInput("url: an address with a user or password in it is not taken.", field="url")


def host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def secret_of(given: str | None) -> str:
    """Return what calls are signed with: the secret that was given, if it can be used, or else a new one."""
    if given is None:
        return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    _check_secret(given)
    return given


def _check_secret(secret: str) -> None:
    """Refuse a secret that no library for receivers could use."""
    try:
        fits = len(_key(secret)) in _SECRET_BYTES
    except binascii.Error:
        fits = False
    if not fits:
        raise InvalidInput("secret: give whsec_ and 24 to 64 bytes in base64.", field="secret")


def signed_headers(secret: str, delivery_id: str, at_seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers by which a receiver knows that a call is ours, as Standard Webhooks has them."""
    signed = hmac.digest(_key(secret), f"{delivery_id}.{at_seconds}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(at_seconds),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)


def delivery_id_of(webhook_id: str, seq: int) -> str:
    """Return what a receiver knows a delivery by, however often it is made."""
    return f"{webhook_id}.{seq}"


def seconds_until_retry(attempts: int, chance: float) -> float | None:
    """Return how long to wait after so many attempts; None if there shall be no more. ``chance`` is from 0 to 1."""
    if attempts > len(RETRY_AFTER_SECONDS):
        return None
    return RETRY_AFTER_SECONDS[attempts - 1] * (1 + _JITTER * (2 * chance - 1))
