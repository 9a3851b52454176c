"""Compaction accuracy: fifty compactions of growing sessions, and the statements that prompts still have after each."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.models.language_models.content import ConversationMessage
from weftline.validation.model import Figure, all_of, share_at_least
from weftline.validation.temporary_weftline import temporary_weftline
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import is_stated
from weftline.windows.compaction.verification import verify
from weftline.windows.model import Category, WindowEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weftline.settings import Settings
    from weftline.validation.temporary_weftline import TenantCaller


# Conversations in which statements of others stand among talk, and whether a statement is still in a prompt.
#
# The packaged sample is part of lists whose authors saw neither the code of Weftline nor another list.

# Content words of a statement that stand further apart than this do not tell it.
_PASSAGE = 600
_CONTENT = re.compile(r"[^\W_]*\d[^\W_]*|[^\W\d_]{4,}")


def content_words(text: str) -> list[str]:
    """Return the words of four letters or more, and those with digits."""
    return _CONTENT.findall(text.casefold())


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of a list; ``statement`` is the part of it that must survive, empty for mere talk."""

    message: str
    role: str = "user"
    type: str = "statement"
    kind: str = "nothing"
    lang: str = ""
    field: str = ""
    statement: str = ""


class Material(NamedTuple):
    """What a validation draws from: the packaged sample, or own messages, by a number that the user may change."""

    random_seed: int = 0
    own: Sequence[Said] = ()

    def draw(self, purpose: object = "") -> random.Random:
        return random.Random(f"{self.random_seed} {purpose}")  # noqa: S311 - drawn again by the same number


@cache
def packaged() -> list[Said]:
    """Return the packaged statements and talk."""
    lines = (files("weftline.validation") / "statements.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Said) for line in lines]


def spread(statements: Sequence[Said], talk: Sequence[Said], draw: random.Random) -> list[Said]:
    """Put statements in random order at random places of talk, which keeps its order."""
    places = sorted(draw.sample(range(len(statements) + len(talk)), len(statements)))
    said = list(talk)
    for place, statement in zip(places, draw.sample(statements, len(statements)), strict=True):
        said.insert(place, statement)
    return said


def as_events(said: Iterable[Said], first: int = 1) -> Iterator[dict[str, Any]]:
    """Yield messages as events of a window; the result of a tool follows its call."""
    for number, each in enumerate(said, first):
        event = {"event_id": f"e{number}", "role": each.role, "content": each.message}
        if each.role == "tool":
            call = {"call_id": f"call-{number}", "name": "lookup", "arguments": "{}"}
            yield {"event_id": f"c{number}", "role": "assistant", "tool_calls": [call]}
            event["tool_call_id"] = f"call-{number}"
        yield event


class Passages:
    """The words of a prompt's messages, to look for statements in them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [[(each.start(), each.group()) for each in _CONTENT.finditer(text.casefold())] for text in texts]
        self._words = [{word for _, word in text} for text in self._texts]

    def have(self, statement: str) -> bool:
        """Tell whether all content words of a statement stand within one passage of a message."""
        wanted = set(content_words(statement))
        length = max(_PASSAGE, len(statement))
        return any(
            wanted <= words and _is_near(wanted, text, length)
            for text, words in zip(self._texts, self._words, strict=True)
        )


def _is_near(wanted: set[str], text: Sequence[tuple[int, str]], length: int) -> bool:
    last: dict[str, int] = {}
    for start, word in text:
        if word in wanted:
            last[word] = start
            if len(last) == len(wanted) and start + len(word) - min(last.values()) <= length:
                return True
    return not wanted


_AGENT = "worker"
_SESSIONS, _ROUNDS = 10, 5
# Of each round: one statement in six messages.
_STATEMENTS, _TALK = 8, 40
_KEEP_RECENT = 10
_WAIT_SECONDS = 60
# No limit of the prompt may hide what a compaction lost, or keep what it should not.
_WINDOW_TOKENS = 1_000_000
_LEAST_STATEMENTS, _LEAST_BINDING, _LEAST_FACTS = 98.0, 99.0, 99.0
_BINDING = ("commitment", "constraint", "open_question")
_MOST_TOKENS = 70


@dataclass(slots=True)
class _Totals:
    """Sums over all compactions."""

    compactions: int = 0
    failed: list[str] = field(default_factory=list)
    # By kind.
    statements: Counter[str] = field(default_factory=Counter)
    survivors: Counter[str] = field(default_factory=Counter)
    # In order of loss, with the number of prompts that lacked them.
    lost: Counter[str] = field(default_factory=Counter)
    facts: int = 0
    facts_kept: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


async def measure(
    settings: Settings, material: Material | None = None, sessions: int = _SESSIONS, rounds: int = _ROUNDS
) -> Sequence[Figure]:
    """Compact each session several times while it grows; what counts is the text of the prompt after each time."""
    totals = _Totals()
    # Without an index no passage of a covered event comes back: the figures are those of the compaction alone.
    async with temporary_weftline(settings, session_indexing="off") as admin:
        await admin.call("agent.create", agent_id=_AGENT)
        for number, told in enumerate(stated_sessions(material or Material(), sessions, rounds)):
            await _compact_session(admin.acting_as(_AGENT), f"work-{number}", told, totals)
    binding = sum(totals.statements[kind] for kind in _BINDING)
    return [
        all_of("compactions that were applied", totals.compactions, totals.failed),
        share_at_least(
            f"statements in the next prompt, {totals.statements.total()} looked for",
            totals.survivors.total(),
            totals.statements.total(),
            _LEAST_STATEMENTS,
            [statement for statement, _ in totals.lost.most_common()],
        ),
        share_at_least(
            f"commitments, constraints and open questions of them, {binding} looked for",
            sum(totals.survivors[kind] for kind in _BINDING),
            binding,
            _LEAST_BINDING,
        ),
        share_at_least(
            f"key facts that Weftline recognises, {totals.facts} looked for",
            totals.facts_kept,
            totals.facts,
            _LEAST_FACTS,
        ),
        _tokens_left(totals),
    ]


def stated_sessions(material: Material, sessions: int = _SESSIONS, rounds: int = _ROUNDS) -> Iterator[list[list[Said]]]:
    """Yield the rounds of each session: statements of others among talk, or among own messages in one session."""
    statements = [each for each in packaged() if each.statement]
    talk = [each for each in packaged() if not each.statement]
    for number in range(1 if material.own else sessions):
        draw = material.draw(number)
        said = list(material.own) or draw.sample(talk, _TALK * rounds)
        stated = iter(draw.sample(statements, min(len(statements), _STATEMENTS * rounds)))
        size = -(-len(said) // rounds)
        parts = [said[start : start + size] for start in range(0, len(said), size)]
        yield [spread([*_first(stated, _STATEMENTS)], part, draw) for part in parts]


def _first(stated: Iterator[Said], count: int) -> Iterator[Said]:
    for _, statement in zip(range(count), stated, strict=False):
        yield statement


async def _compact_session(
    caller: TenantCaller, session_id: str, told: Sequence[Sequence[Said]], totals: _Totals
) -> None:
    await caller.call("session.create", session_id=session_id, purpose="A validation.")
    await caller.call("window.create", session_id=session_id, model_max_tokens=_WINDOW_TOKENS)
    ingested: list[dict[str, Any]] = []
    said: list[Said] = []
    for part in told:
        events = list(as_events(part, first=len(said) + 1))
        said += part
        stored = await caller.call("context.ingest", session_id=session_id, events=events)
        # What the gate marks is never a key fact, and its call is not one without a result.
        marked = {each["event_id"][1:] for each in stored["events"] if each.get("trust")}
        ingested += [event for event in events if event["event_id"][1:] not in marked]
        done = await caller.call(
            "context.compact", session_id=session_id, keep_recent=_KEEP_RECENT, wait_seconds=_WAIT_SECONDS
        )
        totals.compactions += 1
        totals.tokens_before += done.get("tokens_before", 0)
        totals.tokens_after += done.get("tokens_after", 0)
        if done["state"] != "applied" or done.get("degraded"):
            totals.failed.append(f"{session_id}: {done['state']}")
        _count(said, ingested, await _prompt_texts(caller, session_id), totals)


def _count(said: Sequence[Said], ingested: Sequence[dict[str, Any]], texts: Sequence[str], totals: _Totals) -> None:
    prompt = Passages(texts)
    for each in said:
        if each.statement:
            survives = prompt.have(each.statement)
            totals.statements[each.kind] += 1
            totals.survivors[each.kind] += survives
            if not survives:
                totals.lost[each.statement] += 1
    events = [_window_event(number, event) for number, event in enumerate(ingested, 1)]
    facts = [fact for fact in extract_facts(events) if fact.status == "current" and is_stated(fact)]
    totals.facts += len(facts)
    totals.facts_kept += len(verify("\n\n".join(texts), facts).found)


def _window_event(number: int, event: dict[str, Any]) -> WindowEvent:
    """Return an event as a window has it, for the rules that recognise key facts."""
    is_result = event["role"] == "tool"
    return WindowEvent(
        event_id=event["event_id"],
        number=number,
        category=Category.SYSTEM_OUTPUT if is_result else Category.DIALOG,
        message=msgspec.convert({key: value for key, value in event.items() if key != "event_id"}, ConversationMessage),
        kind="tool_output" if is_result else "message",
        at=number,
        author=_AGENT,
        agent_id=_AGENT,
        tokens=0,
    )


async def _prompt_texts(caller: TenantCaller, session_id: str) -> list[str]:
    prompt = await caller.call(
        "context.assemble", session_id=session_id, task_description="Go on.", token_budget=_WINDOW_TOKENS, fresh=True
    )
    return [message.get("content") or "" for message in prompt["body"]["messages"]]


def _tokens_left(totals: _Totals) -> Figure:
    """Return the tokens after compaction: one that shortens nothing keeps every fact."""
    value = 100 * totals.tokens_after / totals.tokens_before if totals.tokens_before else 100.0
    return Figure(
        measured="tokens after compaction",
        value=round(value, 1),
        unit="%",
        target=f"<= {_MOST_TOKENS} %",
        met=value <= _MOST_TOKENS,
    )


# Generated sessions of work with planted facts: what a compaction must keep.

TURNS = 8
_MAX_TURNS = 5 * TURNS
_WORK = ("incident", "migration", "release", "audit", "billing", "search", "mobile", "data", "support", "hiring")
_MODULES = ("parser", "router", "mailer", "indexer", "gateway", "planner", "exporter", "scheduler", "auditor")
_PROBLEMS = (
    "connection refused by the upstream",
    "disk quota exceeded",
    "column currency does not exist",
    "certificate has expired",
    "permission denied for role reader",
    "checksum mismatch in the archive",
    "out of memory while sorting",
    "deadlock detected, transaction aborted",
)
_SMALL_TALK = (
    "Sure, let me have a look at that and come back to you in a moment.",
    "Thanks, that helps. I am going through the material one piece after the other.",
    "Good point. Let us see how far this gets us before we think about anything else.",
    "I see. That matches what I noticed earlier, so it should be fine for now.",
    "All right, on it. There is a bit of background to read first, which takes a while.",
)


class Planted(NamedTuple):
    """A sentence of a session, and what of it must be found."""

    text: str
    probes: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        return all(probe in text for probe in self.probes)


class PlantedSession:
    """A session of generated work: facts in noise. The same number gives the same session."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)  # noqa: S311 - the same session each time, not a secret
        self._work = _WORK[number % len(_WORK)]
        self._events = 0
        self._errors = iter(self._random.sample(list(product(_MODULES, _PROBLEMS)), _MAX_TURNS))
        self.planted: list[Planted] = []

    def turns(self, count: int = TURNS) -> Iterator[dict[str, Any]]:
        for _ in range(count):
            fact = self._fact()
            self.planted.append(fact)
            yield self._event("user", f"{self._talk()} {fact.text} {self._talk()}")
            call_id = f"call-{self._events}"
            calls = [{"call_id": call_id, "name": "read_log", "arguments": '{"lines": 40}'}]
            yield self._event("assistant", self._talk(), tool_calls=calls)
            error = self._error()
            self.planted.append(error)
            yield self._event("tool", self._log(error.text), tool_call_id=call_id)
            yield self._event("assistant", f"{self._talk()} {self._talk()} {self._talk()}")

    def _event(self, role: str, content: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        self._events += 1
        return {"event_id": f"e{self._events}", "role": role, "content": content, **fields}

    def _number(self) -> int:
        return self._random.randint(1_000, 99_999)

    def _talk(self) -> str:
        return self._random.choice(_SMALL_TALK)

    def _error(self) -> Planted:
        """Return an error that no other one repeats."""
        module, problem = next(self._errors)
        return Planted(f"ERROR in {module}: {problem}", (module, problem))

    def _log(self, error: str) -> str:
        lines = [f"2026-03-0{1 + n % 9} INFO {self._work}-worker heartbeat ok" for n in range(40)]
        lines[self._random.randrange(len(lines))] = error
        return "\n".join(lines)

    def _fact(self) -> Planted:
        number, day = self._number(), f"2026-{self._random.randint(1, 9):02}-{self._random.randint(10, 28)}"
        name = self._random.choice(("Tomas", "Ines", "Grace", "Omar"))
        texts = (
            Planted(f"We decided to use shard-{number} for the {self._work} database.", (f"shard-{number}",)),
            Planted(f"The deadline for the {self._work} report is {day}; {name} owns it.", (day, name)),
            Planted(f"You must not exceed {number} requests per minute.", (str(number), "not")),
            Planted(f"I prefer answers in tables of at most {number % 90 + 10} rows.", (str(number % 90 + 10),)),
            Planted(f"The file is /srv/{self._work}/part-{number}.csv.", (f"/srv/{self._work}/part-{number}.csv",)),
            Planted(f"See https://example.com/{self._work}/{number} for the contract.", (f"/{self._work}/{number}",)),
            Planted(f'The customer said "never call {number} again".', (f"never call {number} again",)),
            Planted(f"Open question: who pays for ticket OPS-{number}?", (f"OPS-{number}",)),
            Planted(f"We are blocked by the missing key {self._work}_key_{number}.", (f"{self._work}_key_{number}",)),
            Planted(f"The budget is {number} EUR, and it is final.", (str(number), "EUR")),
        )
        return self._random.choice(texts)
