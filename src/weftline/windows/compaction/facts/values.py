"""Normal form of numbers, quantities and dates: 1,200 as 1200, twenty-five minutes as 25 minute, 8 May as --05-08.

Careful rather than clever: what can be read in two ways (1.200, 3/4/2025) keeps its spelling, so that two values are
never taken for equal that may differ.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from weftline.indexing.entities import URL, entity_of_token
from weftline.kernel.data_files import JsonFile
from weftline.windows.compaction.model import FactKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_MONTH_NAMES = (
    "january jan januar janvier enero|february feb februar février febrero|march mar märz mars marzo|"
    "april apr avril abril|may mai mayo|june jun juni juin junio|july jul juli juillet julio|august aug août agosto|"
    "september sep sept septembre septiembre|october oct oktober okt octobre octubre|november nov novembre noviembre|"
    "december dec dezember dez décembre diciembre"
)


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES.split("|"), start=1) for name in names.split()}
_WEEKDAY_NAMES = (
    "monday mondays montag montags lundi lundis lunes|tuesday tuesdays dienstag dienstags mardi mardis martes|"
    "wednesday wednesdays mittwoch mittwochs mercredi mercredis miércoles|"
    "thursday thursdays donnerstag donnerstags jeudi jeudis jueves|"
    "friday fridays freitag freitags vendredi vendredis viernes|"
    "saturday saturdays samstag samstags samedi samedis sábado sábados|"
    "sunday sundays sonntag sonntags dimanche dimanches domingo domingos"
)
WEEKDAYS = {name: number for number, names in enumerate(_WEEKDAY_NAMES.split("|")) for name in names.split()}
_MONTH = "(?:" + "|".join(sorted(MONTHS, key=len, reverse=True)) + r")\b\.?"
_DAY = r"(?P<{0}>\d{{1,2}})(?:st|nd|rd|th|er|\.)?"
# The first characters of a match are tried before all else: it halves the time.
DATE = re.compile(
    rf"""(?=[\d{"".join(sorted({name[0] for name in MONTHS}))}])(?<![\w./-])(?:
    (?P<year>\d{{4}})[-/](?P<month>\d{{1,2}})[-/](?P<day>\d{{1,2}})(?P<time>T\d[\d:.,+Z-]{{0,30}})?
    |(?P<dotted_day>\d{{1,2}})\.[ ]?(?P<dotted_month>\d{{1,2}})\.[ ]?(?P<dotted_year>\d{{4}})
    |\d{{1,2}}/\d{{1,2}}/(?:\d{{4}}|\d\d)
    |{_DAY.format("first_day")}(?:[ ]of|[ ]de)?[ ](?P<second_month>{_MONTH})
      (?:,?[ ](?:de[ ]|del[ ])?(?P<second_year>\d{{4}}))?
    |(?P<first_month>{_MONTH})[ ]{_DAY.format("second_day")}(?:,?[ ](?P<third_year>\d{{4}}))?
    |(?P<only_month>{_MONTH})[ ](?P<only_year>\d{{4}})
    )(?![\w/]|-\d|\.\d)""",
    re.IGNORECASE | re.VERBOSE,
)

_ONES = (
    "zero one two three four five six seven eight nine ten eleven "
    "twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS = {word: number for number, word in enumerate(_ONES.split())}
_NUMBER_WORDS |= {word: number * 10 for number, word in enumerate(_TENS.split(), start=2)}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_NUMBER_WORD = "(?:" + "|".join((*_NUMBER_WORDS, *_SCALES)) + ")"
_DIGIT_WORD = "|".join(_ONES.split()[:10])
_WORDS_AS_NUMBER = re.compile(
    rf"(?=[{''.join(sorted({word[0] for word in _NUMBER_WORDS}))}])"
    rf"\b(?:{'|'.join(_NUMBER_WORDS)})(?:(?:[ -]| and ){_NUMBER_WORD}){{0,12}}"
    rf"(?: point(?: (?:{_DIGIT_WORD})){{1,6}})?\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z]+")
_DIGIT = re.compile(r"\d")
_NEXT_WORD = re.compile(r"[ -]([^\W\d_]{3,14})(?!\w|-\w)")
WORDS_OF_NUMBERS = frozenset((*_NUMBER_WORDS, *_SCALES))


class _Units(TypedDict):
    """Factors by word, and the forms in which each unit is written."""

    factors: dict[str, int]
    forms: dict[str, str]


_UNITS_FILE = JsonFile("windows/compaction/facts/units.json", _Units)
_FACTORS = _UNITS_FILE()["factors"]
# Abbreviations in which case matters: Mb is not MB. Upper case is marked, as normal forms have none.
_CASED = _words("kbps Mbps Gbps MBps W kW MW mW kWh MWh V kV mV A mA Hz kHz MHz GHz °C °F px rpm dpi fps rps qps tps m")
_CASED_UNITS = {unit: re.sub(r"([A-Z])", r"^\1", unit) for unit in _CASED}
_CASED_UNITS |= {"kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte"}
_CASED_UNITS |= {"KiB": "kibibyte", "MiB": "mebibyte", "GiB": "gibibyte", "TiB": "tebibyte"}
_CASED_UNITS |= {"kb": "kilobit", "Mb": "megabit", "Gb": "gigabit", "PB": "petabyte"}
# What is counted: a quantity only after digits.
_COUNTED = _words(
    "tokens users requests rows files replicas nodes retries attempts connections employees people persons items tests "
    "records customers seats copies units points votes pages lines shards partitions workers threads cores errors "
    "tickets orders instances servers messages documents pods containers participants guests licenses accounts entries "
    "characters words steps epochs samples columns tables commits calls events jobs tasks failures warnings bugs "
    "issues nutzer mitarbeiter anfragen zeilen dateien knoten versuche utilisateurs requêtes fichiers lignes "
    "nœuds usuarios solicitudes archivos filas nodos intentos"
)
_UNITS = {form: unit for unit, forms in _UNITS_FILE()["forms"].items() for form in (unit, *forms.split())}
_MIN_WORD_UNIT = 4
# Too short or too ambiguous after a number in words: two an, five m.
_WORD_UNITS = frozenset(form for form in _UNITS if len(form) >= _MIN_WORD_UNIT and form.isalpha())
_NUMBER = re.compile(
    r"(?=[-\u2212\d$€£¥UEGC])(?<![\w$€£¥])(?<!\d[.,])(?<!\w[./_:])(?<![^\W\d]-)(?P<sign>[-\u2212](?=[\d$€£]))?"
    r"(?:(?P<currency>US\$|[$€£¥]|(?:USD|EUR|GBP|CHF)(?=[ \u00a0]?\d))[ \u00a0]?)?"
    r"(?P<digits>\d{1,3}(?:[\u00a0\u202f'\u2019]\d{3}){1,6}(?:[.,]\d{1,20})?|\d{1,40}(?:[.,]\d{1,20}){0,6})"
    r"(?:(?P<attached>[^\W\d_]{1,14}|[%€£$¥‰]|°[CF]?)(?!\w|-\w)|(?!\w))"
    r"(?:[ \u00a0-](?P<next>[^\W\d_]{1,14}|[%€£$¥‰]|°[CF]?)(?!\w|-\w))?"
    r"(?:[ \u00a0](?P<after>[^\W\d_]{1,14})(?!\w|-\w))?"
)
_AMBIGUOUS = re.compile(r"\d{1,3}\.\d{3}\Z")
_GROUPED_BY_COMMA = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z")
_GROUPED_BY_DOT = re.compile(r"\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?\Z|\d{1,3}(?:\.\d{3})+,\d+\Z")
_DECIMAL_COMMA = re.compile(r"\d+,(?:\d{1,2}|\d{4,})\Z")
_GAPS = str.maketrans("", "", "\u00a0\u202f'\u2019")
_PER_CENT = re.compile(r"\b(?:per cent|pour cent|por ciento)\b", re.IGNORECASE)


class Quantity(NamedTuple):
    """A number with its unit as it stands in a text; ``unit`` is empty if there is none."""

    value: str
    unit: str
    start: int
    end: int


def quantities_in(text: str) -> Iterator[Quantity]:
    """Yield the numbers of a text that are written in digits, in order."""
    return map(_quantity, _NUMBER.finditer(text))


def quantities_in_words(text: str) -> Iterator[Quantity]:
    """Yield the numbers of a text that are written as words and have a unit: twenty-five minutes."""
    for match in _WORDS_AS_NUMBER.finditer(text):
        unit = _NEXT_WORD.match(text, match.end())
        if unit is not None and unit[1].casefold() in _WORD_UNITS:
            yield Quantity(_number_of(match[0]), _UNITS[unit[1].casefold()], match.start(), unit.end())


def normal_values(text: str) -> str:
    """Return a line of text with numbers, quantities and dates in their normal form."""
    if not WORDS_OF_NUMBERS.isdisjoint(_WORD.findall(text.lower())):
        text = _WORDS_AS_NUMBER.sub(lambda match: _number_of(match[0]), text)
    if not _DIGIT.search(text):
        return text
    if " c" in text:
        text = _PER_CENT.sub("%", text)
    return _NUMBER.sub(_normal_number, DATE.sub(lambda match: date_of(match) or match[0], text))


def date_of(match: re.Match[str]) -> str:
    """Return a matched date as ISO 8601, without the year as --MM-DD; empty if it can be read in two ways."""
    found = match.groupdict()
    year = found["year"] or found["dotted_year"] or found["second_year"] or found["third_year"] or found["only_year"]
    named = found["second_month"] or found["first_month"] or found["only_month"]
    number = found["month"] or found["dotted_month"]
    month = MONTHS[named.casefold().rstrip(".")] if named else int(number) if number else 0
    day = int(found["day"] or found["dotted_day"] or found["first_day"] or found["second_day"] or 0)
    if not month or (not day and not found["only_year"]) or not _is_date(int(year or 2000), month, day or 1):
        return ""
    written = f"{month:02}" + (f"-{day:02}" if day else "")
    return (f"{year}-{written}" if year else f"--{written}") + (found["time"] or "")


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _normal_number(match: re.Match[str]) -> str:
    quantity = _quantity(match)
    unit = f" {quantity.unit}" if quantity.unit else ""
    return f"{quantity.value}{unit}{match[0][quantity.end - match.start() :]}"


def _quantity(match: re.Match[str]) -> Quantity:
    currency, attached, following, after = (match[name] for name in ("currency", "attached", "next", "after"))
    value, end, factor = normal_digits(match["digits"]), match.end("digits"), 1
    unit = _UNITS[currency.casefold()] if currency else ""
    if attached:
        factor = _short_factor(attached, is_money=bool(currency))
        found = "" if factor > 1 else _unit(attached)
        if factor == 1 and not found:
            # Letters that are no unit: 5th, 3D.
            return Quantity(match["digits"] + attached, "", match.start(), match.end("attached"))
        unit, end = unit or found, match.end("attached")
    if following and factor == 1 and not attached and following.casefold() in _FACTORS and len(following) > 1:
        factor, end = _FACTORS[following.casefold()], match.end("next")
        if not unit and after and (found := _unit(after)):
            unit, end = found, match.end("after")
    elif following and not unit and (found := _unit(following)):
        unit, end = found, match.end("next")
    if factor > 1:
        value = _multiplied(value, factor)
    sign = "-" if match["sign"] else ""
    return Quantity(sign + value, unit, match.start(), end)


def _short_factor(letters: str, *, is_money: bool) -> int:
    if letters in {"k", "K"} or letters.casefold() in {"bn", "mio"}:
        return _FACTORS[letters.casefold()]
    return _FACTORS["m"] if is_money and letters in {"m", "M"} else 1


def _unit(word: str) -> str:
    if word in _CASED_UNITS:
        return _CASED_UNITS[word]
    folded = word.casefold()
    # Short forms are written in lower case, except for currencies.
    if len(word) < _MIN_WORD_UNIT - 1 and word != folded:
        return ""
    return _UNITS.get(folded) or (folded if folded in _COUNTED else "")


def _multiplied(value: str, factor: int) -> str:
    try:
        return format((Decimal(value) * factor).normalize(), "f")
    except InvalidOperation:
        return f"{value}*{factor}"


def normal_digits(digits: str) -> str:
    """Return a number without thousands separators and with a decimal point; 1.200 may be either, and stays."""
    digits = digits.translate(_GAPS)
    if digits.isdigit() or _AMBIGUOUS.match(digits):
        return digits
    if _GROUPED_BY_COMMA.match(digits):
        return digits.replace(",", "")
    if _GROUPED_BY_DOT.match(digits):
        return digits.replace(".", "").replace(",", ".")
    return digits.replace(",", ".") if _DECIMAL_COMMA.match(digits) else digits


def _number_of(words: str) -> str:
    """Return a number written as words; the words themselves if they are several numbers, such as one two three."""
    whole, _, decimals = words.casefold().replace("-", " ").partition(" point ")
    number = _whole_number(whole.split())
    if number is None:
        return words
    digits = "".join(str(_NUMBER_WORDS[word]) for word in decimals.split())
    return f"{number}.{digits}" if digits else str(number)


def _whole_number(words: Sequence[str]) -> int | None:
    total = current = 0
    # The next word must be below: tens may follow hundreds, ones may follow tens.
    below = _SCALES["thousand"]
    for word in words:
        scale = _SCALES.get(word)
        if scale == _SCALES["hundred"]:
            current, below = max(current, 1) * scale, scale
        elif scale is not None:
            total, current, below = total + max(current, 1) * scale, 0, _SCALES["thousand"]
        elif word != "and":
            number = _NUMBER_WORDS[word]
            if number >= below:
                return None
            current, below = current + number, 10 if number >= _NUMBER_WORDS["twenty"] else 1
    return total + current


# Literals of a text: identifiers, quantities, dates, paths, URLs, code symbols and quotations, as they are written.

# Longer tokens are encoded data.
MAX_LITERAL = 200
_SIGN = re.compile(r"[\d_/\\@`\"#\u201c\u201e\u00ab\u2018]")
_JOINED = re.compile(r"[a-z][A-Z]|\.[A-Za-z]")
_CODE_SPAN = re.compile(r"`([^`\n]{2,160})`")
_QUOTE = re.compile(
    r"\"([^\"\n]{2,120})\"|\u201c([^\u201c\u201d\n]{2,120})\u201d|\u201e([^\u201e\u201c\u201d\n]{2,120})[\u201c\u201d]|"
    r"\u00ab\s?([^\u00ab\u00bb\n]{2,120}?)\s?\u00bb|(?<![\w])'([^'\n]{2,80})'(?![\w])"
)
_TIME = re.compile(
    r"(?<![\w:.])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?:[ ]?[ap]\.?m\b)?(?![\w:])|\b\d{1,2}[ ]?[ap]m\b"
)
# A number that a word names: port 5432, PIN 4821, room 12.
_NAMED_NUMBER = re.compile(
    r"\b(?:port|pin|code|room|extension|version|line|order|ticket|invoice|account|case|number|nr|no|issue|build|gate|"
    r"flight|zip|pr|table|id|batch|lot|apartment|suite|unit|platform|kunde|auftrag|rechnung|commande|facture|pedido|"
    r"factura)\.?[ ]?[:#=]?[ ]?#?(\d[\w.-]{0,30}\w|\d)(?![\w])",
    re.IGNORECASE,
)
# A setting and its value: timeout=30, max_connections: 200, retries = 5.
_SETTING = re.compile(
    r"(?<![\w.])[A-Za-z_][\w.-]{1,60}[\"']?[ ]?(?:=|:[ ])[ ]?[\"']?-?\d[\d.,]{0,20}(?:[a-zA-Z%]{1,4})?(?![\w])"
)
# A number that something is said to be: the retry count is 270.
_STATED = re.compile(
    r"\b(?:is|are|was|were|equals|beträgt|ist|sind|est|sont|es|son) (?:now |set to |still |jetzt |maintenant |ahora )?"
    r"(\d[\d.,]{0,20}\d)(?![\w%€$£°]|[./:-]\d| ?[^\W\d_])",
    re.IGNORECASE,
)
_DEFINED = re.compile(r"\b(?:def|class|function|func|fn|interface|struct|CREATE TABLE)\s{1,4}([A-Za-z_]\w{2,80})")
_TOKEN = re.compile(r"[^\s,;\"(){}\[\]<>|=*\u201c\u201d\u201e\u00ab\u00bb\u2014`]{2,400}")
_KINDS = {
    "file": FactKind.PATH,
    "identifier": FactKind.IDENTIFIER,
    "agent": FactKind.IDENTIFIER,
    "email": FactKind.IDENTIFIER,
    "url": FactKind.URL,
    "person": FactKind.IDENTIFIER,
}
# Codes that no other rule knows: fra-2, db-eu-3.internal, E1234, 0x80070005.
_CODE_LIKE = re.compile(
    r"(?=[^\d]{1,60}\d)[A-Za-z]\w{0,40}(?:[-_.:][\w]{1,40}){1,10}\Z|[A-Z]{1,8}\d[A-Z0-9]{2,20}\Z|0x[0-9a-fA-F]{4,40}\Z"
)
_SYMBOL = re.compile(r"[A-Za-z_$][\w$.:]*(?:\(\))?\Z")
_EDGES = ".,;:!?'\"\u2019\u2018\u2026"
_BLANK = " "
# The beginning of a range such as 30-60 seconds, and what a quantity is per: 58 mg/dL.
_RANGE = re.compile(r"\d[\d.,]{0,20}[-\u2013]\Z")
_PER = re.compile(r"/[A-Za-z]{1,6}\b")
_MAX_RANGE = 22


class Literal(NamedTuple):
    """A literal at its place in a text."""

    kind: FactKind
    text: str
    start: int
    end: int


def literals_in(text: str, *, is_code: bool = False, is_data: bool = False) -> list[Literal]:
    """Return the literals of a short text, such as a sentence or a line, in order.

    ``is_data``: a line of JSON, a table or a log, in which quotation marks and names in code mean nothing.
    """
    if not _SIGN.search(text) and not _JOINED.search(text):
        return list(_quantities_in_words(text)) if not is_code else []
    found: list[Literal] = []
    text = _taken(text, URL, _url, found)
    if is_code:
        text = _taken(text, _DEFINED, _group(FactKind.SYMBOL), found)
        found += (each for each in _tokens(text) if each.kind is FactKind.PATH)
        return sorted(found, key=lambda each: each.start)
    text = _taken(text, _CODE_SPAN, _code_span, found)
    text = _taken(text, DATE, _whole(FactKind.DATE), found)
    if not is_data:
        text = _taken(text, _QUOTE, _quote, found)
    text = _taken(text, _SETTING, _whole(FactKind.QUANTITY), found)
    text = _taken(text, _NAMED_NUMBER, _whole(FactKind.IDENTIFIER), found)
    text = _taken(text, _TIME, _whole(FactKind.DATE), found)
    if any(map(str.isdigit, text)):
        amounts = [_amount(text, quantity.start, quantity.end) for quantity in quantities_in(text) if quantity.unit]
        text = _blanked(text, amounts)
        found += amounts
        text = _taken(text, _STATED, _group(FactKind.QUANTITY), found)
    found += _quantities_in_words(text)
    found += (each for each in _tokens(text) if not is_data or each.kind is not FactKind.SYMBOL)
    return sorted(found, key=lambda each: each.start)


def _quantities_in_words(text: str) -> Iterator[Literal]:
    if not WORDS_OF_NUMBERS.isdisjoint(_WORD.findall(text.lower())):
        for quantity in quantities_in_words(text):
            yield Literal(FactKind.QUANTITY, text[quantity.start : quantity.end], quantity.start, quantity.end)


def _amount(text: str, start: int, end: int) -> Literal:
    """Return a quantity with the beginning of its range and what it is per."""
    beginning = _RANGE.search(text, max(0, start - _MAX_RANGE), start)
    per = _PER.match(text, end)
    start, end = beginning.start() if beginning is not None else start, per.end() if per is not None else end
    return Literal(FactKind.QUANTITY, text[start:end], start, end)


def _taken(
    text: str, pattern: re.Pattern[str], read: Callable[[re.Match[str]], Literal | None], found: list[Literal]
) -> str:
    """Add what a pattern finds, and return the text with blanks in its place."""
    taken = [literal for match in pattern.finditer(text) if (literal := read(match)) is not None]
    found += taken
    return _blanked(text, taken)


def _blanked(text: str, literals: list[Literal]) -> str:
    for literal in literals:
        text = text[: literal.start] + _BLANK * (literal.end - literal.start) + text[literal.end :]
    return text


def _whole(kind: FactKind) -> Callable[[re.Match[str]], Literal | None]:
    return lambda match: Literal(kind, match[0].rstrip(_EDGES), match.start(), match.end())


def _group(kind: FactKind) -> Callable[[re.Match[str]], Literal | None]:
    return lambda match: Literal(kind, match[1], match.start(1), match.end(1))


def _url(match: re.Match[str]) -> Literal | None:
    url = match[0].rstrip(_EDGES + ")]")
    return Literal(FactKind.URL, url, match.start(), match.end()) if len(url) <= MAX_LITERAL * 2 else None


def _code_span(match: re.Match[str]) -> Literal | None:
    span = match[1].strip()
    if len(span) < 2:  # noqa: PLR2004 - a letter is no symbol
        return None
    entity = entity_of_token(span) if _BLANK not in span else None
    kind = _KINDS.get(entity.type, FactKind.SYMBOL) if entity is not None else FactKind.SYMBOL
    if kind is FactKind.IDENTIFIER and _is_symbol(span):
        kind = FactKind.SYMBOL
    if kind is FactKind.SYMBOL and not _SYMBOL.match(span):
        kind = FactKind.QUOTE
    return Literal(kind, span, match.start(), match.end())


def _quote(match: re.Match[str]) -> Literal | None:
    quoted = next(group for group in match.groups() if group is not None).strip()
    if not any(map(str.isalnum, quoted)):
        return None
    return Literal(FactKind.QUOTE, quoted, match.start(), match.end())


def _tokens(text: str) -> Iterator[Literal]:
    for match in _TOKEN.finditer(text):
        token = match[0]
        if (token.isalpha() and (token.islower() or token.istitle() or token.isupper())) or len(token) > MAX_LITERAL:
            continue
        entity = entity_of_token(token)
        if entity is None or entity.type not in _KINDS:
            if _CODE_LIKE.match(bare := token.strip(_EDGES)):
                yield Literal(FactKind.IDENTIFIER, bare, match.start(), match.end())
            continue
        # The entity has a normal spelling; the literal is what was written.
        value = entity.value if entity.value in token else token.strip(_EDGES)
        kind = _KINDS[entity.type]
        if kind is FactKind.IDENTIFIER and _is_symbol(value):
            kind = FactKind.SYMBOL
        yield Literal(kind, value, match.start(), match.end())


def _is_symbol(value: str) -> bool:
    """Tell whether an identifier is a name in code, such as retry_count, rather than an id."""
    return value.isidentifier() and not any(map(str.isdigit, value))
