"""Status of facts: what a later statement replaces, withdraws, answers or removes.

A later decision, constraint, preference or value on the same subject supersedes an earlier one; so does a statement
that names what it replaces. An open question is resolved by its answer, a blocker by the message that it is gone, an
error by the same call without one. In doubt a fact stays current: it costs a few tokens, while a fact that is wrongly
taken for superseded may be lost. Data, such as the result of a tool, changes nothing that somebody has said: otherwise
a web page could replace a decision of the user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.indexing.text_analysis import FILLER_WORDS, stem, strip_accents
from weftline.windows.compaction.facts.units import answers, normal_line, one_line, plain_form, replaces
from weftline.windows.compaction.facts.values import WEEKDAYS, WORDS_OF_NUMBERS, normal_values
from weftline.windows.compaction.model import STATED_KINDS, FactKind, binds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weftline.windows.compaction.model import KeyFact
    from weftline.windows.model import WindowEvent


# What a statement is about, apart from what it says of it, so that a later statement about the same is recognised.

_SUBJECT_WORD = re.compile(r"[^\W_][\w@#/.:'+-]*[^\W_]|[^\W_]|[%]")
_SUBJECT_NUMBER = re.compile(r"-*\d[\d.,:t+z-]*\Z")
_EDGES = ".,;:!?'\""


def words_listed(listed: str) -> frozenset[str]:
    """Return the words of a list."""
    return frozenset(listed.split())


# Words of polarity: what a rule says of its subject.
_POLARITY = words_listed(
    "not never no always must may only dont cannot cant nicht nie niemals kein keine immer nunca siempre jamais pas"
)
NEGATIVE = words_listed("not never no dont cannot cant nicht nie niemals kein keine nunca jamais pas")
_COMPARED = words_listed(
    "exceed more less than under below most least maximum minimum max min budget limit limited within above cap"
)
_DAYS = frozenset((*WEEKDAYS, *words_listed("tomorrow tonight morgen demain")))
# Words of the change itself and of saying so, which are no part of the subject.
_SAYING = words_listed(
    "actually now instead update updated correction changed change moved new finally decided decision agreed going let "
    "lets use using go with prefer please final set stays remains is are will shall should we i our team today just "
    "okay ok hereby still also then kept keep wir uns haben nous avons hemos jetzt doch neu maintenant ahora nueva "
    "entschieden décidé decidido finalement ab von der die das den dem des le la les el los du de del zum am um due by "
    "pushed postponed extended shifted raised lowered increased reduced to from per auf est sera es será ist wird"
)
_IGNORED = FILLER_WORDS | _SAYING
_WITH_VALUE = frozenset(
    {
        FactKind.DEADLINE,
        FactKind.COMMITMENT,
        FactKind.DECISION,
        FactKind.FACT,
        FactKind.DATE,
        FactKind.QUANTITY,
        FactKind.REQUIREMENT,
    }
)
_PERSONAL = frozenset({FactKind.PREFERENCE, FactKind.COMMITMENT})
_CHOICE = re.compile(
    r"\b(?:use|using|used?|pick|picked|choose|chose|chosen|go with|going with|adopt|adopted|select|selected|take|"
    r"switch(?:ed|ing)? to|stick with|move to|moving to|prefer|settled on|nehmen|verwenden|nutzen|für|utiliser|"
    r"utiliserons|garder|partons sur|passons à|préfère|usar|usaremos|prefiero|cambiamos a)\s"
    r"(?P<value>[^.;]{1,60}?)\s(?:for|as|für|als|pour|comme|para|como)\s(?P<subject>[^.;]{2,100})",
    re.IGNORECASE,
)
_OWNER = re.compile(
    r"(?P<who>[A-Z][\w-]+(?: [A-Z][\w-]+)?) (?:now )?(?:owns|will own|is responsible for|is in charge of|takes over|"
    r"will take over|ist (?:jetzt )?(?:verantwortlich|zuständig) für|übernimmt|est (?:maintenant )?responsable d[eu']|"
    r"s'occupe d[eu']|es (?:ahora )?(?:el |la )?responsable de|se encarga de)\s?(?P<what>[^.;]{2,100})"
)
_OWNED = re.compile(
    r"(?P<what>[^.;:]{2,100}?) (?:is |are |was )?(?:now )?(?:owned by|assigned to|reassigned to) (?P<who>[A-Z][\w-]+)"
)
_TOPIC = re.compile(r"\"(?:topic|subject|item|task|key|name|component|id)\"\s?:\s?\"([^\"]{2,80})\"", re.IGNORECASE)
_LABELLED = re.compile(
    r"\b(?:decision|decided|entscheidung|décision|decisión|deadline|owner|constraint|requirement|preference|frist|"
    r"échéance)\s?(?:\((?P<inner>[^)]{2,60})\)|(?:on|for|about|zu|für|sur|pour|sobre|para)\s"
    r"(?P<subject>[^:=]{2,60}))\s?[:=]",
    re.IGNORECASE,
)
_SETTING = re.compile(r"([A-Za-z_][\w.-]{1,60})[\"']?\s?[=:]\s?[\"']?-?\d")
_REPLACED_FORMS = (
    r"\b(?:instead of|rather than|in place of|statt|anstatt|anstelle von|au lieu d[e']|plutôt que|en lugar de|"
    r"en vez de)\s?(?P<after>[^,.;:]{2,60})"
    r"|\b(?:from|von|de) (?P<before>[^,.;:]{2,50}?) (?:to|auf|zu|à|a) "
    r"|\breplac(?:e|es|ed|ing) (?P<object>[^,.;:]{2,60}?) (?:with|by) "
    r"|\bno longer (?P<ended>[^,.;:]{2,60})"
    r"|\bnot (?P<denied>[^,.;:]{2,40}),? but "
    r"|\b(?:forget|drop|dropped|cancel|cancell?ed|withdraw|withdrew|revoke|revoked|scrap|scrapped|abandon|abandoned|"
    r"reverse|reversed|undo|ignore)\b(?: about)?(?: the| our| that| this| my)? (?P<withdrawn>[^,.;:]{2,80})"
    r"|^(?P<passive>[^,.;:]{2,80}?) (?:is|was|were|are|has been|have been) (?:now |hereby )?"
    r"(?:cancell?ed|withdrawn|revoked|dropped|scrapped|abandoned|superseded|overruled|no longer)\b"
)
_REPLACED = re.compile(_REPLACED_FORMS, re.IGNORECASE)
# These may begin anywhere and are slow: they are tried only where one of their words is.
_WITHDRAWN_WORDS = re.compile(r"verworfen|gestrichen|aufgehoben|annul|abandonn|cancelad|descartad", re.IGNORECASE)
_REPLACED_OR_WITHDRAWN = re.compile(
    _REPLACED_FORMS + r"|(?P<gestrichen>[^,.;:]{2,80}?) (?:wurde|wird|ist) (?:verworfen|gestrichen|aufgehoben)"
    r"|(?P<annule>[^,.;:]{2,80}?) (?:est|a été) (?:annulée?|abandonnée?)"
    r"|(?P<cancelado>[^,.;:]{2,80}?) (?:fue|está|ha sido) (?:cancelad[oa]|descartad[oa])",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    r"\b(?:actually|change of plans?|changed (?:my|our) minds?|scratch that|on second thoughts?|correction|"
    r"new decision|update(?=:)|revised|forget (?:that|what i said)|overrul\w+|doch|umentschieden|korrektur|finalement|"
    r"changement|en realidad|al final|cambio de planes|corrección)\b",
    re.IGNORECASE,
)
_NOTHING_SAID = re.compile(
    r"\b(?:scratch that|on second thoughts?|changed (?:my|our) minds?|forget (?:that|what i said))\b", re.IGNORECASE
)


class Subject(NamedTuple):
    """A key of what a statement is about, and what it says of it."""

    key: tuple[str, ...]
    value: tuple[str, ...]


def content_terms(text: str) -> tuple[str, ...]:
    """Return the stemmed words of a text that carry its meaning, in order."""
    found = (word.strip(_EDGES) for word in _SUBJECT_WORD.findall(normal_line(text)))
    return tuple(dict.fromkeys(stem(word) for word in found if word and word not in _IGNORED))


def subjects_of(fact: KeyFact) -> Iterator[Subject]:
    """Yield what a fact is about, the most specific first."""
    text = fact.text
    who = fact.who if fact.kind in _PERSONAL else ""
    if (match := _owner(text)) is not None:
        yield Subject(("owner", *_terms(match["what"])), (match["who"],))
        return
    if (match := _TOPIC.search(text)) is not None:
        yield Subject(("topic", fact.kind, *_terms(match[1])), (text,))
        return
    if text.startswith("|"):
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        yield Subject(("row", fact.kind, *_terms(cells[0])), tuple(cells[1:]))
        return
    if (match := _LABELLED.search(text)) is not None:
        yield Subject(("label", fact.kind, *_terms(match["inner"] or match["subject"])), (text[match.end() :],))
    if (match := _CHOICE.search(text)) is not None:
        about = _REPLACED.sub("", match["subject"])
        # The numbers of what a choice is for tell it from others: room 2 is not room 3.
        yield Subject(("choice", who, *sorted(content_terms(about))), _terms(match["value"]))
    if fact.kind is FactKind.QUANTITY and (match := _SETTING.search(fact.literals[0])) is not None:
        yield Subject(("setting", match[1].casefold()), (fact.literals[0],))
        return
    if (slot := _slot(fact, who)) is not None:
        yield slot


def _owner(text: str) -> re.Match[str] | None:
    """Return who owns what; the second pattern is slow where its words are not."""
    if "owned by" in text or "assigned to" in text:
        return _OWNER.search(text) or _OWNED.search(text)
    return _OWNER.search(text)


def replaced_terms(text: str) -> list[tuple[str, ...]]:
    """Return the terms of what a statement says that it replaces or withdraws."""
    pattern = _REPLACED_OR_WITHDRAWN if _WITHDRAWN_WORDS.search(text) else _REPLACED
    named = (next(group for group in match.groups() if group) for match in pattern.finditer(text))
    return [terms for each in named if (terms := content_terms(each))]


def is_change(text: str) -> bool:
    """Tell whether a statement says that it changes something said before."""
    return _CHANGED.search(text) is not None


def takes_back_last(text: str) -> bool:
    """Tell whether a statement takes back the one before without naming it: scratch that."""
    return _NOTHING_SAID.search(text) is not None


def _terms(text: str) -> tuple[str, ...]:
    return tuple(sorted(term for term in content_terms(text) if not _SUBJECT_NUMBER.match(term)))


def _slot(fact: KeyFact, who: str) -> Subject | None:
    """Return the words of a statement without its numbers, dates and polarity, and those as its value.

    Prohibitions of different things differ by a number at most: their numbers are part of the subject. So is, beside
    another number, one that names what it follows: ward 3 gets four beds, ward 5 two.
    """
    words = [word.strip(_EDGES) for word in _SUBJECT_WORD.findall(normal_line(fact.text))]
    bare = [word.replace("'", "") for word in words if word]
    is_prohibition = not NEGATIVE.isdisjoint(bare) and _COMPARED.isdisjoint(bare)
    about: set[str] = set()
    value: list[str] = []
    numbers = [place for place, word in enumerate(bare) if _SUBJECT_NUMBER.match(word)]
    for place, word in enumerate(bare):
        is_value = place in numbers and not is_prohibition and not (len(numbers) > 1 and _is_name_at(bare, place))
        is_value = is_value or word in _POLARITY or (word in _DAYS and fact.kind in _WITH_VALUE)
        if is_value:
            value.append(word)
        elif word not in _IGNORED:
            about.add(stem(word))
    if not about - _UNIT_WORDS or not value:
        return None
    return Subject(("slot", who, *sorted(about)), tuple(value))


def _is_name_at(words: Sequence[str], place: int) -> bool:
    """Tell whether a number belongs to the word before it, rather than to a unit after it."""
    before, after = words[place - 1 : place], words[place + 1 : place + 2]
    return bool(before) and before[0] not in _IGNORED and stem(after[0] if after else "") not in _UNIT_WORDS


_UNIT_WORDS = words_listed("% euro dollar pound percent second minut hour day week month year millisecond gb mb ms")


# Questions that nobody has answered yet.

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
_ALPHABETIC = re.compile(r"[^\W\d_]+")
_ONE_QUESTION = re.compile(r"[^.!?]+\?\s*\Z")


def is_undecided(text: str) -> bool:
    """Tell whether a sentence is a question, or says of what it is about that it has not happened yet."""
    if text.rstrip().endswith("?"):
        return True
    # With another negation it is a rule about what has not happened yet.
    rest = NOT_YET.sub(" ", text)
    return rest != text and NEGATIVE.isdisjoint(_ALPHABETIC.findall(rest.casefold()))


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


# Statements that give another number, date or day for what an earlier one was about.
#
# Both must give one value of the same sort, and differ in it. What they are about is compared word by word: where one
# has a noun and the other another noun, they are about two things. What is asked, supposed or quoted changes nothing.

# Numbers from two on in German, French and Spanish; English ones have a normal form.
_NUMBER_WORDS = (
    "zwei deux dos|drei trois tres|vier quatre cuatro|fünf cinq cinco|sechs seis|sieben sept siete|acht huit ocho|"
    "neun neuf nueve|zehn dix diez|elf onze once|zwölf douze doce"
)
_NUMBERS = {
    word: str(number) for number, words in enumerate(_NUMBER_WORDS.split("|"), start=2) for word in words.split()
}
_VALUE_WORDS = {*_NUMBERS, *WORDS_OF_NUMBERS, *WEEKDAYS}
_DIGIT, _LETTERS = re.compile(r"\d"), re.compile(r"[^\W\d_]+")
_UNITS = dict.fromkeys(words_listed("millisecond second minute hour day week month year"), "time")
_UNITS |= dict.fromkeys(words_listed("dollar euro pound franc yen"), "money")
_UNITS |= {
    unit: unit for unit in words_listed("% milligram gram kilogram degree meter kilometer liter megabyte gigabyte")
}
_WORD = re.compile(r"--\d\d(?:-\d\d)?|[^\W_](?:[\w.:/'-]*[^\W_])?|[%?,;:]")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*\Z")
_DATE = re.compile(r"(?:\d{4}-|--)\d\d(?:-\d\d)?\Z")
_CLOCK = re.compile(r"\d{1,2}:\d\d\Z")
# A quoted sentence, not a name.
_QUOTED = re.compile(r"\"[^\" ]+(?: [^\" ]+){2,}\"")
# Conditional clauses and moods, in the languages that are read.
_SUPPOSED = re.compile(
    r"\b(?:if|unless|would|could|might|falls|sofern|wenn|wäre\w*|würde\w*|könnte\w*|si|sauf|pourrai\w+|serai(?:s|t|ent)|"
    r"\w{3,}erai(?:t|ent)|podría\w*|sería\w*|\w{3,}[aei]ría[ns]?)\b"
)
_CLAUSE_END = frozenset(",;:")
# Articles and prepositions: what follows is, or belongs to, a noun.
_BEFORE_NOUNS = words_listed(
    """
    the a an of for with in at by from my our your his her its their der die das dem den des ein eine einen einem einer
    für mit von vom bei beim zum zur am im in auf an aus le la les un une des du de au aux pour avec par sur à chez el
    los las una del al para con por en
    """
)
_SHORT = 3
# Share of the longer of two words that must be their common beginning: forms of one word.
_COMMON, _MIN_COMMON = 0.6, 4


class _Value(NamedTuple):
    """A value with the word before it."""

    sort: str
    value: str
    before: str


class _Word(NamedTuple):
    """A word that carries meaning, with the words around it; ``clause`` counts them."""

    before: str
    text: str
    after: str
    clause: int

    @property
    def is_noun(self) -> bool:
        return self.before in _BEFORE_NOUNS


class ValuesRead(NamedTuple):
    """What a statement gives values for; ``valued`` are the clauses with one."""

    values: list[_Value]
    words: list[_Word]
    valued: set[int]
    is_stated: bool
    is_negative: bool


def read_values(text: str) -> ValuesRead | None:
    """Return the values of a statement and its other words; None if it has no value."""
    if not _DIGIT.search(text) and _VALUE_WORDS.isdisjoint(_LETTERS.findall(text.casefold())):
        return None
    spoken = _QUOTED.sub(" ", normal_line(text))
    words = _WORD.findall(normal_values(" ".join(_NUMBERS.get(word, word) for word in _WORD.findall(spoken))))
    is_stated = "?" not in words and _SUPPOSED.search(spoken) is None
    read, clause, taken = ValuesRead([], [], set(), is_stated, not NEGATIVE.isdisjoint(words)), 0, -1
    for place, word in enumerate(words):
        if place == taken:
            continue
        if word in _CLAUSE_END:
            clause += 1
        elif (value := _value(words, place)) is not None:
            read.values.append(value)
            read.valued.add(clause)
            taken = place + 1 if _NUMBER.match(word) and not value.before else taken
        elif not _is_function(word):
            following = words[place + 1] if place + 1 < len(words) else ""
            read.words.append(_Word(words[place - 1] if place else "", word, following, clause))
    return read if read.values else None


def gives_another(later: ValuesRead, earlier: ValuesRead, is_replaced: Callable[[], bool]) -> bool:
    """Tell whether a statement gives another value for what an earlier one gives a value for.

    ``is_replaced`` is asked where the later one has a noun of its own beside the value: it may be about something else.
    """
    if not (later.is_stated and earlier.is_stated and _differs(earlier.values, later.values)):
        return False
    # Prohibitions of two things differ in no more than a day.
    if later.is_negative and earlier.is_negative:
        return False
    ours, theirs = _unshared(earlier.words, later.words), _unshared(later.words, earlier.words)
    if len(ours) == len(earlier.words) or any(_same_place(one, other) for one in ours for other in theirs):
        return False
    if any(map(_is_name, ours)) and any(map(_is_name, theirs)):
        return False
    return not any(each.is_noun and each.clause in later.valued for each in theirs) or is_replaced()


def _differs(before: Sequence[_Value], after: Sequence[_Value]) -> bool:
    """Tell whether values of a sort differ, of which the earlier one has one; what numbers name must not."""
    named = {each.before for each in before if each.before} & {each.before for each in after if each.before}
    for one in before:
        if one.before in named and one.value not in {other.value for other in after if other.before == one.before}:
            return False
    sorts = {each.sort for each in before if not each.before} & {each.sort for each in after if not each.before}
    return any(_values(before, sort) != _values(after, sort) and len(_values(before, sort)) == 1 for sort in sorts)


def _values(values: Sequence[_Value], sort: str) -> set[str]:
    return {each.value for each in values if each.sort == sort}


def _value(words: Sequence[str], place: int) -> _Value | None:
    word = words[place]
    if word in WEEKDAYS:
        return _Value("day", str(WEEKDAYS[word]), "")
    if not _NUMBER.match(word):
        sort = "date" if _DATE.match(word) else "clock" if _CLOCK.match(word) else ""
        return _Value(sort, word, "") if sort else None
    unit = words[place + 1] if place + 1 < len(words) else ""
    if unit == "week" and word.isdigit():
        word, unit = str(7 * int(word)), "day"
    sort = _UNITS.get(unit, "")
    if sort:
        return _Value(sort, f"{word} {unit}", "")
    before = words[place - 1] if place else ""
    if before and not _is_function(before):
        return _Value("name", word, before)
    return _Value(stem(unit), word, "") if unit and unit[0].isalpha() and not _is_function(unit) else None


def _is_function(word: str) -> bool:
    """Tell whether a word is no noun, verb or adjective: most such words are short."""
    return word in FILLER_WORDS or (len(word) <= _SHORT and word.isalpha())


def _unshared(words: Sequence[_Word], others: Sequence[_Word]) -> list[_Word]:
    return [each for each in words if not any(_is_form(each.text, other.text) for other in others)]


def _is_form(one: str, other: str) -> bool:
    if one == other:
        return True
    one, other = strip_accents(one), strip_accents(other)
    if not (one.isalpha() and other.isalpha()):
        return False
    common = next(
        (place for place, both in enumerate(zip(one, other, strict=False)) if both[0] != both[1]),
        min(len(one), len(other)),
    )
    return common >= _MIN_COMMON and common >= _COMMON * max(len(one), len(other))


def _same_place(one: _Word, other: _Word) -> bool:
    """Tell whether two words stand in the same place: both are nouns, or before the same word, or first before it."""
    if one.is_noun and other.is_noun:
        return True
    is_first = not one.before and not other.before
    return one.after == other.after and (is_first or not _is_function(one.after))


def _is_name(word: _Word) -> bool:
    return any(map(str.isdigit, word.text))


_STATEMENTS = STATED_KINDS | {FactKind.DEADLINE, FactKind.FACT}
_VALUES = frozenset({FactKind.QUANTITY, FactKind.DATE})
_OPEN = frozenset({FactKind.OPEN_QUESTION, FactKind.BLOCKER, FactKind.COMMITMENT})
# Share of the terms that the later text must have in common with the earlier one.
_NAMED_SHARE = 0.66
_CHANGED_SHARE = 0.4
_CLOSED_SHARE = 0.5
_ALIKE_SHARE = 0.5
# Only what is more probably a statement than not is compared by the classifier.
_STATED = 0.5
_MIN_SHARED = 2
# Only the newest facts with a term are compared.
_MAX_COMPARED = 24
CLOSING_WORDS = words_listed(
    """
    resolved fixed unblocked solved answered answer granted arrived merged cleared confirmed done available received
    closed delivered sent finished completed shipped deployed approved unlocked restored settled
    gelöst erledigt behoben geklärt freigegeben geliefert beantwortet
    résolu résolue débloqué débloquée réglé réglée livré répondu
    resuelto resuelta desbloqueado desbloqueada solucionado entregado respondido
    """
)
_STILL_OPEN = re.compile(
    r"\b(?:not|isn't|hasn't|aren't|haven't|wasn't|still|nicht|noch|kein\w*|pas|encore|no|aún|todavía|until|once|if|when|"
    r"will be|should be|waiting|bis|wenn|si|cuando)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class FactLog:
    """The facts so far, in order, with their status."""

    facts: list[KeyFact] = field(default_factory=list)
    _is_data: list[bool] = field(default_factory=list)
    _by_text: dict[tuple[str, ...], int] = field(default_factory=dict)
    # Data and talk apart, so that data is not in the way of what is said before and after it.
    _by_subject: dict[tuple[bool, *tuple[str, ...]], tuple[int, Subject]] = field(default_factory=dict)
    _by_term: dict[str, list[int]] = field(default_factory=dict)
    _terms: dict[int, frozenset[str]] = field(default_factory=dict)
    _values: dict[int, ValuesRead] = field(default_factory=dict)
    # Terms of the newest texts: a fact is compared in several ways, one after the other.
    _newest_terms: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Iterable[KeyFact]) -> FactLog:
        """Return the log of earlier facts."""
        log = cls()
        for fact in facts:
            log.add(fact, is_data=fact.is_of_tool)
        return log

    def add(self, fact: KeyFact, *, is_data: bool = False) -> None:
        """Add a fact unless it repeats a current one; earlier facts that it replaces are superseded.

        ``is_data``: it is from data, which replaces nothing but data.
        """
        if self._repeats(fact, is_data=is_data):
            return
        place = len(self.facts)
        self.facts.append(fact)
        self._is_data.append(is_data)
        if fact.kind in _STATEMENTS or fact.kind in _VALUES:
            self._supersede_same_subject(place, fact)
        if fact.kind in _STATEMENTS:
            self._supersede_named(place, fact)
            self._supersede_value(place, fact)
        if fact.kind in _STATEMENTS or fact.kind in _OPEN:
            self._index(place, fact)
        if fact.kind is FactKind.DECISION:
            self.close(fact.text, fact.event_ids[0], frozenset({FactKind.OPEN_QUESTION}), is_data=is_data)

    def close(self, text: str, event_id: str, kinds: Iterable[FactKind] = _OPEN, *, is_data: bool = False) -> None:
        """Resolve what a sentence answers, removes or fulfils."""
        if _STILL_OPEN.search(text):
            return
        terms = self._content_terms(text)
        for place in self._candidates(terms):
            fact = self.facts[place]
            if fact.kind not in kinds or fact.status != "current" or event_id in fact.event_ids:
                continue
            if is_data and not self._is_data[place]:
                continue
            own = self._terms[place]
            shared = own.intersection(terms)
            if len(shared) >= min(_MIN_SHARED, len(own)) and len(shared) >= _CLOSED_SHARE * len(own):
                self.facts[place] = structs.replace(fact, status="resolved", event_ids=(*fact.event_ids, event_id))

    def resolve_errors(self, clean: Mapping[str, str]) -> None:
        """Resolve errors of calls that succeeded later: ``clean`` is the event of the success by that of the error."""
        for place, fact in enumerate(self.facts):
            success = clean.get(fact.event_ids[0]) if fact.kind is FactKind.ERROR else None
            if success is not None:
                self.facts[place] = structs.replace(fact, status="resolved", event_ids=(*fact.event_ids, success))

    def _repeats(self, fact: KeyFact, *, is_data: bool) -> bool:
        key = _text_key(fact)
        before = self._by_text.get(key)
        if before is not None and self.facts[before].status == "current":
            # What data said first and somebody says now is theirs: later data must not replace it.
            is_covered = is_data or not self._is_data[before] or key[0] == "literal"
            if is_covered:
                return True
        self._by_text[key] = len(self.facts)
        for literal in fact.literals if binds(fact.kind, fact.probability) else ():
            # A literal of a statement is kept with it.
            self._by_text.setdefault(("literal", _literal_key(literal)), len(self.facts))
        return False

    def _supersede_same_subject(self, place: int, fact: KeyFact) -> None:
        is_data = self._is_data[place]
        for subject in subjects_of(fact):
            for is_before_data in {True, is_data}:
                before = self._by_subject.get((is_before_data, *subject.key))
                if before is not None and before[1].value != subject.value:
                    self._supersede(before[0], place)
            self._by_subject[is_data, *subject.key] = (place, subject)

    def _supersede_named(self, place: int, fact: KeyFact) -> None:
        """Supersede what a statement says that it replaces, or what it changes."""
        own = self._content_terms(fact.text)
        for named in replaced_terms(fact.text):
            found = self._newest(named, _NAMED_SHARE * len(named), before=place)
            if found is not None:
                self._supersede(found, place)
        least = max(_MIN_SHARED, _CHANGED_SHARE * len(own))
        if not is_change(fact.text):
            self._supersede_alike(place, own)
            return
        found = self._newest(own, least, before=place)
        if found is None and takes_back_last(fact.text):
            found = next(self._latest_of(fact.who, place), None)
        if found is not None:
            self._supersede(found, place)

    def _supersede_alike(self, place: int, terms: Sequence[str]) -> None:
        """Supersede the newest statement about the same that the classifier takes for replaced."""
        if self._is_data[place] or self.facts[place].probability < _STATED:
            return
        found = self._newest(terms, max(_MIN_SHARED, _ALIKE_SHARE * len(terms)), before=place)
        if found is None or self.facts[found].probability < _STATED:
            return
        fact = self.facts[place]
        # What has not happened yet changes nothing.
        if NOT_YET.search(fact.text) is None and replaces(fact.event_ids[0], fact.text, self.facts[found].text):
            self._supersede(found, place)

    def _supersede_value(self, place: int, fact: KeyFact) -> None:
        """Supersede the newest statement that gave another number, date or day for the same."""
        if self._is_data[place] or fact.probability < _STATED or (read := read_values(fact.text)) is None:
            return
        for before in self._candidates(self._content_terms(fact.text)):
            earlier = self._values.get(before)
            if earlier is None or self.facts[before].status != "current":
                continue
            if gives_another(read, earlier, partial(replaces, fact.event_ids[0], fact.text, self.facts[before].text)):
                self._supersede(before, place)
                break
        self._values[place] = read

    def _newest(self, terms: Sequence[str], least: float, before: int) -> int | None:
        """Return the newest current statement that shares at least so many terms."""
        for place in self._candidates(terms):
            fact = self.facts[place]
            is_candidate = place < before and fact.kind in _STATEMENTS and fact.status == "current"
            is_candidate = is_candidate and self._may_replace(place, before)
            if is_candidate and len(self._terms[place].intersection(terms)) >= max(least, 1):
                return place
        return None

    def _latest_of(self, who: str, before: int) -> Iterator[int]:
        for place in range(before - 1, max(-1, before - _MAX_COMPARED), -1):
            fact = self.facts[place]
            is_own = fact.who == who and self._may_replace(place, before)
            if is_own and fact.kind in _STATEMENTS and fact.status == "current":
                yield place

    def _may_replace(self, before: int, after: int) -> bool:
        return self._is_data[before] or not self._is_data[after]

    def _candidates(self, terms: Sequence[str]) -> list[int]:
        """Return the newest facts with any of the terms, newest first."""
        places = {place for term in terms for place in self._by_term.get(term, ())[-_MAX_COMPARED:]}
        return sorted(places, reverse=True)

    def _supersede(self, before: int, after: int) -> None:
        fact, later = self.facts[before], self.facts[after]
        # A number of a statement does not replace the statement that it is from.
        is_part = later.kind in _VALUES and fact.event_ids[0] == later.event_ids[0]
        if fact.status == "current" and not is_part:
            self.facts[before] = structs.replace(fact, status="superseded", superseded_by=later.fact_id)

    def _content_terms(self, text: str) -> tuple[str, ...]:
        if text not in self._newest_terms:
            if len(self._newest_terms) >= _MAX_COMPARED:
                self._newest_terms.clear()
            self._newest_terms[text] = content_terms(text)
        return self._newest_terms[text]

    def _index(self, place: int, fact: KeyFact) -> None:
        terms = frozenset(self._content_terms(fact.text))
        self._terms[place] = terms
        for term in terms:
            self._by_term.setdefault(term, []).append(place)


def _text_key(fact: KeyFact) -> tuple[str, ...]:
    if fact.kind in _STATEMENTS or fact.kind in _OPEN or fact.kind in {FactKind.ERROR, FactKind.PENDING_CALL}:
        return fact.kind, normal_line(fact.text).rstrip(".!?;,")
    if fact.kind in _VALUES:
        # The same value with the same first word of its clause is a repetition.
        terms = content_terms(fact.text)
        return "value", _literal_key(fact.literals[0]), *(sorted(terms)[:1] if len(terms) > _MIN_SHARED else ())
    return "literal", _literal_key(fact.literals[0] if fact.literals else fact.text)


def _literal_key(literal: str) -> str:
    return one_line(plain_form(literal))
