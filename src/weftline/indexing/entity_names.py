"""People and projects in a text, found by rules: given names, titles, what is said next to a name.

Precise rather than complete: a capitalised word without evidence is no entity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.entity_words import (
    AMBIGUOUS_NAMES,
    COMMON_WORDS,
    DETERMINERS,
    GIVEN_NAMES,
    NOT_PEOPLE,
    NOT_PROJECTS,
    NOT_SURNAMES,
    PARTICLES,
    PERSON_CUES,
    PERSON_VERBS,
    PROJECT_WORDS,
    RARE_NAMES,
    SPEECH_VERBS,
    TITLES,
)
from weftline.indexing.text_analysis import FILLER_WORDS, strip_accents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAX_NAME_WORDS = 3
_CONTRACTED = frozenset({"ve", "m", "re", "ll", "d", "t"})
_APOSTROPHES = "'\u2019"
_SENTENCE_ENDS = ".!?:\u2026"

# Two words in front of a name, the second a preposition.
_CUES_WITH_PREPOSITION = {
    "to": frozenset({"assigned", "talked", "spoke", "according", "reported", "belongs", "talk", "speak"}),
    "by": frozenset({"reviewed", "written", "approved", "authored", "owned", "reported", "signed", "requested"}),
    "with": frozenset({"talked", "spoke", "met", "meeting", "call", "meet", "speak", "paired", "chatted"}),
    "from": frozenset({"message", "email", "feedback", "note", "mail", "call", "heard"}),
}


_NAMES = GIVEN_NAMES | AMBIGUOUS_NAMES
_COMMON = (COMMON_WORDS | FILLER_WORDS) - _NAMES


class NamedThing(NamedTuple):
    """A person or project."""

    is_person: bool
    name: str


class _Run(NamedTuple):
    """Consecutive capitalised words, and the words around them in lower case.

    ``starts``: the first is capitalised anyway, at the start of a sentence. ``possessive``: it ends in 's.
    """

    words: list[str]
    keys: list[str]
    before: tuple[str, str]
    after: str
    starts: bool
    possessive: bool


def people_and_projects(tokens: Sequence[str]) -> Iterator[NamedThing]:
    """Yield the people and projects of a tokenised text, in order of their mention."""
    # A word that is also written in lower case is no name.
    lower = {token.strip(_SENTENCE_ENDS) for token in tokens if token.islower()}
    for run in _runs(tokens):
        named = _project(run) or _person(run, lower)
        if named is not None:
            yield named


def is_given_name(word: str) -> bool:
    """Return whether a word is a common given name, and nothing else."""
    key = strip_accents(word).casefold()
    return key in GIVEN_NAMES and key not in AMBIGUOUS_NAMES


def is_possible_name(word: str) -> bool:
    """Return whether a word, in lower case, may be a name: neither a common word nor a name that is a word as well."""
    return len(word) > 1 and not (
        word in _COMMON or word in PERSON_VERBS or word in AMBIGUOUS_NAMES or word in NOT_PEOPLE
    )


def _runs(tokens: Sequence[str]) -> Iterator[_Run]:
    index, count = 0, len(tokens)
    while index < count:
        if not tokens[index][0].isupper() or not _is_name_word(tokens[index]):
            index += 1
            continue
        first, words, possessive = index, list[str](), False
        while index < count and len(words) <= _MAX_NAME_WORDS + 1:
            token = tokens[index]
            is_particle = bool(words) and token in PARTICLES and index + 1 < count and tokens[index + 1][0].isupper()
            if not is_particle and not _is_name_word(token):
                break
            word = token.rstrip(_SENTENCE_ENDS)
            possessive = word[-2:-1] in _APOSTROPHES and word[-1:] == "s" and len(word) > len("'s")
            words.append(word[:-2] if possessive else word.rstrip(_APOSTROPHES))
            index += 1
            if possessive or (token[-1] in _SENTENCE_ENDS and not _is_abbreviation(token)):
                break
        yield _run(tokens, first, index, words, possessive=possessive)


def _run(tokens: Sequence[str], first: int, end: int, words: list[str], *, possessive: bool) -> _Run:
    before = (_lower(tokens, first - 2), _lower(tokens, first - 1))
    last = tokens[end - 1]
    is_followed = last[-1] not in _SENTENCE_ENDS or _is_abbreviation(last)
    after = _lower(tokens, end).rstrip(_SENTENCE_ENDS) if is_followed else ""
    starts = not before[1] or not before[1][-1].isalnum() or not before[1][0].isalnum()
    keys = [strip_accents(word).casefold() for word in words]
    return _Run(words, keys, before, after, starts, possessive)


def _lower(tokens: Sequence[str], index: int) -> str:
    return tokens[index].casefold() if 0 <= index < len(tokens) else ""


def _is_abbreviation(token: str) -> bool:
    """Return whether a token with a full stop is an initial or a title."""
    bare = token[:-1]
    return token[-1] == "." and (len(bare) == 1 or bare.casefold() in TITLES)


def _is_name_word(token: str) -> bool:
    word = token.rstrip(_SENTENCE_ENDS + _APOSTROPHES)
    if not word[:1].isupper() or (len(word) == 1 and token[1:2] != "."):
        return False
    if word.isalpha():
        return word[1:].islower() or len(word) == 1 or _has_name_prefix(word)
    parts = word.replace("\u2019", "-").replace("'", "-").split("-")
    # I've, don't.
    if parts[-1] in _CONTRACTED:
        return False
    return all(part.isalpha() and (part[1:].islower() or len(part) == 1) for part in parts)


def _has_name_prefix(word: str) -> bool:
    """Return whether it is like McDonald or MacArthur."""
    for prefix in ("Mc", "Mac", "De", "Di", "La", "Le", "Van", "O"):
        rest = word.removeprefix(prefix)
        if rest != word and rest[:1].isupper() and rest[1:].islower():
            return len(rest) > 2  # noqa: PLR2004 - LaTeX, DeFi
    return False


def _project(run: _Run) -> NamedThing | None:
    words, keys = run.words, run.keys
    if run.before[1] in PROJECT_WORDS:
        return _named_project(words, keys)
    index = next((index for index, key in enumerate(keys) if key in PROJECT_WORDS), None)
    if index is not None and index + 1 < len(keys):
        return _named_project(words[index + 1 :], keys[index + 1 :])
    if index:
        return _before_project(run, words[:index], keys[:index])
    if run.after in PROJECT_WORDS and not run.possessive:
        return _before_project(run, words, keys)
    return None


def _named_project(words: list[str], keys: list[str]) -> NamedThing | None:
    if not words or keys[0] in NOT_PROJECTS or keys[0] in _COMMON:
        return None
    end = next((at for at, key in enumerate(keys) if key in NOT_PROJECTS), len(keys))
    return NamedThing(is_person=False, name=" ".join(words[:end][:_MAX_NAME_WORDS]))


def _before_project(run: _Run, words: list[str], keys: list[str]) -> NamedThing | None:
    if keys and keys[0] in DETERMINERS:
        words, keys = words[1:], keys[1:]
    elif run.starts and run.before[1] not in DETERMINERS:
        return None
    if not words or len(words) > _MAX_NAME_WORDS or any(key in _COMMON or key in NOT_PEOPLE for key in keys):
        return None
    return NamedThing(is_person=False, name=" ".join(words))


def _person(run: _Run, lower: set[str]) -> NamedThing | None:
    words, keys = run.words, run.keys
    for index, key in enumerate(keys):
        if key.rstrip(".") in TITLES:
            return _person_of(words[index + 1 :], keys[index + 1 :])
        if key in _NAMES and key not in lower:
            if index and keys[index - 1] not in _COMMON and keys[index - 1] not in PERSON_CUES:
                return None
            rest = keys[index + 1 :]
            if key in AMBIGUOUS_NAMES and not _is_surely_person(run, index, rest):
                continue
            return _person_of(words[index:], keys[index:])
    return _person_by_context(run, lower)


def _is_surely_person(run: _Run, index: int, rest: Sequence[str]) -> bool:
    if rest and run.keys[index] not in RARE_NAMES and not (index == 0 and run.starts):
        return rest[0] not in _COMMON and rest[0] not in NOT_SURNAMES
    return (run.after in PERSON_VERBS and not (index == 0 and run.before[1] in DETERMINERS)) or _is_cued(run)


def _person_of(words: list[str], keys: list[str]) -> NamedThing | None:
    """Return the person whose name begins the words; None if they name a place or an organisation."""
    end = 0
    for key in keys[:_MAX_NAME_WORDS]:
        if key in NOT_SURNAMES:
            return None
        if end and (key in _COMMON or key in NOT_PEOPLE):
            break
        end += 1
    while end and keys[end - 1] in PARTICLES:
        end -= 1
    if not end or keys[0] in _COMMON:
        return None
    return NamedThing(is_person=True, name=" ".join(words[:end]))


def _person_by_context(run: _Run, lower: set[str]) -> NamedThing | None:
    """Return a person with a rare name that a verb or cue identifies."""
    words, keys = run.words, run.keys
    while keys and (keys[0] in PERSON_CUES or keys[0] in _COMMON):
        cue, words, keys = keys[0], words[1:], keys[1:]
        if keys and cue in PERSON_CUES:
            return _rare_name(words, keys, lower)
    # "Frequently asked", "Evidence suggests": at the start of a sentence, only what nobody but a person does.
    verbs = SPEECH_VERBS if run.starts else PERSON_VERBS
    is_subject = run.after in verbs and run.before[1] not in DETERMINERS
    return _rare_name(words, keys, lower) if keys and (is_subject or _is_cued(run)) else None


def _is_cued(run: _Run) -> bool:
    return run.before[1] in PERSON_CUES or run.before[0] in _CUES_WITH_PREPOSITION.get(run.before[1], ())


def _rare_name(words: list[str], keys: list[str], lower: set[str]) -> NamedThing | None:
    unlikely = any(key in _COMMON or key in NOT_PEOPLE or key in lower or key in NOT_SURNAMES for key in keys)
    return None if unlikely or len(words) > _MAX_NAME_WORDS else NamedThing(is_person=True, name=" ".join(words))
