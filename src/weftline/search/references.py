"""References of a query, such as "the second option", "that file" or "she", resolved from recent items of a session.

A reference is resolved only if exactly one thing can be meant; a wrong guess would search for something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from weftline.history.item_ids import MessageItemId
from weftline.indexing.entities import Entity, extract_entities
from weftline.indexing.text_analysis import FILLER_WORDS
from weftline.search.items import is_searchable, live_events, own_places, speaker_of_event, text_of_event
from weftline.search.passages import admits
from weftline.sessions.messages.model import Excerpt, TranscriptRange, audiences_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from weftline.search.persistent_memory import SearchStores


# Options that a text enumerates: numbered or bulleted lines, numbers within a line, or a list of words.

_MAX_CHARACTERS = 8_000
_MIN_OPTIONS, _MAX_OPTIONS = 2, 20
_LABELLED = "option|plan|variant|choice"
_LINE = re.compile(
    rf"\s{{0,12}}(?:(\d{{1,2}})[.):]|\(?([A-H])[.):]|([-*\u2022])|(?:{_LABELLED}) (\w{{1,3}})[:.)]?(?: -)?)\s+(\S.*)",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"(?:(?<=\s)|(?<=^)|(?<=\())\(?(?:(\d{1,2})[.):]|([A-Ha-h])\))\s+"
    rf"|\b(?:{_LABELLED}) (\d{{1,2}}|[A-H])(?:\s*[:,=]|\s+(?:is|would be|means)(?: to)?)\s+",
    re.IGNORECASE,
)
_INTRODUCTIONS = (
    "(?:options|choices|alternatives|candidates)(?: are)?|(?:choose|decide|choice) between|either|"
    "could (?:use|take|go with|try)|can (?:use|take|go with)|whether to use|"
    r"(?:options|choices|alternatives|ways|approaches|possibilities)[^.?!:\n]{1,40}(?=:)"
)
_WORDS = re.compile(rf"\b(?:{_INTRODUCTIONS})\b:?\s+([^.?!\n]{{3,300}})", re.IGNORECASE)
_COMMAS = re.compile(r",\s*(?:or|and)\s+|,\s+|\s+or\s+|;\s*(?:or|and)?\s*")
_AND = re.compile(r"\s+and\s+")
_SENTENCE = re.compile(r"([^.?!\n:]{3,300})([.?!\n:]?)")
_OR = re.compile(r",? or ", re.IGNORECASE)
_MAX_WORDS = 8
_EDGES = " .;,:*_"
# Before the last mark of a numbered list: (a) this, or (b) that.
_LAST_WORD = re.compile(r"(?:^|[,;]|(?<=\s))\s*(?:and|or)$", re.IGNORECASE)


def options_in(text: str) -> list[str]:
    """Return the options of the last enumeration in a text, in their order; none if there is no enumeration."""
    text = text[:_MAX_CHARACTERS]
    return _lines(text) or _inline(text) or _listed(text) or _alternatives(text)


def _lines(text: str) -> list[str]:
    """Return the options of the last block of numbered or bulleted lines."""
    blocks: list[list[tuple[int | None, str]]] = [[]]
    for line in text.split("\n"):
        match = _LINE.match(line)
        if match is not None:
            label = _number(match[1] or match[2] or (match[4] or ""))
            if label == 1 and blocks[-1]:
                blocks.append([])
            blocks[-1].append((label, match[5].strip(_EDGES)))
        elif line.strip() and not line.startswith((" ", "\t")):
            blocks.append([])
    return next((options for block in reversed(blocks) if (options := _ordered(block))), [])


def _inline(text: str) -> list[str]:
    """Return the options that are numbered within a paragraph."""
    for paragraph in reversed(text.split("\n\n")):
        marks = [
            (match.start(), match.end(), _number(match[1] or match[2] or match[3]))
            for match in _INLINE.finditer(paragraph)
        ]
        for first in reversed([index for index, mark in enumerate(marks) if mark[2] == 1]):
            block = []
            for number, index in enumerate(range(first, len(marks)), start=1):
                if marks[index][2] != number:
                    break
                end = marks[index + 1][0] if index + 1 < len(marks) else _sentence_end(paragraph, marks[index][1])
                text_of_option = paragraph[marks[index][1] : end].strip(_EDGES)
                block.append((number, _LAST_WORD.sub("", text_of_option).strip(_EDGES)))
            if options := _ordered(block):
                return options
    return []


def _listed(text: str) -> list[str]:
    """Return the options of a list of words, such as: we could use A, B or C."""
    for match in reversed(list(_WORDS.finditer(text))):
        *first, last = _COMMAS.split(match[1])
        parts = [*first, *_AND.split(last)]
        options = [part.strip(_EDGES) for part in parts]
        if _MIN_OPTIONS <= len(options) <= _MAX_OPTIONS and all(
            0 < len(each.split()) <= _MAX_WORDS for each in options
        ):
            return options
    return []


def _alternatives(text: str) -> list[str]:
    """Return what the last question, or what follows a colon, lets choose from: three and more, with an "or".

    Where the first begins and the last ends is not marked, so they get as many words as the longest of the others.
    """
    for match in reversed(list(_SENTENCE.finditer(text))):
        if match[2] != "?" and text[max(0, match.start() - 1) : match.start()] != ":":
            continue
        before, *last = _OR.split(" ".join(match[1].split()))
        first, *others = before.split(", ")
        if len(last) != 1 or not others:
            continue
        longest = max(len(each.split()) for each in others)
        parts = [" ".join(first.split()[-longest:]), *others, " ".join(last[0].split()[:longest])]
        options = [part.strip(_EDGES) for part in parts]
        if longest <= _MAX_WORDS and len(options) <= _MAX_OPTIONS and all(options):
            return options
    return []


def _ordered(block: Sequence[tuple[int | None, str]]) -> list[str]:
    """Return the texts of a block that counts from one, or has no numbers."""
    numbers = [number for number, _ in block]
    is_counted = numbers == list(range(1, len(block) + 1))
    if not _MIN_OPTIONS <= len(block) <= _MAX_OPTIONS or not (is_counted or set(numbers) == {None}):
        return []
    return [text for _, text in block]


def _number(label: str) -> int | None:
    if label.isdigit():
        return int(label)
    return ord(label.lower()) - ord("a") + 1 if len(label) == 1 else None


def _sentence_end(text: str, start: int) -> int:
    """Return where the last option of a paragraph ends: at the end of its sentence."""
    found = [at for mark in (". ", "? ", "! ", "\n") if (at := text.find(mark, start)) >= 0]
    return min(found, default=len(text))


MAX_REFERENCES = 4
_MAX_QUERY = 400
_MAX_EXPANSION = 200
# How far back each kind of thing is looked for, in items.
_NEAR, _FAR = 3, 10
# Words before "it" beyond which the query itself has probably said what it is.
_MAX_WORDS_BEFORE = 5

_ORDINALS = {
    word: number
    for number, words in enumerate(
        (
            ("first", "1st"),
            ("second", "2nd"),
            ("third", "3rd"),
            ("fourth", "4th"),
            ("fifth", "5th"),
            ("sixth", "6th"),
            ("seventh", "7th"),
            ("eighth", "8th"),
            ("ninth", "9th"),
            ("tenth", "10th"),
        )
    )
    for word in words
}
_LAST = -1
_POINTER = r"(?:that|this|the same|the last|the latest|the previous|said)"
_OPTION = "option|choice|alternative|suggestion|idea|approach|proposal|variant|candidate|possibility|solution"
_ENUMERATED = f"{_OPTION}|one|item|point|plan|step|bullet|task"
_ORDINAL_OPTION = re.compile(
    rf"\b(?:the|that|your|their|his|her) ({'|'.join(_ORDINALS)}|last) (?:{_ENUMERATED})\b", re.IGNORECASE
)
_ONE_OF_TWO = re.compile(r"\bthe (former|latter)\b", re.IGNORECASE)
_NUMBERED_OPTION = re.compile(rf"\b(?i:{_OPTION}|plan) (?:(?i:number|no\.?) |#)?(\d{{1,2}}|[A-H])\b")
_ERROR = re.compile(rf"\b{_POINTER} (?:error|exception|failure|traceback|stack trace|crash)\b", re.IGNORECASE)
_ERROR_LINE = re.compile(
    r"\b[A-Za-z_.]{1,80}(?:Error|Exception)\b|(?i:\berror:|\bfatal:|\bpanic:|\bfailed with\b|\bexit code [1-9])"
)
_SHE, _HE = "she", "he"
# "They" mostly stands for several, so it is not resolved.
_PRONOUNS = {
    **dict.fromkeys(("she", "her", "hers", "herself"), _SHE),
    **dict.fromkeys(("he", "him", "his", "himself"), _HE),
}
_PRONOUN = re.compile(rf"\b(?:{'|'.join(_PRONOUNS)})\b", re.IGNORECASE)
_IT = re.compile(r"\bits?\b", re.IGNORECASE)
# "it" that stands for nothing.
_EMPTY_IT = re.compile(
    r"\bit (?:is|was|will be|would be|takes?|took|rains?|snows?|seems|feels|looks like|depends)\b|\bit's\b|"
    r"\b(?:is|was|be) it (?:possible|true|ok|okay|fine|raining|worth|time|likely|safe|necessary|better|best|a|the)\b|"
    r"\bis it going to\b|"
    r"\btime (?:is|was) it\b|\b(?:does|did) it (?:matter|rain|snow|take)\b|\bhow(?:'s| is| did) it (?:going|go)\b|"
    r"\b(?:make|made|worth|got|get|about|appreciate) it\b",
    re.IGNORECASE,
)
_NOUN_PHRASE = re.compile(r"\b(?:the|a|an|my|our|your|this|that|these|those|any|some)\b", re.IGNORECASE)
_NAME = re.compile(r"(?<!^)\b[A-Z]|\band \Z")
_TITLE = re.compile(r"\b(Mrs|Ms|Miss|Frau|Mme|Mr|Herr|Sir)\.? (\w+)")
_HIS_TITLES = frozenset({"Mr", "Herr", "Sir"})
_TICKET = re.compile(r"#?[A-Za-z]*-?\d[\d-]*\Z")
_HASH = re.compile(r"[0-9a-f]{7,64}\Z")
_VERSION = re.compile(r"v?\d+(?:\.\d+)+")


class Reference(NamedTuple):
    """A phrase of a query, what it stands for, and the item that says so.

    ``kind`` is the type of an entity, ``option`` or ``error``.
    """

    phrase: str
    kind: str
    value: str
    source: str


@dataclass(frozen=True)
class RecentItem:
    """A message or window event that the caller may read. ``source`` is its item id."""

    source: str
    speaker: str
    text: str
    timestamp: int

    @cached_property
    def mentions(self) -> tuple[Entity, ...]:
        """Return the entities of the text, without the speaker."""
        return extract_entities(self.text, timestamp=self.timestamp)

    @cached_property
    def speakers(self) -> tuple[Entity, ...]:
        return extract_entities("", speaker=self.speaker)


def may_refer(query: str) -> bool:
    """Return whether a query has phrases that may refer to something said before."""
    if len(query) > _MAX_QUERY:
        # What a long text refers to, it mostly says itself.
        return False
    return any(pattern.search(query) for pattern in _PHRASES)


def resolve_references(query: str, recent: Sequence[RecentItem], asker: str) -> list[Reference]:
    """Return the references of a query that can be resolved surely. ``recent`` are items, newest first."""
    items = [item for item in recent if item.text.strip() != query.strip()]
    own = extract_entities(query)
    found: dict[str, Reference] = {}
    for reference in _references(query, items, own, asker.casefold()):
        if reference is not None:
            found.setdefault(reference.phrase.casefold(), reference)
    return list(found.values())[:MAX_REFERENCES]


def expanded_query(query: str, references: Iterable[Reference]) -> str:
    """Return a query with what its references stand for; the original words stay."""
    values = dict.fromkeys(reference.value for reference in references)
    return f"{query} ({'; '.join(values)})" if values else query


def _references(
    query: str, items: Sequence[RecentItem], own: Collection[Entity], asker: str
) -> Iterator[Reference | None]:
    yield from _options(query, items)
    if (match := _ERROR.search(query)) is not None:
        yield _error(match[0], items)
    for pattern, kind, fits in _THINGS:
        is_named = any(entity.type == kind for entity in own)
        if not is_named and (match := pattern.search(query)) is not None:
            yield _thing(match[0], items, lambda entity: entity.type == kind and fits(entity.value))  # noqa: B023 - called at once
    if not any(entity.type == "person" for entity in own):
        yield from _people(query, items, asker)
    if not any(entity.type in _IT_TYPES for entity in own):
        yield _it(query, items)


def _options(query: str, items: Sequence[RecentItem]) -> Iterator[Reference | None]:
    if not (_ORDINAL_OPTION.search(query) or _ONE_OF_TWO.search(query) or _NUMBERED_OPTION.search(query)):
        return
    enumerated = [(item, options_in(item.text)) for item in items[:_FAR]]
    for match in _ORDINAL_OPTION.finditer(query):
        yield _option(match[0], enumerated, _ORDINALS.get(match[1].casefold(), _LAST))
    for match in _ONE_OF_TWO.finditer(query):
        yield _option(match[0], enumerated, 0 if match[1].casefold() == "former" else 1, of=2)
    for match in _NUMBERED_OPTION.finditer(query):
        label = match[1]
        yield _option(match[0], enumerated, int(label) - 1 if label.isdigit() else ord(label) - ord("A"))


def _option(
    phrase: str, enumerated: Sequence[tuple[RecentItem, list[str]]], index: int, of: int | None = None
) -> Reference | None:
    """Return an option of the latest enumeration."""
    for item, options in enumerated:
        if options:
            is_there = -len(options) <= index < len(options) and (of is None or len(options) == of)
            return Reference(phrase, "option", options[index][:_MAX_EXPANSION], item.source) if is_there else None
    return None


def _error(phrase: str, items: Sequence[RecentItem]) -> Reference | None:
    for item in items[:_FAR]:
        lines = [line.strip() for line in item.text.split("\n") if _ERROR_LINE.search(line)]
        if lines:
            return Reference(phrase, "error", lines[-1][:_MAX_EXPANSION], item.source)
    return None


def _thing(
    phrase: str, items: Sequence[RecentItem], is_meant: Callable[[Entity], bool], reach: int = _FAR
) -> Reference | None:
    """Return what the latest item mentions of a kind, if it is one thing; the last of several for "the last"."""
    for item in items[:reach]:
        meant = [entity for entity in item.mentions if is_meant(entity)]
        if len(meant) == 1 or (meant and "last" in phrase.casefold().split()):
            return Reference(phrase, meant[-1].type, meant[-1].value, item.source)
        if meant:
            return None
    return None


def _it(query: str, items: Sequence[RecentItem]) -> Reference | None:
    match = _IT.search(query)
    if match is None or _EMPTY_IT.search(query):
        return None
    before = query[: match.start()]
    if len(before.split()) > _MAX_WORDS_BEFORE or _NOUN_PHRASE.search(before):
        return None
    if match[0].casefold() == "its" and not FILLER_WORDS.issuperset(re.findall(r"\w+", before.casefold())):
        return None
    return _thing(match[0], items, lambda entity: entity.type in _IT_TYPES, _NEAR)


def _people(query: str, items: Sequence[RecentItem], asker: str) -> Iterator[Reference | None]:
    used = list(_PRONOUN.finditer(query))
    if len({_PRONOUNS[match[0].casefold()] for match in used}) != 1:
        return
    phrase, before = used[0][0], query[: used[0].start()]
    pronoun = _PRONOUNS[phrase.casefold()]
    if _NOUN_PHRASE.search(before) or _NAME.search(before):
        # "My sister and her plans", "Mel and her kids".
        return
    known = _known_pronouns(items)
    words = set(re.findall(r"\w+", query.casefold()))
    for item in items[:_FAR]:
        people = [
            person
            for person in item.mentions
            if person.type == "person" and not _is(person, asker) and _fits(person, pronoun, known)
        ]
        if any(_first(person) in words for person in people):
            # The query names the person itself.
            return
        people = _whole_names(people)
        if len(people) > 1:
            people = [person for person in people if known.get(_first(person)) == pronoun]
        if len(people) == 1:
            yield Reference(phrase, "person", people[0].value, item.source)
        if any(person.type == "person" and not _is(person, asker) for person in item.mentions):
            return
    yield _speaker(phrase, pronoun, known, items, asker)


def _speaker(
    phrase: str, pronoun: str, known: dict[str, str], items: Sequence[RecentItem], asker: str
) -> Reference | None:
    """Return the only other person who said something, if nobody was mentioned."""
    others = [(person, item) for item in items[:_FAR] for person in item.speakers if person.type == "person"]
    others = [each for each in others if not _is(each[0], asker) and _fits(each[0], pronoun, known)]
    if len({person.key for person, _ in others}) != 1:
        return None
    person, item = others[0]
    return Reference(phrase, "person", person.value, item.source)


def _known_pronouns(items: Iterable[RecentItem]) -> dict[str, str]:
    """Return the pronouns of people, by first name: from titles, and from items about one person."""
    known: dict[str, str] = {}
    for item in items:
        for title, name in _TITLE.findall(item.text):
            known.setdefault(name.casefold(), _HE if title in _HIS_TITLES else _SHE)
        people = [entity for entity in item.mentions if entity.type == "person"]
        used = {_PRONOUNS[match.casefold()] for match in _PRONOUN.findall(item.text)}
        if len(people) == 1 and len(used) == 1:
            known.setdefault(_first(people[0]), *used)
    return known


def _fits(person: Entity, pronoun: str, known: dict[str, str]) -> bool:
    return known.get(_first(person), pronoun) == pronoun


def _whole_names(people: Sequence[Entity]) -> list[Entity]:
    """Return people without those named again by a part of their name."""
    names = [person.value.casefold().split() for person in people]
    return [
        person
        for person, name in zip(people, names, strict=True)
        if not any(len(name) < len(other) and set(name) <= set(other) for other in names)
    ]


def _first(person: Entity) -> str:
    return person.value.casefold().split()[0]


def _is(person: Entity, asker: str) -> bool:
    return asker in {person.value.casefold(), _first(person)}


def _kind(nouns: str) -> re.Pattern[str]:
    return re.compile(rf"\b{_POINTER} (?:{nouns})\b", re.IGNORECASE)


def _any(value: str) -> bool:
    del value
    return True


_IT_TYPES = frozenset({"file", "project", "identifier", "url"})
# Phrases, the type of entity they stand for, and which of its values.
_THINGS: tuple[tuple[re.Pattern[str], str, Callable[[str], bool]], ...] = (
    (_kind("file|document|doc|script|module|path|config file|source file"), "file", _any),
    (
        _kind("ticket|issue|bug|pr|pull request|order"),
        "identifier",
        lambda value: _TICKET.match(value) is not None and "." not in value,
    ),
    (_kind("commit|hash"), "identifier", lambda value: _HASH.match(value) is not None),
    (_kind("version|release"), "identifier", lambda value: _VERSION.match(value) is not None),
    (
        _kind("function|method|class|variable|symbol|setting|flag"),
        "identifier",
        lambda value: not _TICKET.match(value) and not _VERSION.match(value),
    ),
    (_kind("link|url|page|website|site"), "url", _any),
    (_kind("e-?mail(?: address)?|address"), "email", _any),
    (_kind("project"), "project", _any),
    (_kind("person|colleague|teammate|colleague|guy"), "person", _any),
    (_kind("agent|subagent"), "agent", _any),
    (_kind("day|date|week|month"), "date", _any),
)
_PHRASES = (
    _ORDINAL_OPTION,
    _ONE_OF_TWO,
    _NUMBERED_OPTION,
    _ERROR,
    _PRONOUN,
    _IT,
    *(pattern for pattern, *_ in _THINGS),
)


# Recent messages and window events of a session that a caller may read: what a query may refer to.

_MAX_ITEMS = 30
# Of all items together: long messages of one agent must not slow down the searches of others.
MAX_TOTAL_CHARACTERS = 24_000


async def recent_items(session_id: str, window: str | None, stores: SearchStores) -> list[RecentItem]:
    """Return the latest items, newest first: messages, and events of the caller's own window or of the given one."""
    if not await admits(session_id, stores):
        return []
    found = [*await _messages(session_id, stores), *await _events(session_id, window, stores)]
    return list(_bounded(sorted(found, key=lambda item: item.timestamp, reverse=True)[:_MAX_ITEMS]))


def _bounded(items: Iterable[RecentItem]) -> Iterator[RecentItem]:
    """Yield items as long as their texts are within the limit; the last one may be cut."""
    left = MAX_TOTAL_CHARACTERS
    for item in items:
        if left <= 0:
            return
        yield replace(item, text=item.text[:left])
        left -= len(item.text)


async def _messages(session_id: str, stores: SearchStores) -> list[RecentItem]:
    latest = Excerpt(audiences_of(stores.actor), TranscriptRange(limit=_MAX_ITEMS, newest_first=True))
    messages = {
        str(MessageItemId(session_id, each.message_id)): each for each in await stores.messages.read(session_id, latest)
    }
    redacted = await stores.records.redactions(sorted(messages))
    return [
        RecentItem(uri, message.sender, message.content[:_MAX_CHARACTERS], message.sent_at)
        for uri, message in messages.items()
        if uri not in redacted
    ]


async def _events(session_id: str, window: str | None, stores: SearchStores) -> list[RecentItem]:
    places = await own_places(session_id, stores) if window is None else [window]
    return [
        RecentItem(event.item_id, speaker_of_event(event), text_of_event(event)[:_MAX_CHARACTERS], event.time)
        for place in places
        for event in islice(filter(is_searchable, reversed(await live_events(place, stores))), _MAX_ITEMS)
    ]
