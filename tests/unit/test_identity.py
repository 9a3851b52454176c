"""Names of principals, and the patterns that match them."""

from __future__ import annotations

import pytest

from weftline.kernel.identity import Actor, Permission, PrincipalKind, principal_of


def actor(
    principal_id: str, agent_type: str, kind: PrincipalKind = PrincipalKind.AGENT, *, below_agent: bool = False
) -> Actor:
    above = frozenset({"lead", "boss"}) if below_agent else frozenset[str]()
    return Actor("t", principal_id, kind, agent_type, below_agent, frozenset({Permission.READ}), 1, 0, ancestors=above)


@pytest.mark.req("SC-17")
@pytest.mark.parametrize(
    ("principal", "name"),
    [
        (actor("planner", "planning"), "orchestrator:planner"),
        (actor("orchestrator", "planning"), "orchestrator"),
        (actor("planning", "planning"), "orchestrator:planning"),
        (actor("analysis", "analysis", below_agent=True), "subagent:analysis"),
        (actor("3", "investigation", below_agent=True), "subagent:investigation:3"),
        (actor("dana", "dana", PrincipalKind.HUMAN), "human:dana"),
        (actor("dana", "dana", PrincipalKind.HUMAN, below_agent=True), "human:dana"),
    ],
)
def test_a_principal_is_named_by_its_path_in_the_agent_tree(principal: Actor, name: str) -> None:
    assert principal.participant == name
    assert principal_of(name) == principal.principal_id


@pytest.mark.req("SC-11")
@pytest.mark.parametrize(
    ("patterns", "matched"),
    [
        (["*"], True),
        (["subagent:*"], True),
        (["subagent:review:?"], True),
        (["subagent:review"], True),
        (["subagent:revie"], False),
        (["subagent:other"], False),
        (["tree:2"], True),
        (["tree:lead"], True),
        (["tree:boss"], True),
        (["tree:review"], False),
        (["tree:*"], False),
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


@pytest.mark.req("WX-02")
def test_patterns_name_one_orchestrator_or_all() -> None:
    first, second, bare = actor("a", "planning"), actor("b", "planning"), actor("orchestrator", "planning")
    assert [each.matches(["orchestrator"]) for each in (first, second, bare)] == [True, True, True]
    assert [each.matches(["orchestrator:a"]) for each in (first, second, bare)] == [True, False, False]
    assert [each.matches(["orchestrator:*"]) for each in (first, second, bare)] == [True, True, True]
    helper = actor("analysis", "analysis", below_agent=True)
    human = actor("orchestrator", "orchestrator", PrincipalKind.HUMAN)
    assert not helper.matches(["orchestrator", "orchestrator:*"])
    assert not human.matches(["orchestrator"])


@pytest.mark.req("WX-02")
def test_a_tree_is_a_principal_and_the_agents_below_it() -> None:
    dana = actor("dana", "dana", PrincipalKind.HUMAN, below_agent=True)
    assert dana.matches(["tree:dana"])
    assert not dana.matches(["tree:lead"]), "a human below an agent is not its agent"


def test_only_an_agent_below_an_agent_is_a_sub_agent() -> None:
    assert actor("a", "a", below_agent=True).is_subagent
    assert not actor("a", "a").is_subagent
    assert not actor("a", "a", PrincipalKind.HUMAN, below_agent=True).is_subagent
