"""Usage entries, their sums, and the keys they are rolled up by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

# ``assembly``: a prompt of an agent, and the model call it was assembled for. ``compaction``: a call of Weftline's own
# language model to compact a window. ``proxy``: a call that an agent made through the model proxy.
CallKind = Literal["assembly", "compaction", "proxy"]
CALL_KINDS: tuple[CallKind, ...] = get_args(CallKind)
# ``call``: the call itself. ``report``: what the provider reported for it, later. ``score``: how much of its prompt was
# useful. ``move``: its figures moved to another model, because the report named another one than the assembly.
EntryKind = Literal["call", "report", "score", "move"]
Unit = Literal["minute", "hour", "day"]
UNITS: tuple[Unit, ...] = get_args(Unit)
UNIT_SECONDS: dict[Unit, int] = {"minute": 60, "hour": 3_600, "day": 86_400}
# In place of names: beyond the number that an interval keeps, and of deleted sessions. No name has parentheses.
OTHER = "(other)"
DELETED = "(deleted)"
NANOS = 1_000_000_000
_DIGITS = 4


class UsageSums(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures that add up. All are whole numbers, so that every order of additions gives the same sums.

    ``total_tokens`` and ``cost_nanos`` are the best known: what the provider reported for calls with a report, prompt
    and answer; what was expected of the prompt for the others. A call whose model has no price is one of
    ``unpriced_calls`` and adds no cost. ``input_tokens`` to ``cache_write_tokens`` and ``reported_cost_nanos`` are the
    provider's. ``naive_baseline_tokens`` are those of the conversation alone, ``document_tokens`` those of the whole
    documents with evidence in the prompt. Money is in billionths of a US dollar, durations are in microseconds,
    ``quality`` in millionths.

    ``capacity_tokens`` are those that the windows can hold. ``sent_tokens``, ``useful_tokens`` and ``overhead_tokens``
    (of layers) are those of ``scored_calls``, of which ``estimated_calls`` were scored without an answer.
    """

    calls: int = 0
    failed_calls: int = 0
    reported_calls: int = 0
    unpriced_calls: int = 0
    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    naive_baseline_tokens: int = 0
    document_tokens: int = 0
    engine_assembled_tokens: int = 0
    cached_tokens: int = 0
    capacity_tokens: int = 0
    cost_nanos: int = 0
    expected_cost_nanos: int = 0
    naive_cost_nanos: int = 0
    reported_cost_nanos: int = 0
    gather_micros: int = 0
    retrieve_micros: int = 0
    plan_micros: int = 0
    render_micros: int = 0
    timed_calls: int = 0
    provider_micros: int = 0
    graded_calls: int = 0
    quality: int = 0
    scored_calls: int = 0
    estimated_calls: int = 0
    sent_tokens: int = 0
    useful_tokens: int = 0
    overhead_tokens: int = 0

    def plus(self, other: UsageSums) -> UsageSums:
        return UsageSums.of(a + b for a, b in zip(self.values, other.values, strict=True))

    def negated(self) -> UsageSums:
        return UsageSums.of(-value for value in self.values)

    @property
    def values(self) -> tuple[int, ...]:
        return msgspec.structs.astuple(self)

    @staticmethod
    def of(values: Iterable[int]) -> UsageSums:
        return UsageSums(**dict(zip(SUM_NAMES, values, strict=True)))

    @property
    def savings_ratio(self) -> float:
        return savings_ratio(self.naive_baseline_tokens, self.engine_assembled_tokens)

    @property
    def savings_ratio_with_documents(self) -> float:
        return savings_ratio(self.naive_baseline_tokens + self.document_tokens, self.engine_assembled_tokens)

    @property
    def efficiency(self) -> float | None:
        """Return useful over sent tokens, layers counted apart; None if no call was scored."""
        sent = self.sent_tokens - self.overhead_tokens
        return round(self.useful_tokens / sent, _DIGITS) if self.scored_calls and sent > 0 else None


SUM_NAMES: tuple[str, ...] = UsageSums.__struct_fields__


class UsageKey(NamedTuple):
    """Whose usage it is. ``step`` is the step of a task that the caller was in, ``model`` may be empty.

    ``teams`` are those of the agent at the time of the call, sorted.
    """

    kind: CallKind
    agent_id: str
    session_id: str = ""
    step: str = ""
    model: str = ""
    teams: tuple[str, ...] = ()


class NewUsageEntry(NamedTuple):
    """What to add to the sums of the minute, hour and day of ``at``: the time of the call, also for a late report."""

    entry: EntryKind
    call_id: str
    at: int
    key: UsageKey
    sums: UsageSums


class UsageEntry(NamedTuple):
    """An entry as it is stored. Numbers of a tenant ascend in the order of commits."""

    seq: int
    entry: EntryKind
    call_id: str
    at: int
    key: UsageKey
    sums: UsageSums


class MeteredCall(NamedTuple):
    """A call with everything that is known of it: the sums of its entries. ``call_id`` is the id of its receipt."""

    call_id: str
    at: int
    key: UsageKey
    sums: UsageSums


def savings_ratio(baseline: int, sent: int) -> float:
    """Return the part of a baseline that was not sent; negative if more was sent."""
    return round(1 - sent / baseline, _DIGITS) if baseline else 0.0


def nanos(cost: float | None) -> int:
    """Return US dollars as stored; an unknown price adds nothing."""
    return 0 if cost is None else round(cost * NANOS)


def dollars(cost_nanos: int) -> float:
    return cost_nanos / NANOS


def floor_to(unit: Unit, second: int) -> int:
    return second - second % UNIT_SECONDS[unit]
