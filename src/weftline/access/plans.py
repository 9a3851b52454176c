"""Plans: what a tenant is allowed, as quotas of every slice."""

from __future__ import annotations

import re
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec

from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.errors import InvalidInput, QuotaExceeded
from weftline.kernel.fields import MAX_INT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


# Plans and their allowances: one table for all quotas.

Plan = Literal["free", "pro", "enterprise"]
PLANS: tuple[Plan, ...] = get_args(Plan)
# What shows how context is used, beyond the basic usage report that every plan has.
Insight = Literal["full_reports", "alerts", "recommendations"]
INSIGHTS: tuple[Insight, ...] = get_args(Insight)
# Groups of the basic usage report.
BASIC_GROUPS = ("tenant", "agent")

_MEBIBYTE = 2**20
_GIBIBYTE = 2**30
SIZE_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
UNLIMITED = "unlimited"
# The limits that are sizes.
_SIZES = frozenset({"bytes", "window_bytes"})
# Part of a quota from which there is a warning.
QUOTA_NEAR = 0.8
_LARGER_PLAN = "or ask the operator for a larger plan (weftline tenant plan)"

_INSIGHT_NAMES: dict[Insight, str] = {
    "full_reports": "full usage reports",
    "alerts": "alerts",
    "recommendations": "recommendations",
}
_INSTEAD_OF: dict[Insight, str] = {
    "full_reports": f"Report by {' or '.join(BASIC_GROUPS)}",
    "alerts": "Read the usage report",
    "recommendations": "Read the usage report",
}


def limit_text(name: str, value: Any) -> str:  # noqa: ANN401 - of several types
    """Return a limit as it is shown to operators."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if value is None:
        return UNLIMITED
    unit = next((unit for unit, size in reversed(SIZE_UNITS.items()) if name in _SIZES and value % size == 0), None)
    return str(value) if unit is None else f"{value // SIZE_UNITS[unit]}{unit}"


class QuotaUse(NamedTuple):
    """What is used of a limit, before and after a change; None is unlimited."""

    limit: str
    allowed: int | None
    before: int
    after: int

    @property
    def is_near(self) -> bool:
        """Return whether most of the quota is used."""
        return self.allowed is not None and self.after >= QUOTA_NEAR * self.allowed

    @property
    def was_near(self) -> bool:
        """Return whether most of the quota was used before the change."""
        return self._replace(after=self.before).is_near


class AssignedPlan(msgspec.Struct, frozen=True):
    """The plan of a tenant, and the limits that were set for this tenant alone."""

    plan: Plan
    limits: dict[str, Any] = {}

    @property
    def allowance(self) -> Allowance:
        return msgspec.convert(msgspec.to_builtins(ALLOWANCES[self.plan]) | self.limits, Allowance)


class DefaultPlan(msgspec.Struct, frozen=True):
    """The plan of tenants without one of their own."""

    plan: Plan = "enterprise"


class Allowance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan allows; None is unlimited.

    ``versions`` of each key are kept; ``snapshots`` are the named ones of each agent. ``tuning``: callers may
    change the minimum score and the weights of a search. ``custom_models``: the tenant may choose its embedding model.
    ``session_keys``, ``session_tokens``, ``value_tokens`` and ``session_versions`` are the highest limits that a new
    session may have: every plan has them, so that the work of one call on its board is bounded. So are the entries of
    a persistent memory, ``memory_entries``, and the events of a window and their size, ``window_events`` and
    ``window_bytes``: more cannot be added.
    ``guardrail_levels``: the layers that may have guardrails of the tenant's own. ``compaction_strategies``: windows
    may be compacted otherwise than by a sliding window. ``insight``: what shows how context is used, besides the basic
    usage report; ``report_days``: how far back usage reports go. ``minute_usage_days``, ``hour_usage_days`` and
    ``daily_usage_days``: how long usage by minute, hour and day is kept.
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
    memory_entries: int = 10_000
    window_events: int = 20_000
    # Below the memory for events that are read often, so that a window is read once and not by every call.
    window_bytes: int = 32 * _MEBIBYTE
    guardrail_levels: tuple[int, ...] = (2, 3, 4)
    compaction_strategies: bool = True
    insight: tuple[Insight, ...] = INSIGHTS
    report_days: int | None = None
    minute_usage_days: int | None = 7
    hour_usage_days: int | None = 90
    daily_usage_days: int | None = None

    def check_domains(self, domains: int) -> None:
        """Raise QuotaExceeded if there are more domains than allowed."""
        if self.domains is not None and domains > self.domains:
            allowed = f"allows {self.domains} {'domain' if self.domains == 1 else 'domains'}; there are {domains - 1}"
            raise self._exceeded(allowed, "Delete a domain", limit_domains=self.domains, used_domains=domains - 1)

    def check_bytes(self, size: int, used: int | None = None) -> None:
        """Raise QuotaExceeded if there are more bytes of documents than allowed.

        ``used`` is named to callers who may see every domain; None to others, since it includes those they cannot see.
        """
        if self.bytes is not None and size > self.bytes:
            limit = limit_text("bytes", self.bytes)
            limit = f"{limit} bytes" if limit.isdigit() else limit
            allowed = f"allows {limit} of documents; this would exceed it"
            more: dict[str, int] = {}
            if used is not None:
                allowed, more = f"allows {limit} of documents; {used} bytes are used", {"used_bytes": used}
            raise self._exceeded(allowed, "Delete documents", limit_bytes=self.bytes, **more)

    def check_snapshots(self, snapshots: int, agent_id: str, new: int = 1) -> None:
        """Raise QuotaExceeded if an agent has more named snapshots than allowed; ``new`` of them are being taken."""
        if self.snapshots is not None and snapshots > self.snapshots:
            used = snapshots - new
            raise self._exceeded(
                f"allows {self.snapshots} named snapshots of each agent; '{agent_id}' has {used}",
                "Delete one with `history.delete_snapshot`",
                limit_snapshots=self.snapshots,
                used_snapshots=used,
                agent_id=agent_id,
            )

    def check_versions(self, versions: int | None) -> None:
        """Raise QuotaExceeded if a retention rule keeps more versions than allowed; None keeps all."""
        if self.versions is not None and (versions is None or versions > self.versions):
            raise self._exceeded(
                f"keeps the last {self.versions} versions of each key; this asks for {versions or 'all'}",
                "Keep fewer",
                limit_versions=self.versions,
                requested_versions=versions or 0,
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
                raise self._exceeded(
                    f"allows a {name} of {allowed}; this asks for {asked}",
                    f"Lower {name}",
                    **{f"limit_{name}": allowed, f"requested_{name}": asked},
                )

    def check_memory_entries(self, entries: int, used: int) -> None:
        """Raise QuotaExceeded if a persistent memory would have more entries than allowed."""
        if entries > self.memory_entries:
            allowed = (
                f"allows {self.memory_entries} entries in a persistent memory; "
                f"it has {used}, and this would make it {entries}"
            )
            instead = "Remove entries with `context.push` and its field remove, or put large collections into documents"
            raise self._exceeded(allowed, instead, limit_memory_entries=self.memory_entries, used_memory_entries=used)

    def check_window_events(self, events: int, used: int) -> None:
        """Raise QuotaExceeded if a window would have more events than allowed, those that were rolled back included."""
        if events > self.window_events:
            allowed = f"allows {self.window_events} events in a window; it has {used}, and this would make it {events}"
            instead = "Continue in a new session, or delete the window with `window.delete`"
            raise self._exceeded(allowed, instead, limit_window_events=self.window_events, used_window_events=used)

    def check_window_bytes(self, size: int, used: int) -> None:
        """Raise QuotaExceeded if the events of a window would be larger than allowed, likewise."""
        if size > self.window_bytes:
            limit = limit_text("window_bytes", self.window_bytes)
            limit = f"{limit} bytes" if limit.isdigit() else limit
            allowed = f"allows {limit} of events in a window; it has {used} bytes, and this would make it {size}"
            instead = (
                "Put long contents into documents and name them in source_refs, continue in a new session, or delete "
                "the window with `window.delete`"
            )
            raise self._exceeded(allowed, instead, limit_window_bytes=self.window_bytes, used_window_bytes=used)

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

    def check_insight(self, insight: Insight) -> None:
        """Raise QuotaExceeded if the plan has no full reports, no alerts, or no recommendations."""
        if insight not in self.insight:
            raise self._exceeded(
                f"has no {_INSIGHT_NAMES[insight]}", _INSTEAD_OF[insight], limit_insight=list(self.insight)
            )

    def report_since(self, group: str, since: int | None, now: int) -> int:
        """Return where a report of usage or savings begins, in microseconds; None asks for all that is allowed.

        Raises QuotaExceeded if it cannot have this group, or would begin too many days back.
        """
        if group not in BASIC_GROUPS:
            self.check_insight("full_reports")
        if since is None:
            return 0 if self.report_days is None else max(0, now - self.report_days * DAY_MICROS)
        days = (now - since) / DAY_MICROS
        if self.report_days is not None and days > self.report_days:
            raise self._exceeded(
                f"reports the usage of the last {self.report_days} days; this asks for {ceil(days)}",
                "Begin later",
                limit_report_days=self.report_days,
                requested_report_days=ceil(days),
            )
        return since

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
        memory_entries=1_000,
        window_events=2_000,
        window_bytes=8 * _MEBIBYTE,
        rollback=False,
        domains=1,
        bytes=_GIBIBYTE,
        guardrail_levels=(),
        compaction_strategies=False,
        insight=(),
        report_days=7,
        minute_usage_days=1,
        hour_usage_days=7,
        daily_usage_days=62,
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
        memory_entries=5_000,
        window_events=10_000,
        window_bytes=16 * _MEBIBYTE,
        domains=10,
        bytes=50 * _GIBIBYTE,
        guardrail_levels=(3, 4),
        compaction_strategies=False,
        insight=("full_reports",),
        minute_usage_days=3,
        hour_usage_days=31,
        daily_usage_days=400,
    ),
    "enterprise": Allowance("enterprise"),
}


# Limits that an operator sets for one tenant: their names, as values and as text.

LIMITS = tuple(name for name in Allowance.__struct_fields__ if name != "plan")
_TYPES = {field.name: field.type for field in msgspec.structs.fields(Allowance)}
_SIZE = re.compile(r"^([0-9]+)(KiB|MiB|GiB|TiB)\Z")
_SWITCHES = {"yes": True, "no": False}
_LARGEST = ALLOWANCES[PLANS[-1]]
# With none of these, a tenant could keep and find nothing.
_AT_LEAST_ONE = frozenset(
    {
        "results",
        "versions",
        "session_keys",
        "session_tokens",
        "value_tokens",
        "session_versions",
        "memory_entries",
        "window_events",
        "window_bytes",
        "report_days",
    }
)
# A century: times before it are of no use.
_MAX_DAYS = 36_500


def checked_limits(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return limits as they are stored; raises InvalidInput for unknown names and wrong values."""
    return {name: msgspec.to_builtins(_checked(name, value)) for name, value in limits.items()}


def parse_limits(texts: Iterable[str]) -> dict[str, Any]:
    """Return limits given as NAME=VALUE, such as domains=20, bytes=100GiB, rollback=yes or results=unlimited."""
    return checked_limits(dict(map(_parsed, texts)))


def _parsed(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidInput(f"{text[:100]}: write NAME=VALUE, such as domains=20", field="set")
    if value == UNLIMITED:
        return name, None
    if isinstance(getattr(_LARGEST, name, None), tuple):
        return name, [each for each in value.split(",") if each not in {"", "none"}]
    size = _SIZE.match(value)
    if size is not None:
        return name, int(size[1]) * SIZE_UNITS[size[2]]
    return name, _SWITCHES.get(value, value)


def _checked(name: str, value: Any) -> Any:  # noqa: ANN401 - likewise
    if name not in LIMITS:
        raise InvalidInput(f"{name[:100]}: there is no such limit; use one of {', '.join(LIMITS)}", field="set")
    try:
        found = msgspec.convert(value, _TYPES[name], strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{name}: {str(error)[:200]}", field="set") from error
    if isinstance(found, tuple):
        return _checked_names(name, found)
    if isinstance(found, int) and not isinstance(found, bool):
        _check_number(name, found)
    return found


def _check_number(name: str, number: int) -> None:
    least, most = int(name in _AT_LEAST_ONE), _MAX_DAYS if name.endswith("_days") else MAX_INT
    if not least <= number <= most:
        raise InvalidInput(f"{name}: must be from {least} to {most}", field="set")


def _checked_names(name: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a plan has, each once; the largest plan has all there is."""
    known = getattr(_LARGEST, name)
    unknown = [each for each in given if each not in known]
    if unknown:
        has = ", ".join(map(str, known))
        raise InvalidInput(f"{name}: {str(unknown[0])[:100]} is none of {has}", field="set")
    return tuple(each for each in known if each in given)
