"""Limits of subscribers: of a principal, of a tree of agents, and of a tenant, which its principals share fairly."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from weftline.app.event_feed import Subscriber, SubscriberLimits, Subscribers, TooManySubscriptions
from weftline.kernel.identity import Actor, Permission, PrincipalKind


def agent(name: str, *above: str, tenant: str = "t", users: tuple[str, ...] = ()) -> Actor:
    return Actor(
        tenant=tenant,
        principal_id=name,
        kind=PrincipalKind.AGENT,
        agent_type="general",
        parent_is_agent=bool(above),
        permissions=frozenset({Permission.READ}),
        clearance=1,
        epoch=1,
        ancestors=frozenset(above),
        users=frozenset(users),
    )


def opened(stack: ExitStack, subscribers: Subscribers, actor: Actor, count: int) -> list[Subscriber]:
    return [stack.enter_context(subscribers.subscribed(actor)) for _ in range(count)]


def test_a_principal_has_a_limit_and_closed_subscriptions_do_not_count() -> None:
    subscribers = Subscribers(SubscriberLimits(principal=2, tenant=100))
    with ExitStack() as stack:
        opened(stack, subscribers, agent("a"), 2)
        with pytest.raises(TooManySubscriptions) as refused:
            opened(stack, subscribers, agent("a"), 1)
        assert refused.value.context == {"limit": 2}
        opened(stack, subscribers, agent("b"), 1)
        opened(stack, subscribers, agent("a", tenant="other"), 1)
        assert len(subscribers) == 4
    assert len(subscribers) == 0
    with ExitStack() as stack:
        opened(stack, subscribers, agent("a"), 2)


def test_in_a_full_tenant_the_principal_with_the_most_gives_way() -> None:
    subscribers = Subscribers(SubscriberLimits(principal=10, tenant=6))
    with ExitStack() as stack:
        hoard = [each for name in "ab" for each in opened(stack, subscribers, agent(name), 3)]
        (victim,) = opened(stack, subscribers, agent("c"), 1)
        (displaced,) = [each for each in hoard if each.displaced]
        with pytest.raises(TooManySubscriptions) as ended:
            displaced.check(41)
        assert ended.value.context == {"resume_after": 41}
        assert len(subscribers) == 6
        # Nobody gives way to a principal that has as many.
        opened(stack, subscribers, agent("c"), 1)
        with pytest.raises(TooManySubscriptions):
            opened(stack, subscribers, agent("c"), 1)
        victim.check(0)


def test_a_displaced_subscriber_is_woken() -> None:
    subscribers = Subscribers(SubscriberLimits(principal=10, tenant=4))
    woken: list[bool] = []
    with ExitStack() as stack:
        for each in opened(stack, subscribers, agent("a"), 2) + opened(stack, subscribers, agent("b"), 2):
            each.wake = lambda: woken.append(True)
        opened(stack, subscribers, agent("c"), 1)
        assert woken == [True]


def test_an_agent_with_those_below_it_has_half_of_the_tenant() -> None:
    subscribers = Subscribers(SubscriberLimits(principal=10, tenant=8))
    human = ("admin",)
    with ExitStack() as stack:
        for number in range(4):
            opened(stack, subscribers, agent(f"below{number}", "chief", "admin", users=human), 1)
        for actor in (agent("below9", "chief", "admin", users=human), agent("chief", "admin", users=human)):
            with pytest.raises(TooManySubscriptions):
                opened(stack, subscribers, actor, 1)
        # The human above all agents does not join their trees.
        opened(stack, subscribers, agent("neighbour", "admin", users=human), 4)
        assert len(subscribers) == 8


def test_a_subscription_that_was_displaced_is_counted_once() -> None:
    subscribers = Subscribers(SubscriberLimits(principal=10, tenant=4))
    with ExitStack() as others:
        with ExitStack() as stack:
            opened(stack, subscribers, agent("a"), 2)
            opened(stack, subscribers, agent("b"), 2)
            opened(others, subscribers, agent("c"), 1)
        assert len(subscribers) == 1
