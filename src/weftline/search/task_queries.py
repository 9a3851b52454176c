"""Queries of a task: a short task is one query, a long one gives up to three."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.text_analysis import FILLER_WORDS, MAX_WORD_LENGTH, terms, tokens, words
from weftline.search.results import MAX_QUERY_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


# A task of fewer terms may say too little by itself; one with fewer than the second number of telling ones ("go on",
# "fix it") says nothing: its own words would find whatever repeats them.
_MIN_TASK_TERMS, _MIN_TELLING_TERMS = 5, 2
# Turns before such a task that are read with it, and how much of each: the end of a turn is nearest to the task.
_MAX_TURNS = 2
_MAX_TURN_CHARACTERS = 400
# Of a long task: the beginning mostly states the aim, the end mostly the question.
_MAX_EDGE_CHARACTERS = 1_000
_MAX_SENTENCE_CHARACTERS = 500
_MIN_SENTENCE_TERMS = 3
# Characters that are examined for the most distinctive sentence.
_MAX_EXAMINED_CHARACTERS = 40_000

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+")


class Turn(NamedTuple):
    """A turn of the reader's conversation, with its number in the window."""

    number: int
    text: str


class TaskQueries(NamedTuple):
    """Queries to search for a task. ``asked``: turns that the queries repeat, so that they answer none of them."""

    texts: list[str]
    asked: frozenset[int]


def task_queries(task: str, turns: Sequence[Turn] = ()) -> TaskQueries:
    """Return the queries of a task of any length; ``turns`` are those before it.

    A task up to the maximum length of a query is its own query. A longer one is searched by its opening, its ending and
    the sentence between them with the most rare terms: those that the task itself uses least. Equal texts give equal
    queries.
    """
    text = task.strip()
    return TaskQueries(_texts(text), frozenset(turn.number for turn in turns if turn.text.strip() == text))


def is_empty(task: str) -> bool:
    """Tell whether a task has no content of its own."""
    # Before they are stemmed: "once" is a filler word, its stem is not.
    telling = (token for token in tokens(task) if token.casefold() not in FILLER_WORDS)
    return len({word for token in telling for word in words(token)}) < _MIN_TELLING_TERMS


def continued_query(task: str, turns: Sequence[Turn]) -> str | None:
    """Return the query of a task of few words read with the turns before it, newest first; None for any other task.

    The words of an empty task tell nothing, so that only the turns are searched.
    """
    text = task.strip()
    if not text or len(set(terms(text))) >= _MIN_TASK_TERMS:
        return None
    telling = (turn.text.strip() for turn in turns if len(set(terms(turn.text))) >= _MIN_TASK_TERMS)
    before = [said[-_MAX_TURN_CHARACTERS:] for said in islice(telling, _MAX_TURNS)]
    own = [] if is_empty(text) else [text]
    return "\n".join([*reversed(before), *own]) if before else None


def _texts(text: str) -> list[str]:
    if len(text) <= MAX_QUERY_CHARACTERS:
        return [text] if text else []
    opening, ending = _opening(text), _ending(text)
    middle = text[len(opening) : len(text) - len(ending)][:_MAX_EXAMINED_CHARACTERS]
    found = [opening.strip(), ending.strip(), _most_distinctive_sentence(middle)]
    return list(dict.fromkeys(filter(None, found)))


def _opening(text: str) -> str:
    """Return the beginning of a text, up to the end of a sentence if there is one in its second half."""
    start = text[:_MAX_EDGE_CHARACTERS]
    ends = [match.start() for match in _SENTENCE_END.finditer(start) if match.start() >= len(start) // 2]
    return start[: ends[-1]] if ends else start


def _ending(text: str) -> str:
    """Return the end of a text, from the beginning of a sentence if there is one in its first half."""
    end = text[-_MAX_EDGE_CHARACTERS:]
    starts = [match.end() for match in _SENTENCE_END.finditer(end) if match.end() <= len(end) // 2]
    return end[starts[0] :] if starts else end


def _most_distinctive_sentence(text: str) -> str:
    """Return the sentence with the largest sum of inverse term frequencies; the first of equals, empty if none."""
    sentences = [each[:_MAX_SENTENCE_CHARACTERS].strip() for each in _SENTENCE_END.split(text)]
    terms_of = [set(terms(sentence)) for sentence in sentences]
    frequency = Counter(term for found in terms_of for term in found)
    best, best_weight = "", 0.0
    for sentence, found in zip(sentences, terms_of, strict=True):
        # Sorted: the sum of floats depends on their order, and that of a set on the process.
        weight = sum(1 / count for count in sorted(frequency[term] for term in found))
        if len(found) >= _MIN_SENTENCE_TERMS and weight > best_weight:
            best, best_weight = sentence, weight
    return best


# Query parser: splits long queries into parts and detects a named speaker.

# Longer queries are tasks of several steps: each sentence is searched separately.
_MAX_SINGLE_PART_WORDS = 60
_MIN_SENTENCE_WORDS = 3
# Role names do not identify a speaker.
_ROLES = frozenset({"user", "assistant", "system", "tool", "agent", "human", "ai", "bot", "customer", "speaker"})

_PART_END = re.compile(r"(?<=[.!?;:])\s+|\n+|\s+-\s+|\*\*")
_BEFORE_NAME = re.compile(r"^\W+")
_AFTER_NAME = re.compile(r"(['\u2019]s|s['\u2019])?\W*$")


class ParsedQuery(NamedTuple):
    """Query parts, each searched separately, and the speaker if the query names exactly one.

    The name is removed from the query: it filters by speaker and rarely occurs in the speaker's own messages.
    """

    parts: list[str]
    speaker: str | None


def parse_query(text: str, speakers: Collection[str]) -> ParsedQuery:
    """Parse a query against the speakers of a conversation."""
    rest, named = _without_names(_shortened(text), {name.casefold() for name in speakers} - _ROLES)
    return ParsedQuery(_parts(rest), named.pop() if len(named) == 1 else None)


def _parts(text: str) -> list[str]:
    if len(text.split()) <= _MAX_SINGLE_PART_WORDS:
        return [text]
    sentences = [sentence.strip(" *#-\t") for sentence in _PART_END.split(text) if sentence]
    return list(dict.fromkeys(each for each in sentences if len(each.split()) >= _MIN_SENTENCE_WORDS)) or [text]


def _shortened(text: str) -> str:
    return "\n".join(" ".join(word[:MAX_WORD_LENGTH] for word in line.split(" ")) for line in text.split("\n"))


def _without_names(text: str, names: set[str]) -> tuple[str, set[str]]:
    """Remove names from a query, unless nothing else is left."""
    found: set[str] = set()
    kept = []
    for word in re.split(r"(\s+)", text) if names else ():
        bare = _AFTER_NAME.sub("", _BEFORE_NAME.sub("", word)).casefold()
        if bare in names:
            found.add(bare)
        else:
            kept.append(word)
    rest = "".join(kept).strip()
    return (rest if found and rest else text), found
