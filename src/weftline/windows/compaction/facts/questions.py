"""Questions that nobody has answered yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weftline.windows.compaction.facts.statements import answers
from weftline.windows.compaction.facts.subjects import NEGATIVE, content_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.windows.model import WindowEvent

_READ = 600
# Later messages of others that may answer a question: what comes after the next is seldom about it.
_REPLIES = 1
# Messages after a question among which these are.
MAX_REPLY_DISTANCE = 2 * _REPLIES
# A reply as short as this need not repeat a word of the question.
_SHORT_REPLY = 120
NOT_YET = re.compile(
    r"\b(?:not yet|has not|have not|hasn't|haven't|noch (?:nicht|kein\w*)|pas encore|aún no|todavía no)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+")
_ONE_QUESTION = re.compile(r"[^.!?]+\?\s*\Z")


def is_undecided(text: str) -> bool:
    """Tell whether a sentence is a question, or says of what it is about that it has not happened yet."""
    if text.rstrip().endswith("?"):
        return True
    # With another negation it is a rule about what has not happened yet.
    rest = NOT_YET.sub(" ", text)
    return rest != text and NEGATIVE.isdisjoint(_WORD.findall(rest.casefold()))


class OpenQuestions(NamedTuple):
    """The next messages of others after each message, by its number."""

    replies: Mapping[int, Sequence[str]]

    @classmethod
    def of(cls, events: Sequence[WindowEvent]) -> OpenQuestions:
        replies: dict[int, Sequence[str]] = {}
        said: list[tuple[str, str]] = []
        for number in range(len(events) - 1, -1, -1):
            message = events[number].message
            if message.role == "tool" or not message.content.strip():
                continue
            who = message.name or message.role
            replies[number] = [text for other, text in reversed(said[-MAX_REPLY_DISTANCE:]) if other != who][:_REPLIES]
            said.append((who, message.content[:_READ]))
        return cls(replies)

    def is_open(self, number: int, item_id: str, question: str) -> bool:
        """Tell whether no reply answers a question."""
        asked = set(content_terms(question))
        return not any(
            not (_ONE_QUESTION.match(reply) or NOT_YET.search(reply))
            and (len(reply) <= _SHORT_REPLY or asked.intersection(content_terms(reply)))
            and answers(item_id, question, reply)
            for reply in self.replies.get(number, ())
        )
