"""The guardrails of a caller: indexed by action, evaluated in the order of their layers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.access.plan_warnings import Plans
from weftline.kernel.errors import close_names
from weftline.kernel.guards import warn_caller
from weftline.kernel.identity import Actor, may_match_callers
from weftline.safety.guardrails.conditions import (
    GROUP,
    GROUP_CHARACTERS,
    CallSize,
    CompiledCondition,
    ConditionError,
    ConditionGroup,
    EvaluationError,
    activation,
    check_condition,
)
from weftline.safety.guardrails.model import (
    MAX_CONDITIONS,
    PLATFORM,
    Guardrail,
    HitStore,
    InvalidGuardrail,
    KnownActions,
    digest_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


# CPU time that the conditions of one call may take; further ones count as errors.
_MAX_SECONDS = 0.1
_MAX_INDEXED = 1_000
_SCOPE_HINT = (
    "Use *, principal:ID, tree:ID, team:NAME, type:NAME, user:ID, clearance:3, permission:admin, or participant names "
    "such as orchestrator:*, subagent:review, human:*."
)


class CompiledRule:
    """A guardrail of a layer, ready to be evaluated. ``layer``: platform, tenant, team:NAME or agent:ID.

    ``owner`` is as in CompiledCondition: the tenant, or the caller that gave it for a test.
    """

    __slots__ = ("_digest", "action", "condition", "guardrail", "layer", "level")

    def __init__(self, guardrail: Guardrail, level: int, layer: str, owner: str = "") -> None:
        self.guardrail = guardrail
        self.level = level
        self.layer = layer
        self.condition = None if guardrail.condition is None else CompiledCondition(guardrail.condition, owner)
        self.action = action_pattern(guardrail.prohibited_action)
        self._digest: str | None = None

    @property
    def digest(self) -> str:
        if self._digest is None:
            self._digest = digest_of(self.guardrail)
        return self._digest

    @property
    def check(self) -> str:
        """Return what an approval of a call covers: this rule, as it is written now."""
        return f"guardrail:{self.layer}/{self.guardrail.name}@{self.digest}"

    @property
    def variables(self) -> frozenset[str]:
        if self.condition is None:
            return frozenset()
        try:
            return self.condition.variables
        except ConditionError:
            return frozenset()


class Evaluation(NamedTuple):
    """Whether the condition of a rule is true for a call, or why it has no result."""

    rule: CompiledRule
    result: bool | str

    @property
    def error(self) -> str | None:
        return self.result if isinstance(self.result, str) else None

    @property
    def is_violated(self) -> bool:
        return self.result is True or (self.error is not None and self.rule.guardrail.on_error == "closed")


class Counts(NamedTuple):
    """Calls of the caller that match a rule's action, this one included."""

    minute: int
    hour: int


class CallValues(NamedTuple):
    """The values of one call that conditions read."""

    values: Mapping[str, Any]
    size: CallSize
    counts: Mapping[str, Counts] = {}


class Candidates:
    """The rules about one action that hold for a caller, in order: those before the call, and those after it."""

    __slots__ = ("after", "before")

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.after = RuleBatch([rule for rule in rules if "answer" in rule.variables])
        self.before = RuleBatch([rule for rule in rules if "answer" not in rule.variables])

    def __bool__(self) -> bool:
        return bool(self.before.rules or self.after.rules)


class RuleBatch:
    """Rules that are evaluated for the same call."""

    __slots__ = ("_alone", "_groups", "_is_prepared", "rated", "rules", "variables")

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = rules
        self.variables = frozenset[str]().union(*(rule.variables for rule in rules))
        self.rated = [rule for rule in rules if "calls" in rule.variables]
        grouped = {place: rule.condition for place, rule in enumerate(rules) if _is_grouped(rule.condition)}
        # Places of the rules that are evaluated together, and of the others.
        self._groups = [
            (places, ConditionGroup([found for place in places if (found := grouped[place]) is not None]))
            for places in _batches({place: len(condition.source) for place, condition in grouped.items() if condition})
        ]
        self._alone = [place for place in range(len(rules)) if place not in grouped]
        self._is_prepared = not rules

    def __bool__(self) -> bool:
        return bool(self.rules)

    async def prepare(self) -> None:
        """Compile the conditions on first use, a group at a time: other calls run in between."""
        if self._is_prepared:
            return
        for _, group in self._groups:
            group.compile()
            await asyncio.sleep(0)
        for place in self._alone:
            condition = self.rules[place].condition
            if condition is not None:
                with contextlib.suppress(ConditionError):
                    condition.compile()
                await asyncio.sleep(0)
        self._is_prepared = True

    def hits(self, call: CallValues) -> Iterator[Evaluation]:
        """Yield the rules that prohibit a call, in order; the caller stops at the first that refuses it."""
        return (evaluation for evaluation in self._evaluations(call, only_true=True) if evaluation.is_violated)

    def results(self, call: CallValues) -> Iterator[Evaluation]:
        """Yield the result of each rule for a call."""
        return self._evaluations(call, only_true=False)

    def _evaluations(self, call: CallValues, *, only_true: bool) -> Iterator[Evaluation]:
        shared = activation(call.values) if self.variables or self._groups or self._alone else None
        watch = _Stopwatch()
        known, places = self._grouped_results(shared, call.size, watch, only_true=only_true)
        for place in sorted((*self._alone, *places)):
            rule = self.rules[place]
            result = known.get(place)
            yield Evaluation(rule, _result(rule, shared, call, watch) if result is None else result)

    def _grouped_results(
        self,
        shared: Any,  # noqa: ANN401 - CEL has no types
        size: CallSize,
        watch: _Stopwatch,
        *,
        only_true: bool,
    ) -> tuple[dict[int, bool], list[int]]:
        """Return the results of groups by place, and the places to look at: of a group without results, all."""
        known: dict[int, bool] = {}
        looked_at: list[int] = []
        for places, group in self._groups:
            with watch:
                results = group.evaluate(shared, size)
            if results is None:
                looked_at += places
            elif not only_true or True in results:
                found = zip(places, results, strict=True)
                known |= {place: result for place, result in found if result or not only_true}
                looked_at += [place for place in places if place in known]
        return known, looked_at


class _Stopwatch:
    """Adds up the CPU time of evaluations; that of compiling does not count."""

    __slots__ = ("_started", "spent")

    def __init__(self) -> None:
        self.spent = self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.spent += time.thread_time() - self._started


def _batches(sizes: Mapping[int, int]) -> list[list[int]]:
    """Return the places of conditions in groups that are limited in number and in size."""
    batches: list[list[int]] = []
    left = 0
    for place, size in sizes.items():
        if not batches or len(batches[-1]) == GROUP or size > left:
            batches.append([])
            left = GROUP_CHARACTERS
        batches[-1].append(place)
        left -= size
    return batches


def _is_grouped(condition: CompiledCondition | None) -> bool:
    try:
        return condition is not None and condition.is_grouped
    except ConditionError:
        return False


def _result(rule: CompiledRule, shared: Any, call: CallValues, watch: _Stopwatch) -> bool | str:  # noqa: ANN401 - CEL
    """Return the result of a rule's condition, or why it has none."""
    if rule.condition is None:
        return True
    if watch.spent > _MAX_SECONDS:
        return "the conditions of this call take too long"
    try:
        if "calls" in rule.variables:
            counts = call.counts.get(rule.action.pattern, Counts(0, 0))
            shared = activation({**call.values, "calls": counts._asdict()})
        rule.condition.compile()
        with watch:
            return rule.condition.evaluate(shared, call.size)
    except EvaluationError as error:
        return str(error)
    except ConditionError as error:
        # It was valid for the release that stored it.
        return error.problem


class RuleSet:
    """All rules that may hold for a caller, by level."""

    def __init__(self, actor: Actor, rules: Iterable[CompiledRule]) -> None:
        self.rules = [rule for rule in rules if actor.matches(rule.guardrail.scope)]
        self._by_action: dict[str, Candidates] = {}
        self._concerns_others: bool | None = None

    def concerns_others(self, actions: KnownActions) -> bool:
        """Tell whether a rule about calls may be about tools that are not Weftline's."""
        if self._concerns_others is None:
            self._concerns_others = any(
                "." not in pattern or pattern.partition(".")[0] not in actions.groups
                for rule in self.rules
                if "answer" not in rule.variables
                for pattern in rule.guardrail.prohibited_action
            )
        return self._concerns_others

    def known(self, action: str) -> Candidates | None:
        """Return the rules about an action, if they were looked up before."""
        return self._by_action.get(action)

    def candidates(self, action: str, names: Sequence[str]) -> Candidates:
        """Return the rules about an action, whose ``names`` are matched with their patterns."""
        found = Candidates([rule for rule in self.rules if any(map(rule.action.match, names))])
        if len(self._by_action) >= _MAX_INDEXED:
            self._by_action.clear()
        self._by_action[action] = found
        return found


def action_pattern(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a regular expression for names of actions; * matches any characters."""
    each = (".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return re.compile(rf"(?:{'|'.join(each)})\Z", re.DOTALL)


def check_guardrails(guardrails: Sequence[Guardrail], known_actions: frozenset[str], caller: Actor) -> None:
    """Compile rules and check what they name; raises InvalidGuardrail about the first that cannot be used."""
    _check_size(guardrails)
    names: set[str] = set()
    for place, guardrail in enumerate(guardrails):
        field = f"guardrails[{place}]"
        if guardrail.name in names:
            raise _invalid(guardrail, field, "name", "another rule has this name", "Give each rule its own name.")
        names.add(guardrail.name)
        _check_scope(guardrail, field)
        _check_actions(guardrail, field, known_actions)
        if guardrail.condition is not None:
            try:
                check_condition(guardrail.condition, owner_of(caller))
            except ConditionError as error:
                raise _invalid(guardrail, field, "condition", error.problem, error.hint) from error


def owner_of(caller: Actor) -> str:
    """Return the owner of conditions that a caller gives, see CompiledCondition."""
    return f"{caller.tenant}/{caller.principal_id}"


async def compile_guardrails(guardrails: Sequence[Guardrail], actions: KnownActions, caller: Actor) -> None:
    """Compile the conditions of rules before the transaction that checks them; other calls run in between."""
    _check_size(guardrails)
    for action in {action for guardrail in guardrails for action in guardrail.prohibited_action}:
        warn_of_misspelling(action, actions.names)
    await asyncio.sleep(0)
    for guardrail in guardrails:
        if guardrail.condition is not None:
            try:
                check_condition(guardrail.condition, owner_of(caller))
            except ConditionError:
                # Reported by the check, after those of names and rights.
                return
            await asyncio.sleep(0)


def _check_size(guardrails: Sequence[Guardrail]) -> None:
    size = sum(len(guardrail.condition or "") for guardrail in guardrails)
    if size > MAX_CONDITIONS:
        raise InvalidGuardrail(
            f"guardrails: their conditions have {size} characters together, at most {MAX_CONDITIONS} are possible",
            hint="Write shorter conditions, or fewer rules.",
            field="guardrails",
            limit=MAX_CONDITIONS,
        )


def _check_scope(guardrail: Guardrail, field: str) -> None:
    """Reject patterns that no caller can ever match: the rule would hold for nobody."""
    for pattern in guardrail.scope:
        if not may_match_callers(pattern):
            problem = f"no caller can match '{pattern}'"
            raise _invalid(guardrail, field, "scope", problem, _SCOPE_HINT)


def _check_actions(guardrail: Guardrail, field: str, known: frozenset[str]) -> None:
    """Reject names of operations and tools of Weftline that do not exist. Tools of others are not known here."""
    groups = {name.partition(".")[0] for name in known}
    for pattern in guardrail.prohibited_action:
        if pattern.partition(".")[0] in groups and not any(map(action_pattern((pattern,)).match, known)):
            close = close_names(pattern, sorted(known))
            hint = f"Did you mean {close[0]}?" if close else "List the operations with `agent.capabilities`."
            problem = f"there is no operation or tool '{pattern}'"
            raise _invalid(guardrail, field, "prohibited_action", problem, hint)


def warn_of_misspelling(action: str, known: frozenset[str]) -> None:
    """Warn the caller of a name that is almost one of Weftline's: a rule for it would never hold."""
    group, dot, rest = action.partition(".")
    meant = _meant_group(group, known)
    if meant is not None:
        warn_caller(
            f"Weftline has no operation or tool '{action}'; rules about it hold for a tool of your "
            "runtime with this name. "
            f"Did you mean {meant}{dot}{rest}?"
        )


@lru_cache(1_000)
def _meant_group(group: str, known: frozenset[str]) -> str | None:
    groups = {name.partition(".")[0] for name in known}
    return None if group in groups else next((name for name in sorted(groups) if _edits_once(group, name)), None)


def _edits_once(one: str, other: str) -> bool:
    """Tell whether two names differ by one letter: added, missing, wrong, or exchanged with its neighbour."""
    shorter = min(len(one), len(other))
    start = next((place for place in range(shorter) if one[place] != other[place]), shorter)
    left, right = one[start:], other[start:]
    return left[1:] in {right, right[1:]} or left == right[1:] or (left[:2] == right[1::-1] and left[2:] == right[2:])


def _invalid(guardrail: Guardrail, field: str, part: str, problem: str, hint: str) -> InvalidGuardrail:
    return InvalidGuardrail(
        f"{field}.{part} of the guardrail '{guardrail.name}': {problem}",
        hint=hint,
        field=f"{field}.{part}",
        guardrail=guardrail.name,
    )


# Definition of guardrails: checked against the plan, compiled, and stored as JSON text.

_decode = msgspec.json.Decoder(tuple[Guardrail, ...]).decode


class GuardrailDefinitions(msgspec.Struct, frozen=True):
    """Checks guardrails that a caller defines."""

    actor: Actor
    plans: Plans
    actions: KnownActions
    hits: HitStore

    async def checked(self, level: int, guardrails: Sequence[Guardrail]) -> str | None:
        """Return the text to store; None if there are none. Raises InvalidGuardrail or QuotaExceeded."""
        if not guardrails:
            return None
        (await self.plans.allowance()).check_guardrails(level)
        self.check(guardrails)
        return indented_json(guardrails)

    def check(self, guardrails: Sequence[Guardrail]) -> None:
        """Compile rules; raises InvalidGuardrail about the first that cannot be used."""
        check_guardrails(guardrails, self.actions.names, self.actor)

    async def forget_others(self, layer: str, guardrails: Sequence[Guardrail]) -> None:
        """Remove the hit counts of rules that a layer no longer has."""
        await self.hits.remove_others(layer, [digest_of(guardrail) for guardrail in guardrails])


def indented_json(value: object) -> str:
    """Return JSON with a line for each field, so that versions can be compared by line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def stored_guardrails(text: str) -> Sequence[Guardrail]:
    return _decode(text)


# Level 1: guardrails that hold for every caller of every tenant. They change only with a release of Weftline.

# Second line of defence: these operations are for humans by themselves.
PLATFORM_GUARDRAILS = (
    Guardrail(
        name="humans-decide",
        prohibited_action=("layer.define", "approval.approve", "approval.reject", "session.reinstate"),
        condition="agent.kind == 'agent'",
        message="Humans set the rules and decide about exceptions.",
    ),
)
PLATFORM_RULES = tuple(CompiledRule(guardrail, PLATFORM, "platform") for guardrail in PLATFORM_GUARDRAILS)
