"""Detection and masking of secrets and personal data (PII) in text and JSON."""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from weftline.kernel.hidden_text import encoded_passages, readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


# Detectors: regular expressions plus checks that find secrets and personal data in text.
#
# The text is untrusted, so no pattern may backtrack without bound: every repetition has an upper limit, or cannot
# start inside a run of its own characters.

_UNCOVERED = re.compile(rb"\0+")


class DetectedSpan(NamedTuple):
    """A detected value in a text. Spans with equal ``label`` and ``identity`` hold the same value."""

    start: int
    end: int
    label: str
    identity: str


class Detector(Protocol):
    """Finds one kind of value. Runs only on texts with any of its ``hints`` (lower case) and ``min_digits`` digits."""

    @property
    def label(self) -> str: ...

    @property
    def hints(self) -> tuple[str, ...]: ...

    @property
    def min_digits(self) -> int: ...

    def spans(self, text: str) -> Iterator[DetectedSpan]: ...


class PatternDetector(NamedTuple):
    """Detects the group ``value`` of a pattern where ``is_valid`` accepts the match.

    ``normalise`` removes differences of notation, so that the same value gets the same identity. ``gate`` is a fast
    pattern that is in every text with a match: it starts with a character, while most patterns start with a condition.
    """

    label: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_valid: Callable[[re.Match[str]], bool] = lambda _: True
    normalise: Callable[[str], str] = str
    min_digits: int = 0
    gate: re.Pattern[str] | None = None

    def spans(self, text: str) -> Iterator[DetectedSpan]:
        if self.gate is not None and not self.gate.search(text):
            return
        for match in self.pattern.finditer(text):
            if self.is_valid(match):
                start, end = match.span("value")
                yield DetectedSpan(start, end, self.label, self.normalise(text[start:end]))


class Scanner:
    """Runs detectors over a text. Their order is their priority where spans overlap."""

    def __init__(self, detectors: Iterable[Detector]) -> None:
        self._detectors = tuple(detectors)
        self._hints = [(hint, index) for index, detector in enumerate(self._detectors) for hint in detector.hints]

    @property
    def is_empty(self) -> bool:
        return not self._detectors

    def spans(self, text: str) -> list[DetectedSpan]:
        """Return the detected spans in text order, without overlaps."""
        found, hidden = self._plain_spans(text), dict.fromkeys(self._hidden_spans(text))
        if len(found) + len(hidden) < 2:  # noqa: PLR2004 - two are needed to overlap
            return [*found, *hidden]
        covered = bytearray(len(text))
        accepted = []
        for span in found:
            if covered.find(1, span.start, span.end) < 0:
                covered[span.start : span.end] = b"\1" * (span.end - span.start)
                accepted.append(span)
        for span in hidden:
            # What hides a part of a value may leave the rest of it in sight.
            for gap in _UNCOVERED.finditer(bytes(covered[span.start : span.end])):
                start, end = span.start + gap.start(), span.start + gap.end()
                covered[start:end] = b"\1" * (end - start)
                accepted.append(span._replace(start=start, end=end))
        return sorted(accepted)

    def _plain_spans(self, text: str) -> list[DetectedSpan]:
        return [span for detector in self._hinted(text) for span in detector.spans(text)]

    def _hidden_spans(self, text: str) -> Iterator[DetectedSpan]:
        """Yield the spans of values in disguise, escaped or spaced out, and of passages that hold one, encoded."""
        for shown, places in readings(text):
            if shown is not text:
                for span in self._plain_spans(shown):
                    yield span._replace(start=places[span.start], end=places[span.end])
            for passage in encoded_passages(shown):
                for span in self._plain_spans(passage.text):
                    yield span._replace(start=places[passage.start], end=places[passage.end])

    def _hinted(self, text: str) -> list[Detector]:
        """Return the detectors whose hints occur in the text: most texts hint at very few."""
        lowered = text.lower()
        hinted = sorted({index for hint, index in self._hints if hint in lowered})
        digits = sum(map(text.count, "0123456789"))
        return [detector for detector in map(self._detectors.__getitem__, hinted) if detector.min_digits <= digits]


def not_after(characters: str) -> str:
    r"""Return a pattern prefix: no match directly after these characters (a character class without its brackets).

    An escaped line break such as ``\n`` ends in a letter, but counts as a break.
    """
    return rf"(?:(?<![\\{characters}])|(?<=\\[nrt]))"


def digits_of(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


# Detectors of national identity and tax numbers, by their check digits; plain numbers only after their label.

_LABEL = "national id"
_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_NIE_PREFIXES = {"X": "0", "Y": "1", "Z": "2"}
_FISCAL_CODE_EVEN = {letter: value for value, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ")}
_FISCAL_CODE_ODD = dict(
    zip("0123456789", (1, 0, 5, 7, 9, 13, 15, 17, 19, 21), strict=True),
    **dict(
        zip(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
            strict=True,
        )
    ),
)
_TAX_ID_DIGITS = 11


def is_spanish_id(value: str) -> bool:
    """Check a DNI or NIE: its letter is the remainder of the number divided by 23."""
    number = _NIE_PREFIXES.get(value[0], value[0]) + value[1:-1].replace("-", "")
    return _DNI_LETTERS[int(number) % 23] == value[-1]


def is_french_number(value: str) -> bool:
    """Check a numero de securite sociale: the last two digits are 97 minus the remainder of the others."""
    digits = value.replace(" ", "").replace("2A", "19").replace("2B", "18")
    return int(digits[-2:]) == 97 - int(digits[:-2]) % 97


def is_italian_code(value: str) -> bool:
    """Check a codice fiscale: weights by letter and position, modulo 26."""
    total = sum(
        _FISCAL_CODE_EVEN.get(letter, ord(letter) - ord("0")) if place % 2 else _FISCAL_CODE_ODD[letter]
        for place, letter in enumerate(value[:-1])
    )
    return chr(ord("A") + total % 26) == value[-1]


def is_brazilian_number(value: str) -> bool:
    """Check a CPF: two digits of weighted sums modulo 11."""
    digits = [int(letter) for letter in value if letter.isdigit()]
    if len(set(digits)) == 1:
        return False
    for count in (9, 10):
        total = sum(digit * (count + 1 - place) for place, digit in enumerate(digits[:count]))
        if total * 10 % 11 % 10 != digits[count]:
            return False
    return True


def is_german_tax_id(value: str) -> bool:
    """Check a Steuer-ID (ISO 7064, modulo 11 and 10)."""
    digits = [int(letter) for letter in value if letter.isdigit()]
    if len(digits) != _TAX_ID_DIGITS or digits[0] == 0:
        return False
    product = 10
    for digit in digits[:-1]:
        product = ((digit + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == digits[-1]


def is_dutch_number(value: str) -> bool:
    """Check a BSN: the weighted sum is a multiple of 11."""
    digits = [int(letter) for letter in value if letter.isdigit()]
    weights = (9, 8, 7, 6, 5, 4, 3, 2, -1)
    return any(digits) and sum(map(int.__mul__, digits, weights)) % 11 == 0


def _detector(
    pattern: str, is_valid: Callable[[str], bool], *hints: str, min_digits: int, gate: str | None = None
) -> PatternDetector:
    return PatternDetector(
        _LABEL,
        hints or ("",),
        re.compile(pattern),
        lambda match: is_valid(match["value"]),
        lambda value: re.sub(r"[ .-]", "", value),
        min_digits,
        None if gate is None else re.compile(gate),
    )


_ALONE = not_after("A-Za-z0-9_.-")
NATIONAL_ID_DETECTORS: tuple[Detector, ...] = (
    _detector(
        rf"{_ALONE}(?P<value>[0-9XYZ]-?[0-9]{{7}}-?[A-HJ-NP-TV-Z])(?![\w-])",
        is_spanish_id,
        min_digits=7,
        gate=r"[0-9]{7}-?[A-Z]",
    ),
    _detector(
        rf"{_ALONE}(?P<value>[12] ?[0-9]{{2}} ?(?:0[1-9]|1[0-2]) ?(?:[0-9]{{2}}|2[AB]) ?[0-9]{{3}} ?[0-9]{{3}} ?"
        r"[0-9]{2})(?![\w-])",
        is_french_number,
        min_digits=13,
        gate=r"[12] ?[0-9]{2} ?[01]",
    ),
    _detector(
        rf"{_ALONE}(?P<value>[A-Z]{{6}}[0-9]{{2}}[A-EHLMPRST][0-9]{{2}}[A-Z][0-9]{{3}}[A-Z])(?![\w-])",
        is_italian_code,
        min_digits=7,
        gate=r"[A-Z]{6}[0-9]{2}[A-Z]",
    ),
    _detector(
        rf"{_ALONE}(?P<value>[0-9]{{3}}[.][0-9]{{3}}[.][0-9]{{3}}-[0-9]{{2}})(?![\w-])",
        is_brazilian_number,
        "-",
        min_digits=11,
        gate=r"[.][0-9]{3}[.][0-9]{3}-",
    ),
    _detector(
        r"(?i)(?:steuer-?id(?:nr|entifikationsnummer)?|idnr|tax id)\.?[\"']?[ :=#]{0,4}(?:is |ist )?[\"']?"
        r"(?P<value>[0-9]{2} ?[0-9]{3} ?[0-9]{3} ?[0-9]{3})(?![\w-])",
        is_german_tax_id,
        "steuer",
        "idnr",
        "tax id",
        min_digits=11,
    ),
    _detector(
        r"(?i)(?:bsn|burgerservicenummer)[\"']?[ :=#]{0,4}(?:is )?[\"']?(?P<value>[0-9]{9})(?![\w-])",
        is_dutch_number,
        "bsn",
        "burgerservice",
        min_digits=9,
    ),
    _detector(
        r"(?i)(?:nino|national insurance(?: (?:number|no\.?))?|ni number)[\"']?[ :=#]{0,4}(?:is )?[\"']?"
        r"(?P<value>[A-CEGHJ-PR-TW-Z]{2} ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D])(?![\w-])",
        bool,
        "nino",
        "insurance",
        "ni number",
        min_digits=6,
    ),
)


# Detectors of personal data: addresses and numbers, verified by their check digits where they have any.

_FILE_SUFFIXES = frozenset(
    {"png", "jpg", "jpeg", "gif", "svg", "webp", "pdf", "css", "js", "ts", "json", "html", "txt", "md"}
)
# Matches every text: for plain numbers, min_digits is the only hint.
_ANY_TEXT = ("",)
_PHONE_DIGITS = range(7, 16)
# Issuer prefixes of payment card numbers, with their lengths.
_CARD_NUMBER = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|"
    r"6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|62\d{14,17}"
)
# Countries by the length of their IBAN.
_IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK MN",
    21: "CH CR HR LI LV",
    22: "BG BH DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ DZ ES LY MD PK RO SA SE SK TN VG",
    25: "LC PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    33: "RU",
}
_IBAN_LENGTHS = {country: length for length, countries in _IBAN_COUNTRIES.items() for country in countries.split()}
_VERSION_PREFIX = re.compile(
    r"(?i)(?:\b(?:version|ver|release|build|section|chapter|clause|table|figure|rule|part|step)\.?|§|[=<>~^]=?|\b[a-z]+/)"
    r"\s?[:=]?\s?[\"']?\Z"
)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_DATE = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|"
    rf"\d{{1,2}}(?:st|nd|rd|th|\.)?[ ]{_MONTH}[ ]\d{{4}}|{_MONTH}[ ]\d{{1,2}}(?:st|nd|rd|th)?,?[ ]\d{{4}})"
)


class IbanDetector:
    """IBANs. The length depends on the country, so capital letters right after the number are not part of it."""

    label = "iban"
    hints = _ANY_TEXT
    min_digits = 7

    def spans(self, text: str) -> Iterator[DetectedSpan]:
        if not _IBAN_GATE.search(text):
            return
        for match in _IBAN_PATTERN.finditer(text):
            value = _prefix(match["value"], _IBAN_LENGTHS.get(match["value"][:2], 0))
            end = match.start("value") + len(value)
            if value and is_iban(value) and not text[end : end + 1].isalnum():
                yield DetectedSpan(match.start("value"), end, self.label, value.replace(" ", ""))


def is_card(digits: str) -> bool:
    """Check a payment card number: issuer prefix, length and Luhn check digit."""
    doubled = [sum(divmod(int(d) * 2, 10)) if place % 2 else int(d) for place, d in enumerate(reversed(digits))]
    return _CARD_NUMBER.fullmatch(digits) is not None and sum(doubled) % 10 == 0


def is_iban(text: str) -> bool:
    """Check the two check digits of an IBAN (ISO 7064 mod 97)."""
    plain = text.replace(" ", "")
    return int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:4])) % 97 == 1


def _prefix(text: str, count: int) -> str:
    """Return the shortest prefix with ``count`` non-space characters, or an empty string if there are fewer."""
    places = [place for place, letter in enumerate(text) if letter != " "]
    return text[: places[count - 1] + 1] if 0 < count <= len(places) else ""


def _is_email(match: re.Match[str]) -> bool:
    return match["top"].lower() not in _FILE_SUFFIXES and match["value"].partition("@")[0] != "git"


def _is_international(match: re.Match[str]) -> bool:
    """Accept a number with a plus if it is grouped or long: a short bare one may be an amount."""
    value = match["value"]
    digits = len(digits_of(value))
    return digits in _PHONE_DIGITS and (digits >= _MIN_BARE_PHONE_DIGITS or digits + 1 < len(value))


def _is_labelled_phone(match: re.Match[str]) -> bool:
    return len(digits_of(match["value"])) in _PHONE_DIGITS


def _is_ipv4(match: re.Match[str]) -> bool:
    """Reject version and section numbers, and addresses that identify no host."""
    if _VERSION_PREFIX.search(match.string, max(0, match.start("value") - 16), match.start("value")):
        return False
    first = int(match["value"].partition(".")[0])
    return first not in {0, 127, 255}


def _is_ipv6(match: re.Match[str]) -> bool:
    value = match["value"]
    groups = [group for group in value.split(":") if group]
    # Two short words joined by '::' are a qualified name in many programming languages.
    if not digits_of(value) or (len(groups) < _MIN_GROUPS and len(groups[0]) < _FULL_GROUP):
        return False
    try:
        address = ipaddress.IPv6Address(value)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _is_mac(match: re.Match[str]) -> bool:
    value = match["value"].lower()
    digits = set(value) - set(":-.")
    # Without a letter it may be a date with a time or a grouped number, unless the separators are colons.
    return digits not in ({"0"}, {"f"}) and (":" in value or bool(digits & set("abcdef")))


_MIN_BARE_PHONE_DIGITS = 10
_MIN_GROUPS = 3
_FULL_GROUP = 4
_IBAN_PATTERN = re.compile(rf"{not_after('A-Za-z0-9')}(?P<value>[A-Z]{{2}}[0-9]{{2}}(?:[ ]?[A-Z0-9]){{11,30}})")
_IBAN_GATE = re.compile(r"[A-Z]{2}[0-9]{2}[ ]?[A-Z0-9]{4}")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HEX = "[0-9A-Fa-f]"
_WORD_START = not_after(r"\w.+-")
_PHONE_SEPARATOR = r"[ ().\-/]{0,2}"
_SEVEN_DIGITS = re.compile(rf"[0-9](?:{_PHONE_SEPARATOR}[0-9]){{6}}")

# In order of priority: the first detector wins an overlap.
PII_DETECTORS: tuple[Detector, ...] = (
    PatternDetector(
        "email",
        ("@",),
        re.compile(
            rf"{_WORD_START}(?P<value>[\w.+-]{{1,64}}@(?:[\w-]{{1,63}}\.){{1,8}}"
            r"(?P<top>[^\W\d_]{2,24}|xn--[a-z0-9-]{2,59}))(?![\w@-])"
        ),
        _is_email,
        str.lower,
        gate=re.compile(r"@[\w-]{1,63}\."),
    ),
    IbanDetector(),
    PatternDetector(
        "card",
        _ANY_TEXT,
        re.compile(
            rf"{not_after('A-Za-z0-9_.-')}(?P<value>[0-9]{{4}}(?P<gap>[ -]?)(?:[0-9]{{4}}(?P=gap)[0-9]{{4}}(?P=gap)"
            r"[0-9]{1,7}|[0-9]{6}(?P=gap)[0-9]{4,5}))(?![A-Za-z0-9_]|[.-][0-9])"
        ),
        lambda match: is_card(digits_of(match["value"])),
        digits_of,
        min_digits=13,
        gate=re.compile(r"[0-9](?:[ -]?[0-9]){12}"),
    ),
    PatternDetector(
        "ssn",
        ("-",),
        re.compile(
            rf"{not_after('A-Za-z0-9_-')}(?P<value>(?!000|666|9)[0-9]{{3}}-(?!00)[0-9]{{2}}-(?!0000)[0-9]{{4}})(?![\w-])"
        ),
        normalise=digits_of,
        min_digits=9,
        gate=re.compile(r"-[0-9]{2}-[0-9]{4}"),
    ),
    PatternDetector(
        "ssn",
        ("ssn", "social"),
        re.compile(
            r"(?i)(?:ssn|social[ _]security(?:[ _](?:number|no\.?))?)[\"']?[ :=#]{0,4}(?:is )?[\"']?"
            r"(?P<value>[0-9]{3}[ -]?[0-9]{2}[ -]?[0-9]{4})(?![\w-])"
        ),
        normalise=digits_of,
        min_digits=9,
    ),
    *NATIONAL_ID_DETECTORS,
    PatternDetector(
        "birth date",
        ("dob", "d.o.b", "birth", "born", "gebor", "geburt"),
        re.compile(
            r"(?i)(?:dob|d\.o\.b\.?|date[ _]?of[ _]?birth|birth[ _]?(?:date|day)|born(?: on)?|geburtsdatum|"
            r"geboren(?: am)?)"
            rf"[\"']?[ ]{{0,3}}[:=]?[ ]{{0,3}}(?:is )?[\"']?(?P<value>{_DATE})(?![0-9])"
        ),
        min_digits=5,
    ),
    PatternDetector(
        "phone",
        ("+",),
        re.compile(rf"{not_after('A-Za-z0-9_+')}(?P<value>\+[1-9](?:{_PHONE_SEPARATOR}[0-9]){{6,14}})(?![A-Za-z0-9_])"),
        _is_international,
        digits_of,
        min_digits=7,
    ),
    PatternDetector(
        "phone",
        _ANY_TEXT,
        re.compile(
            rf"{not_after('A-Za-z0-9_.+-')}(?P<value>(?:1[ .-])?(?:\([2-9][0-9]{{2}}\)[ ]?|[2-9][0-9]{{2}}[.-])"
            r"[0-9]{3}[.-][0-9]{4}|0[1-9](?:[ .][0-9]{2}){4}|0[1-9][0-9]{1,3}[ /][0-9]{3,4}[ -][0-9]{3,4}"
            r"|0[1-9][0-9]{1,3}[ ]?/[ ]?[0-9]{5,8}|\(0[0-9]{2,4}\)[ ]?[0-9]{3,4}[ -]?[0-9]{3,4})(?![\w-]|[.][0-9])"
        ),
        normalise=digits_of,
        min_digits=9,
        gate=_SEVEN_DIGITS,
    ),
    PatternDetector(
        "phone",
        ("phone", "tel", "mobil", "handy", "cell", "fax", "whatsapp", "sms", "call me"),
        re.compile(
            r"(?i)(?:phone|tel|telephone|telefon|mobile|handy|cell|fax|whatsapp|sms|call me at|call me on)"
            r"(?:[ _](?:number|no))?[\"']?\.?[ :=#]{0,4}(?:is )?[\"']?"
            rf"(?P<value>[(]?[0-9](?:{_PHONE_SEPARATOR}[0-9]){{6,14}})(?![A-Za-z0-9_])"
        ),
        _is_labelled_phone,
        digits_of,
        min_digits=7,
        gate=_SEVEN_DIGITS,
    ),
    PatternDetector(
        "ip",
        (":",),
        re.compile(
            rf"{not_after('A-Za-z0-9_:.')}(?P<value>{_HEX}{{0,4}}(?::{_HEX}{{0,4}}){{2,7}})(?![A-Za-z0-9_:]|[.][0-9])"
        ),
        _is_ipv6,
        str.lower,
        min_digits=1,
        gate=re.compile(rf":{_HEX}{{0,4}}:"),
    ),
    PatternDetector(
        "mac",
        (":", "-", "."),
        re.compile(
            rf"{not_after('A-Za-z0-9_:.-')}(?P<value>{_HEX}{{2}}(?P<gap>[:-])(?:{_HEX}{{2}}(?P=gap)){{4}}{_HEX}{{2}}"
            rf"|(?:{_HEX}{{4}}[.]){{2}}{_HEX}{{4}})(?![\w:.-]\w?)"
        ),
        _is_mac,
        str.lower,
        gate=re.compile(rf"[:-]{_HEX}{{2}}[:-]|[.]{_HEX}{{4}}[.]"),
    ),
    PatternDetector(
        "ip",
        (".",),
        re.compile(
            rf"{not_after('A-Za-z0-9_.')}(?<![A-Za-z]-)(?P<value>(?:{_OCTET}[.]){{3}}{_OCTET})(?!\w|-[A-Za-z]|[.][0-9])"
        ),
        _is_ipv4,
        min_digits=4,
        gate=re.compile(r"[.][0-9]{1,3}[.][0-9]{1,3}[.]"),
    ),
)


# Detectors of secrets: keys and tokens by their issuer's format, passwords by the label before them.

_MIN_PASSWORD = 6
_MIN_KEY = 12
_MAX_KEY = 300
_MIN_MODEL_KEY = 16
# Random strings switch between upper case, lower case and digits more often than words do, and repeat less.
_MAX_MEAN_RUN = 3.2
_MIN_ENTROPY = 2.8
_MAX_PEM = 32_768
_PEM_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"[A-Za-z0-9+/=\s\\]*")
# Placeholders, references to where a value is stored, values that are already masked, and paths.
_EXAMPLE_VALUE = re.compile(
    r"(?i)[$%{<\[*/~.\u2026]|https?:|env[:.]|vault:|arn:|process\.|os\.|your[_-]?|my[_-]|x{4,}|example|changeme|redacted|hidden"
)
_WORDS = re.compile(r"[A-Za-z][a-z]*(?:[-_.][A-Za-z][a-z]*)*[.!?]?|[A-Z]+(?:[-_][A-Z]+)*")
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_TIME_OR_VERSION = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?|v?\d+(?:\.\d+)+.*|\d+")
_HASH = re.compile(r"(?i)[0-9a-f]{32,128}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{7,12}")
_NO_WORD = re.compile(r"[0-9!@#$%^&*?]")
_RUN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# A pagination or sync token is no secret.
_CURSOR_PREFIX = re.compile(r"(?i)(?:page|next|prev|previous|sync|continuation|cursor|resume|start|end)[_-]?\Z")


def looks_random(value: str) -> bool:
    """Tell a random key or token from words, names, versions and timestamps."""
    if not _MIN_KEY <= len(value) <= _MAX_KEY or _EXAMPLE_VALUE.match(value) or _TIME_OR_VERSION.fullmatch(value):
        return False
    runs = _RUN.findall(value)
    if not any(part.isdigit() for part in runs) or all(part.isdigit() for part in runs):
        return False
    return sum(map(len, runs)) / len(runs) < _MAX_MEAN_RUN and _entropy(value) > _MIN_ENTROPY


def looks_like_password(value: str) -> bool:
    """Accept short values, as people choose them, but not plain words or code."""
    if len(value) < _MIN_PASSWORD or " " in value or _EXAMPLE_VALUE.match(value) or len(set(value)) == 1:
        return False
    return not (_WORDS.fullmatch(value) or _CODE.fullmatch(value))


class PrivateKeyDetector:
    """Private keys in PEM. Without an end marker (a truncated text), the key is all the base64 that follows."""

    label = "private key"
    hints = ("private key",)
    min_digits = 0

    def spans(self, text: str) -> Iterator[DetectedSpan]:
        place, ends = 0, [match.end() for match in _PEM_END.finditer(text)]
        ends.reverse()
        while begin := _PEM_BEGIN.search(text, place):
            while ends and ends[-1] < begin.end():
                ends.pop()
            whole = ends and ends[-1] - begin.start() <= _MAX_PEM
            rest = _PEM_BODY.match(text, begin.end())
            place = ends[-1] if whole or rest is None else rest.end()
            yield DetectedSpan(begin.start(), place, self.label, text[begin.start() : place])


def _entropy(value: str) -> float:
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)


def _is_basic(value: str) -> bool:
    """Tell whether the value is base64 of user:password, as HTTP basic authentication sends it."""
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_jwt(match: re.Match[str]) -> bool:
    """Tell whether the first part is a header: base64 of a JSON object that names its algorithm or type."""
    header = match["value"].partition(".")[0]
    try:
        decoded = base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))
        return not {"alg", "typ", "enc"}.isdisjoint(json.loads(decoded))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        return False


def _is_stated_secret(match: re.Match[str]) -> bool:
    """Accept a random value after "is", but no hash: the key of an item is often one."""
    return looks_random(match["value"]) and not _HASH.fullmatch(match["value"])


def _is_stated_password(match: re.Match[str]) -> bool:
    """Accept a value after "is" that no sentence contains: with a digit or a symbol, and no plain word."""
    value = match["value"]
    return looks_like_password(value) and _NO_WORD.search(value) is not None and not _TIME_OR_VERSION.fullmatch(value)


def _is_authorization(match: re.Match[str]) -> bool:
    return _is_basic(match["value"]) if (match["scheme"] or "").lower() == "basic" else looks_random(match["value"])


def _is_assigned(match: re.Match[str]) -> bool:
    is_cursor = match["name"].lower() == "token" and _CURSOR_PREFIX.search(
        match.string, max(0, match.start() - 12), match.start()
    )
    return not is_cursor and looks_random(match["value"])


def _is_labelled_password(match: re.Match[str]) -> bool:
    return looks_like_password(match["value"])


def _is_url_password(match: re.Match[str]) -> bool:
    return not _EXAMPLE_VALUE.match(match["value"])


def _is_model_key(match: re.Match[str]) -> bool:
    last = match["value"].rpartition("-")[2]
    is_long_mix = len(last) >= _MIN_MODEL_KEY and last.isalnum() and not (last.isalpha() or last.isdigit())
    return is_long_mix or looks_random(last) or looks_random(match["value"][3:])


def _token(
    label: str, hints: str, pattern: str, is_valid: Callable[[re.Match[str]], bool] = lambda _: True
) -> PatternDetector:
    """Return a detector of tokens with an issuer's format; ``hints`` are separated by spaces."""
    begin = not_after("A-Za-z0-9_-")
    compiled = re.compile(rf"{begin}(?P<value>{pattern})(?![A-Za-z0-9_])", re.ASCII)
    return PatternDetector(label, tuple(hints.split()), compiled, is_valid)


_PASSWORD_LABEL = r"(?:passw(?:or)?d|passphrase|passcode|pwd)"  # noqa: S105 - labels, not a password
_KEY_LABEL = (
    r"(?P<name>secret(?:[_-]?access)?(?:[_-]?key)?|token|credentials?|auth|"
    r"(?:api|access|account|private|signing|encryption|master)[_-]?key)"
)
# An unquoted value ends at a space, or where the next parameter of a query string starts.
_ASSIGNED_VALUE = (
    r"[\"']?\s{0,4}(?::=|=>|[:=])\s{0,4}(?P<quote>[\"'])?(?P<value>(?(quote)[^\"'\n\\]{4,300}|"
    r"(?:[^\s\"',;&<>(){}\[\]\\]|&(?![\w.-]{1,40}=)){4,300}))"
)

# In order of priority: the first detector wins an overlap.
SECRET_DETECTORS: tuple[Detector, ...] = (
    PrivateKeyDetector(),
    _token("weftline key", "weftline.", r"weftline\.[\w-]{1,100}\.key_[0-9a-f]{16}\.[\w-]{20,100}"),
    _token("jwt", "eyj", r"eyJ[\w-]{10,}\.[\w-]{2,}\.[\w-]*(?:\.[\w-]+){0,2}", _is_jwt),
    _token("webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/]{24,100}={0,2}"),
    _token("aws key", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    _token("google key", "aiza ya29 gocspx", r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{28}"),
    _token("azure key", "q~", r"[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    PatternDetector(
        "azure key",
        ("accountkey=", "sharedaccesskey="),
        re.compile(r"(?:AccountKey|SharedAccessKey)=(?P<value>[A-Za-z0-9+/]{40,90}={1,2})"),
    ),
    PatternDetector("azure signature", ("sig=",), re.compile(r"[?&;]sig=(?P<value>[A-Za-z0-9%+/]{40,100}={0,2})")),
    _token("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    _token("github token", "github_pat_", r"github_pat_\w{22,255}"),
    _token(
        "gitlab token",
        "glpat- glptt- gldt- glrt- glcbt- gloas- glagent- glft- glimt- glsoat-",
        r"gl(?:pat|ptt|dt|rt|cbt|oas|agent|ft|imt|soat)-[\w-]{20,100}(?:\.[\w.]{2,40})?",
    ),
    _token("slack token", "xox xapp-", r"xox[abceoprs]-[A-Za-z0-9-]{10,250}|xapp-\d-[A-Za-z0-9-]{20,250}"),
    PatternDetector(
        "slack hook",
        ("hooks.slack",),
        re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<value>[A-Za-z0-9+/]{20,100})"),
    ),
    _token("stripe key", "sk_ rk_", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,250}"),
    _token("model key", "sk-", r"sk-[\w-]{20,250}", _is_model_key),
    _token("model key", "hf_", r"hf_[A-Za-z0-9]{30,60}"),
    _token(
        "model key", "gsk_ xai- pplx- r8_", r"gsk_[A-Za-z0-9]{40,60}|xai-\w{60,90}|pplx-\w{40,60}|r8_[A-Za-z0-9]{37,40}"
    ),
    _token("cloud token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    _token(
        "cloud token",
        "dapi hvs. hvb. pscale_ sbp_",
        r"dapi[0-9a-f]{32}(?:-\d)?|hv[sb]\.[\w-]{24,200}|pscale_(?:tkn|oauth|pw)_[\w.-]{30,64}|sbp_[0-9a-f]{40}",
    ),
    _token("cloud token", "atlasv1", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,70}"),
    _token("shop token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _token(
        "app token",
        "lin_api_ ntn_ glsa_ dckr_pat_",
        r"lin_api_[A-Za-z0-9]{40}|ntn_[A-Za-z0-9]{40,60}|glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|dckr_pat_[\w-]{20,40}",
    ),
    _token("private key", "age-secret-key-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _token("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _token("pypi token", "pypi-", r"pypi-[\w-]{50,300}"),
    _token("mail key", "sg.", r"SG\.[\w-]{22}\.[\w-]{43}"),
    _token("bot token", ":aa", r"\d{8,10}:AA[\w-]{33}"),
    PatternDetector(
        "authorization",
        ("authorization",),
        re.compile(
            r"(?i)authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:(?P<scheme>[a-z][a-z0-9-]{2,20})\s{1,4})?"
            r"(?P<value>[^\s\"',;<>\\]{6,4000})"
        ),
        _is_authorization,
    ),
    PatternDetector(
        "authorization",
        ("bearer", "basic"),
        re.compile(
            rf"(?i){not_after('a-z0-9_')}(?P<scheme>bearer|basic)\s{{1,4}}(?P<value>[a-z0-9._~+/-]{{8,4000}}={{0,2}})"
        ),
        _is_authorization,
    ),
    PatternDetector(
        "password",
        ("://",),
        re.compile(
            rf"(?i){not_after('a-z0-9+.-')}[a-z][a-z0-9+.-]{{1,20}}://[^\s:/@?#\"'<>]{{0,100}}:"
            r"(?P<value>[^\s/@\"'<>]{1,200})@(?=[\w\[])"
        ),
        _is_url_password,
    ),
    PatternDetector(
        "password", ("pass", "pwd"), re.compile(rf"(?i){_PASSWORD_LABEL}{_ASSIGNED_VALUE}"), _is_labelled_password
    ),
    PatternDetector(
        "secret",
        ("secret", "token", "credential", "auth", "key"),
        re.compile(rf"(?i){_KEY_LABEL}{_ASSIGNED_VALUE}"),
        _is_assigned,
        gate=re.compile(r"[:=>]\s{0,4}(?:[\"'][^\"'\n\\]{12}|[^\s\"',;<>(){}\[\]\\]{12})"),
    ),
    PatternDetector(
        "password",
        ("pass", "pwd"),
        re.compile(
            rf"(?i){_PASSWORD_LABEL}(?: (?:for|of) [\w@./-]{{1,60}})? (?:is|was)(?: now)?:? [\"'`]?"
            r"(?P<value>[^\s\"'`,;<>]{6,100}?)(?=[.!?]?(?:[\s\"'`,;]|\Z))"
        ),
        _is_stated_password,
    ),
    PatternDetector(
        "secret",
        ("secret", "token", "credential", "key"),
        re.compile(
            r"(?i)(?:secret|token|credentials?|key)(?: (?:for|of|to) [\w@./ -]{1,40}?)? (?:is|was)(?: now)?:? [\"'`]?"
            r"(?P<value>[A-Za-z0-9+/_~.-]{12,300}={0,2}?)(?=[.!?]?(?:[\s\"'`,;]|\Z))"
        ),
        _is_stated_secret,
        gate=re.compile(r" (?:is|was)(?: now)?:? [\"'`]?[A-Za-z0-9+/_~.-]{12}"),
    ),
)


# Masking: replaces secrets and personal data by numbered placeholders and leaves everything else unchanged.
#
# Detection is deterministic and needs no model: it goes by a value's format and the label before it. The same value
# gets the same placeholder throughout one export.

DetectorCategory = Literal["secrets", "pii"]
DETECTORS: dict[DetectorCategory, tuple[Detector, ...]] = {"secrets": SECRET_DETECTORS, "pii": PII_DETECTORS}
ALL_CATEGORIES: tuple[DetectorCategory, ...] = tuple(DETECTORS)
# Bounds the memory of one export; further values get a placeholder without a number.
_MAX_NUMBERED = 100_000
_MAX_CACHED = 1_000
# No detector matches a shorter JSON number.
_MIN_NUMBER_DIGITS = 7
# The tokens of a JSON document that matter here: keys and strings, numbers, and the ends of objects and arrays.
_JSON = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<colon>\s*:)?|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<edge>[{}\]])')
# Shorter values are found in unrelated words.
_MIN_KNOWN_LENGTH = 5
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]{1,80} [0-9]{1,6}\]")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]+")
_MAX_NAME = 100
_encode = msgspec.json.Encoder().encode
_text = msgspec.json.Decoder(str)


class Masker:
    """Masks the texts and JSON values of one export. ``found`` counts the masked values by label.

    A reversible masker keeps what it masked in memory, so that ``restore`` can put it back.
    """

    def __init__(self, categories: Iterable[DetectorCategory] = ALL_CATEGORIES, *, reversible: bool = False) -> None:
        enabled = set(categories)
        self._scanner = Scanner(
            each for category in ALL_CATEGORIES if category in enabled for each in DETECTORS[category]
        )
        self._numbers: dict[bytes, int] = {}
        self._last_number: Counter[str] = Counter()
        self._clean: set[str] = set()
        self.found: Counter[str] = Counter()
        self._originals: dict[str, str] | None = {} if reversible else None

    @property
    def placeholders(self) -> frozenset[str]:
        """Return the placeholders that a reversible masker has used."""
        return frozenset(self._originals or ())

    def mask_known(self, text: str) -> str:
        """Mask what a reversible masker has masked before, also where nothing around it says what it is."""
        known = self._originals or {}
        for placeholder, original in known.items():
            # A value that is part of a placeholder would break those in the text.
            if len(original) >= _MIN_KNOWN_LENGTH and not any(original in each for each in known):
                text = text.replace(original, placeholder)
        return text

    def restore(self, text: str) -> str:
        """Return a text with what a reversible masker masked in the places of the placeholders."""
        if not self._originals or "[" not in text:
            return text
        return _PLACEHOLDER.sub(lambda found: (self._originals or {}).get(found[0], found[0]), text)

    def text(self, text: str) -> str:
        """Mask a text. A JSON document stays a JSON document."""
        if self._scanner.is_empty:
            return text
        return self._document(text) if _is_document(text) else self._replaced(text, self._scanner.spans(text))

    def json(self, document: str) -> str:
        """Mask JSON: what ``text`` would leave as text, a masked number, becomes a JSON string."""
        masked = self.text(document)
        return masked if masked == document or _is_document(document) else _encode(masked).decode()

    def value(self, value: Any, key: str = "") -> Any:  # noqa: ANN401 - JSON of any shape
        """Mask a JSON value. The ``key`` it belongs to serves as its label, as in ``password``."""
        if isinstance(value, str):
            return self._labelled(key, value)
        if isinstance(value, dict):
            return {self.text(str(name)): self.value(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.value(inner, key) for inner in value)
        if isinstance(value, msgspec.Raw):
            return msgspec.Raw(self.json(bytes(value).decode()).encode())
        return self._number(key, value) if type(value) is int else value

    def repeated(self, text: str) -> str:
        """Mask a text that is likely to occur often: texts without findings are cached."""
        if text in self._clean:
            return text
        masked = self.text(text)
        if masked == text and len(self._clean) < _MAX_CACHED:
            self._clean.add(text)
        return masked

    def name(self, name: str) -> str:
        """Mask an identifier; the result is a valid identifier too."""
        masked = self.repeated(name)
        return name if masked == name else _NOT_IN_NAME.sub("-", masked).strip("-_")[:_MAX_NAME]

    def _number(self, key: str, number: int) -> int | str:
        masked = self._labelled(key, str(number))
        return number if masked == str(number) else masked

    def _labelled(self, key: str, text: str) -> str:
        """Mask a text as if it were written as ``key: "text"``."""
        if not key or self._scanner.is_empty or _is_document(text):
            return self.text(text)
        label = f'{key}: "'
        inside = [
            span._replace(start=span.start - len(label), end=min(span.end - len(label), len(text)))
            for span in self._scanner.spans(f'{label}{text}"')
            if span.start >= len(label)
        ]
        return self._replaced(text, inside)

    def _document(self, document: str) -> str:
        """Mask the strings and numbers of a JSON document; every other byte stays."""
        key = ""

        def masked(match: re.Match[str]) -> str:
            nonlocal key
            if match["edge"]:
                key = ""
            elif match["colon"] is not None:
                key = _text.decode(f'"{match["text"]}"')
                return self._masked_json(match["text"], "") + match["colon"]
            elif match["text"] is not None:
                return self._masked_json(match["text"], key)
            elif len(match["number"]) >= _MIN_NUMBER_DIGITS:
                number = self._labelled(key, match["number"])
                return match["number"] if number == match["number"] else f'"{number}"'
            return match.group()

        return _JSON.sub(masked, document)

    def _masked_json(self, encoded: str, key: str) -> str:
        text = _text.decode(f'"{encoded}"')
        masked = self._labelled(key, text)
        return f'"{encoded}"' if masked == text else _encode(masked).decode()

    def _replaced(self, text: str, spans: list[DetectedSpan]) -> str:
        if not spans:
            return text
        pieces, end = [], 0
        for span in spans:
            placeholder = self._placeholder(span)
            pieces += [text[end : span.start], placeholder]
            if self._originals is not None:
                self._originals.setdefault(placeholder, text[span.start : span.end])
            end = span.end
        return "".join((*pieces, text[end:]))

    def _placeholder(self, span: DetectedSpan) -> str:
        self.found[span.label] += 1
        # A hash, so that no secret stays in memory longer than needed.
        identity = f"{span.label}\n{span.identity}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(identity, digest_size=16).digest()
        number = self._numbers.get(digest)
        if number is None:
            if len(self._numbers) >= _MAX_NUMBERED:
                return f"[{span.label}]"
            self._last_number[span.label] += 1
            number = self._numbers[digest] = self._last_number[span.label]
        return f"[{span.label} {number}]"


def _is_document(text: str) -> bool:
    """Tell whether a text is a JSON object, array or string."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True
