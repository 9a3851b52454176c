"""The evaluation sets for assembly: conversations and documents, and questions with their gold evidence as text."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

_TIME_FORMAT = "%I:%M %p on %d %B, %Y"
_DEFAULT_TIME = datetime(2023, 1, 1, tzinfo=UTC)
# Of the 70 meetings of AMI one in this many: each has 800 turns to embed.
_MEETING_STEP = 6


class Turn(NamedTuple):
    """A turn of a conversation."""

    turn_id: str
    speaker: str
    text: str
    at: datetime


class GoldQuestion(NamedTuple):
    """A task, and the texts that a prompt must contain to answer it."""

    source: str
    task: str
    evidence: tuple[str, ...]


@dataclass
class AssemblySet:
    """Conversations by name, documents by name, and the questions about them."""

    name: str
    questions: list[GoldQuestion]
    conversations: dict[str, list[Turn]] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)


def turns_retrieved(folder: Path, name: str) -> AssemblySet:
    """Return conversations over many sessions. Adversarial questions, which have no evidence, are left out."""
    conversations = defaultdict(list)
    for line in lines_of(folder, f"conv_retrieval/{name}_docs"):
        conversations[line["conv"]].append(Turn(line["id"], line["speaker"], _text(line), _time(line)))
    questions = [
        (each["conv"], each["query"], each["gold_ids"])
        for each in lines_of(folder, f"conv_retrieval/{name}_queries")
        if each["category"] != "adversarial"
    ]
    return AssemblySet(name, _questions(questions, conversations), dict(conversations))


def meetings(folder: Path, name: str) -> AssemblySet:
    """Return meetings as conversations; the tasks are what annotators wrote about them, with the turns they cite."""
    conversations = {
        line["conv"]: [
            Turn(turn["id"], turn["speaker"], turn["text"], _DEFAULT_TIME + timedelta(seconds=turn["time_s"]))
            for turn in line["messages"]
        ]
        for line in lines_of(folder, f"compaction/{name}_conversations")[::_MEETING_STEP]
    }
    facts = [
        (each["conv"], each["fact"], each["evidence_ids"])
        for each in lines_of(folder, f"compaction/{name}_facts")
        if each["conv"] in conversations and each["evidence_ids"]
    ]
    return AssemblySet(name, _questions(facts, conversations), conversations)


def long_documents(folder: Path, name: str) -> AssemblySet:
    """Return long documents, each in a domain of its own; the evidence are the lines of the gold spans."""
    documents = {line["doc_id"]: line["text"] for line in lines_of(folder, f"chunking/{name}_docs")}
    questions = []
    for each in lines_of(folder, f"chunking/{name}_queries"):
        text = documents[each["doc_id"]]
        spans = [text[span["start"] : span["end"]] for span in each["gold_spans"]]
        lines = tuple(line for span in spans for line in span.splitlines() if line.strip())
        questions.append(GoldQuestion(each["doc_id"], each["query"], lines))
    return AssemblySet(name, questions, documents=documents)


SETS: dict[str, Callable[[Path], AssemblySet]] = {
    "locomo": lambda folder: turns_retrieved(folder, "locomo"),
    "bfcl_memory": lambda folder: turns_retrieved(folder, "bfcl_memory"),
    "ami": lambda folder: meetings(folder, "ami"),
    "qmsum": lambda folder: long_documents(folder, "qmsum"),
}


def sample(questions: Sequence[GoldQuestion], size: int) -> list[GoldQuestion]:
    """Return ``size`` questions evenly spread over all, all if there are fewer."""
    if len(questions) <= size:
        return list(questions)
    return [questions[place * len(questions) // size] for place in range(size)]


def sessions_of(turns: Sequence[Turn]) -> list[list[Turn]]:
    """Return turns in groups of the same day, in order."""
    groups = [[turns[0]]]
    for before, turn in pairwise(turns):
        if turn.at.date() == before.at.date():
            groups[-1].append(turn)
        else:
            groups.append([turn])
    return groups


def _questions(
    known: Iterable[tuple[str, str, Sequence[str]]], conversations: dict[str, list[Turn]]
) -> list[GoldQuestion]:
    texts = {turn.turn_id: turn.text for turns in conversations.values() for turn in turns}
    return [
        GoldQuestion(conversation, task, tuple(texts[each] for each in sorted(set(gold))))
        for conversation, task, gold in known
        if all(each in texts for each in gold)
    ]


def _text(turn: dict[str, Any]) -> str:
    caption = turn.get("image_caption")
    return f"{turn['text']} [image: {caption}]" if caption else str(turn["text"])


def _time(turn: dict[str, Any]) -> datetime:
    spoken_at = turn.get("time")
    if not spoken_at:
        return _DEFAULT_TIME + timedelta(days=turn["session"])
    return datetime.strptime(spoken_at.upper(), _TIME_FORMAT).replace(tzinfo=UTC)


def lines_of(folder: Path, name: str) -> list[dict[str, Any]]:
    with (folder / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
