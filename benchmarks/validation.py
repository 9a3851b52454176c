"""Added cost of marking, screening and validating prompts: assemblies with them against assemblies without.

Two agents with equal windows take turns in one installation. For one of them the functions that mark, sanitise, mask
and validate are replaced by ones that do nothing. A turn is an answer with a tool call, its result, and an assembly.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.assembly import Agent, new_agent, open_session
from benchmarks.harness import Row, compare, limited
from benchmarks.search_scale import grow
from benchmarks.servers import folder
from benchmarks.wire import run_async
from weftline.app.app import App
from weftline.prompts.assembly import conversation, gather, packers, prompt_trust, service
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.settings import Settings
from weftline.state.layers.prefix import data_element

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ITEMS, _EVENTS = 10_000, 60
_QUICK_ITEMS = 200
_LINES = 60
_TURNS, _ROUNDS = 10, 9
_MAX_RATIO = 1.15
_MAX_MARK_TOKENS = 12


def run(*, quick: bool) -> list[Row]:
    with folder() as data:
        return [*run_async(_measured(data, quick=quick)), *_mark_rows()]


async def _measured(data: Path, *, quick: bool) -> list[Row]:
    url = str(data / "weftline.db")
    app = App(Settings(database_url=url, data_dir=str(data), rate_limits="off", session_indexing="off"))
    # Without jobs: indexing what was written would be measured too.
    await app.open(background=False)
    try:
        installation = await grow(app, _QUICK_ITEMS if quick else _ITEMS, 1)
        await installation.build()
        await open_session(installation)
        marked, plain = [await new_agent(installation, name, _EVENTS) for name in ("marked", "plain")]
        turns = 2 if quick else _TURNS
        with _unprotected():
            await _turns(plain, 2)
        await _turns(marked, 2)
        found = await compare(
            2 if quick else _ROUNDS, partial(_turns, marked, turns), partial(_bare_turns, plain, turns)
        )
        added = Row("validation.assembly.added", max(round(found.ours - found.theirs, 3), 0), "ms CPU/prompt")
        return [found.row("validation.assembly.cpu", "ms CPU/prompt", "without", at_most=_MAX_RATIO), added]
    finally:
        await app.close()


async def _bare_turns(agent: Agent, turns: int) -> float:
    with _unprotected():
        return await _turns(agent, turns)


async def _turns(agent: Agent, turns: int) -> float:
    """Return the mean CPU milliseconds of the assemblies in some turns."""
    spent = 0.0
    for _ in range(turns):
        question = agent.installation.data_source.query()
        await agent.ingest(_tool_turn(next(_CALLS)))
        started = time.process_time()
        await agent.assemble(question)
        spent += time.process_time() - started
    return spent / turns * 1_000


_CALLS = count()


def _tool_turn(number: int) -> list[dict[str, Any]]:
    lines = (
        f"09:{number % 60:02}:{line:02} worker-{line % 4} part {line} of upload {number} stored, {line * 37} ms"
        for line in range(_LINES)
    )
    call = {"call_id": f"c{number}", "name": "find", "arguments": '{"q": 1}'}
    return [
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["call_id"], "content": "\n".join(lines)},
    ]


@contextmanager
def _unprotected() -> Iterator[None]:
    """Replace what marks, sanitises, masks and validates by what does nothing."""
    with ExitStack() as stack:
        for module, name, replacement in (
            (service, "validate_prompt", lambda *_: None),
            (conversation, "sanitise_message", lambda message: message),
            (conversation, "data_message", lambda message, *_, **__: message),
            (packers, "data_element", lambda text, *_, **__: text),
            (gather, "sanitise", lambda text: text),
            (prompt_trust, "_masked", lambda text, _: text),
        ):
            stack.enter_context(patch.object(module, name, replacement))
        yield


def _mark_rows() -> list[Row]:
    """Return the tokens that marking adds to a tool result."""
    tokens = TokenizerRegistry().named("o200k_base")
    added = tokens(data_element("disk full")) - tokens("disk full")
    return [limited("validation.tool_result.tokens", added, "tokens", below=_MAX_MARK_TOKENS)]
