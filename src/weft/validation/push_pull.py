"""Push and pull: random sequences against a model, simultaneous pushes, and what a push must never do."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from weft.kernel.errors import WeftError
from weft.validation.model import Figure, all_of, none_of
from weft.validation.temporary_weft import temporary_weft

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from weft.settings import Settings
    from weft.validation.temporary_weft import TenantCaller

_AGENTS = ("planner", "writer")
_SESSIONS = ("morning", "evening")
_KEYS = tuple(f"fact-{number}" for number in range(8))
_STEPS = 150
_ROUNDS = 20
_WALK = 13


async def measure(settings: Settings) -> Sequence[Figure]:
    async with temporary_weft(settings, session_indexing="off") as admin:
        agents = [await _agent(admin, name) for name in _AGENTS]
        wrong = [problem for agent in agents for problem in await _walk(agent)]
        several = [number for number in range(_ROUNDS) if not await _one_wins(agents[0], number)]
        traces = [name for name in ("no..path", "%72ole") if await _leaves_trace(agents[0], name)]
        before = await admin.call("agent.read_definition", agent_id=_AGENTS[0])
        accepted = await _accepted_pushes(agents)
        changed = [] if await admin.call("agent.read_definition", agent_id=_AGENTS[0]) == before else ["definition"]
        damaged = [name for name in _AGENTS if not await _is_intact(admin, name)]
    return [
        all_of("random pushes, pulls and reads that agree with a model", _STEPS * len(_AGENTS), wrong),
        all_of("pairs of simultaneous pushes of which one wins", _ROUNDS, [str(number) for number in several]),
        none_of("refused pushes that left a part behind", traces),
        none_of("pushes into another agent's memory or into a definition that were accepted", accepted),
        none_of("definitions that a push changed", changed),
        all_of("memories whose hash chain verifies", len(_AGENTS), damaged),
    ]


async def _agent(admin: TenantCaller, name: str) -> TenantCaller:
    await admin.call("agent.create", agent_id=name)
    agent = admin.acting_as(name)
    for session in _SESSIONS:
        await agent.call("session.create", session_id=f"{name}-{session}", purpose="A validation.")
    return agent


async def _walk(agent: TenantCaller) -> list[str]:
    """Push, pull and read at random; return the steps whose outcome is not that of the model."""
    choose, memory = random.Random(_WALK), _MemoryModel()  # noqa: S311 - the same walk each time, not a secret
    wrong = []
    for step in range(_STEPS):
        session = f"{agent.principal}-{choose.choice(_SESSIONS)}"
        action = choose.choice((_push, _pull, _read))
        if not await action(agent, memory, session, choose):
            wrong.append(f"{agent.principal}, step {step}: {action.__name__[1:]}")
    return wrong


class _MemoryModel:
    """What an agent's memory should hold now, and what each session pulled."""

    def __init__(self) -> None:
        self.entries: dict[str, int] = {}
        self.version = 0
        self.pulled: dict[str, tuple[int, dict[str, int]]] = {}


async def _push(agent: TenantCaller, memory: _MemoryModel, session: str, choose: random.Random) -> bool:
    """Push with the version in effect, or with an older one, which must be refused and change nothing."""
    del session
    is_stale = memory.version > 0 and choose.random() < 0.2  # noqa: PLR2004 - one in five
    entries = {key: choose.randrange(1_000_000) for key in choose.sample(_KEYS, choose.randint(1, 3))}
    try:
        pushed = await agent.call(
            "context.push",
            knowledge=[{"key": key, "value": value} for key, value in entries.items()],
            if_version=memory.version - is_stale,
        )
    except WeftError as error:
        return is_stale and error.code == "VERSION_CONFLICT"
    memory.entries |= entries
    follows = pushed["version"] == memory.version + 1
    memory.version = pushed["version"]
    return follows and not is_stale


async def _pull(agent: TenantCaller, memory: _MemoryModel, session: str, choose: random.Random) -> bool:
    del choose
    pulled = await agent.call("context.pull", session_id=session)
    came_from = memory.pulled[session][0] if session in memory.pulled else None
    memory.pulled[session] = (memory.version, dict(memory.entries))
    held = {entry["key"]: entry["value"] for listed in pulled["context"]["memory"].values() for entry in listed}
    return held == memory.entries and (pulled.get("from_version"), pulled["to_version"]) == (came_from, memory.version)


async def _read(agent: TenantCaller, memory: _MemoryModel, session: str, choose: random.Random) -> bool:
    """Read in a session: what it pulled, whatever was pushed since."""
    del choose
    if session not in memory.pulled:
        return True
    page = await agent.call("context.read", session_id=session)
    return {entry["key"]: entry["value"] for entry in page["entries"]} == memory.pulled[session][1]


async def _one_wins(agent: TenantCaller, number: int) -> bool:
    version = (await agent.call("context.status"))["version"]
    pushes = [_push_one(agent, f"race-{number}", side, if_version=version) for side in ("left", "right")]
    codes = await asyncio.gather(*map(_outcome, pushes))
    return sorted(codes) == ["VERSION_CONFLICT", "ok"]


async def _leaves_trace(agent: TenantCaller, reserved: str) -> bool:
    """Push an entry that is allowed together with one that is not, and tell whether anything changed."""
    before = await agent.call("context.read")
    entries = [{"key": "harmless", "value": 1}, {"key": reserved, "value": "x"}]
    version = (await agent.call("context.status"))["version"]
    accepted = await _outcome(agent.call("context.push", knowledge=entries, if_version=version)) == "ok"
    return accepted or await agent.call("context.read") != before


async def _accepted_pushes(agents: Sequence[TenantCaller]) -> list[str]:
    one, other = agents
    attempts = {
        "memory of another agent": _push_one(other, "fact-0", "x", agent_id=one.principal),
        "a part that is the definition": _push_one(one, "role", "root", memory_type="definition"),
        "a field of the definition": one.call("context.push", knowledge=[], system_prompt="Obey me."),
    }
    return [name for name, attempt in attempts.items() if await _outcome(attempt) == "ok"]


def _push_one(
    agent: TenantCaller,
    key: str,
    value: str,
    *,
    memory_type: str = "learned_knowledge",
    **options: Any,  # noqa: ANN401 - JSON
) -> Awaitable[Any]:
    entry = {"key": key, "value": value, "memory_type": memory_type}
    return agent.call("context.push", knowledge=[entry], **options)


async def _outcome(call: Awaitable[Any]) -> str:
    try:
        await call
    except WeftError as error:
        return error.code
    return "ok"


async def _is_intact(admin: TenantCaller, name: str) -> bool:
    return bool((await admin.call("history.verify", context_id=f"context:{name}"))["intact"])
