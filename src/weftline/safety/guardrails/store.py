"""Ports of guardrails: rules of a caller, rates, and hit counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

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


class RuleKey(NamedTuple):
    """A rule as it is written now: a changed rule is counted from zero."""

    layer: str
    name: str
    digest: str


class HitCount(NamedTuple):
    """How often a rule was violated since its first hit, and how often because its condition failed."""

    key: RuleKey
    hits: int
    errors: int
    since: int
    last_at: int


class HitStore(Protocol):
    """Hit counts of a tenant."""

    async def add(self, counts: Sequence[HitCount]) -> None:
        """Add to the counts of rules."""
        ...

    async def counts(self, layers: Sequence[str]) -> Sequence[HitCount]: ...

    async def remove_others(self, layer: str, digests: Sequence[str]) -> None:
        """Remove the counts of rules that a layer no longer has."""
        ...
