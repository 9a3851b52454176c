"""What personal data looks like: addresses and numbers, checked as far as they carry their own proof."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from weft.capabilities.redaction.detector import DetectedSpan, Detector, SignFinder, digits_of, not_behind

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILES = frozenset({"png", "jpg", "jpeg", "gif", "svg", "webp", "pdf", "css", "js", "ts", "json", "html", "txt", "md"})
# Of what is only digits, their number is the hint.
_ANYWHERE = ("",)
_PHONE_DIGITS = range(7, 16)
# How a payment card's number begins, and how long it is then.
_CARDS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|"
    r"6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|62\d{14,17}"
)
# How many letters and digits an IBAN has, by country.
_IBANS = {
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
_IBAN_LENGTHS = {country: length for length, countries in _IBANS.items() for country in countries.split()}
_BEFORE_NUMBERS = re.compile(
    r"(?i)(?:\b(?:version|ver|release|build|section|chapter|clause|table|figure|rule|part|step)\.?|§|[=<>~^]=?|\b[a-z]+/)"
    r"\s?[:=]?\s?[\"']?\Z"
)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_DATE = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|"
    rf"\d{{1,2}}(?:st|nd|rd|th|\.)?[ ]{_MONTH}[ ]\d{{4}}|{_MONTH}[ ]\d{{1,2}}(?:st|nd|rd|th)?,?[ ]\d{{4}})"
)


class Ibans:
    """Bank accounts. How long a number is depends on its country; words in capitals may follow it."""

    label = "iban"
    hints = _ANYWHERE
    fewest_digits = 7

    def spans(self, text: str) -> Iterator[DetectedSpan]:
        for match in _IBAN.finditer(text):
            value = _first_letters(match["value"], _IBAN_LENGTHS.get(match["value"][:2], 0))
            end = match.start("value") + len(value)
            if value and is_iban(value) and not text[end : end + 1].isalnum():
                yield DetectedSpan(match.start("value"), end, self.label, value.replace(" ", ""))


def is_card(digits: str) -> bool:
    """Tell whether digits are the number of a payment card: by how they begin, how many there are and the last one."""
    doubled = [sum(divmod(int(d) * 2, 10)) if place % 2 else int(d) for place, d in enumerate(reversed(digits))]
    return _CARDS.fullmatch(digits) is not None and sum(doubled) % 10 == 0


def is_iban(text: str) -> bool:
    """Tell whether a text is the number of an account, by the check digits in it."""
    plain = text.replace(" ", "")
    return int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:4])) % 97 == 1


def _first_letters(text: str, count: int) -> str:
    """Return the beginning of a text with so many letters and digits, or nothing if it has fewer."""
    places = [place for place, letter in enumerate(text) if letter != " "]
    return text[: places[count - 1] + 1] if 0 < count <= len(places) else ""


def _is_email(match: re.Match[str]) -> bool:
    return match["top"].lower() not in _FILES and match["value"].partition("@")[0] != "git"


def _is_international(match: re.Match[str]) -> bool:
    """Tell whether a number with a plus is one to call: a bare one might as well be an amount, unless it is long."""
    value = match["value"]
    digits = len(digits_of(value))
    return digits in _PHONE_DIGITS and (digits >= _BARE_PHONE_DIGITS or digits + 1 < len(value))


def _is_labelled_phone(match: re.Match[str]) -> bool:
    return len(digits_of(match["value"])) in _PHONE_DIGITS


def _is_address(match: re.Match[str]) -> bool:
    """Tell whether four numbers are somebody's address, and not a version, a section or nobody's in particular."""
    if _BEFORE_NUMBERS.search(match.string, max(0, match.start("value") - 16), match.start("value")):
        return False
    first = int(match["value"].partition(".")[0])
    return first not in {0, 127, 255}


def _is_address_6(match: re.Match[str]) -> bool:
    value = match["value"]
    groups = [group for group in value.split(":") if group]
    # Two short words with two colons between them are a name in many languages.
    if not digits_of(value) or (len(groups) < _SURE_GROUPS and len(groups[0]) < _WHOLE_GROUP):
        return False
    try:
        address = ipaddress.IPv6Address(value)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _is_hardware(match: re.Match[str]) -> bool:
    value = match["value"].lower()
    said = set(value) - set(":-.")
    # Without a letter, only colons tell it from a date with a time, or from a number in groups.
    return said not in ({"0"}, {"f"}) and (":" in value or bool(said & set("abcdef")))


def _plain(text: str) -> str:
    return text.replace(" ", "").lower()


_BARE_PHONE_DIGITS = 10
_SURE_GROUPS = 3
_WHOLE_GROUP = 4
_IBAN = re.compile(rf"{not_behind('A-Za-z0-9')}(?P<value>[A-Z]{{2}}[0-9]{{2}}(?:[ ]?[A-Z0-9]){{11,30}})")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HEX = "[0-9A-Fa-f]"
_NOT_IN_A_WORD = not_behind(r"\w.+-")
_APART = r"[ ().\-/]{0,2}"

# Whatever stands first wins where two find the same.
PERSONAL: tuple[SignFinder, ...] = (
    Detector(
        "email",
        ("@",),
        re.compile(
            rf"{_NOT_IN_A_WORD}(?P<value>[\w.+-]{{1,64}}@(?:[\w-]{{1,63}}\.){{1,8}}"
            r"(?P<top>[^\W\d_]{2,24}|xn--[a-z0-9-]{2,59}))(?![\w@-])"
        ),
        _is_email,
        str.lower,
    ),
    Ibans(),
    Detector(
        "card",
        _ANYWHERE,
        re.compile(
            rf"{not_behind('A-Za-z0-9_.-')}(?P<value>[0-9]{{4}}(?P<gap>[ -]?)(?:[0-9]{{4}}(?P=gap)[0-9]{{4}}(?P=gap)"
            r"[0-9]{1,7}|[0-9]{6}(?P=gap)[0-9]{4,5}))(?![A-Za-z0-9_]|[.-][0-9])"
        ),
        lambda match: is_card(digits_of(match["value"])),
        digits_of,
        fewest_digits=13,
    ),
    Detector(
        "ssn",
        ("-",),
        re.compile(
            rf"{not_behind('A-Za-z0-9_-')}(?P<value>(?!000|666|9)[0-9]{{3}}-(?!00)[0-9]{{2}}-(?!0000)[0-9]{{4}})(?![\w-])"
        ),
        same=digits_of,
        fewest_digits=9,
    ),
    Detector(
        "ssn",
        ("ssn", "social"),
        re.compile(
            r"(?i)(?:ssn|social[ _]security(?:[ _](?:number|no\.?))?)[\"']?[ :=#]{0,4}(?:is )?[\"']?"
            r"(?P<value>[0-9]{3}[ -]?[0-9]{2}[ -]?[0-9]{4})(?![\w-])"
        ),
        same=digits_of,
        fewest_digits=9,
    ),
    Detector(
        "birth date",
        ("dob", "d.o.b", "birth", "born", "gebor", "geburt"),
        re.compile(
            r"(?i)(?:dob|d\.o\.b\.?|date[ _]?of[ _]?birth|birth[ _]?(?:date|day)|born(?: on)?|geburtsdatum|"
            r"geboren(?: am)?)"
            rf"[\"']?[ ]{{0,3}}[:=]?[ ]{{0,3}}(?:is )?[\"']?(?P<value>{_DATE})(?![0-9])"
        ),
        fewest_digits=5,
    ),
    Detector(
        "phone",
        ("+",),
        re.compile(rf"{not_behind('A-Za-z0-9_+')}(?P<value>\+[1-9](?:{_APART}[0-9]){{6,14}})(?![A-Za-z0-9_])"),
        _is_international,
        digits_of,
        fewest_digits=7,
    ),
    Detector(
        "phone",
        _ANYWHERE,
        re.compile(
            rf"{not_behind('A-Za-z0-9_.+-')}(?P<value>(?:1[ .-])?(?:\([2-9][0-9]{{2}}\)[ ]?|[2-9][0-9]{{2}}[.-])"
            r"[0-9]{3}[.-][0-9]{4}|0[1-9](?:[ .][0-9]{2}){4}|0[1-9][0-9]{1,3}[ /][0-9]{3,4}[ -][0-9]{3,4}"
            r"|0[1-9][0-9]{1,3}[ ]?/[ ]?[0-9]{5,8}|\(0[0-9]{2,4}\)[ ]?[0-9]{3,4}[ -]?[0-9]{3,4})(?![\w-]|[.][0-9])"
        ),
        same=digits_of,
        fewest_digits=9,
    ),
    Detector(
        "phone",
        ("phone", "tel", "mobil", "handy", "cell", "fax", "whatsapp", "sms", "call me"),
        re.compile(
            r"(?i)(?:phone|tel|telephone|telefon|mobile|handy|cell|fax|whatsapp|sms|call me at|call me on)"
            r"(?:[ _](?:number|no))?[\"']?\.?[ :=#]{0,4}(?:is )?[\"']?"
            rf"(?P<value>[(]?[0-9](?:{_APART}[0-9]){{6,14}})(?![A-Za-z0-9_])"
        ),
        _is_labelled_phone,
        digits_of,
        fewest_digits=7,
    ),
    Detector(
        "ip",
        (":",),
        re.compile(
            rf"{not_behind('A-Za-z0-9_:.')}(?P<value>{_HEX}{{0,4}}(?::{_HEX}{{0,4}}){{2,7}})(?![A-Za-z0-9_:]|[.][0-9])"
        ),
        _is_address_6,
        str.lower,
        fewest_digits=1,
    ),
    Detector(
        "mac",
        (":", "-", "."),
        re.compile(
            rf"{not_behind('A-Za-z0-9_:.-')}(?P<value>{_HEX}{{2}}(?P<gap>[:-])(?:{_HEX}{{2}}(?P=gap)){{4}}{_HEX}{{2}}"
            rf"|(?:{_HEX}{{4}}[.]){{2}}{_HEX}{{4}})(?![\w:.-]\w?)"
        ),
        _is_hardware,
        str.lower,
    ),
    Detector(
        "ip",
        (".",),
        re.compile(
            rf"{not_behind('A-Za-z0-9_.')}(?<![A-Za-z]-)(?P<value>(?:{_OCTET}[.]){{3}}{_OCTET})(?!\w|-[A-Za-z]|[.][0-9])"
        ),
        _is_address,
        fewest_digits=4,
    ),
)
