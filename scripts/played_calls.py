"""A story of calls with a clock that stands and ids that count: prompts, receipts, compactions, refusals, events."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.encoder.classifier import CLASSIFIER
from weftline.kernel.errors import WeftlineError
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock
from weftline.transports.http.http_io import error_body
from weftline.windows.compaction.facts import units

# Of the classifier.
_DIGITS = 1
_MODELS = ("claude-sonnet-5", "gpt-5")
_STRATEGIES = ("sliding_window", "hierarchical", "task_scoped", "key_facts", "auto")
_MEASURED = frozenset(("took_ms", "timing_ms", "duration_ms"))
_DOCUMENT = """# Retries

A client retries three times. The budget of an order is two seconds; what is left of it is sent along.

## Incidents

Since release 4.2 an order takes four seconds: the pool holds 12 connections instead of 40.
"""
_TURNS = (
    "We must keep the checkout available during the deploy. The deadline is 2026-03-01.",
    "I measured the pool: 12 connections, all busy, and p95 is 3.9 seconds.",
    "We decided to revert the pool to 40 connections. Who approves the change in production?",
    "Production is read-only until Ana approves. Order 58213 failed with error E-1042.",
)
# (operation, fields) of calls that are refused.
_REFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("board.read", {"session_id": "s1", "key": "missing"}),
    ("board.read", {"session_id": "nowhere", "key": "goal"}),
    ("board.read", {"session_id": "s1"}),
    ("board.write", {"session_id": "s1", "key": "goal", "value": 1, "unknown": True}),
    ("board.write", {"session_id": "s1", "key": "goal", "value": "late", "if_version": 99}),
    ("message.list", {"session_id": "s1", "limit": 0}),
    ("receipt.show", {"receipt_id": "rcpt_none"}),
    ("agent.create", {"agent_id": "planner"}),
    ("session.create", {"session_id": "s1", "purpose": "again"}),
    ("knowledge.add_document", {"domain": "nowhere", "document_id": "d", "text": "x"}),
    ("compaction.show", {"compaction_id": "none"}),
    ("window.create", {"session_id": "s1", "model": "no-such-model"}),
)


def played() -> dict[str, Any]:
    """Return every answer by the name of its call."""
    with tempfile.TemporaryDirectory() as folder, _counting_ids():
        return asyncio.run(_play(folder))


@contextmanager
def _counting_ids() -> Iterator[None]:
    numbers = itertools.count(1)

    def octets(size: int = 32) -> bytes:
        return next(numbers).to_bytes(size, "big")

    with (
        patch.object(secrets, "token_bytes", octets),
        patch.object(secrets, "token_hex", lambda size=32: octets(size).hex()),
        patch.object(secrets, "token_urlsafe", lambda size=32: octets(size).hex()),
        patch.object(os, "urandom", octets),
        patch.object(time, "time_ns", lambda: next(numbers)),
        patch.object(units, "_classifier", _RoundingClassifier),
    ):
        yield


class _RoundingClassifier:
    """The classifier of sentences with rounded numbers: the exact ones differ between processors."""

    def __init__(self) -> None:
        self._classifier = CLASSIFIER.get()
        self.tokens = self._classifier.tokens

    def kinds(self, window: Sequence[int], spans: Sequence[tuple[int, int]]) -> Any:  # noqa: ANN401 - an array
        return self._classifier.kinds(window, spans).round(_DIGITS)

    def pair(self, first: str, second: str) -> tuple[float, float]:
        answers, replaces = self._classifier.pair(first, second)
        return round(answers, _DIGITS), round(replaces, _DIGITS)


async def _play(folder: str) -> dict[str, Any]:
    # Numbers of an embedding differ between processors.
    settings = Settings(data_dir=folder, rate_limits="off", semantic_search="off", search_wait_ms=0)
    app = App(settings, clock=FrozenClock())
    await app.open(background=False)
    try:
        await app.tenants.ensure_default()
        story = _Story(app)
        await story.prepare()
        await story.prompts()
        await story.compactions()
        await story.refusals()
        await story.state()
        return story.answers
    finally:
        await app.close()


class _Story:
    """Calls one operation after the other and notes what they answer."""

    def __init__(self, app: App) -> None:
        self.answers: dict[str, Any] = {}
        self._app = app

    async def call(self, operation: str, /, *, by: str = "admin", **fields: Any) -> Any:  # noqa: ANN401 - any answer
        context = CallContext(Local("default", by, by_owner=True))
        return msgspec.to_builtins(await self._app.call(self._app.registry[operation], fields, context))

    async def note(self, name: str, operation: str, /, **fields: Any) -> Any:  # noqa: ANN401 - likewise
        answer = await self.call(operation, **fields)
        self.answers[name] = _without_times(answer)
        return answer

    async def jobs(self, *names: str) -> None:
        self._app.lease_runner.rest = 0
        await self._app.scheduler.drain(*names)

    async def prepare(self) -> None:
        await self.note("agent.create", "agent.create", agent_id="planner")
        await self.note("session.create", "session.create", session_id="s1", purpose="a story", members=["planner"])
        for number, (key, value) in enumerate({"goal": "ship", "scope": {"parts": ["pool", 40]}, "risk": None}.items()):
            await self.note(f"board.write {number}", "board.write", session_id="s1", key=key, value=value)
        await self.note("board.write again", "board.write", session_id="s1", key="goal", value="ship safely")
        for number, text in enumerate(_TURNS):
            await self.note(f"message.add {number}", "message.add", session_id="s1", content=text)
        await self.note("memory.set", "memory.set", key="style", value="short sentences")
        await self.call("knowledge.create_domain", domain="runbooks", description="How the shop is run")
        document = {"domain": "runbooks", "document_id": "retries.md", "text": _DOCUMENT}
        await self.note("knowledge.add_document", "knowledge.add_document", **document)
        await self.jobs("knowledge.ingest", "search.index_sessions")
        await self.note("search.query", "search.query", query="pool of connections")

    async def prompts(self) -> None:
        events = [
            {"event_id": f"e{number}", "role": ("user", "assistant")[number % 2], "content": f"{number}. {text}"}
            for number, text in enumerate(_TURNS * 8)
        ]
        await self.note("context.ingest", "context.ingest", session_id="s1", events=events)
        for model, budget in itertools.product(_MODELS, (600, 4000)):
            made = await self.note(
                f"context.assemble {model} {budget}",
                "context.assemble",
                session_id="s1",
                task_description="Why is an order slow, and what was decided about the pool?",
                model=model,
                token_budget=budget,
            )
            shown = await self.note(f"receipt.show {model} {budget}", "receipt.show", receipt_id=made["receipt_id"])
            assert shown["receipt_id"] == made["receipt_id"]

    async def compactions(self) -> None:
        for strategy in _STRATEGIES:
            await self.call("context.compact", session_id="s1", strategy=strategy, target=0.3, wait_seconds=0)
            await self.jobs("compaction.run")
            listed = await self.note(f"compaction.list {strategy}", "compaction.list", session_id="s1")
            for number, made in enumerate(listed["compactions"][:1]):
                await self.note(
                    f"compaction.show {strategy} {number}", "compaction.show", compaction_id=made["compaction_id"]
                )
        await self.note("context.assemble compacted", "context.assemble", session_id="s1", task_description="Go on.")

    async def refusals(self) -> None:
        for number, (operation, fields) in enumerate(_REFUSED):
            try:
                await self.call(operation, **fields)
            except WeftlineError as error:
                self.answers[f"refused {number} {operation}"] = error_body(error, self._app.clock)
            else:
                raise AssertionError(operation)

    async def state(self) -> None:
        for name, operation, fields in (
            ("board", "board.list_keys", {"session_id": "s1"}),
            ("window", "window.show", {"session_id": "s1"}),
            ("records", "records.list", {"session_id": "s1", "limit": 100}),
            ("events", "events.read", {"after": 0}),
        ):
            await self.note(name, operation, **fields)


def _without_times(answer: object) -> object:
    """Leave out what was measured, and round what was computed."""
    if isinstance(answer, dict):
        return {name: _without_times(value) for name, value in answer.items() if name not in _MEASURED}
    if isinstance(answer, list):
        return [_without_times(value) for value in answer]
    return round(answer, 3) if isinstance(answer, float) else answer
