"""Ports of guardrails: the rules of a caller, rates, and the log of hits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.identity import Actor
    from weftline.safety.guardrails.rules import CompiledRule, Counts, RuleSet


class CallerGuardrails(Protocol):
    """The guardrails that hold for callers now."""

    def cached(self, actor: Actor) -> RuleSet | None:
        """Return the caller's rules if they are in memory and current."""
        ...

    async def load(self, actor: Actor) -> RuleSet:
        """Return the caller's rules; raises AccessChanged if the caller has to be identified again."""
        ...

    async def confirm(self, actor: Actor) -> None:
        """Raise AccessChanged if rules have changed since: a refused call opens no transaction that would notice."""
        ...

    async def latest(self, actor: Actor) -> RuleSet:
        """Return the caller's rules after its call, which may have changed them itself."""
        ...


class CallRates(Protocol):
    """Counts the calls of a caller by kind of action, in all processes that share rate limits."""

    async def count(self, actor: Actor, actions: Sequence[str]) -> Mapping[str, Counts]:
        """Count a call for each kind of action, and return the counts with it."""
        ...

    async def uncount(self, actor: Actor, actions: Sequence[str]) -> None:
        """Take back a call that was refused: it does not bring the next one closer to a limit."""
        ...


class HitLog(Protocol):
    """Counts the hits of rules. They are written together, a few seconds later."""

    def note(
        self, actor: Actor, rule: CompiledRule, action: str, session_id: str | None, *, is_error: bool
    ) -> None: ...
