"""Intersection of ACLs."""

from __future__ import annotations

import pytest

from weftline.kernel.identity import ANYONE
from weftline.kernel.patterns import NOBODY, intersect_acls

pytestmark = pytest.mark.req("SC-11")


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ((), ANYONE),
        ((ANYONE, ANYONE), ANYONE),
        ((ANYONE, ("human:*",), ANYONE), ("human:*",)),
        ((("human:*",), ("human:*",)), ("human:*",)),
        ((("subagent:*",), ("subagent:review:*",)), ("subagent:review:*",)),
        ((("subagent:review:*", "human:a"), ("subagent:*",)), ("subagent:review:*",)),
        ((("subagent:*", "human:a"), ("human:*", "subagent:x:*")), ("human:a", "subagent:x:*")),
        ((("orchestrator",), ("subagent:*",)), NOBODY),
        ((("orchestrator",), ("orchestrator:a", "human:*")), ("orchestrator:a",)),
        ((("orchestrator:a",), ("orchestrator:b",)), NOBODY),
        ((("orchestrator",), ("orchestrator:*",)), ("orchestrator:*",)),
        ((("orchestrator",), ("*r",)), NOBODY),
        ((("orchestrator",), ("orch*",)), ("orchestrator",)),
        ((("subagent:review",), ("subagent:review:*",)), ("subagent:review:*",)),
        ((("subagent:review",), ("subagent:*w",)), NOBODY),
        ((("subagent:review",), ("subagent:reviewer:1",)), NOBODY),
        ((("subagent:review",), ("subagent:*",)), ("subagent:review",)),
        ((("subagent:*",), ("subagent:?:x",)), ("subagent:?:x",)),
        ((("human:?",), ("human:*",)), ("human:?",)),
        ((("human:?x",), ("human:*x", "human:a?")), ("human:?x",)),
        ((("type:review",), ("type:*",)), NOBODY),
        ((("type:review",), ("*:*",)), NOBODY),
        ((("type:review",), ("*", "human:*")), ("type:review",)),
        ((("a", "b", "c"), ("b", "c"), ("c", "d")), ("c",)),
    ],
)
def test_the_intersection_matches_principals_of_every_list(
    acls: tuple[tuple[str, ...], ...], expected: tuple[str, ...]
) -> None:
    assert intersect_acls(*acls) == expected


def test_a_wildcard_covers_no_group() -> None:
    for group in ("team:research", "user:ada", "clearance:3", "tree:ada"):
        assert intersect_acls((group,), (f"{group[:4]}*",)) == NOBODY
        assert intersect_acls((group,), (group, "orchestrator")) == (group,)
