"""Added cost of guardrails and of the content gate, per board write of an agent.

Copies of one database are opened without background jobs, each by an application that checks something else: nothing
(the base), the guard alone, the gate alone, or everything. 64 callers write ordinary short texts, different each time.
Rounds alternate, so that other load affects all equally; compared is the CPU time of the process.

Without rules, the guard and the gate are present and have nothing to say. With 1,000 rules, the figure is what rules
add to a write: in the mix, one rule in ten is about board writes; in the worst case all are, and no condition is true,
so that all of them are evaluated. With a regular expression in every condition, CEL compiles it each time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import time
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from benchmarks.harness import SECOND_IN_MICROS, Row, compared, limited
from benchmarks.servers import AGENT, TENANT, call, folder, prepare
from weftline.app import dispatch
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.history import lines as line_store
from weftline.safety.trust.gate import Admission, ContentGate
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from weftline.kernel.operation import Operation
    from weftline.safety.trust.gate import IncomingContent

_CALLERS = 64
_KEYS = 4
_SHORT, _LONG = 200, 4_400
_LONG_VALUE_TOKENS = 2_000
_AT_MOST = 1.15
_BASE = "no checks"
_CONTEXT = CallContext(Local(TENANT, AGENT))
_RULES, _PER_LAYER = 1_000, 200
_BELOW_MS = 1.0
_TEAMS = tuple(f"t{number}" for number in range(_RULES // _PER_LAYER - 1))
# What agents write about their work, not what would suit the gate.
_SENTENCES = (
    "The retry budget is spent by the second attempt, so the queue must be drained before the deploy.",
    "Checkout latency rose to 840 ms after the index on orders was rebuilt.",
    "Finance approved the refund; the remaining invoices are due on the 14th.",
    "Two of the five regions have been migrated and the others wait for a maintenance window.",
    "The root cause is a race between the scheduler and the cleanup of expired leases.",
)
_ACTIONS = (
    "board.delete",
    "memory.*",
    "message.add",
    "context.push",
    "github.*",
    "mail.send",
    "shell.run",
    "knowledge.*",
)
_CONDITIONS = (
    "arguments.key == 'secret_{n}'",
    "arguments.key.startsWith('internal_{n}/')",
    "agent.clearance < 0 && session_id == 'x{n}'",
    "arguments.value.contains('project {n} is confidential')",
    "has(arguments.ttl_seconds) && arguments.ttl_seconds > {n}",
    "agent.type == 'type_{n}' || agent.id == 'id_{n}'",
    "now.getHours('UTC') > 24 && step == 'release_{n}'",
    "size(arguments.value) > 10000 + {n}",
)
_REGEX = "arguments.key.matches('^internal_{n}_[0-9]+$')"


class Sizes(NamedTuple):
    """Rounds, and writes of a caller in a round."""

    rounds: int
    writes: int


class Checked(NamedTuple):
    """An application, its board write, and whether its calls are checked at all."""

    app: App
    write: Operation
    is_checked: bool


def run(*, quick: bool) -> list[Row]:
    # As the server does: several threads for one small matrix only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return asyncio.run(_run(Sizes(2, 1) if quick else Sizes(21, 4)))


async def _run(sizes: Sizes) -> list[Row]:
    with folder() as data:
        start = data / "start.db"
        await prepare(str(start), [f"s{number}" for number in range(_CALLERS)], max_value_tokens=_LONG_VALUE_TOKENS)
        await _add_to_teams(start)
        async with AsyncExitStack() as stack:
            opened = {
                name: await stack.enter_async_context(_opened(start, data / f"{name}.db", guard=guard, gate=gate))
                for name, guard, gate in (
                    (_BASE, False, False),
                    ("guard", True, False),
                    ("gate", False, True),
                    ("all", True, True),
                    ("rules", True, True),
                )
            }
            ruled = opened.pop("rules")
            rows = await _without_rules(opened, sizes)
            rows.append(await _of_long_texts(opened, sizes))
            for name, rule in (("mix", _mixed), ("all_match", _matching), ("all_regex", _with_regex)):
                await _define(ruled.app, rule)
                rows.append(await _with_rules(name, ruled, opened["all"], sizes))
            return rows


async def _add_to_teams(path: Path) -> None:
    app = await _open(path)
    for team in _TEAMS:
        await call(app, "team.create", team=team)
        await call(app, "team.add_member", team=team, agent_id=AGENT)
    await app.close()


async def _open(path: Path) -> App:
    app = App(Settings(database_url=str(path), rate_limits="off"))
    # Without jobs: indexing what was written would be measured too.
    await app.open(background=False)
    return app


@asynccontextmanager
async def _opened(start: Path, path: Path, *, guard: bool, gate: bool) -> AsyncIterator[Checked]:
    shutil.copyfile(start, path)
    app = await _open(path)
    write = app.registry["board.write"]
    if not guard:
        app.guards.uninstall(app.guardrail_guard)
    if not gate:
        write = replace(write, content=None)
        app._container._sources[ContentGate] = lambda _: _OPEN_GATE  # noqa: SLF001 - there is no setting for this
    # As the guard does at the first call, for the gate without it.
    await app.caller_guardrails.load(await app.identify(_CONTEXT))
    try:
        yield Checked(app, write, guard or gate)
    finally:
        await app.close()


class OpenGate:
    """Admits everything without a look."""

    async def admit(self, content: IncomingContent) -> Admission:
        return Admission(content.text, None)

    async def admit_note(self, _: str, text: str | None) -> str | None:
        return text


_OPEN_GATE = OpenGate()


async def _without_rules(opened: Mapping[str, Checked], sizes: Sizes) -> list[Row]:
    costs = await _alternated(opened, sizes, _texts(_SHORT))
    return [
        compared(list(zip(costs[name], costs[_BASE], strict=True))).row(
            f"trust_cost.{name}", "us CPU/write", _BASE, at_most=_AT_MOST if name == "all" else None
        )
        for name in costs
        if name != _BASE
    ]


async def _of_long_texts(opened: Mapping[str, Checked], sizes: Sizes) -> Row:
    """Return what the scan of a text of 1,000 tokens costs: it needs the detector."""
    some = {name: opened[name] for name in (_BASE, "all")}
    costs = await _alternated(some, Sizes(max(sizes.rounds // 5, 1), 1), _texts(_LONG))
    pairs = list(zip(costs["all"], costs[_BASE], strict=True))
    return compared(pairs).row("trust_cost.all_1000_tokens", "us CPU/write", _BASE)


async def _with_rules(name: str, ruled: Checked, without: Checked, sizes: Sizes) -> Row:
    few = Sizes(max(sizes.rounds // 3, 1), 1)
    costs = await _alternated({"rules": ruled, "none": without}, few, _texts(_SHORT))
    added = median(ours - theirs for ours, theirs in zip(costs["rules"], costs["none"], strict=True))
    milliseconds = max(added, 0) * 1_000 / SECOND_IN_MICROS
    target = f"trust_cost.{_RULES}_rules_{name}"
    if name == "all_regex":
        return Row(target, float(f"{milliseconds:.4g}"), "ms CPU/write")
    return limited(target, milliseconds, "ms CPU/write", below=_BELOW_MS)


async def _alternated(opened: Mapping[str, Checked], sizes: Sizes, texts: Iterator[str]) -> dict[str, list[float]]:
    """Return the CPU microseconds of a write in each round, by application; each is first in turn."""
    costs: dict[str, list[float]] = {name: [] for name in opened}
    names = list(opened)
    for name in names:
        await _cost(opened[name], texts, sizes.writes)
    for number in range(sizes.rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            costs[name].append(await _cost(opened[name], texts, sizes.writes))
    return costs


async def _cost(checked: Checked, texts: Iterator[str], writes: int) -> float:
    """Measure the CPU time of a write while all callers write at once, so that they share commits."""

    async def write(caller: int) -> None:
        for turn in range(writes):
            raw = {"session_id": f"s{caller}", "key": f"key_{turn % _KEYS}", "value": next(texts)}
            await checked.app.call(checked.write, raw, _CONTEXT)

    with ExitStack() as stack:
        if not checked.is_checked:
            stack.enter_context(_storage_unchecked())
        # Garbage of one application is not collected at the cost of another.
        gc.collect()
        before = time.process_time()
        await asyncio.gather(*map(write, range(_CALLERS)))
        return (time.process_time() - before) / (_CALLERS * writes) * SECOND_IN_MICROS


@contextmanager
def _storage_unchecked() -> Iterator[None]:
    """Replace what the storage layer does for signed lines, declared sources and approved calls."""

    async def nothing(*_: Any) -> None:  # noqa: ANN401 - of any function
        """Do nothing."""

    with (
        patch.object(line_store, "is_signed", lambda _: False),
        patch.object(line_store.LineStore, "_add_derivations", nothing),
        patch.object(dispatch, "begin_approved", nothing),
    ):
        yield


def _texts(size: int) -> Iterator[str]:
    for number in count():
        sentence = " ".join(_SENTENCES[(number + place) % len(_SENTENCES)] for place in range(size // 60 + 1))
        yield f"{number:06d} {sentence}"[:size]


async def _define(app: App, rule: Callable[[int], dict[str, Any]]) -> None:
    rules = [rule(number) for number in range(_RULES)]
    for place, layer in enumerate(("tenant", *(f"team:{team}" for team in _TEAMS))):
        of_layer = rules[place * _PER_LAYER : (place + 1) * _PER_LAYER]
        await call(app, "layer.define", layer=layer, guardrails=of_layer)


def _mixed(number: int) -> dict[str, Any]:
    action = "board.write" if number % 10 == 0 else _ACTIONS[number % len(_ACTIONS)]
    scope = ["*"] if number % 3 else [f"type:type_{number % 7}", "tree:admin"]
    return {**_rule(number, action, _CONDITIONS[number // 10 % len(_CONDITIONS)]), "scope": scope}


def _matching(number: int) -> dict[str, Any]:
    return _rule(number, "board.write", _CONDITIONS[number % len(_CONDITIONS)])


def _with_regex(number: int) -> dict[str, Any]:
    return _rule(number, "board.write", _REGEX)


def _rule(number: int, action: str, condition: str) -> dict[str, Any]:
    return {"name": f"r{number}", "prohibited_action": [action], "condition": condition.replace("{n}", str(number))}
