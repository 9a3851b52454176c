"""Names of principals, and the patterns that match them."""

from __future__ import annotations

import pytest

from weft.kernel.identity import Actor, Permission, PrincipalKind


def actor(
    principal_id: str, agent_type: str, kind: PrincipalKind = PrincipalKind.AGENT, *, below_agent: bool = False
) -> Actor:
    return Actor("t", principal_id, kind, agent_type, below_agent, frozenset({Permission.READ}), 1, 0)


@pytest.mark.req("SC-17")
@pytest.mark.parametrize(
    ("principal", "name"),
    [
        (actor("planner", "planning"), "orchestrator"),
        (actor("analysis", "analysis", below_agent=True), "subagent:analysis"),
        (actor("3", "investigation", below_agent=True), "subagent:investigation:3"),
        (actor("dana", "dana", PrincipalKind.HUMAN), "human:dana"),
        (actor("dana", "dana", PrincipalKind.HUMAN, below_agent=True), "human:dana"),
    ],
)
def test_a_principal_is_named_by_its_path_in_the_agent_tree(principal: Actor, name: str) -> None:
    assert principal.participant == name


@pytest.mark.req("SC-11")
@pytest.mark.parametrize(
    ("patterns", "matched"),
    [
        (["*"], True),
        (["subagent:*"], True),
        (["subagent:review:?"], True),
        (["subagent:review"], False),
        (["SUBAGENT:review:2"], False),
        (["orchestrator", "human:*"], False),
        (["clearance:1"], True),
        (["clearance:2"], False),
        (["clearance:"], False),
        (["clearance:x"], False),
        ([], False),
    ],
)
def test_a_pattern_must_match_a_principal_in_full(patterns: list[str], matched: bool) -> None:  # noqa: FBT001
    assert actor("2", "review", below_agent=True).matches(patterns) is matched


def test_only_an_agent_below_an_agent_is_a_sub_agent() -> None:
    assert actor("a", "a", below_agent=True).is_subagent
    assert not actor("a", "a").is_subagent
    assert not actor("a", "a", PrincipalKind.HUMAN, below_agent=True).is_subagent
