"""Entities of a text, extracted by rules without a model, and the terms that the inverted index finds them by.

People, agents, projects, files, identifiers, dates, URLs and e-mail addresses. Precise rather than complete. Time is
linear in the length of the text, of which only the beginning is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from weftline.indexing.entity_dates import dates_in
from weftline.indexing.entity_names import is_given_name, is_possible_name, people_and_projects
from weftline.indexing.entity_words import (
    BRANDS,
    DECORATORS,
    DOT_FILES,
    EXTENSIONS,
    LIBRARIES,
    NOT_TICKETS,
    PLAIN_FILES,
    RISKY_EXTENSIONS,
    ROLES,
    ROOTS,
    TOP_DOMAINS,
)
from weftline.kernel.identity import HUMAN, ORCHESTRATOR, SUBAGENT, principal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
