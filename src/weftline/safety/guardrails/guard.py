"""The guard that enforces guardrails on every call of every interface, and on documents that stream in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.kernel.errors import WeftlineError
from weftline.kernel.guards import ContentPiece, Guard, GuardedCall
from weftline.kernel.identity import HIGHEST_CLEARANCE, PrincipalKind
from weftline.safety.guardrails.model import GuardrailViolation, names_of
from weftline.safety.guardrails.rules import Candidates, RuleBatch
from weftline.safety.guardrails.service import CheckedCall, given_arguments, mask_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.kernel.guards import EntryPoint, ImpliedCall
    from weftline.kernel.identity import Actor
    from weftline.safety.guardrails.model import CallerGuardrails, KnownActions
    from weftline.safety.guardrails.rules import RuleSet
    from weftline.safety.guardrails.service import Guardrails

# The operation that changes the rules of the tenant: no rule can lock out those who may change it.
_DEFINE = "layer.define"
# Entry points of documents; rules about their text are checked when all of it is there.
_DOCUMENTS: frozenset[EntryPoint] = frozenset({"upload", "hook", "sync"})


class GuardrailGuard(Guard):
    """Enforces the guardrails of the caller's layers as they are now."""

    def __init__(self, rules: CallerGuardrails, guardrails: Guardrails, actions: KnownActions) -> None:
        self._rules = rules
        self._guardrails = guardrails
        self._actions = actions

    def applies(self, call: GuardedCall) -> bool:
        actor = call.actor
        # A caller without a credential is not known yet: to keep an agent out, disable it.
        if actor is None:
            return False
        rules = self._rules.cached(actor)
        return rules is None or bool(_about(call, rules))

    async def before(self, call: GuardedCall) -> Any:  # noqa: ANN401 - the request of any operation
        rules = (await self._candidates(call)).before
        if call.entry in _DOCUMENTS:
            rules = _without_text(rules)
        if not rules:
            return call.request
        outcome = await self._guardrails.check(_checked(call, rules), rules)
        return _masked_request(call, outcome.masks)

    async def after(self, call: GuardedCall, answer: Any) -> Any:  # noqa: ANN401 - the response of any operation
        assert call.actor is not None  # noqa: S101 - the guard does not apply to other calls
        rules = _about(call, await self._rules.latest(call.actor)).after
        if not rules:
            return answer
        checked = _checked(call, rules, answer=msgspec.json.decode(msgspec.json.encode(answer)))
        outcome = await self._guardrails.check(checked, rules)
        return mask_value(answer, outcome.masks) if outcome.masks else answer

    def needs_whole_content(self, call: GuardedCall) -> bool:
        if call.entry not in _DOCUMENTS or call.actor is None:
            return False
        rules = self._rules.cached(call.actor)
        return rules is None or any(_reads_arguments(rule.variables) for rule in _about(call, rules).before.rules)

    async def content(self, call: GuardedCall, piece: ContentPiece) -> bytes:
        if call.entry not in _DOCUMENTS or not piece.last or not self.needs_whole_content(call):
            return piece.data
        rules = _with_text((await self._candidates(call)).before)
        text = piece.data.decode("utf-8", "replace")
        outcome = await self._guardrails.check(_checked(call, rules, text=text), rules)
        if not outcome.masks:
            return piece.data
        masked: str = mask_value(text, outcome.masks)
        return piece.data if masked == text else masked.encode()

    async def check(self, actor: Actor, calls: Iterable[ImpliedCall], operations: Iterable[str]) -> bool:
        """Refuse or hold the call that implies these; tell whether the caller has rules about any of the operations.

        What a rule would mask in such a call is refused, since it is stored already.
        """
        rules = self._rules.cached(actor) or await self._rules.load(actor)
        about = {name: found for name in operations if (found := self._rules_about(rules, name))}
        for call in calls if about else ():
            if call.operation in about:
                await self._check_implied(actor, call, about[call.operation])
                # A restore may have thousands of keys.
                await asyncio.sleep(0)
        return bool(about)

    def _rules_about(self, rules: RuleSet, operation: str) -> RuleBatch | None:
        if not rules.rules:
            return None
        return (rules.known(operation) or rules.candidates(operation, self._actions.names_for(operation))).before

    async def _check_implied(self, actor: Actor, call: ImpliedCall, rules: RuleBatch) -> None:
        operation = self._actions.find(call.operation)
        checked = CheckedCall(
            actor=actor,
            action=call.operation,
            operation=call.operation,
            tool=call.operation if operation is None else operation.tool,
            arguments=call.arguments,
            session_id=call.arguments.get("session_id"),
            step=actor.step,
        )
        outcome = await self._guardrails.check(checked, rules)
        if outcome.masks and mask_value(call.arguments, outcome.masks) is not call.arguments:
            raise GuardrailViolation(
                f"A guardrail masks a value of {call.operation}, which this would bring back as it was.",
                hint="Write the value anew instead.",
                operation=call.operation,
            )

    async def _candidates(self, call: GuardedCall) -> Candidates:
        actor = call.actor
        assert actor is not None  # noqa: S101 - as above
        return _about(call, self._rules.cached(actor) or await self._rules.load(actor))


_NOTHING = Candidates([])


def _about(call: GuardedCall, rules: RuleSet) -> Candidates:
    """Return the rules about a call; none if no rule may hold for it."""
    operation = call.operation
    # Operations whose effect the call has too: a time to live is a deletion, so a rule against that one holds.
    effects: tuple[str, ...] = getattr(call.request, "effects", ())
    action = "+".join((operation.name, *effects))
    found = rules.known(action)
    if found is None:
        found = rules.candidates(action, (*names_of(operation), *effects))
    return _NOTHING if found and _is_exempt(call) else found


def _is_exempt(call: GuardedCall) -> bool:
    actor = call.actor
    return (
        call.operation.name == _DEFINE
        and actor is not None
        and actor.kind is PrincipalKind.HUMAN
        and actor.clearance >= HIGHEST_CLEARANCE
    )


def _checked(
    call: GuardedCall, rules: RuleBatch, *, answer: dict[str, Any] | None = None, text: str | None = None
) -> CheckedCall:
    assert call.actor is not None  # noqa: S101 - as above
    request = call.request
    arguments = given_arguments(request) if _reads_arguments(rules.variables) else {}
    return CheckedCall(
        actor=call.actor,
        action=call.operation.name,
        operation=call.operation.name,
        tool=call.operation.tool,
        arguments=arguments if text is None else {**arguments, "text": text},
        session_id=getattr(request, "session_id", None),
        # That of the caller, or the workflow step that a write names.
        step=call.actor.step or getattr(request, "step", None),
        entry=call.entry,
        answer=answer,
    )


def _reads_arguments(variables: frozenset[str]) -> bool:
    return not variables.isdisjoint({"arguments", "labels"})


def _with_text(rules: RuleBatch) -> RuleBatch:
    return RuleBatch([rule for rule in rules.rules if _reads_arguments(rule.variables)])


def _without_text(rules: RuleBatch) -> RuleBatch:
    return RuleBatch([rule for rule in rules.rules if not _reads_arguments(rule.variables)])


def _masked_request(call: GuardedCall, masks: tuple[str, ...]) -> Any:  # noqa: ANN401 - the request of any operation
    masked = mask_value(call.request, masks) if masks else call.request
    if masked is call.request:
        return masked
    try:
        return call.operation.parse(msgspec.to_builtins(masked))
    except WeftlineError as error:
        raise GuardrailViolation(
            f"A guardrail masks a value of {call.operation.name} that has to stay as it is.",
            hint="Send the call without secrets and personal data.",
            operation=call.operation.name,
            field=error.context.get("field"),
        ) from error
