"""Tool choice: whether an agent finds the right tool for a task, by the product's own retrieval of tools.

Each task is put to ``weftline_tools`` as the agent would phrase it. It succeeds if the right tool is in the agent's
default list, or if the right tool, with the right action if it has several, is among the first three found. The tasks
were written before the ranking was looked at; the texts of the tools were improved with them, so they overestimate. The
held-out tasks do not: they were written afterwards.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evals.results import Row
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TASKS = Path(__file__).with_name("tool_choice.jsonl")
# Written after the texts of the tools were complete, and never used to improve them.
HELD_OUT = Path(__file__).with_name("tool_choice_held_out.jsonl")
TARGET = 0.95
FIRST = 3
_TENANT = "default"
_ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent wants to do, in its own words, and the tool for it."""

    task: str
    tool: str
    action: str | None
    role: str

    @property
    def entry(self) -> str:
        """The tool as ``weftline_tools`` names it."""
        return f"{self.tool}.{self.action}" if self.action else self.tool


@dataclass(frozen=True, slots=True)
class Choice:
    """What an agent had to choose from: the tools in its list, and those found, best first."""

    task: Task
    is_listed: bool
    found: list[str]

    @property
    def place(self) -> int | None:
        """The place of the right tool and action among those found, from 1."""
        return self.found.index(self.task.entry) + 1 if self.task.entry in self.found else None

    @property
    def is_found(self) -> bool:
        return self.place is not None and self.place <= FIRST

    @property
    def is_right(self) -> bool:
        return self.is_listed or self.is_found


def read_tasks(path: Path) -> list[Task]:
    return [Task(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def tool_choice(folder: Path | None) -> Iterator[Row]:
    """Evaluate the tasks that are part of the repository."""
    del folder
    choices, held_out = asyncio.run(choose(read_tasks(TASKS), read_tasks(HELD_OUT)))
    for choice in [*choices, *held_out]:
        if not choice.is_right:
            print(f"  {choice.task.entry} for {choice.task.task!r}: place {choice.place}, found {choice.found[:FIRST]}")
    yield from _rows("tool_choice", choices, TARGET)
    yield from _rows("tool_choice.held_out", held_out)


def _rows(name: str, choices: Sequence[Choice], at_least: float | None = None) -> Iterator[Row]:
    unlisted = [choice for choice in choices if not choice.is_listed]
    yield _row(name, [choice.is_right for choice in choices], "listed or in the first three", at_least)
    yield _row(f"{name}.unlisted", [choice.is_found for choice in unlisted], "of unlisted tools in the first three")
    yield _row(f"{name}.unlisted.first", [c.place == 1 for c in unlisted], "of unlisted tools found first")
    yield _row(f"{name}.unlisted.tool", [_names_tool(c) for c in unlisted], "of unlisted tools, any action")


def _row(name: str, right: Sequence[bool], unit: str, at_least: float | None = None) -> Row:
    share = sum(right) / len(right)
    return Row(
        name=name,
        value=round(share, 4),
        unit=f"{unit} ({len(right)})",
        baseline=None,
        target=None if at_least is None else f">= {at_least}",
        met=None if at_least is None else share >= at_least,
    )


def _names_tool(choice: Choice) -> bool:
    return any(name.partition(".")[0] == choice.task.tool for name in choice.found[:FIRST])


async def choose(*sets: Sequence[Task]) -> list[list[Choice]]:
    with tempfile.TemporaryDirectory() as folder:
        app = App(Settings(database_url=f"{folder}/weftline.db", data_dir=folder, rate_limits="off"))
        await app.open()
        try:
            callers = await _callers(app)
            await app.tool_catalogue.prepare()
            await _check(app, callers, [task for given in sets for task in given])
            listed = {role: await _listed(app, caller) for role, caller in callers.items()}
            return [
                [
                    Choice(task, task.tool in listed[task.role], await _found(app, callers[task.role], task.task))
                    for task in given
                ]
                for given in sets
            ]
        finally:
            await app.close()


async def _callers(app: App) -> dict[str, CallContext]:
    """Return a caller of each role."""
    await app.tenants.create(_TENANT)
    admin = CallContext(Local(_TENANT, _ADMIN))
    orchestrator = await _call(app, admin, "agent.create", agent_id="orchestrator", clearance=3)
    subagent = await _call(app, admin, "agent.create", agent_id="subagent", parent_id="orchestrator")
    return {
        "admin": admin,
        "orchestrator": CallContext(orchestrator["api_key"]),
        "subagent": CallContext(subagent["api_key"]),
    }


async def _check(app: App, callers: dict[str, CallContext], given: Sequence[Task]) -> None:
    """Raise if a task asks for a tool that its role may not use."""
    for role, caller in callers.items():
        usable = {entry.name for entry in app.toolbox.entries(await app.identify(caller))}
        wrong = [task.entry for task in given if task.role == role and task.entry not in usable]
        if wrong:
            raise ValueError(f"not usable by {role}: {', '.join(wrong)}")


async def _listed(app: App, caller: CallContext) -> set[str]:
    return {view.name for view in app.toolbox.listed(await app.identify(caller))}


async def _found(app: App, caller: CallContext, task: str) -> list[str]:
    found = await _call(app, caller, "tools.search", query=task)
    return [tool["name"] for tool in found["tools"]]


async def _call(app: App, caller: CallContext, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - JSON
    return msgspec.to_builtins(await app.call(app.registry[operation], raw, caller))
