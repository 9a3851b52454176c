"""Push and pull: random sequences against a model, simultaneous pushes, and what a push must never do.

The model says what every session has: the version that it pulled, or that its first prompt gave it, until it pulls
again. Reads and prompts are compared with it, whatever was pushed or rolled back since, and after a restart.
"""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weftline.app.tenants import ADMIN
from weftline.kernel.errors import WeftlineError
from weftline.validation.model import Figure, all_of, none_of
from weftline.validation.temporary_weftline import opened, temporary_weftline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from weftline.settings import Settings
    from weftline.validation.temporary_weftline import TenantCaller

_AGENTS = ("planner", "writer")
_SESSIONS = ("morning", "evening")
_KEYS = tuple(f"fact-{number}" for number in range(8))
_STEPS = 150
# Of these, with a restarted server.
_STEPS_AFTER_RESTART = 30
_WORDS = re.compile(r"word-\d+")
_ROUNDS = 20
_WALK = 13


async def measure(settings: Settings) -> Sequence[Figure]:
    async with temporary_weftline(settings) as admin:
        agents = [await _agent(admin, name) for name in _AGENTS]
        walks = {agent.principal: _Walk() for agent in agents}
        wrong = [each for agent in agents for each in await walks[agent.principal].take(agent, _STEPS)]
        async with opened(admin.app.settings) as restarted:
            for agent in agents:
                again = replace(agent, app=restarted)
                wrong += await walks[agent.principal].take(again, _STEPS_AFTER_RESTART)
        several = [number for number in range(_ROUNDS) if not await _one_wins(agents[0], number)]
        traces = [name for name in ("no..path", "%72ole") if await _leaves_trace(agents[0], name)]
        before = await admin.call("agent.read_definition", agent_id=_AGENTS[0])
        accepted = await _accepted_pushes(agents)
        changed = [] if await admin.call("agent.read_definition", agent_id=_AGENTS[0]) == before else ["definition"]
        damaged = [name for name in _AGENTS if not await _is_intact(admin, name)]
    return [
        all_of(
            "random pushes, pulls, rollbacks, reads and prompts that agree with a model",
            (_STEPS + _STEPS_AFTER_RESTART) * len(_AGENTS),
            wrong,
        ),
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


class _Walk:
    """Random steps of one agent in its sessions; it goes on where it was, also after a restart."""

    def __init__(self) -> None:
        self.choose = random.Random(_WALK)  # noqa: S311 - the same walk each time, not a secret
        self.memory = _MemoryModel()
        self.step = 0

    async def take(self, agent: TenantCaller, steps: int) -> list[str]:
        """Push, pull, roll back, read and prompt; return the steps whose outcome is not that of the model."""
        wrong = []
        for _ in range(steps):
            self.step += 1
            session = f"{agent.principal}-{self.choose.choice(_SESSIONS)}"
            action = self.choose.choice((_push, _push, _pull, _roll_back, _read, _prompt))
            if not await action(agent, self.memory, session, self.choose):
                wrong.append(f"{agent.principal}, step {self.step}: {action.__name__[1:]}")
        return wrong


class _MemoryModel:
    """Every version that an agent's memory had, by key, and the version that each session has."""

    def __init__(self) -> None:
        self.versions: list[dict[str, str]] = [{}]
        self.pulled: dict[str, int] = {}

    @property
    def version(self) -> int:
        return len(self.versions) - 1

    def held(self, session: str) -> dict[str, str]:
        return self.versions[self.pulled[session]]


async def _push(agent: TenantCaller, memory: _MemoryModel, session: str, choose: random.Random) -> bool:
    """Push with the version in effect, or with an older one, which must be refused and change nothing."""
    del session
    is_stale = memory.version > 0 and choose.random() < 0.2  # noqa: PLR2004 - one in five
    entries = {key: f"word-{choose.randrange(1_000_000)}" for key in choose.sample(_KEYS, choose.randint(1, 3))}
    try:
        pushed = await agent.call(
            "context.push",
            knowledge=[{"key": key, "value": f"The word of {key} is {word}."} for key, word in entries.items()],
            if_version=memory.version - is_stale,
        )
    except WeftlineError as error:
        return is_stale and error.code == "VERSION_CONFLICT"
    memory.versions.append(memory.versions[-1] | entries)
    return pushed["version"] == memory.version and not is_stale


async def _pull(agent: TenantCaller, memory: _MemoryModel, session: str, choose: random.Random) -> bool:
    del choose
    pulled = await agent.call("context.pull", session_id=session)
    came_from, memory.pulled[session] = memory.pulled.get(session), memory.version
    entries = _words(entry for listed in pulled["context"]["memory"].values() for entry in listed)
    transition = (pulled.get("from_version"), pulled["to_version"])
    return entries == memory.held(session) and transition == (came_from, memory.version)


async def _roll_back(agent: TenantCaller, memory: _MemoryModel, session: str, choose: random.Random) -> bool:
    """Return the memory to an earlier version, which no session has before it pulls."""
    del session
    target = choose.randrange(memory.version + 1)
    if target == 0 or memory.versions[target] == memory.versions[-1]:
        return True
    context_id = f"context:{agent.principal}"
    admin = agent.acting_as(ADMIN)
    await admin.call("history.rollback", context_id=context_id, target_version=str(target))
    memory.versions.append(memory.versions[target])
    return bool((await agent.call("context.status"))["version"] == memory.version)


async def _read(agent: TenantCaller, memory: _MemoryModel, session: str, choose: random.Random) -> bool:
    """Read in a session: what it has, whatever was pushed since."""
    del choose
    if session not in memory.pulled:
        return True
    page = await agent.call("context.read", session_id=session)
    return _words(page["entries"]) == memory.held(session)


async def _prompt(agent: TenantCaller, memory: _MemoryModel, session: str, choose: random.Random) -> bool:
    """Ask for the word of a key: the prompt has that of the session, and no word that the session does not have."""
    await agent.index()
    key = choose.choice(_KEYS)
    task = f"What is the word of {key}?"
    answer = await agent.call("context.assemble", session_id=session, task_description=task)
    # The first prompt gives a session its memory.
    memory.pulled.setdefault(session, memory.version)
    held, found = memory.held(session), set(_WORDS.findall(str(answer["body"])))
    return found <= set(held.values()) and (key not in held or held[key] in found)


def _words(entries: Iterable[Any]) -> dict[str, str]:
    return {entry["key"]: _WORDS.findall(entry["value"])[0] for entry in entries}


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
    except WeftlineError as error:
        return error.code
    return "ok"


async def _is_intact(admin: TenantCaller, name: str) -> bool:
    return bool((await admin.call("history.verify", context_id=f"context:{name}"))["intact"])
