"""Plans and their allowances: one table for all quotas."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from weft.kernel.errors import QuotaExceeded

Plan = Literal["free", "pro", "enterprise"]
PLANS: tuple[Plan, ...] = get_args(Plan)

_GIBIBYTE = 2**30
_LARGER_PLAN = "or ask the operator for a larger plan (weft tenant plan)"


class DefaultPlan(msgspec.Struct, frozen=True):
    """The plan of tenants without one of their own."""

    plan: Plan = "enterprise"


class Allowance(msgspec.Struct, frozen=True):
    """What a plan allows; None is unlimited.

    ``versions`` of each key are kept; ``snapshots`` are the named ones of each agent. ``tuning``: callers may
    change the minimum score and the weights of a search. ``custom_models``: the tenant may choose its embedding model.
    ``session_keys``, ``session_tokens``, ``value_tokens`` and ``session_versions`` are the highest limits that a new
    session may have: every plan has them, so that the work of one call on its board is bounded.
    ``guardrail_levels``: the layers that may have guardrails of the tenant's own. ``compaction_strategies``: windows
    may be compacted otherwise than by a sliding window.
    """

    plan: Plan
    results: int | None = None
    tuning: bool = True
    custom_models: bool = True
    versions: int | None = None
    snapshots: int | None = None
    rollback: bool = True
    domains: int | None = None
    bytes: int | None = None
    session_keys: int = 1_000
    session_tokens: int = 1_000_000
    value_tokens: int = 300_000
    session_versions: int = 10_000
    guardrail_levels: tuple[int, ...] = (2, 3, 4)
    compaction_strategies: bool = True

    def check_domains(self, domains: int) -> None:
        """Raise QuotaExceeded if there are more domains than allowed."""
        if self.domains is not None and domains > self.domains:
            allowed = f"{self.domains} {'domain' if self.domains == 1 else 'domains'}"
            raise self._exceeded(f"allows {allowed}", "Delete a domain", limit_domains=self.domains)

    def check_bytes(self, size: int) -> None:
        """Raise QuotaExceeded if there are more bytes of documents than allowed."""
        if self.bytes is not None and size > self.bytes:
            # Without the current size, which includes domains that the caller cannot see.
            allowed = f"allows {self.bytes // _GIBIBYTE} GiB of documents; this would exceed it"
            raise self._exceeded(allowed, "Delete documents", limit_bytes=self.bytes)

    def check_snapshots(self, snapshots: int, agent_id: str) -> None:
        """Raise QuotaExceeded if an agent has more named snapshots than allowed."""
        if self.snapshots is not None and snapshots > self.snapshots:
            allowed = f"allows {self.snapshots} named snapshots of each agent; '{agent_id}' has them"
            raise self._exceeded(
                allowed, "Delete one with `history.delete_snapshot`", limit_snapshots=self.snapshots, agent_id=agent_id
            )

    def check_versions(self, versions: int | None) -> None:
        """Raise QuotaExceeded if a retention rule keeps more versions than allowed; None keeps all."""
        if self.versions is not None and (versions is None or versions > self.versions):
            raise self._exceeded(
                f"keeps the last {self.versions} versions of each key", "Keep fewer", limit_versions=self.versions
            )

    def check_session(self, *, keys: int | None, total_tokens: int, value_tokens: int, versions: int) -> None:
        """Raise QuotaExceeded if a new session would have higher limits than allowed."""
        for name, asked, allowed in (
            ("max_keys", keys or 0, self.session_keys),
            ("max_total_tokens", total_tokens, self.session_tokens),
            ("max_value_tokens", value_tokens, self.value_tokens),
            ("keep_versions", versions, self.session_versions),
        ):
            if asked > allowed:
                raise self._exceeded(f"allows a {name} of {allowed}", f"Lower {name}", **{f"limit_{name}": allowed})

    def check_rollback(self) -> None:
        """Raise QuotaExceeded if the plan has no rollback."""
        if not self.rollback:
            instead = "Read the earlier version with `history.state` and write what you need of it again"
            raise self._exceeded("has no rollback and does not restore snapshots", instead, limit_rollback=False)

    def check_tuning(self) -> None:
        """Raise QuotaExceeded if searches cannot be tuned."""
        if not self.tuning:
            instead = "Leave out min_score and the weights"
            raise self._exceeded("searches with the default ranking only", instead, limit_tuning=False)

    def check_custom_models(self) -> None:
        """Raise QuotaExceeded if the tenant cannot choose its embedding model."""
        if not self.custom_models:
            raise self._exceeded("has no choice of embedding models", "Keep the current one", limit_custom_models=False)

    def check_guardrails(self, level: int) -> None:
        """Raise QuotaExceeded if the layer of this level cannot have guardrails."""
        if level not in self.guardrail_levels:
            of_teams = "has guardrails of teams and agents, not of the tenant"
            allowed = of_teams if self.guardrail_levels else "has the guardrails of the platform only"
            instead = "Define them for your teams and agents" if self.guardrail_levels else "Leave them out"
            raise self._exceeded(allowed, instead, limit_guardrail_levels=list(self.guardrail_levels))

    def check_compaction_strategies(self) -> None:
        """Raise QuotaExceeded if windows are compacted by a sliding window only."""
        if not self.compaction_strategies:
            instead = "Leave out the strategy"
            raise self._exceeded("compacts by a sliding window only", instead, limit_compaction_strategies=False)

    def _exceeded(self, allowed: str, instead: str, **limit: Any) -> QuotaExceeded:  # noqa: ANN401 - JSON
        larger = "" if self.plan == PLANS[-1] else f", {_LARGER_PLAN}"
        return QuotaExceeded(f"The plan '{self.plan}' {allowed}.", hint=f"{instead}{larger}.", plan=self.plan, **limit)


ALLOWANCES: dict[Plan, Allowance] = {
    "free": Allowance(
        "free",
        results=5,
        tuning=False,
        custom_models=False,
        versions=10,
        snapshots=3,
        session_keys=200,
        session_tokens=50_000,
        value_tokens=10_000,
        rollback=False,
        domains=1,
        bytes=_GIBIBYTE,
        guardrail_levels=(),
        compaction_strategies=False,
    ),
    "pro": Allowance(
        "pro",
        results=20,
        custom_models=False,
        versions=100,
        snapshots=50,
        session_keys=500,
        session_tokens=200_000,
        value_tokens=50_000,
        domains=10,
        bytes=50 * _GIBIBYTE,
        guardrail_levels=(3, 4),
        compaction_strategies=False,
    ),
    "enterprise": Allowance("enterprise"),
}
