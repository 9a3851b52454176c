"""Definition of guardrails: checked against the plan, compiled, and stored as JSON text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.guardrails.model import Guardrail
from weft.capabilities.guardrails.rules import check_guardrails
from weft.capabilities.plans.service import Plans

if TYPE_CHECKING:
    from collections.abc import Sequence

_decode = msgspec.json.Decoder(tuple[Guardrail, ...]).decode


class KnownActions(msgspec.Struct, frozen=True):
    """Names of the operations and tools of Weft, which a rule may prohibit."""

    names: frozenset[str]


class GuardrailDefinitions(msgspec.Struct, frozen=True):
    """Checks guardrails that a caller defines."""

    plans: Plans
    actions: KnownActions

    async def checked(self, level: int, guardrails: Sequence[Guardrail]) -> str | None:
        """Return the text to store; None if there are none. Raises InvalidGuardrail or QuotaExceeded."""
        if not guardrails:
            return None
        (await self.plans.allowance()).check_guardrails(level)
        check_guardrails(guardrails, self.actions.names)
        return indented_json(guardrails)


def indented_json(value: object) -> str:
    """Return JSON with a line for each field, so that versions can be compared by line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def stored_guardrails(text: str) -> Sequence[Guardrail]:
    return _decode(text)
