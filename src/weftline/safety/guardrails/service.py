"""Checks calls against guardrails: what is prohibited, what is masked, what the caller is warned of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from weftline.kernel.errors import InvalidInput
from weftline.kernel.guards import EntryPoint, warn_caller
from weftline.kernel.identity import Actor, HoldReason, PrincipalKind
from weftline.kernel.operation import SubmittedText
from weftline.kernel.thread_pools import SHORT_THREADS
from weftline.safety.guardrails.conditions import CallSize
from weftline.safety.guardrails.model import GuardrailApproval, GuardrailViolation
from weftline.safety.guardrails.rules import CallValues
from weftline.safety.redaction import ALL_CATEGORIES, Masker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weftline.kernel.clock import Clock
    from weftline.safety.guardrails.model import CallerGuardrails, CallRates, HitLog
    from weftline.safety.guardrails.rules import CompiledRule, Counts, Evaluation, RuleBatch
    from weftline.safety.trust.scanner import ContentScanner, Verdict


# Entry points of content from outside the tenant.
_OUTSIDE: frozenset[EntryPoint] = frozenset({"upload", "import", "hook", "sync"})
# Entry points at which others act: those who call a hook or change a source do not end the agent that set it up.
_OF_OTHERS: frozenset[EntryPoint] = frozenset({"hook", "sync"})
_LESS_TRUSTED = re.compile(rb'"trust":"(?:untrusted|suspicious)"')
_LAYER_WORDS = {"platform": "the platform", "tenant": "the tenant"}
# Longer texts are searched for personal data in a thread.
_INLINE_CHARS = 1_000
_encode = msgspec.json.Encoder().encode


class CheckedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an operation or of a tool of others, as conditions see it."""

    actor: Actor
    action: str
    operation: str
    tool: str
    arguments: Mapping[str, Any]
    session_id: str | None = None
    step: str | None = None
    entry: EntryPoint = "call"
    answer: Mapping[str, Any] | None = None

    @property
    def checked(self) -> Mapping[str, Any]:
        """Return what labels are about: the answer after the call, else the arguments."""
        return self.arguments if self.answer is None else self.answer


class RuleEffects(NamedTuple):
    """The rules that a call violates: those that mask values, and the warnings it gets."""

    masks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Guardrails:
    """Checks calls: finds violations, counts them, and refuses, holds or masks."""

    def __init__(
        self,
        *,
        rules: CallerGuardrails,
        rates: CallRates,
        hits: HitLog,
        scanner: ContentScanner,
        end_session: Callable[[Actor, str | None, str], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._rules = rules
        self._rates = rates
        self._hits = hits
        self._scanner = scanner
        self._end_session = end_session
        self._clock = clock

    async def check(self, call: CheckedCall, rules: RuleBatch) -> RuleEffects:
        """Return what to mask and to warn of; raises GuardrailViolation or GuardrailApproval."""
        actions = list(dict.fromkeys(rule.action.pattern for rule in rules.rated))
        counts = await self._rates.count(call.actor, actions) if actions else {}
        masks: dict[str, None] = {}
        warnings: list[str] = []
        values = await self.values(call, rules.variables, counts)
        await rules.prepare()
        for hit in rules.hits(values):
            rule, guardrail = hit.rule, hit.rule.guardrail
            if call.actor.approval is not None and call.actor.approval.covers(rule.check):
                continue
            if guardrail.refuses and call.answer is None:
                await self._rules.confirm(call.actor)
            self._hits.note(call.actor, rule, call.action, call.session_id, is_error=hit.error is not None)
            if guardrail.refuses:
                if actions:
                    await self._rates.uncount(call.actor, actions)
                raise await self._refusal(call, hit)
            if guardrail.dry_run:
                continue
            if guardrail.violation_response == "redact":
                masks |= dict.fromkeys(guardrail.mask)
            else:
                warnings.append(f"{_prohibits(rule, call)} This rule only warns.")
        for warning in warnings:
            warn_caller(warning)
        return RuleEffects(tuple(masks), tuple(warnings))

    async def values(
        self,
        call: CheckedCall,
        variables: frozenset[str],
        counts: Mapping[str, Counts],
        labels: Sequence[str] | None = None,
    ) -> CallValues:
        """Return the values that conditions read; costly ones only if a condition names them."""
        actor = call.actor
        values: dict[str, Any] = {
            "tool": call.tool,
            "operation": call.operation,
            "session_id": call.session_id or "",
            "step": call.step or "",
            "now": self._clock.now(),
            "agent": {
                "id": actor.principal_id,
                "type": actor.agent_type,
                "kind": actor.kind.value,
                "participant": actor.participant,
                "clearance": actor.clearance,
                "teams": sorted(actor.teams),
                "ancestors": sorted(actor.ancestors),
            },
        }
        size = CallSize(0, 0)
        if "arguments" in variables:
            values["arguments"] = call.arguments
            size = _size_of(call.arguments)
        if "answer" in variables and call.answer is not None:
            values["answer"] = call.answer
            in_answer = _size_of(call.answer)
            size = CallSize(size.size + in_answer.size, size.elements + in_answer.elements)
        if "labels" in variables:
            values["labels"] = await self.labels(call) if labels is None else list(labels)
        return CallValues(values, size, counts)

    async def labels(self, call: CheckedCall) -> list[str]:
        """Return what is found in the arguments, or in the answer after the call."""
        encoded = _encode(call.checked)
        is_outside = call.entry in _OUTSIDE or bool(call.arguments.get("derived_from"))
        text = SubmittedText(encoded.decode(), is_outside)
        verdict = (await self._scanner.prepare(call.actor, [text]))[text]
        is_untrusted = is_outside if call.answer is None else _LESS_TRUSTED.search(encoded) is not None
        found = {
            "secret": bool(verdict.secrets),
            "pii": bool(await self._personal_data(text.text, verdict)),
            "injection": verdict.detection.flagged,
            "untrusted": is_untrusted,
        }
        return [label for label, is_found in found.items() if is_found]

    async def _personal_data(self, text: str, verdict: Verdict) -> Sequence[str]:
        if verdict.pii is None and len(text) > _INLINE_CHARS:
            return await SHORT_THREADS.run(self._scanner.pii, text, verdict)
        return self._scanner.pii(text, verdict)

    async def _refusal(self, call: CheckedCall, hit: Evaluation) -> GuardrailViolation:
        rule, guardrail = hit.rule, hit.rule.guardrail
        message = _prohibits(rule, call) + (" Its condition could not be evaluated." if hit.error is not None else "")
        context: dict[str, Any] = {
            "guardrail": guardrail.name,
            "level": rule.level,
            "layer": rule.layer,
            "operation": call.action,
        }
        if guardrail.violation_response == "ask":
            if call.entry == "call":
                return _held(message, rule, context)
            message += " Calls that stream content cannot be held for approval."
        if guardrail.violation_response == "terminate" and _is_own(call):
            await self._end_session(call.actor, call.session_id, f"guardrail {guardrail.name}")
            message += " You are stopped." if call.session_id is None else " Your work in this session is ended."
        if call.answer is not None:
            message += " The call was made; its answer is withheld."
        return GuardrailViolation(message, **context)


def _is_own(call: CheckedCall) -> bool:
    """Tell whether an agent makes a call itself."""
    return call.actor.kind is PrincipalKind.AGENT and call.entry not in _OF_OTHERS


def _prohibits(rule: CompiledRule, call: CheckedCall) -> str:
    detail = f": {rule.guardrail.message.rstrip('.')}" if rule.guardrail.message else ""
    verb = "holds" if rule.guardrail.violation_response == "ask" else "prohibits"
    return f"The guardrail '{rule.guardrail.name}' of {layer_words(rule.layer)} {verb} {call.action}{detail}."


def layer_words(layer: str) -> str:
    """Return a layer as an error names it: the tenant, the team research, the agent boss."""
    kind, _, name = layer.partition(":")
    return _LAYER_WORDS.get(layer) or f"the {kind} '{name}'"


def _held(message: str, rule: CompiledRule, context: Mapping[str, Any]) -> GuardrailApproval:
    error = GuardrailApproval(message, **context)
    error.hold_reason = HoldReason(
        check=rule.check, text=message, details={"guardrail": rule.guardrail.name}, approver=rule.guardrail.approver
    )
    return error


def _size_of(value: Mapping[str, Any]) -> CallSize:
    encoded = _encode(value)
    return CallSize(len(encoded), encoded.count(b",") + 1)


def given_arguments(request: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a request that have a value, as JSON: CEL knows no other types."""
    try:
        decoded: dict[str, Any] = msgspec.json.decode(_encode(request))
    except UnicodeEncodeError as error:
        raise InvalidInput("The request is not valid text (it holds half of a surrogate pair).") from error
    return {name: value for name, value in decoded.items() if value is not None}


# What a rule with the response redact masks: secrets, personal data, and texts that it names.

_PLACEHOLDER = "[MASKED]"
# Fields that name what a call is about; a placeholder would address something else.
_REFERENCES = ("_id", "_ids")


def mask_value(value: Any, masks: Sequence[str]) -> Any:  # noqa: ANN401 - a request, a response or JSON
    """Return a value with what the masks name replaced by placeholders; references to items stay."""
    masker = Masker([category for category in ALL_CATEGORIES if category in masks])
    texts = sorted((mask for mask in masks if mask not in ALL_CATEGORIES), key=len, reverse=True)
    return _masked(value, masker, texts, "")


def _masked(value: Any, masker: Masker, texts: Sequence[str], key: str) -> Any:  # noqa: ANN401 - likewise
    """Return the same object if there is nothing to mask in it."""
    masked = value
    if isinstance(value, msgspec.Struct):
        return _masked_struct(value, masker, texts)
    if isinstance(value, dict):
        masked = {_text(str(name), texts): _masked(inner, masker, texts, str(name)) for name, inner in value.items()}
    elif type(value) in {list, tuple}:
        masked = type(value)(_masked(inner, masker, texts, key) for inner in value)
    elif isinstance(value, msgspec.Raw):
        decoded = msgspec.json.decode(value)
        inner = _masked(decoded, masker, texts, key)
        return value if inner is decoded else msgspec.Raw(msgspec.json.encode(inner))
    elif type(value) is str:
        masked = _text(masker.value(value, key), texts)
    elif type(value) is int:
        masked = masker.value(value, key)
    return value if masked == value else masked


def _masked_struct(value: msgspec.Struct, masker: Masker, texts: Sequence[str]) -> msgspec.Struct:
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        inner = getattr(value, name)
        masked = inner if name.endswith(_REFERENCES) else _masked(inner, masker, texts, name)
        if masked is not inner:
            changes[name] = masked
    return structs.replace(value, **changes) if changes else value


def _text(text: str, texts: Sequence[str]) -> str:
    for each in texts:
        text = text.replace(each, _PLACEHOLDER)
    return text
