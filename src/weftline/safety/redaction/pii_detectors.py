"""Detectors of personal data: addresses and numbers, verified by their check digits where they have any."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from weftline.safety.redaction.detector import DetectedSpan, Detector, PatternDetector, digits_of, not_after
from weftline.safety.redaction.national_ids import NATIONAL_ID_DETECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

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
