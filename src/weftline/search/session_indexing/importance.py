"""Rule-based importance of a text, without a model.

Decisions, commitments, constraints and requirements raise it, and so do events, times, numbers and names; questions,
very short texts, greetings and thanks lower it. Each rule counts once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.indexing.collections.model import SOURCES

if TYPE_CHECKING:
    from weftline.indexing.collections.model import Source

_MIN, _MAX = 0.05, 1.0
_SMALL_TALK_WEIGHT = -0.3
# Maximum words of small talk besides the greeting itself.
_FEW_WORDS = 6
# Shorter messages and questions carry little information.
_BRIEF_WORDS = 10
_BRIEF_WEIGHT = -0.1

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
# A capitalised word within a sentence, an e-mail address, a URL, a path or code.
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w-]+|[\w.]+@[\w.]+\.\w+|https?://|`[^`]+`|\b[\w-]+[./_][\w./-]+\w")
_RULES = (
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
_SMALL_TALK = re.compile(
    r"\b(hi|hello|hey|good (morning|afternoon|evening|night)|thanks?|thank you|thx|you're welcome|no problem|ok(ay)?|"
    r"sure|great|cool|nice|awesome|sounds good|got it|yes|yeah|yep|no|nope|bye|goodbye|see you|lol|haha+|wow|"
    r"how are you|what's up|done)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
# Longer texts are never only small talk.
_MAX_SMALL_TALK = 100
# Only the beginning of a long text is analysed.
_ANALYSED_CHARACTERS = 4_000

# Added for a category that the sender says is important, such as a decision or a fact.
_CATEGORY_WEIGHT = 0.2


def importance_of(text: str, source: Source, *, weighty: bool = False) -> float:
    """Return the importance of a text, from 0 to 1; ``weighty``: its category says that it is important."""
    analysed = text[:_ANALYSED_CHARACTERS]
    signs = sum(weight for weight, pattern in _RULES if pattern.search(analysed))
    if _is_small_talk(analysed):
        signs += _SMALL_TALK_WEIGHT
    elif SOURCES[source].is_spoken and len(analysed.split()) < _BRIEF_WORDS:
        signs += _BRIEF_WEIGHT
    if analysed.rstrip().endswith("?"):
        signs += _BRIEF_WEIGHT
    if weighty:
        signs += _CATEGORY_WEIGHT
    return round(min(_MAX, max(_MIN, SOURCES[source].base_importance + signs)), 3)


def is_without_content(text: str) -> bool:
    """Tell whether a text has no words besides small talk, such as 'ok, thanks!'; no query asks for its meaning."""
    return len(text) <= _MAX_SMALL_TALK and not _WORD.search(_SMALL_TALK.sub(" ", text))


def _is_small_talk(text: str) -> bool:
    """Tell whether a text is only small talk."""
    rest = _SMALL_TALK.sub(" ", text)
    words = len(_WORD.findall(rest))
    return rest != text and words <= _FEW_WORDS and len(_WORD.findall(text)) <= words + _FEW_WORDS
