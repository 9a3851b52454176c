"""Which messages are pinned when they are sent, and which weigh more."""

from __future__ import annotations

import pytest

from weftline.kernel.identity import Actor, Permission, PrincipalKind
from weftline.sessions.messages.model import Message, is_weighty, pins_itself

pytestmark = pytest.mark.req("CE-F12")


def actor(*, subagent: bool = False) -> Actor:
    return Actor("home", "a", PrincipalKind.AGENT, "a", subagent, frozenset(Permission), 1, 0)


def message(category: str = "DIALOG", message_type: str = "message", metadata: str = "{}") -> Message:
    return Message(1, "*", "public", "a", "a", None, message_type, category, None, 0, "text", metadata)


PINNED = [
    message("DECISION"),
    message("commitment"),
    message(message_type="constraint"),
    message(metadata='{"pinned": true}'),
    message(metadata='{"category": "Requirement"}'),
]
NOT_PINNED = [
    message(),
    message("fact"),
    message(metadata='{"pinned": "no", "category": "chat"}'),
    message(metadata="[]"),
]


@pytest.mark.parametrize("sent", PINNED)
def test_a_message_is_pinned_by_category_type_or_metadata(sent: Message) -> None:
    assert pins_itself(sent, actor().participant)


@pytest.mark.parametrize("sent", NOT_PINNED)
def test_other_messages_are_not_pinned(sent: Message) -> None:
    assert not pins_itself(sent, actor().participant)


@pytest.mark.parametrize("sent", PINNED)
def test_a_sub_agent_cannot_pin(sent: Message) -> None:
    assert not pins_itself(sent, actor(subagent=True).participant)


def test_decisions_and_facts_weigh_more() -> None:
    assert is_weighty(message("Decision"))
    assert is_weighty(message("fact"))
    assert not is_weighty(message())
