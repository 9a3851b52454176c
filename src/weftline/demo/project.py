"""The demo's project: sixty messages in three conversations, documents, and what each agent has to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

ORCHESTRATOR = "planner"
FINDER = "analysis"
FIXER = "remediation"
DOMAIN = "operations"
# The documents are short; their sections should be found separately.
CHUNKING = {"chunk_tokens": 128, "overlap_tokens": 0}
MODEL = "claude-sonnet-5-5"
TOKEN_BUDGET = 3_500


class Step(NamedTuple):
    """A question to an agent, a phrase that its prompt must have, and the model's answer, which the demo scripts."""

    question: str
    evidence: str
    answer: str


class _Lookup(NamedTuple):
    """A tool that a model called, and its output."""

    tool: str
    arguments: str
    output: str


_Turn = tuple[str, str] | _Lookup


def documents() -> dict[str, str]:
    """Return the texts of the documents by name."""
    folder = files("weftline.demo") / "documents"
    return {each.name: each.read_text("utf-8") for each in sorted(folder.iterdir(), key=lambda each: each.name)}


def conversation(agent: str) -> list[dict[str, Any]]:
    """Return the events of an agent's conversation so far."""
    return list(_events(_CONVERSATIONS[agent]))


def _events(turns: Sequence[_Turn]) -> Iterator[dict[str, Any]]:
    for number, turn in enumerate(turns, 1):
        event_id = f"m{number}"
        if isinstance(turn, _Lookup):
            call = {"call_id": event_id, "name": turn.tool, "arguments": turn.arguments}
            yield {"event_id": f"{event_id}-call", "role": "assistant", "tool_calls": [call]}
            yield {"event_id": event_id, "role": "tool", "tool_call_id": event_id, "content": turn.output}
        else:
            yield {"event_id": event_id, "role": turn[0], "content": turn[1]}


def _orders_by_minute(day: str, hour: int, slow: int) -> str:
    """Return a table of response times; ``slow`` is the usual share of slow orders in percent."""
    rows = [f"{day} {hour}:00 to {hour}:59, orders by minute", "minute  orders  p50_ms  p95_ms  slower_than_3s"]
    for minute in range(60):
        orders = 26 + minute * 7 % 13
        p50 = 640 + minute * 31 % 180 + slow * 20
        late = orders * min(95, slow + minute * 11 % 9) // 100
        rows.append(f"{hour}:{minute:02}  {orders}  {p50}  {p50 * 2 + minute * 17 % 240}  {late}")
    return "\n".join(rows)


# The parts of an order, with their usual duration in milliseconds.
TRACED = {
    "basket.load": 22,
    "customer.check": 31,
    "stock.reserve": 38,
    "address.check": 17,
    "tax.compute": 9,
    "discount.apply": 14,
    "payment.authorise": 160,
    "orders.insert": 12,
    "mail.queue": 6,
    "shipping.plan": 44,
    "audit.write": 8,
    "price.fetch": 540,
}


def long_lookups() -> list[tuple[str, str, str]]:
    """Return the tool, the argument and the output of each lookup of the agent that is run with the model proxy."""
    return [("query_traces", part, _traces(part, base, 260)) for part, base in TRACED.items()]


def _traces(part: str, base: int, samples: int = 80) -> str:
    """Return spans of sampled orders."""
    return "\n".join(
        f"order 88{1000 + sample * 37} span {part} start +{sample * 13 % 90} ms duration {base + sample * 29 % 110} ms "
        f"instance price-{sample % 8 + 1} result ok"
        for sample in range(samples)
    )


def _settings(lifetime: int) -> str:
    lines = [f"price_cache_ttl: {lifetime}", "price_timeout_ms: 2000", "contract_system_max_requests: 40"]
    return "\n".join([*lines, *(f"article_group_{group}_rounding: half_up" for group in range(120))])


def _tickets(topic: str) -> str:
    return "\n".join(
        f"SUP-{4100 + number}: {topic}, customer {number * 53 % 900 + 100}, basket of {number % 7 + 1} articles, "
        f"waited {3 + number % 4} seconds, state {'answered' if number % 3 else 'open'}."
        for number in range(60)
    )


def _test_run(suite: str) -> str:
    return "\n".join(
        [f"{suite}: 140 tests", *(f"PASS {suite}::case_{number:03} {number * 17 % 90 + 5} ms" for number in range(140))]
    )


_CONVERSATIONS: Mapping[str, Sequence[_Turn]] = {
    ORCHESTRATOR: (
        ("user", "Orders became slow this week. Please find out why and have it repaired. Ines leads the order team."),
        ("assistant", "I will let analysis find the cause and remediation prepare the repair. Is there a deadline?"),
        ("user", "It must be repaired before the sale. Costs: stay below 12,000 euros for outside help."),
        ("assistant", "Noted: before the sale, at most 12,000 euros for outside help. Who wants reports?"),
        ("user", "Ines wants a short status every evening: cause, decision, next step. No tables."),
        _Lookup("list_tickets", '{"queue": "support", "since": "Tuesday"}', _tickets("The order took long")),
        ("assistant", "Sixty tickets since Tuesday, all about slow orders, none about wrong prices."),
        _Lookup("list_tickets", '{"queue": "support", "since": "last week"}', _tickets("Question about delivery")),
        ("assistant", "The week before, nobody complained about speed. So it began on Tuesday."),
        ("user", "Production may be read, not changed, until I agree. Staging is free to use."),
        ("assistant", "Understood. analysis works on staging only."),
        _Lookup("read_mail", '{"from": "Ines"}', _tickets("Forwarded by Ines: slow order")),
        ("assistant", "Ines forwards the same complaints. She asks whether the release of Tuesday is the cause."),
        _Lookup("read_mail", '{"from": "Malik"}', _tickets("The shop gave up after eight seconds")),
        ("user", "The shorter cache was a typing error. Going back to 300 seconds is approved."),
        ("assistant", "Thank you. I put the decision on the board and ask remediation for a plan."),
    ),
    FINDER: (
        ("user", "Find the change that made orders slow. Change nothing that customers use."),
        _Lookup("query_metrics", '{"day": "Monday", "hour": 10}', _orders_by_minute("Monday", 10, 1)),
        _Lookup("query_metrics", '{"day": "Tuesday", "hour": 10}', _orders_by_minute("Tuesday", 10, 58)),
        ("assistant", "On Tuesday between 10 and 11 o'clock 1,204 of 1,966 orders took longer than three seconds."),
        _Lookup("query_traces", '{"span": "stock"}', _traces("stock.reserve", 38)),
        _Lookup("query_traces", '{"span": "database"}', _traces("orders.insert", 12)),
        _Lookup("query_traces", '{"span": "price"}', _traces("price.fetch", 540)),
        ("assistant", "Stock and database are as fast as before. The time is lost in price.fetch."),
        ("user", "Why would prices take longer than last week?"),
        _Lookup("read_settings", '{"service": "price", "system": "production"}', _settings(3)),
        _Lookup("read_settings", '{"service": "price", "system": "staging"}', _settings(300)),
        ("assistant", "Production has price_cache_ttl 3, staging 300. With 300 on staging an order takes one second."),
        ("user", "Good. Keep the evidence for the report."),
    ),
    FIXER: (
        ("user", "The user approved going back to 300 seconds. Prepare the change; do not deploy yet."),
        _Lookup("read_settings", '{"service": "price", "system": "production"}', _settings(3)),
        ("assistant", "The change is one line: price_cache_ttl from 3 to 300. I filed it as CHG-118."),
        _Lookup("run_tests", '{"suite": "price-service"}', _test_run("price-service")),
        _Lookup("run_tests", '{"suite": "order-service"}', _test_run("order-service")),
        ("assistant", "Both suites pass with 300 seconds."),
        ("user", "Try it under load on staging."),
        _Lookup("load_test", '{"minutes": 10}', _orders_by_minute("staging", 14, 0)),
        _Lookup("load_test", '{"minutes": 10, "cache": "cold"}', _orders_by_minute("staging, cold cache", 15, 6)),
        ("assistant", "With a warm cache no order is slow; with a cold one six percent for the first five minutes."),
        ("user", "Who reviews it?"),
        _Lookup("list_people", '{"team": "Pricing"}', "Tomas (lead), Lena, Jun (on leave until 24 November)"),
        ("assistant", "Lena reviews CHG-118 today, because Tomas is the author of the release."),
        ("user", "Fine."),
    ),
}

STEPS: Mapping[str, Sequence[Step]] = {
    ORCHESTRATOR: (
        Step(
            "When may a configuration change go live, given the freeze?",
            "Configuration changes are possible during the freeze until Wednesday 26 November",
            "On any working day from 9 to 16 o'clock; during the freeze until 26 November with the approval of Ines.",
        ),
        Step(
            "Who must be told before the change of the price cache goes live?",
            "tell the support desk (Noor) one hour before",
            "Noor an hour before, and #orders-live at the beginning and the end.",
        ),
        Step(
            "What did the user decide about the cache?",
            "Going back to 300 seconds is approved",
            "The shorter cache was a typing error; going back to 300 seconds is approved.",
        ),
    ),
    FINDER: (
        Step(
            "Which release shortened the price cache, and what else changed in it?",
            "The default of `price_cache_ttl` is 3",
            "2.42.0 of Tuesday: lifetimes in seconds instead of minutes, with the default 3.",
        ),
        Step(
            "Has a short lifetime of the price cache caused slow orders before?",
            "30 seconds instead of 300",
            "Yes, on 12 August: 30 seconds instead of 300. The alarm that was to follow is still open.",
        ),
        Step(
            "What differs between production and staging?",
            "Production has price_cache_ttl 3, staging 300",
            "The lifetime of the price cache: 3 seconds on production, 300 on staging.",
        ),
    ),
    FIXER: (
        Step(
            "How do I change the lifetime of the price cache?",
            "Deploy to one instance of eight, and wait ten minutes",
            "One instance of eight first, ten minutes, then two at a time.",
        ),
        Step(
            "Which checks must pass before the rollout continues?",
            "The hit ratio of the new instance is above 0.9",
            "Hit ratio above 0.9, p95 below 1.2 seconds, few estimated prices, no restarts.",
        ),
        Step(
            "What do I do if the error rate rises during the rollout?",
            "deploy rollback price-service --to previous",
            "Stop, roll back, tell #orders-live, and not again today without Ines.",
        ),
    ),
}
