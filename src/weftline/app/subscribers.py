"""Subscribers to events: event streams, MCP subscriptions and calls that wait for an event.

Every event costs a step for each subscriber, so they are limited: for a principal, for the agents below one, and for a
tenant. In a full tenant, a subscriber of the principal with the most gives way to a principal with fewer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.counts import decrement
from weftline.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.kernel.identity import Actor

MAX_OF_PRINCIPAL = 256
MAX_OF_TENANT = 2_000


class SubscriberLimits(NamedTuple):
    """Maximum subscribers in this process."""

    principal: int = MAX_OF_PRINCIPAL
    tenant: int = MAX_OF_TENANT

    @property
    def tree(self) -> int:
        """Return the maximum of an agent with all agents below it: those outside its tree have the rest."""
        return max(1, self.tenant // 2)


class TooManySubscriptions(Unavailable):
    """Too many event streams, subscriptions and waiting calls are open at once."""

    code = "TOO_MANY_SUBSCRIPTIONS"
    hint = (
        "Close those that are no longer read: one stream can follow all your sessions. To go on where a stream ended, "
        "pass context.resume_after as after to `events.read`, or open the stream with it."
    )
    http_status = 429
    severity = "warning"


class Subscriber:
    """One open subscription. ``displaced`` once it has to end for another principal."""

    __slots__ = ("displaced", "group", "tree", "wake")

    def __init__(self, actor: Actor) -> None:
        self.group = (actor.tenant, actor.principal_id)
        self.tree = [(actor.tenant, agent) for agent in actor.trees]
        self.displaced = False
        # Ends the wait of a displaced subscriber.
        self.wake: Callable[[], None] = lambda: None

    def displace(self) -> None:
        self.displaced = True
        self.wake()

    def check(self, position: int) -> None:
        """Raise if this subscription has to end; ``position`` is where to resume."""
        if self.displaced:
            raise TooManySubscriptions(
                "This subscription was ended: your tenant has too many, and others have fewer than you.",
                resume_after=position,
            )


class Subscribers:
    """The open subscriptions of this process."""

    def __init__(self, limits: SubscriberLimits | None = None) -> None:
        self._limits = SubscriberLimits() if limits is None else limits
        # In the order they were opened.
        self._of_principal: defaultdict[tuple[str, str], dict[Subscriber, None]] = defaultdict(dict)
        self._in_tree: Counter[tuple[str, str]] = Counter()
        self._of_tenant: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of_tenant.total()

    @contextmanager
    def subscribed(self, actor: Actor) -> Iterator[Subscriber]:
        """Count a subscription while it is open; raises TooManySubscriptions."""
        subscriber = Subscriber(actor)
        self._admit(subscriber)
        self._of_principal[subscriber.group][subscriber] = None
        self._of_tenant[actor.tenant] += 1
        self._in_tree.update(subscriber.tree)
        try:
            yield subscriber
        finally:
            self._remove(subscriber)

    def _admit(self, subscriber: Subscriber) -> None:
        tenant, limits = subscriber.group[0], self._limits
        own = len(self._of_principal.get(subscriber.group, ()))
        if own >= limits.principal:
            raise TooManySubscriptions(f"You have {own} subscriptions open.", limit=limits.principal)
        if any(self._in_tree[agent] >= limits.tree for agent in subscriber.tree):
            raise TooManySubscriptions(
                "You and the agents above and below you have too many subscriptions open.", limit=limits.tree
            )
        if self._of_tenant[tenant] >= limits.tenant:
            self._make_room(tenant, own)

    def _make_room(self, tenant: str, own: int) -> None:
        """End a subscription of the principal with the most, unless that would leave it with fewer than the caller."""
        most = max((held for group, held in self._of_principal.items() if group[0] == tenant), key=len)
        if len(most) < own + 2:
            raise TooManySubscriptions("Your tenant has too many subscriptions open.", limit=self._limits.tenant)
        newest = next(reversed(most))
        self._remove(newest)
        newest.displace()

    def _remove(self, subscriber: Subscriber) -> None:
        held = self._of_principal.get(subscriber.group)
        if held is None or subscriber not in held:
            return
        del held[subscriber]
        if not held:
            del self._of_principal[subscriber.group]
        decrement(self._of_tenant, subscriber.group[0])
        for agent in subscriber.tree:
            decrement(self._in_tree, agent)
