"""What a later message does to an earlier one: takes its place, or answers it.

One author wrote the pairs without a view of the code or of the lists that the classifier was trained on: half of them
do, half look as if they did. Counted is what compaction makes of the two messages. What is wrongly taken for replaced
or answered is lost, so in doubt both stand.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.injection.corpora import lines_of
from evals.results import Row
from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.content import ConversationMessage
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import FactKind
from weftline.windows.model import Category, WindowEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.models.language_models.content import Role

_PAIRS = Path(__file__).parent / "data" / "pairs"


def pairs(folder: Path | None) -> Iterator[Row]:
    del folder
    replacements = [(row["replaces"], _is_replaced(row)) for row in lines_of(_PAIRS / "replacement.jsonl")]
    yield from _rows("replaced", replacements)
    answers = [(row["answered"], _is_answered(row)) for row in lines_of(_PAIRS / "answer.jsonl")]
    yield from _rows("answered", [(label, found) for label, found in answers if found is not None])


def _rows(name: str, found: Sequence[tuple[bool, bool]]) -> Iterator[Row]:
    for label, word in ((True, "recognised"), (False, "false")):
        rows = [taken for is_so, taken in found if is_so is label]
        yield Row(f"pairs.{name}.{word}", round(sum(rows) / len(rows), 3), f"of {len(rows)} pairs", None, None, None)


def _is_replaced(row: dict[str, Any]) -> bool:
    facts = extract_facts([_event(1, "user", row["earlier"]), _event(2, "user", row["later"])])
    return any(fact.status == "superseded" for fact in facts if fact.event_ids[0] == "1")


def _is_answered(row: dict[str, Any]) -> bool | None:
    """Tell whether a question is answered; None if it is not known for a question even without a reply."""
    question, reply = _event(1, "user", row["question"]), _event(2, "assistant", row["reply"])
    return not _is_open([question, reply]) if _is_open([question]) else None


def _is_open(events: Sequence[WindowEvent]) -> bool:
    return any(
        fact.kind is FactKind.OPEN_QUESTION and fact.status == "current" and fact.event_ids[0] == "1"
        for fact in extract_facts(events)
    )


def _event(number: int, role: Role, text: str) -> WindowEvent:
    return WindowEvent(
        event_id=str(number),
        number=number,
        category=Category.DIALOG,
        message=ConversationMessage(role=role, content=text),
        kind="message",
        at=number,
        author="human:ada" if role == "user" else "agent:planner",
        agent_id="planner",
        tokens=approximate_tokens(text),
    )
