"""Level 1: guardrails that hold for every caller of every tenant. They change only with a release of Weftline."""

from __future__ import annotations

from weftline.safety.guardrails.model import PLATFORM, Guardrail
from weftline.safety.guardrails.rules import CompiledRule

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
