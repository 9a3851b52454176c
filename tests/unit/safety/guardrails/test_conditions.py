"""Conditions compile with useful errors, cost no more than they may, and are evaluated together as if alone."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.processor_time import at_most
from weftline.safety.guardrails.conditions import (
    CallSize,
    CompiledCondition,
    ConditionError,
    EvaluationError,
    activation,
    check_condition,
)
from weftline.safety.guardrails.model import Guardrail
from weftline.safety.guardrails.rules import CallValues, CompiledRule, Counts, RuleBatch, action_pattern
from weftline.safety.guardrails.service import mask_value

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parents[4] / "docs" / "concepts" / "guardrails.md"
ROW = re.compile(r"^\| [^|]+ \| `([^`]+)` \| `((?:[^`])+)` \|$", re.MULTILINE)


def cookbook() -> list[str]:
    table = PAGE.read_text("utf-8").partition("### Cookbook")[2].partition("\n### ")[0]
    return [condition.replace("\\|", "|") for _, condition in ROW.findall(table)]


def values(**arguments: Any) -> CallValues:
    given = {"tool": "t", "operation": "o", "now": datetime(2026, 1, 2, tzinfo=UTC), "arguments": arguments}
    return CallValues({**given, "agent": {"id": "a", "clearance": 2}}, CallSize(len(str(arguments)), 10))


def rules(conditions: Sequence[str | None], **fields: Any) -> RuleBatch:
    made = [
        Guardrail(name=f"r{place}", prohibited_action=("x",), condition=condition, **fields)
        for place, condition in enumerate(conditions)
    ]
    batch = RuleBatch([CompiledRule(each, 2, "tenant") for each in made])
    asyncio.run(batch.prepare())
    return batch


def violated(batch: RuleBatch, call: CallValues) -> list[str]:
    return [each.rule.guardrail.name for each in batch.hits(call)]


@pytest.mark.req("CE-F35")
def test_every_condition_of_the_cookbook_compiles(subtests: pytest.Subtests) -> None:
    assert len(cookbook()) > 12
    for condition in cookbook():
        with subtests.test(condition):
            assert check_condition(condition)


def test_conditions_in_a_group_have_the_same_results_as_alone() -> None:
    conditions = [
        *(f"arguments.n == {number}" for number in range(120)),
        None,
        "arguments.missing == 1",
        "[1, 2].exists(x, x == arguments.n) // with a comment",
        "arguments.n > 100 // a comment at the end",
        *(f"arguments.text.startsWith('a{number}')" for number in range(60)),
    ]
    batch = rules(conditions, on_error="open")
    for n, text in ((3, "a7b"), (2, ""), (119, "a59"), (500, "x")):
        expected = []
        for place, condition in enumerate(conditions):
            if condition is None or _alone(condition, values(n=n, text=text)):
                expected.append(f"r{place}")
        assert violated(batch, values(n=n, text=text)) == expected


def _alone(condition: str, call: CallValues) -> bool:
    try:
        return CompiledCondition(condition).evaluate(activation(call.values), call.size)
    except EvaluationError:
        return False


def test_an_error_in_a_group_concerns_only_its_rule() -> None:
    batch = rules(["arguments.a == 1", "arguments.b == 1", "arguments.c == 1"])
    results = [(each.is_violated, each.error is None) for each in batch.results(values(a=1, c=2))]
    assert results == [(True, True), (True, False), (False, True)]


def test_rates_are_those_of_the_rule_s_action() -> None:
    batch = rules(["calls.minute > 5", "calls.hour > 5"])
    counted = values()._replace(counts={rule.action.pattern: Counts(3, 9) for rule in batch.rated})
    assert violated(batch, counted) == ["r1"]


@pytest.mark.parametrize(
    "condition",
    [
        "arguments.v.matches('(.{1,200}){1,5}z')",
        "arguments.v.matches('((a{1,50}){1,50}){1,2}')",
        # The braces are hidden by escapes of the string.
        r"arguments.v.matches('(.\x7b1,200\x7d)\x7b1,5\x7dz')",
        r'arguments.v.matches("(\\pL{1,100}){1,100}")',
    ],
)
def test_regular_expressions_that_grow_are_refused(condition: str) -> None:
    with pytest.raises(ConditionError):
        check_condition(condition)


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("arguments.v.matches('(a|b|ab)*c')", "ab" * 5_000_000),
        ("arguments.v.matches('(a{1,40}b{1,40})*c')", "ab" * 2_000_000),
        ("arguments.v.all(x, arguments.v.all(y, x == y))", list(range(100_000))),
        ("arguments.v.all(x, arguments.v[0].contains('zz'))", ["x" * 1_000_000] * 100),
        ("[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, arguments.v.contains('zz')))", "x" * 10_000_000),
    ],
)
def test_an_evaluation_that_would_take_too_long_is_an_error(condition: str, value: Any) -> None:
    compiled = check_condition(condition)
    encoded = str(value)
    size = CallSize(len(encoded), encoded.count(",") + 1)
    with at_most(4), pytest.raises(EvaluationError):
        compiled.evaluate(activation({"arguments": {"v": value}}), size)


@pytest.mark.parametrize("value", [2**70, "\ud800", float("nan"), {"a": [{}] * 100}, None, [[[[[]]]]]])
def test_odd_values_are_errors_or_false_and_never_crash(value: Any) -> None:
    batch = rules(["arguments.v == 'x'", "size(arguments.v) > 5", "arguments.v.contains('x')"], on_error="open")
    assert len([*batch.results(values(v=value))]) == 3


def test_a_condition_of_an_older_release_that_no_longer_compiles_is_an_error() -> None:
    closed, opened = rules(["gone == 1", "true"]), rules(["gone == 1", "true"], on_error="open")
    assert violated(closed, values()) == ["r0", "r1"]
    assert violated(opened, values()) == ["r1"]


@pytest.mark.parametrize(
    ("patterns", "name", "matches"),
    [
        (("board.*",), "board.write", True),
        (("board.*",), "boards.write", False),
        (("*",), "anything/at:all", True),
        (("github.*", "x"), "x", True),
        (("a.b",), "axb", False),
        (("*.delete",), "board.delete_all", False),
    ],
)
def test_only_a_star_is_a_wildcard(patterns: tuple[str, ...], name: str, *, matches: bool) -> None:
    assert (action_pattern(patterns).match(name) is not None) is matches


def test_masks_leave_references_and_other_values() -> None:
    masked = mask_value({"a_id": "Bluebird", "n": [1, {"Bluebird": "on Bluebird day"}], "b": True}, ["Bluebird"])
    assert masked == {"a_id": "[MASKED]", "n": [1, {"[MASKED]": "on [MASKED] day"}], "b": True}
    plain = {"a": ["nothing"]}
    assert mask_value(plain, ["secrets", "pii", "Bluebird"]) is plain
