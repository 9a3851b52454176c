"""Metrics: of all calls for Prometheus, and of each tenant for its admins.

Calls add to plain lists; the counters of prometheus_client would cost each call several times as much.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, defaultdict, deque
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from weftline.app.genai_telemetry import record_usage
from weftline.insight.metrics import BUCKET_SECONDS, ChatModelMetrics, MetricTotals, OperationMetrics, Trend
from weftline.kernel.client_gone import ClientGone
from weftline.kernel.operation import Effect, RateClass
from weftline.models.language_models.catalog import OTHER_MODEL, ModelLabel
from weftline.models.metering import UsageSums, dollars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from prometheus_client.core import Metric

    from weftline.app.dispatch import KeyOwner
    from weftline.insight.metrics import MetricBucket
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation
    from weftline.models.language_models.answer_usage import Usage
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.metering import UsageEntry


# Rates and trends of metrics.
#
# A trend compares the last hour, or half of the measured time if that is less than two hours, with the time before it,
# up to a day. A metric rises or falls when it changes by more than a tenth. A ratio (error rate, cache hit ratio) must
# also change by 0.01, so that one error in a thousand calls is no trend. With less than ten minutes, or fewer than
# twenty calls to compare, the trend is unknown.

_HOUR = 3_600.0
_MIN_SECONDS = 600.0
_MIN_CALLS = 20
_TENTH = 0.1
_HUNDREDTH = 0.01
# Samples are taken every 30 seconds: six minutes are kept, for rates.
_SAMPLES = 12


class Sample(NamedTuple):
    """Totals at a timestamp in seconds."""

    at: float
    totals: MetricTotals


class TrendSpan(NamedTuple):
    """What was counted in a time."""

    seconds: float
    totals: MetricTotals


Halves = tuple[TrendSpan, TrendSpan]


class Series:
    """The latest samples."""

    def __init__(self, first: Sample) -> None:
        self._samples: deque[Sample] = deque([first], maxlen=_SAMPLES)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def since(self, seconds: float, latest: Sample) -> TrendSpan:
        """Return the span of the last ``seconds``, extended to the sample before, or of all samples."""
        begin = latest.at - seconds
        first = next((sample for sample in reversed(self._samples) if sample.at <= begin), self._samples[0])
        return TrendSpan(latest.at - first.at, latest.totals.minus(first.totals))


def halves(buckets: Sequence[MetricBucket], now: float) -> Halves | None:
    """Return the earlier and the later span to compare; None if they are too short."""
    if not buckets or now - buckets[0].first_at < _MIN_SECONDS:
        return None
    first = buckets[0].first_at
    turn = round((now - min(_HOUR, (now - first) / 2)) / BUCKET_SECONDS) * BUCKET_SECONDS
    return (
        TrendSpan(turn - first, _sum(bucket for bucket in buckets if bucket.start < turn)),
        TrendSpan(now - turn, _sum(bucket for bucket in buckets if bucket.start >= turn)),
    )


def _sum(buckets: Iterable[MetricBucket]) -> MetricTotals:
    return reduce(MetricTotals.plus, (bucket.totals for bucket in buckets), MetricTotals())


def response_time_trend(spans: Halves | None) -> Trend:
    """Compare the mean response time."""
    if spans is None or min(span.totals.timed for span in spans) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.seconds / span.totals.timed for span in spans))


def throughput_trend(spans: Halves | None) -> Trend:
    """Compare calls per second."""
    if spans is None or sum(span.totals.calls for span in spans) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.calls / span.seconds for span in spans))


def error_rate_trend(spans: Halves | None) -> Trend:
    """Compare the error rate."""
    if spans is None or min(span.totals.calls for span in spans) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.errors / span.totals.calls for span in spans), at_least=_HUNDREDTH)


def cache_efficiency_trend(spans: Halves | None) -> Trend:
    """Compare the cache hit ratio."""
    if spans is None or min(span.totals.lookups for span in spans) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.hits / span.totals.lookups for span in spans), at_least=_HUNDREDTH)


def compare(before: float, later: float, *, at_least: float = 0.0) -> Trend:
    """Classify the change of a metric."""
    if abs(later - before) <= max(before * _TENTH, at_least):
        return Trend.STABLE
    return Trend.INCREASING if later > before else Trend.DECREASING


_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_BOUNDS = (*map(str, _SECONDS), "+Inf")
_OK = "ok"
# Figures that only grow, as counters must: those that reports correct downwards are in usage reports only.
_TOKENS = ("input", "output", "cache_read", "cache_write", "naive_baseline", "document", "engine_assembled")
_COSTS = ("expected", "reported")
_NO_LABEL = ModelLabel(OTHER_MODEL, OTHER_MODEL)
_ACTIVE_SECONDS = 300.0
_MAX_TENANTS = 1_000
# Of agents and of sessions, for each tenant.
_MAX_ACTIVE = 10_000


class Metrics(Collector):
    """Counts and times calls by operation. Labels never contain anything a caller sent."""

    def __init__(self, clock: Clock, model_label: Callable[[str], ModelLabel] = lambda _: _NO_LABEL) -> None:
        self._clock = clock
        self.model_label = model_label
        self._calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._within: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_BOUNDS))
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tool_calls: defaultdict[str, int] = defaultdict(int)
        self._deliveries: defaultdict[str, int] = defaultdict(int)
        self._embeddings: defaultdict[str, int] = defaultdict(int)
        self._chat_calls: defaultdict[str, int] = defaultdict(int)
        self._chat_tokens: defaultdict[str, int] = defaultdict(int)
        self._usage: defaultdict[tuple[str, str], UsageSums] = defaultdict(UsageSums)
        self._damaged_indexes = 0
        self._low_relevance = 0
        self._tool_tokens: defaultdict[str, int] = defaultdict(int)
        self._indexed_items = 0
        self._skipped_items = 0
        self._index_lag = 0
        self._documents: defaultdict[str, int] = defaultdict(int)
        self._chunks = 0
        self._pending_documents = 0
        self._started = clock.now()
        self._tick = self._started.timestamp()
        # LRU order: the first is evicted first.
        self._tenants: OrderedDict[str, TenantCalls] = OrderedDict()
        self._has_evicted = False
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def record(
        self,
        operation: Operation,
        outcome: str,
        seconds: float,
        caller: Actor | KeyOwner | None = None,
        session_id: str | None = None,
    ) -> None:
        """Count a call, also for the tenant if the caller is known.

        One whose client left has neither worked nor failed.
        """
        name = operation.name
        place = bisect_left(_SECONDS, seconds)
        self._calls[name, outcome] += 1
        self._within[name][place] += 1
        self._seconds[name] += seconds
        if caller is None or outcome == ClientGone.code:
            return
        tenant = self._tenants.get(caller.tenant) or self._add_tenant(caller.tenant)
        self._tenants.move_to_end(caller.tenant)
        calls = tenant.operations.get(name) or tenant.begin(operation)
        calls.add(place, seconds, failed=outcome != _OK)
        tenant.agents.see(caller.principal_id, self._tick)
        if session_id is not None and outcome == _OK:
            # The session named by a failed call may not exist.
            tenant.sessions.see(session_id, self._tick)

    def count_tool_call(self, path: Literal["fast", "sdk"]) -> None:
        """Count a tool call over MCP by what answered it: the fast path or the SDK."""
        self._tool_calls[path] += 1

    def count_delivery(self, outcome: str, times: int = 1) -> None:
        """Count webhook requests by outcome; ``dead`` counts events that were given up."""
        if times:
            self._deliveries[outcome] += times

    def count_embeddings(self, hits: int, misses: int) -> None:
        """Count hits and misses of the embedding cache."""
        self._embeddings["hit"] += hits
        self._embeddings["miss"] += misses

    def count_indexed_items(self, items: int) -> None:
        """Count messages, keys and memories whose index entries were updated."""
        self._indexed_items += items

    def count_skipped_items(self, items: int) -> None:
        """Count messages, keys and memories that cannot be chunked or embedded."""
        self._skipped_items += items

    def set_index_lag(self, events: int) -> None:
        """Set the index lag in events, of the tenant with the largest."""
        self._index_lag = events

    def count_document(self, outcome: str) -> None:
        """Count a document by how indexing it ended."""
        self._documents[outcome] += 1

    def count_chunks(self, chunks: int) -> None:
        """Count document chunks that were added."""
        self._chunks += chunks

    def set_pending_documents(self, documents: int) -> None:
        """Set the number of documents waiting to be indexed."""
        self._pending_documents = documents

    def count_low_relevance(self) -> None:
        """Count a search that found nothing relevant."""
        self._low_relevance += 1

    def count_tool_tokens(self, available: int, loaded: int) -> None:
        """Count the tokens of tool definitions: of all that could have been loaded for a task, and of those chosen."""
        self._tool_tokens["available"] += available
        self._tool_tokens["loaded"] += loaded

    def count_chat_call(self, caller: ChatCaller, outcome: str, seconds: float, usage: Usage | None) -> None:
        """Count a call of Weftline's own language model, also for the tenant that it was made for."""
        self._chat_calls[outcome] += 1
        tenant = self._tenants.get(caller.tenant) or self._add_tenant(caller.tenant)
        tenant.chat_model.add(seconds, usage, failed=outcome != _OK)
        if usage is not None:
            self._chat_tokens["input"] += usage.input_tokens
            self._chat_tokens["cached"] += usage.cache_read_tokens
            self._chat_tokens["output"] += usage.output_tokens

    def count_usage(self, entries: Sequence[UsageEntry]) -> None:
        """Count usage entries that this process has rolled up: over all processes each counts once.

        A call counts for the model of its prompt, its report for the model that answered: nothing is moved.
        """
        for each in entries:
            if each.entry == "move":
                continue
            key = (each.key.kind, self.model_label(each.key.model).model)
            self._usage[key] = self._usage[key].plus(each.sums)
        record_usage(entries, self.model_label)

    def count_damaged_index(self) -> None:
        """Count an index with damaged files."""
        self._damaged_indexes += 1

    def of_tenant(self, tenant: str) -> TenantCalls:
        """Return the calls of one tenant."""
        return self._tenants.get(tenant) or self._new_tenant()

    def by_tenant(self) -> list[tuple[str, TenantCalls]]:
        """Return the calls of every tenant."""
        return list(self._tenants.items())

    def sample(self) -> None:
        """Sample the totals of every tenant, for rates."""
        self._tick = self._clock.now().timestamp()
        for tenant in self._tenants.values():
            tenant.sample(self._tick)

    def add_source(self, source: Collector) -> None:
        """Add the figures of a collector to the exposition."""
        self._registry.register(source)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        calls = CounterMetricFamily("weftline_calls", "Calls by operation and outcome", labels=["operation", "outcome"])
        for labels, count in self._calls.items():
            calls.add_metric(labels, count)
        yield calls
        times = HistogramMetricFamily("weftline_call_seconds", "Time a call took", labels=["operation"])
        for name, within in self._within.items():
            times.add_metric([name], list(zip(_BOUNDS, accumulate(within), strict=True)), self._seconds[name])
        yield times
        tool_calls = CounterMetricFamily(
            "weftline_tool_calls", "Tool calls over MCP by path: fast or sdk", labels=["path"]
        )
        for path, count in self._tool_calls.items():
            tool_calls.add_metric([path], count)
        yield tool_calls
        yield _by_outcome(
            "weftline_webhook_deliveries", "Webhook requests by outcome, and events given up", self._deliveries
        )
        yield CounterMetricFamily(
            "weftline_indexed_items",
            "Messages, keys and memories whose index entries were updated",
            value=self._indexed_items,
        )
        yield CounterMetricFamily(
            "weftline_skipped_items",
            "Messages, keys and memories that cannot be searched, or not by meaning",
            value=self._skipped_items,
        )
        yield GaugeMetricFamily(
            "weftline_index_lag_events", "Index lag in events, of the tenant with the largest", value=self._index_lag
        )
        yield _by_outcome("weftline_embedding_cache", "Lookups of the embedding cache", self._embeddings)
        tool_tokens = CounterMetricFamily(
            "weftline_tool_tokens",
            "Tokens of tool definitions, available for tasks and loaded for them",
            labels=["tools"],
        )
        for kind, tokens in self._tool_tokens.items():
            tool_tokens.add_metric([kind], tokens)
        yield tool_tokens
        yield _by_outcome(
            "weftline_chat_calls", "Calls of the language model for summaries by outcome", self._chat_calls
        )
        chat_tokens = CounterMetricFamily(
            "weftline_chat_tokens",
            "Tokens of the language model for summaries: input, cached of them, output",
            labels=["kind"],
        )
        for kind, tokens in self._chat_tokens.items():
            chat_tokens.add_metric([kind], tokens)
        yield chat_tokens
        yield from self._usage_families()
        yield CounterMetricFamily(
            "weftline_low_relevance", "Searches that found nothing relevant", value=self._low_relevance
        )
        yield CounterMetricFamily(
            "weftline_damaged_indexes", "Indexes rebuilt because their files were damaged", value=self._damaged_indexes
        )
        yield _by_outcome("weftline_documents", "Documents by outcome of indexing", self._documents)
        yield CounterMetricFamily("weftline_chunks", "Document chunks that were added", value=self._chunks)
        yield GaugeMetricFamily(
            "weftline_documents_pending", "Documents waiting to be indexed", value=self._pending_documents
        )

    def _usage_families(self) -> Iterator[Metric]:
        """Yield the usage of all tenants. Models that the catalog does not have are one label."""
        labels = ["kind", "model"]
        calls = CounterMetricFamily("weftline_model_calls", "Model calls that were metered", labels=labels)
        cost = CounterMetricFamily(
            "weftline_model_cost_dollars", "Cost of model calls in US dollars", labels=[*labels, "cost"]
        )
        tokens = CounterMetricFamily("weftline_model_tokens", "Tokens of model calls", labels=[*labels, "tokens"])
        for key, sums in self._usage.items():
            calls.add_metric(key, sums.calls)
            for name in _COSTS:
                cost.add_metric([*key, name], dollars(getattr(sums, f"{name}_cost_nanos")))
            for name in _TOKENS:
                tokens.add_metric([*key, name], getattr(sums, f"{name}_tokens"))
        yield from (calls, cost, tokens)

    def _add_tenant(self, name: str) -> TenantCalls:
        if len(self._tenants) >= _MAX_TENANTS:
            self._tenants.popitem(last=False)
            self._has_evicted = True
        tenant = self._tenants[name] = self._new_tenant()
        return tenant

    def _new_tenant(self) -> TenantCalls:
        # An unknown tenant has made no calls since the start, unless it was evicted.
        return TenantCalls(self._clock.now() if self._has_evicted else self._started)


def _by_outcome(name: str, help_text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=["outcome"])
    for outcome, count in counts.items():
        family.add_metric([outcome], count)
    return family


class TenantCalls:
    """Calls of one tenant."""

    __slots__ = ("agents", "chat_model", "operations", "series", "sessions", "since", "written")

    def __init__(self, since: datetime) -> None:
        self.since = since
        self.operations: dict[str, OperationCalls] = {}
        self.agents = _Active()
        self.sessions = _Active()
        self.chat_model = ChatModelCalls()
        self.series = Series(Sample(since.timestamp(), MetricTotals()))
        # What is in the metric history already.
        self.written = MetricTotals()

    def begin(self, operation: Operation) -> OperationCalls:
        calls = self.operations[operation.name] = OperationCalls(operation)
        return calls

    def sample(self, at: float) -> None:
        self.series.add(Sample(at, self.totals()))
        self.agents.forget(at)
        self.sessions.forget(at)

    def totals(self) -> MetricTotals:
        """Return the current totals."""
        every = [(calls, sum(calls.within)) for calls in self.operations.values()]
        timed = [(calls, count) for calls, count in every if calls.operation.effect is not Effect.WAIT]
        return MetricTotals(
            calls=sum(count for _, count in every),
            errors=sum(calls.errors for calls, _ in every),
            timed=sum(count for _, count in timed),
            seconds=sum(calls.seconds for calls, _ in timed),
            messages=sum(count - calls.errors for calls, count in every if _sends_messages(calls.operation)),
            searches=sum(count - calls.errors for calls, count in every if calls.operation.rate is RateClass.SEARCH),
        )


def _sends_messages(operation: Operation) -> bool:
    return operation.rate is RateClass.MESSAGE and operation.effect is Effect.WRITE


class ChatModelCalls:
    """Calls of Weftline's own language model for one tenant."""

    __slots__ = ("_cached", "_calls", "_errors", "_input", "_output", "_seconds")

    def __init__(self) -> None:
        self._calls = self._errors = self._input = self._cached = self._output = 0
        self._seconds = 0.0

    def add(self, seconds: float, usage: Usage | None, *, failed: bool) -> None:
        self._calls += 1
        self._errors += failed
        self._seconds += seconds
        if usage is not None:
            self._input += usage.input_tokens
            self._cached += usage.cache_read_tokens
            self._output += usage.output_tokens

    def figures(self) -> ChatModelMetrics:
        return ChatModelMetrics(
            calls=self._calls,
            errors=self._errors,
            seconds=round(self._seconds, 3),
            input_tokens=self._input,
            cached_tokens=self._cached,
            output_tokens=self._output,
        )


class OperationCalls:
    """Latency histogram of one operation."""

    __slots__ = ("errors", "operation", "seconds", "slowest", "within")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.within = [0] * len(_BOUNDS)
        self.seconds = 0.0
        self.slowest = 0.0
        self.errors = 0

    def add(self, place: int, seconds: float, *, failed: bool) -> None:
        """Count a call in the bucket with this index."""
        self.within[place] += 1
        self.seconds += seconds
        self.errors += failed
        if seconds > self.slowest:  # noqa: PLR1730 - max() costs several times as much
            self.slowest = seconds

    def figures(self) -> OperationMetrics:
        return OperationMetrics(
            calls=sum(self.within),
            errors=self.errors,
            p50_ms=self._percentile(0.50),
            p95_ms=self._percentile(0.95),
            p99_ms=self._percentile(0.99),
        )

    def _percentile(self, share: float) -> float:
        """Return a percentile in milliseconds, by linear interpolation within a bucket.

        The slowest call is the upper bound, also of the last bucket.
        """
        wanted = share * sum(self.within)
        for lower, upper, count in zip((0.0, *_SECONDS), (*_SECONDS, self.slowest), self.within, strict=True):
            if count and wanted <= count:
                seconds = lower + (min(upper, self.slowest) - lower) * wanted / count
                return round(seconds * 1_000, 3)
            wanted -= count
        return round(self.slowest * 1_000, 3)


class _Active:
    """Recently seen names, each with the time of the last sample before it was seen."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def see(self, name: str, tick: float) -> None:
        if name in self._seen or len(self._seen) < _MAX_ACTIVE:
            self._seen[name] = tick

    def count(self, now: float) -> int:
        return sum(tick >= now - _ACTIVE_SECONDS for tick in self._seen.values())

    def forget(self, now: float) -> None:
        """Drop names that are no longer active."""
        self._seen = {name: tick for name, tick in self._seen.items() if tick >= now - _ACTIVE_SECONDS}
