"""What a statement is about, apart from what it says of it, so that a later statement about the same is recognised."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.text_analysis import FILLER_WORDS, stem
from weftline.windows.compaction.facts.normal_form import normal_line
from weftline.windows.compaction.facts.values import WEEKDAYS
from weftline.windows.compaction.model import FactKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.windows.compaction.model import KeyFact

_WORD = re.compile(r"[^\W_][\w@#/.:'+-]*[^\W_]|[^\W_]|[%]")
_NUMBER = re.compile(r"-*\d[\d.,:t+z-]*\Z")
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
    found = (word.strip(_EDGES) for word in _WORD.findall(normal_line(text)))
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
    return tuple(sorted(term for term in content_terms(text) if not _NUMBER.match(term)))


def _slot(fact: KeyFact, who: str) -> Subject | None:
    """Return the words of a statement without its numbers, dates and polarity, and those as its value.

    Prohibitions of different things differ by a number at most: their numbers are part of the subject. So is, beside
    another number, one that names what it follows: ward 3 gets four beds, ward 5 two.
    """
    words = [word.strip(_EDGES) for word in _WORD.findall(normal_line(fact.text))]
    bare = [word.replace("'", "") for word in words if word]
    is_prohibition = not NEGATIVE.isdisjoint(bare) and _COMPARED.isdisjoint(bare)
    about: set[str] = set()
    value: list[str] = []
    numbers = [place for place, word in enumerate(bare) if _NUMBER.match(word)]
    for place, word in enumerate(bare):
        is_value = place in numbers and not is_prohibition and not (len(numbers) > 1 and _is_name(bare, place))
        is_value = is_value or word in _POLARITY or (word in _DAYS and fact.kind in _WITH_VALUE)
        if is_value:
            value.append(word)
        elif word not in _IGNORED:
            about.add(stem(word))
    if not about - _UNITS or not value:
        return None
    return Subject(("slot", who, *sorted(about)), tuple(value))


def _is_name(words: Sequence[str], place: int) -> bool:
    """Tell whether a number belongs to the word before it, rather than to a unit after it."""
    before, after = words[place - 1 : place], words[place + 1 : place + 2]
    return bool(before) and before[0] not in _IGNORED and stem(after[0] if after else "") not in _UNITS


_UNITS = words_listed("% euro dollar pound percent second minut hour day week month year millisecond gb mb ms")
