"""Definition of guardrails: checked against the plan, compiled, and stored as JSON text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.access.plans.service import Plans
from weftline.kernel.identity import Actor
from weftline.safety.guardrails.actions import KnownActions
from weftline.safety.guardrails.model import Guardrail, digest_of
from weftline.safety.guardrails.rules import check_guardrails
from weftline.safety.guardrails.sql import HitStore

if TYPE_CHECKING:
    from collections.abc import Sequence

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
