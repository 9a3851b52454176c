"""Detectors of secrets: keys and tokens by their issuer's format, passwords by the label before them."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from weftline.safety.redaction.detector import DetectedSpan, Detector, PatternDetector, not_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
_PLACEHOLDER = re.compile(
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
    if not _MIN_KEY <= len(value) <= _MAX_KEY or _PLACEHOLDER.match(value) or _TIME_OR_VERSION.fullmatch(value):
        return False
    runs = _RUN.findall(value)
    if not any(part.isdigit() for part in runs) or all(part.isdigit() for part in runs):
        return False
    return sum(map(len, runs)) / len(runs) < _MAX_MEAN_RUN and _entropy(value) > _MIN_ENTROPY


def looks_like_password(value: str) -> bool:
    """Accept short values, as people choose them, but not plain words or code."""
    if len(value) < _MIN_PASSWORD or " " in value or _PLACEHOLDER.match(value) or len(set(value)) == 1:
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
    return not _PLACEHOLDER.match(match["value"])


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
