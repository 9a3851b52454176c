"""Detectors of national identity and tax numbers, by their check digits; plain numbers only after their label."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.safety.redaction.detector import Detector, PatternDetector, not_after

if TYPE_CHECKING:
    from collections.abc import Callable

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
