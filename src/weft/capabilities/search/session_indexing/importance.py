"""How much weight something said in a session carries, by rules alone: no model is asked.

Decisions, commitments, constraints and requirements are what later work rests on; what happened and when, numbers and
names are what is looked for; a bare question, a few words, greetings and thanks are neither. Each sign counts once,
however often it is there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from weft.kernel.identity import SUBAGENT

if TYPE_CHECKING:
    from weft.capabilities.indexing.collections.model import Source

# What was written down on purpose weighs more than what was said in passing.
_PLAIN: dict[Source, float] = {"message": 0.35, "board": 0.6, "memory": 0.6, "document": 0.5}
_LEAST, _MOST = 0.05, 1.0
_CHIT_CHAT_WEIGHT = -0.3
# So few words are chit-chat if they are nothing else.
_FEW_WORDS = 6
# Who says no more than this, or ends with a question, seldom tells anything.
_BRIEF_WORDS = 10
_TELLS_LITTLE = -0.1

_DECISION = re.compile(
    r"\b(decided|decision|decide[sd]? (to|on|against)|agreed|we (chose|choose|picked|settled)|go(ing)? with|approved|"
    r"rejected|concluded|conclusion|final(ly|ised|ized)?|verdict)\b",
    re.IGNORECASE,
)
_COMMITMENT = re.compile(
    r"\b(I|we|you|they)('ll| will| shall| promise| commit| am going to| are going to)\b|\b(deadline|due (by|on)|"
    r"by (monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|end of)|action item|assigned to|"
    r"responsible for|owner:)",
    re.IGNORECASE,
)
_CONSTRAINT = re.compile(
    r"\b(must( not)?|mustn't|never|always|required?|requirement|shall not|may not|cannot|can't|only if|at (most|least)|"
    r"no (more|less) than|limit(ed)?|constraint|forbidden|not allowed|mandatory|depends on|blocked|blocker)\b",
    re.IGNORECASE,
)
_FINDING = re.compile(
    r"\b(root cause|because|found that|turns out|failed|failure|error|bug|broken|fixed|risk|warning|important|critical|"
    r"urgent|note that|remember)\b",
    re.IGNORECASE,
)
_PERIOD = (
    "day|night|week|weekend|month|year|summer|winter|spring|fall|autumn|morning|monday|tuesday|wednesday|thursday|"
    "friday|saturday|sunday|january|february|march|april|may|june|july|august|september|october|november|december"
)
_TIME = re.compile(
    rf"\b(yesterday|today|tomorrow|tonight|ago|since|recently|(last|next|this|every|past) (\w+ )?({_PERIOD})|"
    r"(mon|tues|wednes|thurs|fri|satur|sun)day|january|february|april|june|july|august|september|october|november|"
    r"december|\d{4}-\d\d)\b",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(I|we|he|she|they)('ve| have| has|'s)? (\w+ly |just |also |even |already )?(was|were|had|went|got|made|took|"
    r"saw|bought|began|found|lost|won|met|gave|came|said|told|built|wrote|been|gone|done|\w+ed)\b"
)
_OWN = re.compile(r"\b(my|our)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d")
# A capital within a sentence, an address, a path, something in code.
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w-]+|[\w.]+@[\w.]+\.\w+|https?://|`[^`]+`|\b[\w-]+[./_][\w./-]+\w")
_SIGNS = (
    (0.3, _DECISION),
    (0.25, _CONSTRAINT),
    (0.2, _COMMITMENT),
    (0.15, _FINDING),
    (0.15, _TIME),
    (0.15, _HAPPENED),
    (0.1, _NUMBER),
    (0.05, _NAME),
    (0.05, _OWN),
)
_CHIT_CHAT = re.compile(
    r"\b(hi|hello|hey|good (morning|afternoon|evening|night)|thanks?|thank you|thx|you're welcome|no problem|ok(ay)?|"
    r"sure|great|cool|nice|awesome|sounds good|got it|yes|yeah|yep|no|nope|bye|goodbye|see you|lol|haha+|wow|"
    r"how are you|what's up|done)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
# So much of a long text is looked at: what it is shows early.
_LOOKED_AT = 4_000

# How senders mark what must not be lost sight of: by the category or type of a message, or in its metadata.
_LASTING = frozenset({"decision", "constraint", "requirement", "guardrail", "pinned"})
_MARKS = ("pinned", "pin")


def importance_of(text: str, source: Source) -> float:
    """Return how much weight a text carries, from 0 to 1."""
    looked_at = text[:_LOOKED_AT]
    signs = sum(weight for weight, pattern in _SIGNS if pattern.search(looked_at))
    if _is_chit_chat(looked_at):
        signs += _CHIT_CHAT_WEIGHT
    elif source == "message" and len(looked_at.split()) < _BRIEF_WORDS:
        signs += _TELLS_LITTLE
    if looked_at.rstrip().endswith("?"):
        signs += _TELLS_LITTLE
    return round(min(_MOST, max(_LEAST, _PLAIN[source] + signs)), 3)


def is_pinned(sender: str, category: str, message_type: str, metadata: str) -> bool:
    """Tell whether a message's sender marked it as something to be found always, which is not for sub-agents to do."""
    if sender.startswith(SUBAGENT):
        return False
    if {category.casefold(), message_type.casefold()} & _LASTING:
        return True
    said = _object(metadata)
    marked = any(said.get(mark) is True for mark in _MARKS)
    return marked or str(said.get("category", "")).casefold() in _LASTING


def _is_chit_chat(text: str) -> bool:
    """Tell whether a text greets, thanks or nods, and hardly says more."""
    rest = _CHIT_CHAT.sub(" ", text)
    words = len(_WORD.findall(rest))
    return rest != text and words <= _FEW_WORDS and len(_WORD.findall(text)) <= words + _FEW_WORDS


def _object(metadata: str) -> dict[str, Any]:
    if not metadata.startswith("{"):
        return {}
    said: dict[str, Any] = msgspec.json.decode(metadata)
    return said
