"""Is the board still a digest? Finds what should not be there, without ever quoting it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Annotated, Literal, NamedTuple

import msgspec

from weft.capabilities.board.model import EntryWithValue
from weft.capabilities.board.operations import BranchChoice
from weft.capabilities.board.service import Boards
from weft.capabilities.history.model import BranchNotFound
from weft.capabilities.sessions.model import SessionId, SessionNotFound
from weft.kernel.identity import Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

Problem = Literal["raw_dump", "secret", "personal_data", "stale", "near_duplicate", "unread"]
_HOUR = 3_600_000_000
_SHINGLE = 3
_ALIKE = 0.6
# What is larger than this is no digest anyway, and looking through all of it would keep others waiting.
_MANY_KEYS = 200
_LOOK_AT_CHARS = 8_000


class CheckBoard(Request):
    """Which board to check, and what counts as old."""

    session_id: SessionId
    branch: BranchChoice = None
    stale_hours: Annotated[
        float, msgspec.Meta(gt=0, le=87_600, description="A key not written for this long is stale.")
    ] = 168.0
    unread_hours: Annotated[
        float, msgspec.Meta(gt=0, le=87_600, description="A key this old that nobody has read is unread.")
    ] = 1.0


class BoardFinding(Response):
    """One thing to look at."""

    key: str
    problem: Problem
    detail: str
    suggestion: str
    other_key: str | None = None


class Hygiene(Response):
    """What was found on those keys you may read; no values are quoted."""

    findings: list[BoardFinding]
    checked: int
    clean: bool


class _Sign(NamedTuple):
    """A telltale pattern and what it gives away."""

    pattern: re.Pattern[str]
    meaning: str
    holds: Callable[[str], bool] = lambda _: True


def _luhn(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [sum(divmod(digit * 2, 10)) if place % 2 else digit for place, digit in enumerate(reversed(digits))]
    return len(set(digits)) > 1 and sum(doubled) % 10 == 0


_SECRETS = (
    _Sign(re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), "a private key"),
    _Sign(re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "a cloud access key"),
    _Sign(re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}"), "a source-hosting token"),
    _Sign(re.compile(r"\bxox[abpors]-[A-Za-z0-9-]{10,}"), "a chat-service token"),
    _Sign(re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), "a model-provider key"),
    _Sign(re.compile(r"\bweft\.[A-Za-z0-9_-]+\.key_[0-9a-f]{16}\.[A-Za-z0-9_-]{20,}"), "a Weft API key"),
    _Sign(re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"), "a signed token"),
    _Sign(re.compile(r"\b[a-z][a-z0-9+-]{1,15}://[^\s:/@]{1,64}:[^\s:/@]{3,64}@"), "an address with a password in it"),
    _Sign(
        re.compile(
            r"(?i)\b(?:password|passwd|secret|api[_-]?key|access[_-]?token)\b\s{0,4}[:=]\s{0,4}['\"]?[^\s'\"]{6,}"
        ),
        "a password or key",
    ),
)
_PERSONAL = (
    _Sign(re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,4}\.[A-Za-z]{2,24}\b"), "an e-mail address"),
    _Sign(re.compile(r"\b\d{3}-\d{2}-\d{4}\b"), "a social security number"),
    _Sign(re.compile(r"\b(?:\d[ -]?){13,19}\b"), "a payment card number", _luhn),
    _Sign(re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"), "a bank account number"),
    _Sign(
        re.compile(r"(?<![\w.])\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]?\d{2,4}){2,4}\b"), "a phone number"
    ),
)
_LOG_LINE = re.compile(
    r"^\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|(?:DEBUG|INFO|WARN|ERROR)\b)", re.MULTILINE
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|^\s+at [\w.$<>]+\(.*:\d+\)", re.MULTILINE)
_TURN = re.compile(r"^(?:user|assistant|human|system|agent)\s*:", re.MULTILINE | re.IGNORECASE)
_ROW_LINES = 6


@operation(
    "board.hygiene",
    tool="check_board",
    http="GET /v1/sessions/{session_id}/hygiene",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.READ,
    heavy=True,
    errors=(SessionNotFound, BranchNotFound),
)
async def check_board(request: CheckBoard, boards: Boards) -> Hygiene:
    """Check the board for raw dumps, likely secrets and personal data, stale, duplicate and unread keys."""
    board = await boards.to_read(request.session_id, request.branch)
    visible = (await board.readable())[:_MANY_KEYS]
    entries = [EntryWithValue(found.entry, found.value[:_LOOK_AT_CHARS]) for found in visible]
    findings = [
        *(finding for found in entries for finding in _of_value(found)),
        *_stale(entries, board.now, request.stale_hours),
        # Nobody counts the reads of a branch.
        *(_unread(entries, board.now, request.unread_hours) if board.branch is None else ()),
        *_near_duplicates(entries),
    ]
    return Hygiene(findings=findings, checked=len(entries), clean=not findings)


def _of_value(found: EntryWithValue) -> Iterator[BoardFinding]:
    key, value = found.entry.key, found.value
    for sign in _matching(_SECRETS, value):
        yield BoardFinding(
            key=key,
            problem="secret",
            detail=f"It looks as if it held {sign.meaning}.",
            suggestion="Delete the key, replace the secret where it is used, and store a reference instead.",
        )
    for sign in _matching(_PERSONAL, value):
        yield BoardFinding(
            key=key,
            problem="personal_data",
            detail=f"It looks as if it held {sign.meaning}.",
            suggestion="Replace it by a role or a record id; everyone in the session can read this.",
        )
    dump = _what_dump(value)
    if dump is not None:
        yield BoardFinding(
            key=key,
            problem="raw_dump",
            detail=f"It looks like {dump}.",
            suggestion="Keep what it means for the task, and the id of where it came from.",
        )


def _matching(signs: Iterable[_Sign], value: str) -> Iterator[_Sign]:
    for sign in signs:
        if any(sign.holds(match.group()) for match in sign.pattern.finditer(value)):
            yield sign


def _what_dump(value: str) -> str | None:
    lines = [line for line in value.splitlines() if line.strip()]
    if _TRACEBACK.search(value):
        return "a stack trace"
    if len(_LOG_LINE.findall(value)) >= _ROW_LINES:
        return "log output"
    if len(_TURN.findall(value)) >= _ROW_LINES:
        return "a transcript"
    if len(lines) >= _ROW_LINES and _is_table(lines):
        return "a table of raw rows"
    stripped = value.strip()
    if stripped[:1] in {"{", "["} and len(stripped) > 1_000 and _is_json(stripped):  # noqa: PLR2004 - a page of it
        return "a JSON document"
    return None


def _is_table(lines: Sequence[str]) -> bool:
    for separator in (",", "\t", "|", ";"):
        counts = {line.count(separator) for line in lines}
        if len(counts) == 1 and counts.pop() >= 2:  # noqa: PLR2004 - three columns make a table
            return True
    return False


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _stale(entries: Sequence[EntryWithValue], now: int, hours: float) -> Iterator[BoardFinding]:
    for found in entries:
        age = (now - found.entry.written_at) / _HOUR
        if age >= hours:
            yield BoardFinding(
                key=found.entry.key,
                problem="stale",
                detail=f"It was last written {age:.0f} hours ago.",
                suggestion="Delete it if it is settled, or write it again to say that it still holds.",
            )


def _unread(entries: Sequence[EntryWithValue], now: int, hours: float) -> Iterator[BoardFinding]:
    for found in entries:
        age = (now - found.entry.written_at) / _HOUR
        if found.entry.reads == 0 and age >= hours:
            yield BoardFinding(
                key=found.entry.key,
                problem="unread",
                detail=f"Nobody has read it in the {age:.0f} hours since it was written.",
                suggestion="Delete it unless someone is still going to need it.",
            )


def _near_duplicates(entries: Sequence[EntryWithValue]) -> Iterator[BoardFinding]:
    shingles = [(found.entry.key, _shingles(found.value)) for found in entries]
    for (key, words), (other, other_words) in combinations(shingles, 2):
        alike = len(words & other_words) / max(1, len(words | other_words))
        if alike >= _ALIKE:
            yield BoardFinding(
                key=key,
                other_key=other,
                problem="near_duplicate",
                detail=f"It says {alike:.0%} the same as '{other}'.",
                suggestion="Keep one of the two and delete the other.",
            )


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    if len(words) < _SHINGLE:
        return frozenset([tuple(words)]) if words else frozenset()
    return frozenset(zip(words, words[1:], words[2:], strict=False))
