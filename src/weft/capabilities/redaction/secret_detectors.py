"""What secrets look like: keys and tokens by the form their makers gave them, passwords by what stands before them."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from weft.capabilities.access.model import KEY_PREFIX, parse_key
from weft.capabilities.redaction.detector import DetectedSpan, Detector, SignFinder, not_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SHORTEST_PASSWORD = 6
_SHORTEST_KEY = 12
_LONGEST_KEY = 300
# Random letters and digits change from one sort to the other more often than words and names do, and repeat less.
_LETTERS_AT_A_TIME = 3.2
_BITS_PER_LETTER = 2.8
_LONGEST_PEM = 32_768
_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_REST_OF_PEM = re.compile(r"[A-Za-z0-9+/=\s\\]*")
# What stands where a value will be filled in, says where it is kept, or that it is hidden; and paths.
_STAND_IN = re.compile(
    r"(?i)[$%{<\[*/~.]|https?:|env[:.]|vault:|arn:|process\.|os\.|your[_-]?|my[_-]|x{4,}|example|changeme|redacted|hidden"
)
_WORDS = re.compile(r"[A-Za-z][a-z]*(?:[-_.][A-Za-z][a-z]*)*[.!?]?|[A-Z]+(?:[-_][A-Z]+)*")
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_TIME_OR_VERSION = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?|v?\d+(?:\.\d+)+.*|\d+")
_ALIKE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Tokens that mark a place open nothing.
_PLACE = re.compile(r"(?i)(?:page|next|prev|previous|sync|continuation|cursor|resume|start|end)[_-]?\Z")


def looks_random(value: str) -> bool:
    """Tell whether something can hardly be words, a name, a version or a time, and so is a key or a token."""
    if not _SHORTEST_KEY <= len(value) <= _LONGEST_KEY or _STAND_IN.match(value) or _TIME_OR_VERSION.fullmatch(value):
        return False
    alike = _ALIKE.findall(value)
    if not any(part.isdigit() for part in alike) or all(part.isdigit() for part in alike):
        return False
    return sum(map(len, alike)) / len(alike) < _LETTERS_AT_A_TIME and _bits_per_letter(value) > _BITS_PER_LETTER


def looks_chosen(value: str) -> bool:
    """Tell whether something may be a password: people choose shorter ones than machines do, but seldom mere words."""
    if len(value) < _SHORTEST_PASSWORD or " " in value or _STAND_IN.match(value) or len(set(value)) == 1:
        return False
    return not (_WORDS.fullmatch(value) or _CODE.fullmatch(value))


class PrivateKeys:
    """Private keys in PEM. One whose end is missing, as in a text that was cut, goes on while it looks like one."""

    label = "private key"
    hints = ("private key",)
    fewest_digits = 0

    def spans(self, text: str) -> Iterator[DetectedSpan]:
        place, ends = 0, [match.end() for match in _END.finditer(text)]
        ends.reverse()
        while begin := _BEGIN.search(text, place):
            while ends and ends[-1] < begin.end():
                ends.pop()
            whole = ends and ends[-1] - begin.start() <= _LONGEST_PEM
            rest = _REST_OF_PEM.match(text, begin.end())
            place = ends[-1] if whole or rest is None else rest.end()
            yield DetectedSpan(begin.start(), place, self.label, text[begin.start() : place])


def _bits_per_letter(value: str) -> float:
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)


def _is_basic(value: str) -> bool:
    """Tell whether something is a name and a password as HTTP packs them."""
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_authorization(match: re.Match[str]) -> bool:
    return _is_basic(match["value"]) if (match["scheme"] or "").lower() == "basic" else looks_random(match["value"])


def _is_assigned(match: re.Match[str]) -> bool:
    is_place = match["name"].lower() == "token" and _PLACE.search(
        match.string, max(0, match.start() - 12), match.start()
    )
    return not is_place and looks_random(match["value"])


def _is_chosen(match: re.Match[str]) -> bool:
    return looks_chosen(match["value"])


def _is_password(match: re.Match[str]) -> bool:
    return not _STAND_IN.match(match["value"])


def _is_random(match: re.Match[str]) -> bool:
    return looks_random(match["value"].rpartition("-")[2]) or looks_random(match["value"][3:])


def _is_our_key(match: re.Match[str]) -> bool:
    return parse_key(match["value"]) is not None


def _made(label: str, hints: str, pattern: str, holds: Callable[[re.Match[str]], bool] = lambda _: True) -> Detector:
    """Return the sign of something that has a form of its own; its hints are written with spaces between them."""
    begin = not_behind("A-Za-z0-9_-")
    compiled = re.compile(rf"{begin}(?P<value>{pattern})(?![A-Za-z0-9_])", re.ASCII)
    return Detector(label, tuple(hints.split()), compiled, holds)


_PASSWORD_IS = r"(?:passw(?:or)?d|passphrase|passcode|pwd)"  # noqa: S105 - what passwords go by
_KEY_IS = (
    r"(?P<name>secret(?:[_-]?access)?(?:[_-]?key)?|token|credentials?|auth|"
    r"(?:api|access|account|private|signing|encryption|master)[_-]?key)"
)
# Without quotes a value ends with a space, or where the next field of a query begins.
_GIVEN = (
    r"[\"']?\s{0,4}(?::=|=>|[:=])\s{0,4}(?P<quote>[\"'])?(?P<value>(?(quote)[^\"'\n\\]{4,300}|"
    r"(?:[^\s\"',;&<>(){}\[\]\\]|&(?![\w.-]{1,40}=)){4,300}))"
)

# Whatever stands first wins where two find the same.
SECRETS: tuple[SignFinder, ...] = (
    PrivateKeys(),
    _made("weft key", "weft.", rf"{KEY_PREFIX}\.[\w-]{{1,100}}\.key_[0-9a-f]{{16}}\.[\w-]{{20,100}}", _is_our_key),
    _made("jwt", "eyj", r"eyJ[\w-]{10,}\.[\w-]{2,}\.[\w-]*(?:\.[\w-]+){0,2}"),
    _made("webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/]{24,100}={0,2}"),
    _made("aws key", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    _made("google key", "aiza ya29 gocspx", r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{28}"),
    _made("azure key", "q~", r"[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    Detector(
        "azure key",
        ("accountkey=", "sharedaccesskey="),
        re.compile(r"(?:AccountKey|SharedAccessKey)=(?P<value>[A-Za-z0-9+/]{40,90}={1,2})"),
    ),
    Detector("azure signature", ("sig=",), re.compile(r"[?&;]sig=(?P<value>[A-Za-z0-9%+/]{40,100}={0,2})")),
    _made("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    _made("github token", "github_pat_", r"github_pat_\w{22,255}"),
    _made(
        "gitlab token",
        "glpat- glptt- gldt- glrt- glcbt- gloas- glagent- glft- glimt- glsoat-",
        r"gl(?:pat|ptt|dt|rt|cbt|oas|agent|ft|imt|soat)-[\w-]{20,100}(?:\.[\w.]{2,40})?",
    ),
    _made("slack token", "xox xapp-", r"xox[abceoprs]-[A-Za-z0-9-]{10,250}|xapp-\d-[A-Za-z0-9-]{20,250}"),
    Detector(
        "slack hook",
        ("hooks.slack",),
        re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<value>[A-Za-z0-9+/]{20,100})"),
    ),
    _made("stripe key", "sk_ rk_", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,250}"),
    _made("model key", "sk-", r"sk-[\w-]{20,250}", _is_random),
    _made("model key", "hf_", r"hf_[A-Za-z0-9]{30,60}"),
    _made("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _made("pypi token", "pypi-", r"pypi-[\w-]{50,300}"),
    _made("mail key", "sg.", r"SG\.[\w-]{22}\.[\w-]{43}"),
    _made("bot token", ":aa", r"\d{8,10}:AA[\w-]{33}"),
    Detector(
        "authorization",
        ("authorization",),
        re.compile(
            r"(?i)authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:(?P<scheme>[a-z][a-z0-9-]{2,20})\s{1,4})?"
            r"(?P<value>[^\s\"',;<>\\]{6,4000})"
        ),
        _is_authorization,
    ),
    Detector(
        "authorization",
        ("bearer", "basic"),
        re.compile(
            rf"(?i){not_behind('a-z0-9_')}(?P<scheme>bearer|basic)\s{{1,4}}(?P<value>[a-z0-9._~+/-]{{8,4000}}={{0,2}})"
        ),
        _is_authorization,
    ),
    Detector(
        "password",
        ("://",),
        re.compile(
            rf"(?i){not_behind('a-z0-9+.-')}[a-z][a-z0-9+.-]{{1,20}}://[^\s:/@?#\"'<>]{{0,100}}:"
            r"(?P<value>[^\s/@\"'<>]{1,200})@(?=[\w\[])"
        ),
        _is_password,
    ),
    Detector("password", ("pass", "pwd"), re.compile(rf"(?i){_PASSWORD_IS}{_GIVEN}"), _is_chosen),
    Detector(
        "secret", ("secret", "token", "credential", "auth", "key"), re.compile(rf"(?i){_KEY_IS}{_GIVEN}"), _is_assigned
    ),
)
