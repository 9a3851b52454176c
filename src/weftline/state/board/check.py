"""Board check: finds raw dumps, secrets, personal data, stale, duplicate and unread keys, without quoting values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Annotated, Literal

import msgspec

from weftline.history.model import BranchNotFound
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.safety.redaction import PII_DETECTORS, SECRET_DETECTORS, Scanner
from weftline.sessions.model import SessionId, SessionNotFound
from weftline.state.board.model import EntryWithValue
from weftline.state.board.operations import BranchChoice
from weftline.state.board.service import Boards

Problem = Literal["raw_dump", "secret", "personal_data", "stale", "near_duplicate", "unread"]
_HOUR = 3_600_000_000
_SHINGLE = 3
_MIN_SIMILARITY = 0.6
# Limits of the scan, which bound its run time.
_MAX_KEYS = 200
_MAX_CHARACTERS = 8_000
_SCANNER = Scanner((*SECRET_DETECTORS, *PII_DETECTORS))
_SECRET_LABELS = frozenset(detector.label for detector in SECRET_DETECTORS)


class CheckBoard(Request):
    """Board to check, and the ages that count as stale and unread."""

    session_id: SessionId
    branch: BranchChoice = None
    stale_hours: Annotated[
        float, msgspec.Meta(gt=0, le=87_600, description="A key not written for this long is stale.")
    ] = 168.0
    unread_hours: Annotated[
        float, msgspec.Meta(gt=0, le=87_600, description="A key this old that nobody has read is unread.")
    ] = 1.0


class BoardFinding(Response):
    """One problem of one key."""

    key: str
    problem: Problem
    detail: str
    suggestion: str
    other_key: str | None = None


class BoardCheck(Response):
    """Problems of the keys you may read; values are not quoted."""

    findings: list[BoardFinding]
    checked: int
    clean: bool


_LOG_LINE = re.compile(
    r"^\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|(?:DEBUG|INFO|WARN|ERROR)\b)", re.MULTILINE
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|^\s+at [\w.$<>]+\(.*:\d+\)", re.MULTILINE)
_TURN = re.compile(r"^(?:user|assistant|human|system|agent)\s*:", re.MULTILINE | re.IGNORECASE)
_MIN_ROWS = 6
_SECRET_ADVICE = "Delete the key, rotate the secret, and store a reference to it instead."  # noqa: S105 - advice, not a secret
_PII_ADVICE = "Replace it by a role or a record id: everyone in the session can read this key."


@operation(
    "board.check",
    tool="check_board",
    http="GET /v1/sessions/{session_id}/check",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.READ,
    heavy=True,
    errors=(SessionNotFound, BranchNotFound),
)
async def check_board(request: CheckBoard, boards: Boards) -> BoardCheck:
    """Check the board for raw dumps, likely secrets and personal data, stale, duplicate and unread keys."""
    board = await boards.to_read(request.session_id, request.branch)
    visible = (await board.readable())[:_MAX_KEYS]
    entries = [EntryWithValue(found.entry, found.value[:_MAX_CHARACTERS]) for found in visible]
    findings = [
        *(finding for found in entries for finding in _value_findings(found)),
        *_stale(entries, board.now, request.stale_hours),
        # Reads of a branch are not counted.
        *(_unread(entries, board.now, request.unread_hours) if board.branch is None else ()),
        *_near_duplicates(entries),
    ]
    return BoardCheck(findings=findings, checked=len(entries), clean=not findings)


def _value_findings(found: EntryWithValue) -> Iterator[BoardFinding]:
    key, value = found.entry.key, found.value
    for label in sorted({span.label for span in _SCANNER.spans(value)}):
        is_secret = label in _SECRET_LABELS
        yield BoardFinding(
            key=key,
            problem="secret" if is_secret else "personal_data",
            detail=f"Looks like it contains: {label}.",
            suggestion=_SECRET_ADVICE if is_secret else _PII_ADVICE,
        )
    dump = _dump_kind(value)
    if dump is not None:
        yield BoardFinding(
            key=key,
            problem="raw_dump",
            detail=f"It looks like {dump}.",
            suggestion="Keep the conclusion, and the id of the source.",
        )


def _dump_kind(value: str) -> str | None:
    lines = [line for line in value.splitlines() if line.strip()]
    if _TRACEBACK.search(value):
        return "a stack trace"
    if len(_LOG_LINE.findall(value)) >= _MIN_ROWS:
        return "log output"
    if len(_TURN.findall(value)) >= _MIN_ROWS:
        return "a transcript"
    if len(lines) >= _MIN_ROWS and _is_table(lines):
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
                suggestion="Delete it if it is settled, or write it again to confirm it.",
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
        similarity = len(words & other_words) / max(1, len(words | other_words))
        if similarity >= _MIN_SIMILARITY:
            yield BoardFinding(
                key=key,
                other_key=other,
                problem="near_duplicate",
                detail=f"It is {similarity:.0%} similar to '{other}'.",
                suggestion="Keep one of the two and delete the other.",
            )


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    if len(words) < _SHINGLE:
        return frozenset([tuple(words)]) if words else frozenset()
    return frozenset(zip(words, words[1:], words[2:], strict=False))
