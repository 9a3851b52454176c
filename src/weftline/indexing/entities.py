"""Entities of a text, extracted by rules without a model, and the terms that the inverted index finds them by.

People, agents, projects, files, identifiers, dates, URLs and e-mail addresses. Precise rather than complete. Time is
linear in the length of the text, of which only the beginning is read.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from weftline.indexing.text_analysis import FILLER_WORDS, strip_accents
from weftline.kernel.data_files import WordFile
from weftline.kernel.identity import HUMAN, ORCHESTRATOR, SUBAGENT, principal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


# Word lists for the extraction of entities; what each is for is said in their file.

_LISTS = WordFile("indexing/entity_words.txt")
GIVEN_NAMES = _LISTS()["given names"]
AMBIGUOUS_NAMES = _LISTS()["ambiguous names"]
RARE_NAMES = _LISTS()["rare names"]
TITLES = _LISTS()["titles"]
PARTICLES = _LISTS()["particles"]
PERSON_VERBS = _LISTS()["person verbs"]
SPEECH_VERBS = _LISTS()["speech verbs"]
PERSON_CUES = _LISTS()["person cues"]
DETERMINERS = _LISTS()["determiners"]
COMMON_WORDS = _LISTS()["common words"]
NOT_PEOPLE = _LISTS()["not people"]
NOT_SURNAMES = _LISTS()["not surnames"]
PROJECT_WORDS = _LISTS()["project words"]
NOT_PROJECTS = _LISTS()["not projects"]
ROLES = _LISTS()["roles"]
DECORATORS = _LISTS()["decorators"]
NOT_TICKETS = _LISTS()["not tickets"]
BRANDS = _LISTS()["brands"]
EXTENSIONS = _LISTS()["extensions"]
RISKY_EXTENSIONS = _LISTS()["risky extensions"]
LIBRARIES = _LISTS()["libraries"]
PLAIN_FILES = _LISTS()["plain files"]
ROOTS = _LISTS()["roots"]
DOT_FILES = _LISTS()["dot files"]
TOP_DOMAINS = _LISTS()["top domains"]


# Dates in a text as ISO 8601: days, weeks, months and years; relative ones against the time of the text.

_ISO_DAY = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:T[\d:.,+Z-]*)?\Z")
_ISO_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])\Z")
_DOTTED_DATE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})\Z")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})\Z")
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th|\.)?\Z")
_YEAR = re.compile(r"(?:19|20)\d\d\Z")
_EARLIEST, _LATEST = 1900, 2100
_MONTH_NAMES = """
january jan januar|february feb februar|march mar märz|april apr|may mai|june jun juni|july jul juli|august aug|
september sep sept|october oct oktober okt|november nov|december dec dezember dez
"""
_MONTHS = {
    name: number
    for number, names in enumerate(_MONTH_NAMES.replace("\n", " ").split("|"), start=1)
    for name in names.split()
}
_WEEKDAY_NAMES = (
    "monday montag|tuesday dienstag|wednesday mittwoch|thursday donnerstag|friday freitag|saturday samstag|"
    "sunday sonntag"
)
_WEEKDAYS = {name: number for number, names in enumerate(_WEEKDAY_NAMES.split("|")) for name in names.split()}
_DAYS = {
    "today": 0,
    "tonight": 0,
    "tomorrow": 1,
    "yesterday": -1,
    "heute": 0,
    "gestern": -1,
    "vorgestern": -2,
    "übermorgen": 2,
}
_NEXT, _LAST, _THIS = frozenset({"next", "nächsten", "kommenden"}), frozenset({"last", "letzten"}), frozenset({"this"})
_DEADLINES = frozenset({"by", "until", "before", "due", "bis"})
_UNITS = {"day": 1, "days": 1, "week": 7, "weeks": 7}
_PERIODS = frozenset({"week", "month", "year"})
_NUMBER_WORDS = "one two three four five six seven eight nine ten"
_NUMBERS = {word: number for number, word in enumerate(_NUMBER_WORDS.split(), start=1)} | {"a": 1, "an": 1}
_MAX_OFFSET = 1_000
_DATE_PUNCTUATION = ".!?:,;"
_MICROS = 1_000_000
# Words that can begin a date: most tokens are none of them.
_RELATIVE = frozenset(_DAYS) | _NEXT | _LAST | _THIS | _DEADLINES | {"in", "ago"}


def dates_in(tokens: Sequence[str], timestamp: int | None) -> Iterator[str]:
    """Yield the dates of a tokenised text; relative ones only with its timestamp, in microseconds."""
    said_on = None if timestamp is None else datetime.fromtimestamp(timestamp / _MICROS, UTC).date()
    for index, token in enumerate(tokens):
        if token[0].isdigit():
            found = _numeric(token.rstrip(_DATE_PUNCTUATION))
        else:
            word = token.rstrip(_DATE_PUNCTUATION).casefold()
            if word in _MONTHS and token[0].isupper():
                found = _with_month(tokens, index, _MONTHS[word], said_on)
            elif said_on is not None and word in _RELATIVE:
                found = _relative(tokens, index, word, said_on)
            else:
                continue
        if found:
            yield found


def _numeric(token: str) -> str:
    if (match := _ISO_DAY.match(token)) is not None:
        return _day(int(match[1]), int(match[2]), int(match[3]))
    if (match := _ISO_MONTH.match(token)) is not None:
        return token if _is_year(int(match[1])) else ""
    if (match := _DOTTED_DATE.match(token)) is not None:
        return _day(int(match[3]), int(match[2]), int(match[1]))
    if (match := _SLASHED.match(token)) is not None:
        first, second = int(match[1]), int(match[2])
        # 3/4/2025 may be a day of March or of April.
        if first > len(set(_MONTHS.values())):
            return _day(int(match[3]), second, first)
        return _day(int(match[3]), first, second) if second > len(set(_MONTHS.values())) or first == second else ""
    return ""


def _with_month(tokens: Sequence[str], index: int, month: int, said_on: date | None) -> str:
    """Return the date around the name of a month: May 6, 2025; 6th of May; May 2025."""
    after = [_at(tokens, index + offset) for offset in (1, 2, 3)]
    before = _at(tokens, index - 2) if _at(tokens, index - 1) in {"of", "the"} else _at(tokens, index - 1)
    if _YEAR.match(after[0].rstrip(_DATE_PUNCTUATION)):
        year = int(after[0].rstrip(_DATE_PUNCTUATION))
        day = _DAY.match(before)
        return _day(year, month, int(day[1])) if day is not None else f"{year}-{month:02}"
    day = _DAY.match(after[0].rstrip(_DATE_PUNCTUATION)) or None
    if day is not None and not after[0][0].isdigit():
        day = None
    year_at = after[2] if after[1] == "," else after[1]
    if day is None:
        day, year_at = _DAY.match(before), after[1] if after[0] == "," else after[0]
    if day is None:
        return ""
    if _YEAR.match(year_at.rstrip(_DATE_PUNCTUATION)):
        return _day(int(year_at.rstrip(_DATE_PUNCTUATION)), month, int(day[1]))
    return "" if said_on is None else _nearest(said_on, month, int(day[1]))


def _relative(tokens: Sequence[str], index: int, word: str, said_on: date) -> str:
    following = _at(tokens, index + 1).rstrip(_DATE_PUNCTUATION)
    if word in _DAYS:
        return (said_on + timedelta(days=_DAYS[word])).isoformat()
    if following in _WEEKDAYS:
        return _weekday(word, _WEEKDAYS[following], said_on)
    if following in _PERIODS and word in _NEXT | _LAST | _THIS:
        return _period(following, 1 if word in _NEXT else -1 if word in _LAST else 0, said_on)
    if word == "in":
        return _offset(following, _at(tokens, index + 2).rstrip(_DATE_PUNCTUATION), 1, said_on)
    if word == "ago":
        return _offset(_at(tokens, index - 2), _at(tokens, index - 1), -1, said_on)
    return ""


def _weekday(word: str, weekday: int, said_on: date) -> str:
    """Return the coming weekday for next and deadlines, the past one for last, that of the same week for this."""
    ahead = (weekday - said_on.weekday()) % 7
    if word in _NEXT:
        days = ahead or 7
    elif word in _LAST:
        days = ahead - 7
    elif word in _THIS:
        days = weekday - said_on.weekday()
    elif word in _DEADLINES:
        days = ahead
    else:
        return ""
    return (said_on + timedelta(days=days)).isoformat()


def _period(period: str, step: int, said_on: date) -> str:
    if period == "week":
        year, week, _ = (said_on + timedelta(weeks=step)).isocalendar()
        return f"{year}-W{week:02}"
    if period == "year":
        return str(said_on.year + step)
    months = said_on.year * 12 + said_on.month - 1 + step
    return f"{months // 12}-{months % 12 + 1:02}"


def _offset(amount: str, unit: str, sign: int, said_on: date) -> str:
    number = int(amount) if amount.isascii() and amount.isdigit() and len(amount) < 5 else _NUMBERS.get(amount, 0)  # noqa: PLR2004
    if unit not in _UNITS or not 0 < number <= _MAX_OFFSET:
        return ""
    return (said_on + timedelta(days=sign * number * _UNITS[unit])).isoformat()


def _nearest(said_on: date, month: int, day: int) -> str:
    """Return the date of a day without a year that is nearest to when it was said."""
    candidates = [found for year in (-1, 0, 1) if (found := _date(said_on.year + year, month, day)) is not None]
    nearest = min(candidates, key=lambda found: abs(found - said_on), default=None)
    return "" if nearest is None else nearest.isoformat()


def _day(year: int, month: int, day: int) -> str:
    found = _date(year, month, day)
    return found.isoformat() if found is not None and _is_year(year) else ""


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _is_year(year: int) -> bool:
    return _EARLIEST <= year <= _LATEST


def _at(tokens: Sequence[str], index: int) -> str:
    return tokens[index].casefold() if 0 <= index < len(tokens) else ""


# People and projects in a text, found by rules: given names, titles, what is said next to a name.
#
# Precise rather than complete: a capitalised word without evidence is no entity.

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


EntityType = Literal["person", "agent", "project", "file", "identifier", "date", "url", "email"]
TYPES: frozenset[str] = frozenset(get_args(EntityType))
MAX_ENTITIES = 64
MAX_VALUE_LENGTH = 200
_MAX_CHARACTERS = 20_000
_MAX_QUERY_WORDS = 200
_SEPARATOR = ":"


class Entity(NamedTuple):
    """Something that a text mentions. ``value`` is in its original spelling; equal entities have the same ``key``."""

    type: EntityType
    value: str

    @property
    def key(self) -> str:
        return f"{self.type}{_SEPARATOR}{self.value.casefold()}"

    def __str__(self) -> str:
        return f"{self.type}{_SEPARATOR}{self.value}"


# Separators become tokens, so that a name does not go beyond them. Full stops stay with their word.
_SPACED = str.maketrans(
    {character: f" {character} " for character in ',;"(){}[]<>|=*\u201c\u201d\u201e\u00ab\u00bb\u2014'}
)
_NEWLINE = "\x01"
_SPACED[ord("\n")] = f" {_NEWLINE} "
# Scripts written without spaces: identifiers between their characters are still found.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]+"
)
_UNSPACED_DATE = re.compile(r"(\d{4})[\u5e74\ub144] ?(\d{1,2})[\u6708\uc6d4] ?(\d{1,2})[\u65e5\uc77c]")
_FENCE = "```"
_CODE = re.compile(r"`([^`\n]{1,200})`")
_CALL = re.compile(r"(?<![\w.])([A-Za-z_][\w.]{1,80})\(\)")
URL = re.compile(
    r"(?:https?|ftp|file|s3|git|ssh|postgresql|redis)://[^\s<>\"'`{}|\\^\u3000-\u9fff]{2,2000}|(?<![\w.@/])www\.[\w-]{1,63}\.[^\s<>\"'`{}|\\^]{2,2000}",
    re.IGNORECASE,
)
_PUNCTUATION = ".,;:!?'\"\u2019\u2018\u2026"
_EMAIL = re.compile(r"[\w.+%'-]{1,64}@(?:[\w-]{1,63}\.){1,5}[a-z]{2,24}\Z", re.IGNORECASE)
_MENTION = re.compile(r"@([^\W\d_][\w-]{1,38})\Z")
_AGENT = re.compile(r"(?:subagent|agent|orchestrator|human):[A-Za-z0-9_][A-Za-z0-9_:.-]{0,120}\Z")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)
_TICKET = re.compile(r"([A-Z][A-Z0-9]{1,9})-\d{1,7}(?:-\d{1,7})?\Z")
_ISSUE = re.compile(r"#(?:\d{1,9}|[A-Z]{1,4}\d{3,12})\Z")
_COMMIT = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\Z")
_HASH = re.compile(r"(?:sha256:)?[0-9a-f]{64}\Z")
_VERSION = re.compile(
    r"v\d{1,5}(?:\.\d{1,5}){0,3}(?:[-+][\w.]{1,30})?\Z|\d{1,5}(?:\.\d{1,5}){2,3}(?:[-+][\w.]{1,30})?\Z"
)
_CODE_NUMBER = re.compile(r"(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z][A-Z0-9]*[A-Z])[A-Z][A-Z0-9]{5,19}\Z|[A-Z]{2,6}\d{4,12}\Z")
_PREFIXED_ID = re.compile(r"[a-z]{2,20}[_-](?=[0-9a-f]*\d)[0-9a-f]{6,40}\Z")
_SNAKE = re.compile(r"_{0,2}[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+_{0,2}\Z")
_CAMEL = re.compile(r"[a-z]{2,}[a-z0-9]*(?:[A-Z][a-z0-9]+)+[A-Z]{0,5}\Z|(?:[A-Z][a-z0-9]{2,}){2,}\Z")
_DOTTED = re.compile(r"[A-Za-z_]\w{1,40}(?:\.[A-Za-z_]\w{1,40}){1,6}\Z")
_SYMBOL = re.compile(r"[@$]?[A-Za-z_][\w.$:-]{1,80}(?:\(\))?\Z")
_FLAG = re.compile(r"--?[a-z][\w-]{1,40}\Z")
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/~.]{0,4}[\w@+ -]*(?:[\\/][\w.@+%~-]*){1,40}\Z")
_LINE_NUMBER = re.compile(r":\d{1,7}(?::\d{1,7})?\Z")
_FILE_NAME = re.compile(r"[\w@+-][\w.@+-]{0,150}\.([A-Za-z0-9]{1,10})\Z")
_WWW = "www."


def extract_entities(
    text: str,
    *,
    speaker: str = "",
    speaker_type: EntityType | None = None,
    timestamp: int | None = None,
    is_code: bool = False,
) -> tuple[Entity, ...]:
    """Return the entities of a text in order of their first mention, its speaker first.

    ``speaker_type``: whether the speaker is a person or an agent, by default guessed from its name.
    ``timestamp``, in microseconds, is what relative dates such as "next Friday" are resolved against. ``is_code``:
    the text is source code, so that its symbols and capitalised words are not entities.
    """
    found: dict[str, Entity] = {}
    _add(found, _speaker(speaker, speaker_type))
    for part, in_code in _parts(text[:_MAX_CHARACTERS], is_code=is_code):
        _add(found, _in_part(part, timestamp, is_code=in_code))
        if len(found) >= MAX_ENTITIES:
            break
    return tuple(found.values())


def entity_of_token(token: str) -> Entity | None:
    """Return what a single token is by itself: a file, identifier, agent or address; None for a word."""
    found = _special(token, is_code=False) if not token.isalpha() else _file_or_symbol(token)
    return next(iter(found), None)


def pack_entities(entities: Iterable[Entity]) -> str:
    """Return entities as they are stored, one on each line."""
    return "\n".join(map(str, entities))


def unpack_entities(packed: str) -> list[Entity]:
    """Return stored entities."""
    return [Entity(*line.split(_SEPARATOR, 1)) for line in packed.split("\n")] if packed else []  # type: ignore[arg-type]


def entity_index_terms(packed: str) -> list[str]:
    """Return the distinct index terms of stored entities.

    Every term has a colon, which terms of text never have. An entity is found by type and value and by its value alone;
    also by a part of it: a word of a person's name, the name of a file without its folders, the month of a day. A type
    with an empty value finds everything with an entity of that type, and a colon alone everything with any entity.
    """
    terms: dict[str, None] = {}
    for entity in unpack_entities(packed):
        for name in ("", *_names(entity)):
            terms[f"{entity.type}{_SEPARATOR}{name}"] = terms[f"{_SEPARATOR}{name}"] = None
    return list(terms)


def filter_term(wanted: str) -> str:
    """Return the index term for an entity that a filter names, with or without a type."""
    wanted = " ".join(wanted.split()).casefold()
    kind, separator, name = wanted.partition(_SEPARATOR)
    if separator and (not kind or kind in TYPES):
        return f"{kind}{_SEPARATOR}{name.strip().removeprefix('@')}"
    return f"{_SEPARATOR}{wanted.removeprefix('@')}"


def query_entity_terms(query: str, timestamp: int | None = None) -> list[str]:
    """Return index terms of the entities that a query may name.

    These are the entities that are extracted from it, and each word as the name of a person, agent or project, since
    queries are often in lower case: those that nothing is indexed by have no effect.
    """
    found = [f"{_SEPARATOR}{entity.value.casefold()}" for entity in extract_entities(query, timestamp=timestamp)]
    for token in query.translate(_SPACED).split()[:_MAX_QUERY_WORDS]:
        word = token.strip(_PUNCTUATION).casefold().removesuffix("'s").removesuffix("\u2019s")
        if is_possible_name(word) and f"{_SEPARATOR}{word}" not in found:
            found += [f"{kind}{_SEPARATOR}{word}" for kind in ("person", "agent", "project")]
    return list(dict.fromkeys(found))


def _names(entity: Entity) -> list[str]:
    """Return the values that an entity is found by."""
    value = entity.value.casefold()
    match entity.type:
        case "person":
            parts = [word for word in value.split() if len(word) > 1]
        case "agent":
            parts = value.split(_SEPARATOR)
        case "file":
            parts = [value.replace("\\", "/").rstrip("/").rpartition("/")[2]]
        case "date":
            parts = [value[: len("2025-01")], value[: len("2025")]] if "W" not in entity.value else [value[:4]]
        case "url":
            parts = [value.partition("://")[2].partition("/")[0].removeprefix(_WWW)]
        case _:
            parts = []
    return list(dict.fromkeys([value, *filter(None, parts)]))


def _add(found: dict[str, Entity], entities: Iterable[Entity]) -> None:
    for entity in entities:
        if len(found) >= MAX_ENTITIES:
            return
        found.setdefault(entity.key, entity)


def _speaker(speaker: str, known_type: EntityType | None = None) -> Iterator[Entity]:
    name = speaker.strip()[:MAX_VALUE_LENGTH]
    if not name or name.casefold() in ROLES or not name.isprintable():
        return
    if known_type is not None:
        yield Entity(known_type, name)
    elif name.startswith(HUMAN):
        yield Entity("person", name.removeprefix(HUMAN))
    elif name.startswith((SUBAGENT, f"{ORCHESTRATOR}:")) or name == ORCHESTRATOR:
        # By its id, as the sender of a message: what an agent wrote and said is listed together.
        yield Entity("agent", principal_of(name))
    elif name[0].isupper() or is_given_name(name.partition(" ")[0]):
        yield Entity("person", name)
    else:
        yield Entity("agent", name)


def _parts(text: str, *, is_code: bool) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text outside and inside of fenced code."""
    if _FENCE not in text:
        yield text, is_code
        return
    for index, part in enumerate(text.split(_FENCE)):
        yield part, is_code or index % 2 == 1


def _in_part(text: str, timestamp: int | None, *, is_code: bool) -> Iterator[Entity]:
    found: list[Entity] = []
    text = _without_spans(text, found, is_code=is_code)
    yield from found
    tokens = text.translate(_SPACED).split()
    for token in tokens:
        # Most words are neither.
        if not token.isalpha() and len(token) > 1:
            yield from _special(token, is_code=is_code)
        elif not token.islower() and not is_code:
            yield from _file_or_symbol(token)
    if is_code:
        return
    yield from (Entity("date", found_date) for found_date in dates_in(tokens, timestamp))
    for is_person, name in people_and_projects(tokens):
        yield Entity("person" if is_person else "project", name)


def _without_spans(text: str, found: list[Entity], *, is_code: bool) -> str:
    """Move URLs, code spans and calls of a text into ``found``; separate scripts without spaces from the rest."""
    if "://" in text or _WWW in text:
        text = URL.sub(lambda match: _url(match[0], found), text)
    if not is_code and "`" in text:
        text = _CODE.sub(lambda match: _code_span(match[1], found), text)
    if not is_code and "()" in text:
        text = _CALL.sub(lambda match: _call(match[1], found), text)
    return text if text.isascii() else _UNSPACED.sub(" ", _UNSPACED_DATE.sub(r" \1-\2-\3 ", text))


def _url(matched: str, found: list[Entity]) -> str:
    url = matched.rstrip(_PUNCTUATION + ")]")
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    # Without user and password.
    host = host.rpartition("@")[2]
    value = f"{scheme.lower()}://{host.lower()}{slash}{path}" if separator else url
    if len(value) <= MAX_VALUE_LENGTH and host != "":
        found.append(Entity("url", value.rstrip("/")))
    return " ; "


def _code_span(span: str, found: list[Entity]) -> str:
    span = span.strip()
    if len(span) < 2 or len(span.split()) != 1:  # noqa: PLR2004 - a letter is no symbol
        # A command: its words are read as text.
        return f" ; {span} ; "
    special = list(_special(span, is_code=False))
    if special:
        found += special
    elif _SYMBOL.match(span) or _FLAG.match(span):
        found.append(Entity("identifier", span.removesuffix("()")))
    return " ; "


def _call(name: str, found: list[Entity]) -> str:
    found.append(Entity("identifier", name))
    return " ; "


def _special(token: str, *, is_code: bool) -> Iterator[Entity]:
    """Yield what a token with other characters than letters is."""
    bare = token.strip(_PUNCTUATION)
    # A leading dot or slash is part of a path.
    bare = token.lstrip("'\"\u2018").rstrip(_PUNCTUATION) if token[0] == "." else bare
    if not 1 < len(bare) <= MAX_VALUE_LENGTH:
        return
    if "@" in bare:
        yield from _address(bare, is_code=is_code)
    elif _SEPARATOR in bare and _AGENT.match(bare):
        yield from _speaker(bare) if bare.startswith(HUMAN) else (Entity("agent", bare),)
    elif (path := _file(bare)) is not None:
        yield Entity("file", path)
    elif _is_identifier(bare):
        yield Entity("identifier", bare)
    elif not is_code:
        yield from _symbol(bare)


def _address(token: str, *, is_code: bool) -> Iterator[Entity]:
    if _EMAIL.match(token):
        yield Entity("email", token.lower())
    elif not is_code and (mention := _MENTION.match(token)) and mention[1].casefold() not in DECORATORS:
        yield from _speaker(mention[1])


def _file(token: str) -> str | None:
    """Return the path or name of a file; None if the token is something else, such as and/or."""
    token = _LINE_NUMBER.sub("", token) if _SEPARATOR in token else token
    folded = token.casefold()
    if "/" not in token and "\\" not in token:
        if folded in PLAIN_FILES or folded in DOT_FILES:
            return token
        named = _FILE_NAME.match(token)
        extension = named[1].casefold() if named is not None else ""
        is_file = extension in EXTENSIONS and extension not in RISKY_EXTENSIONS and folded not in LIBRARIES
        return token if is_file else None
    if not _PATH.match(token) or not any(map(str.isalpha, token)):
        return None
    last = token.replace("\\", "/").rstrip("/").rpartition("/")[2]
    extension = last.rpartition(".")[2].casefold() if "." in last else ""
    if extension in EXTENSIONS or last.casefold() in PLAIN_FILES:
        return token
    if token[0] in "~." or token[1:3] in {":\\", ":/"}:
        return token if len(last) > 1 else None
    folders = token.split("/")
    # /help is a command; Open/High/Low is a list.
    return token if len(folders) > 2 and folders[0] in {"", *ROOTS} and token.islower() else None  # noqa: PLR2004


def _is_identifier(token: str) -> bool:
    if token[0] == "#":
        return _ISSUE.match(token) is not None
    if (ticket := _TICKET.match(token)) is not None:
        return ticket[1] not in NOT_TICKETS
    if not any(map(str.isdigit, token)):
        return False
    return (
        _UUID.match(token) is not None
        or _VERSION.match(token) is not None
        or _COMMIT.match(token) is not None
        or _HASH.match(token) is not None
        or _CODE_NUMBER.match(token) is not None
        or _PREFIXED_ID.match(token) is not None
    )


def _file_or_symbol(word: str) -> Iterator[Entity]:
    """Yield what a word of letters is: Makefile, SearchIndex."""
    if word.casefold() in PLAIN_FILES:
        yield Entity("file", word)
    elif _CAMEL.match(word):
        yield from _symbol(word)


def _symbol(token: str) -> Iterator[Entity]:
    if token.casefold() in BRANDS:
        return
    if (_SNAKE.match(token) and max(map(len, token.split("_"))) > 1) or _CAMEL.match(token):
        yield Entity("identifier", token)
    elif "." in token and _DOTTED.match(token):
        parts: Sequence[str] = token.split(".")
        is_domain = parts[-1].casefold() in TOP_DOMAINS
        if not is_domain and (len(parts) > 2 or "_" in token):  # noqa: PLR2004 - sentences without a space
            yield Entity("identifier", token)
