"""Questions that nobody has answered yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.windows.model import WindowEvent

_MIN_WORDS = 4
_READ = 600
# Older messages that nobody replied to are a monologue.
_AWAITED = 6
# Answers that put a question off.
_DEFERRED = re.compile(
    r"\b(?:(?:don't|do not) know|not sure|no idea|can't say|let me (?:check|find out|ask|see)|"
    r"(?:i'll|i will|we'll|will|have to|need to|must) (?:check|find out|ask|get back|look into|clarify)|good question|"
    r"to be (?:decided|confirmed|determined)|tbd|unclear|nobody knows|still open|come back to (?:that|this|it)|"
    r"weiß (?:ich|es)? ?nicht|keine ahnung|kläre (?:ich|das)|muss ich (?:klären|nachfragen)|noch offen|"
    r"ne sais pas|je (?:vérifie|demande|vais vérifier)|aucune idée|à voir|no (?:lo )?sé|no sabemos|"
    r"lo (?:consulto|averiguo)|tengo que (?:preguntar|consultar))\b",
    re.IGNORECASE,
)
_SMALL_TALK = re.compile(
    r"\b(?:how are you|how have you been|how's it going|what's up|right|you know|isn't it|don't you think|okay)\s*\?",
    re.IGNORECASE,
)


class OpenQuestions(NamedTuple):
    """The next reply to each message by somebody else, by the number of the message; empty if there is none.

    ``newest`` are the numbers of the newest messages.
    """

    replies: Mapping[int, str]
    newest: frozenset[int]

    @classmethod
    def of(cls, events: Sequence[WindowEvent]) -> OpenQuestions:
        replies: dict[int, str] = {}
        # The newest message of the newest speaker, and of the newest other one.
        newest, other = ("", ""), ("", "")
        for number in range(len(events) - 1, -1, -1):
            message = events[number].message
            if message.role == "tool" or not message.content.strip():
                continue
            who = message.name or message.role
            if who != newest[0]:
                other = newest
            newest = (who, message.content[:_READ])
            replies[number] = other[1]
        return cls(replies, frozenset(sorted(replies)[-_AWAITED:]))

    def is_open(self, number: int, question: str) -> bool:
        """Tell whether nobody replied to a question, or the reply put it off."""
        if question.count(" ") < _MIN_WORDS - 1 or _SMALL_TALK.search(question):
            return False
        reply = self.replies.get(number, "")
        if not reply:
            return number in self.newest
        return _DEFERRED.search(reply.replace("\u2019", "'")) is not None
