"""What guardrails add to a call: to a board write without rules, and with 1,000 rules.

Without rules, rounds of writes with the guard installed alternate with rounds without it, in one process; compared is
the CPU time. With rules, the time of the guard itself is measured, before and after a write of 160 characters: in the
mix, one rule in ten is about board writes; in the worst case all are, and no condition is true, so that all of them are
evaluated. The last row is the worst case with a regular expression in every condition, which CEL compiles each time.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.harness import Row, compared, limited
from benchmarks.servers import TENANT, call, folder, open_app, prepare
from weft.app.authentication import Local
from weft.app.dispatch import CallContext
from weft.kernel.guards import GuardedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.app.app import App

_RULES = 1_000
_PER_LAYER = 200
_SESSION, _AGENT = "s", "worker"
_VALUE = "The parser reads one line at a time and reports the column of the first error. " * 2
_MILLISECONDS = 1_000
_AT_MOST = 1.15
_BELOW_MS = 1.0
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
    """Rounds, writes of a round, and measured calls of the guard."""

    rounds: int
    writes: int
    checks: int


def run(*, quick: bool) -> list[Row]:
    return asyncio.run(_run(Sizes(1, 20, 10) if quick else Sizes(15, 600, 400)))


async def _run(sizes: Sizes) -> list[Row]:
    with folder() as data:
        url = str(data / "weft.db")
        await prepare(url, [_SESSION])
        app = await open_app(url)
        try:
            await _add_agent(app)
            rows = [await _without_rules(app, sizes)]
            for name, rule in (("mix", _mixed), ("all_match", _matching), ("all_regex", _with_regex)):
                await _define(app, rule)
                milliseconds = await _added(app, sizes.checks)
                target = f"guardrails.{_RULES}_rules_{name}"
                rows.append(
                    Row(target, milliseconds, "ms/call")
                    if name == "all_regex"
                    else limited(target, milliseconds, "ms/call", below=_BELOW_MS)
                )
            return rows
        finally:
            await app.close()


async def _add_agent(app: App) -> None:
    await call(
        app, "agent.create", agent_id=_AGENT, agent_type="worker", parent_id="admin", permissions=["read", "write"]
    )
    await call(app, "session.add_members", session_id=_SESSION, members=[_AGENT])
    for team in _teams():
        await call(app, "team.create", team=team)
        await call(app, "team.add_member", team=team, agent_id=_AGENT)


def _teams() -> Sequence[str]:
    return [f"t{number}" for number in range(_RULES // _PER_LAYER - 1)]


async def _without_rules(app: App, sizes: Sizes) -> Row:
    await _write(app, sizes.writes)
    pairs = []
    for _ in range(sizes.rounds):
        ours = await _write(app, sizes.writes)
        app.guards.uninstall(app.guardrail_guard)
        theirs = await _write(app, sizes.writes)
        app.guards.install(app.guardrail_guard)
        pairs.append((ours / sizes.writes, theirs / sizes.writes))
    return compared(pairs).row("guardrails.no_rules", "us/write", "without the guard", at_most=_AT_MOST)


async def _write(app: App, writes: int) -> float:
    operation, context = app.registry["board.write"], CallContext(Local(TENANT, _AGENT))
    started = time.process_time()
    for number in range(writes):
        await app.call(
            operation, {"session_id": _SESSION, "key": f"k{number % 8}", "value": f"Step {number} is done"}, context
        )
    return (time.process_time() - started) * 1_000_000


async def _define(app: App, rule: Callable[[int], dict[str, Any]]) -> None:
    rules = [rule(number) for number in range(_RULES)]
    for place, layer in enumerate(("tenant", *(f"team:{team}" for team in _teams()))):
        of_layer = rules[place * _PER_LAYER : (place + 1) * _PER_LAYER]
        await call(app, "layer.define", layer=layer, guardrails=of_layer)


async def _added(app: App, checks: int) -> float:
    """Return the median time of the guard around a board write, in milliseconds."""
    operation, context = app.registry["board.write"], CallContext(Local(TENANT, _AGENT))
    raw = {"session_id": _SESSION, "key": "goal", "value": _VALUE}
    # Compiles the conditions that are used together.
    for _ in range(3):
        await app.call(operation, raw, context)
    actor = await app.identify(context)
    guarded = GuardedCall(operation, operation.parse(raw), actor)
    answer = await app.call(operation, raw, context)
    times = []
    for _ in range(checks):
        started = time.perf_counter()
        if app.guards.apply(guarded):
            await app.guards.before(guarded)
            await app.guards.after(guarded, answer)
        times.append(time.perf_counter() - started)
    return median(times) * _MILLISECONDS


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
