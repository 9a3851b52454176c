"""Work of an agent with known evidence, to try settings on: conversations, documents, boards, pins and tools.

The turns of a conversation are divided among the window of a session, its board and a domain of documents, in groups of
consecutive turns. Entries, documents and pinned messages that come from another conversation are noise.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.product import AGENT
from weftline.history.item_ids import DocumentName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

DOMAIN = "notes"
# Turns of a board entry or a document, and in how many groups of turns one is such an entry or document.
_GROUP, _PLACES = 4, 6
_BOARD_PLACE, _DOCUMENT_PLACE, _PIN_PLACE = 1, 3, 20
_NOISE_ENTRIES, _NOISE_PINS = 3, 2
_QUESTIONS = {"bfcl_memory": 40, "locomo": 50, "ami": 50}
_CONVERSATIONS = {"bfcl_memory": 3, "locomo": 1, "ami": 3}
# Turns of each conversation: the first ones.
_MAX_TURNS = 300
# Questions that are asked again and again, how often, and those that are asked once.
_RECURRING, _REPEATS, _RARE = 8, 6, 4
_TOOL_AGENTS, _TOOLS, _CALLED_TOOLS, _TOOL_CALLS = 4, 16, 6, 80
_WORDS_OF_TASK = 8
# Limits that leave room for everything.
_ROOMY = (60_000, 100_000)


class Turn(NamedTuple):
    turn_id: str
    text: str


class Question(NamedTuple):
    """A task with its answer, and the items that have its evidence. ``gold``: refs, and URIs of documents."""

    session_id: str
    task: str
    answer: str
    gold: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()


@dataclass
class Work:
    """One session of the agent."""

    session_id: str
    events: list[Turn] = field(default_factory=list)
    board: dict[str, str] = field(default_factory=dict)
    pins: list[str] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


class EvaluationSet(NamedTuple):
    """Sessions of an agent, and the limits of its prompts and windows."""

    name: str
    sessions: list[Work]
    budget: int = 12_000
    window: int = 20_000


def evaluation_sets(folder: Path) -> Iterator[EvaluationSet]:
    yield _conversations(folder, "bfcl_memory")
    yield _recurring(folder, rare=0)
    yield _recurring(folder, rare=_RARE)
    yield _conversations(folder, "locomo")
    yield _meetings(folder)
    for number in range(_TOOL_AGENTS):
        yield _tool_set(folder, number)


def held_out_sets(folder: Path) -> Iterator[EvaluationSet]:
    """Yield sets of other conversations, meetings and tools, which no rule was made from."""
    yield _conversations(folder, "locomo", is_held_out=True)
    yield _meetings(folder, is_held_out=True)
    for number in range(_TOOL_AGENTS, 2 * _TOOL_AGENTS):
        yield _tool_set(folder, number)


def _conversations(folder: Path, name: str, *, is_held_out: bool = False) -> EvaluationSet:
    turns: dict[str, list[Turn]] = {}
    for each in _lines(folder, f"conv_retrieval/{name}_docs"):
        if each["text"].strip():
            turns.setdefault(each["conv"], []).append(Turn(each["id"], f"{each['speaker']}: {each['text']}"))
    asked = [
        (each["conv"], each["query"], _answer(each["answer"]), each["gold_ids"])
        for each in _lines(folder, f"conv_retrieval/{name}_queries")
        if each["category"] != "adversarial" and each["gold_ids"]
    ]
    return _set(name, turns, asked, is_held_out=is_held_out)


def _recurring(folder: Path, *, rare: int) -> EvaluationSet:
    """Return an agent that is asked the same questions in every half, and some only once."""
    work = _conversations(folder, "bfcl_memory").sessions[0]
    again, once = work.questions[:_RECURRING], work.questions[_RECURRING : _RECURRING + rare]
    asked = [again[(number * 3 + number // _RECURRING) % _RECURRING] for number in range(_RECURRING * _REPEATS)]
    step = len(asked) // (rare + 1)
    for number, question in enumerate(once):
        asked.insert((number + 1) * step + number, question)
    work.questions = asked
    return EvaluationSet("recurring_and_rare" if rare else "recurring", [work], *_ROOMY)


def _meetings(folder: Path, *, is_held_out: bool = False) -> EvaluationSet:
    facts = _lines(folder, "compaction/ami_facts")
    turns = {
        each["conv"]: [Turn(message["id"], f"{message['speaker']}: {message['text']}") for message in each["messages"]]
        for each in _lines(folder, "compaction/ami_conversations")
    }
    asked = [
        (each["conv"], f"What about: {' '.join(each['fact'].split()[:_WORDS_OF_TASK])}", each["fact"], ids)
        for each in facts
        if (ids := each["evidence_ids"])
    ]
    return _set("ami", turns, asked, is_held_out=is_held_out)


def _set(
    name: str,
    turns: Mapping[str, Sequence[Turn]],
    asked: Sequence[tuple[str, str, str, list[str]]],
    *,
    is_held_out: bool = False,
) -> EvaluationSet:
    """Return the conversations with the most questions as sessions; those with the next most are held out."""
    known = {conv: {turn.turn_id for turn in said[:_MAX_TURNS]} for conv, said in turns.items()}
    asked = [each for each in asked if known[each[0]].issuperset(each[3])]
    ranked = [conv for conv, _ in Counter(each[0] for each in asked).most_common()]
    # The conversation after them is noise.
    size = _CONVERSATIONS[name] + 1
    most = ranked[size : 2 * size] if is_held_out else ranked[:size]
    noise = turns[most[-1]] if len(most) > _CONVERSATIONS[name] else ()
    sessions = []
    for conv in most[: _CONVERSATIONS[name]]:
        work, places = _work(
            conv, turns[conv][:_MAX_TURNS], noise or turns[next(each for each in most if each != conv)]
        )
        questions = [
            Question(work.session_id, task, answer, frozenset(places[each] for each in gold if each in places))
            for of, task, answer, gold in asked
            if of == conv
        ]
        work.questions = [each for each in questions if each.gold][: _QUESTIONS[name]]
        sessions.append(work)
    return EvaluationSet(name, sessions)


def _work(conv: str, turns: Sequence[Turn], noise: Sequence[Turn]) -> tuple[Work, dict[str, str]]:
    """Return the session of a conversation, and the place of each of its turns: a ref, or the URI of a document."""
    work = Work(_name(conv))
    places: dict[str, str] = {}
    for number, group in enumerate(_groups(turns)):
        text = "\n".join(turn.text for turn in group)
        if number % _PIN_PLACE == _PIN_PLACE - 1:
            work.pins.append(text)
            place = f"message:{work.session_id}/{len(work.pins)}"
        elif number % _PLACES == _BOARD_PLACE:
            work.board[f"note_{number}"] = text
            place = f"board:{work.session_id}/note_{number}"
        elif number % _PLACES == _DOCUMENT_PLACE:
            document_id = f"{work.session_id}-{number}.txt"
            work.documents[document_id] = text
            place = str(DocumentName(DOMAIN, document_id))
        else:
            work.events += [turn._replace(turn_id=_name(turn.turn_id)) for turn in group]
            places |= {turn.turn_id: f"window:{work.session_id}:{AGENT}/{_name(turn.turn_id)}" for turn in group}
            continue
        places |= {turn.turn_id: place for turn in group}
    groups = ["\n".join(turn.text for turn in group) for group in islice(_groups(noise), 2, None)]
    work.board |= {f"other_{number}": text for number, text in enumerate(groups[:_NOISE_ENTRIES])}
    work.pins += groups[_NOISE_ENTRIES : _NOISE_ENTRIES + _NOISE_PINS]
    return work, places


def _groups(turns: Sequence[Turn]) -> Iterator[Sequence[Turn]]:
    return (turns[start : start + _GROUP] for start in range(0, len(turns), _GROUP))


def _tool_set(folder: Path, number: int) -> EvaluationSet:
    """Return an agent with tools of which it needs some and most never; every other one needs some of them seldom."""
    tools = _lines(folder, "tools/metatool_tools")[number * _TOOLS : (number + 1) * _TOOLS]
    names = [tool["id"] for tool in tools]
    wanted = names[:: max(1, _TOOLS // _CALLED_TOOLS)][:_CALLED_TOOLS]
    queries: dict[str, list[str]] = {name: [] for name in wanted}
    for each in _lines(folder, "tools/metatool_queries"):
        if len(each["gold_tools"]) == 1 and each["gold_tools"][0] in queries:
            queries[each["gold_tools"][0]].append(each["query"])
    work = Work(f"tools-{number}")
    work.tools = [_definition(tool) for tool in tools]
    # Each tool half as often as the one before it, so that the last ones are needed once; or all of them equally often.
    halved = [max(1, _TOOL_CALLS >> (place + 1)) for place in range(len(wanted))]
    counts = halved if number % 2 == 0 else [_TOOL_CALLS // len(wanted)] * len(wanted)
    calls = [(name, turn) for name, count in zip(wanted, counts, strict=True) for turn in range(count)]
    calls.sort(key=lambda call: ((call[1] + 0.5) / counts[wanted.index(call[0])], call[0]))
    work.questions = [
        Question(work.session_id, queries[name][turn % len(queries[name])], "", tools=(name,)) for name, turn in calls
    ]
    return EvaluationSet(f"tools_{number}", [work])


def _definition(tool: Mapping[str, str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"query": {"type": "string", "description": "What is asked."}}}
    name = _name(tool["id"])
    return {
        "type": "function",
        "function": {"name": name, "description": tool["description"], "parameters": parameters},
    }


def _answer(answer: object) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


def _name(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "_-" else "_" for sign in name)


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
