"""Shorter results of tools: the shape, the extremes, the errors and what was referred to later stay.

A result is JSON, or lines of a table, log, stack trace, source code or command. Lines have a rank by their kind; the
best ones within the tokens stay in their order, and a note says how many of which kind were left out.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from weftline.windows.compaction.json_outputs import slim_json
from weftline.windows.compaction.unusual_lines import unlikeness, unusual_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from weftline.kernel.ports import TokenCounter


# Kinds of line-based tool outputs, and which of their lines matter most.

# Ranks of lines: lower ones stay first. Parts of a rank order the lines within it.
BEST, GOOD, FAIR, WEAK, REST = range(5)

_SAMPLE = 60
# Lines beyond so many characters are chosen from a sample: comparing a thousand characters takes 0.1 milliseconds.
_MAX_READ = 131_072
# Fewer lines have none that is unlike the others; in a text most of whose lines are, none tells more.
_MIN_COMPARED = 30
_UNLIKE, _MOST_UNLIKE, _MOST_UNLIKE_CODE = 1.0, 0.5, 0.1
# Tokens for one line unlike the others.
_TOKENS_PER_UNLIKE = 60
_MAX_DEPTH = 9
_GOLDEN = 0.618
_MAX_COLUMNS = 12
_MIN_TABLE_LINES = 4
_ERROR = re.compile(
    r"(?i)\b(?:error|errors|exception|fatal|panic|fail(?:ed|ure|ures|s)?|critical|denied|refused|timed? ?out|cannot|"
    r"unable|not found|undefined|segfault|abort(?:ed)?|traceback|killed|oom)\b|[a-z](?:Error|Exception)\b"
)
# A line without any of these has no match: looking for them is much faster than the expression.
_ERROR_PARTS = (
    *("err", "excep", "fatal", "panic", "fail", "critical", "denied", "refused", "time", "cannot", "unable", "found"),
    *("undefined", "segfault", "abort", "traceback", "killed", "oom"),
)
_WARNING = re.compile(r"(?i)\bwarn(?:ing|ings)?\b|\bdeprecated\b")
_RESULT = re.compile(
    r"(?i)\b(?:passed|total|summary|success(?:ful|fully)?|succeeded|exit(?:ed)? (?:code|status)|completed?|finished|"
    r"done|created|deployed|started|version|result|elapsed|duration|\d+ tests?|rolled back|retry|retrying)\b"
)
_RESULT_PARTS = (
    *("passed", "total", "summary", "succe", "exit", "complete", "finish", "done", "created", "deployed"),
    *("started", "version", "result", "elapsed", "duration", "test", "rolled", "retr"),
)
_WARNING_PARTS = ("warn", "deprecated")
_TIMESTAMP = re.compile(r"^\W?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d|\[\d+\.\d+\])")
_LEVEL = re.compile(r"\b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\blevel=\w+")
_FRAME = re.compile(r'^\s*(?:File "|at [\w$.<>/\\]+|\d+: +0x|#\d+ |from .+:\d+:in )')
_TRACE = re.compile(r"Traceback \(most recent call last\)|^\s+at [\w$.<>]+\(|panicked at|^goroutine \d+", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by|During handling|The above exception|Suppressed)")
_SIGNATURE = re.compile(
    r"^\s*(?:@\w|(?:export |public |private |protected |static |async |abstract |final |pub |default )*"
    r"(?:def[a-z]*|class|function|func?|fun|fn|sub|interface|struct|enum|union|trait|impl|type|object|record|protocol|"
    r"module|package|namespace|local function|const \w+ = (?:async )?(?:\(|function)|const [A-Z_]+|macro_rules!|"
    r"CREATE (?:OR REPLACE )?(?:TABLE|VIEW|FUNCTION|PROCEDURE|INDEX))\b"
    # Functions and methods of C, C++, Java and C#, whose names follow a type; without a statement's end.
    r"|(?!\s*(?:if|for|while|switch|catch|else|return|do|try|with|elif)\b)[\w:<>,*&\[\]~ ]+\b\w+\([^;=]*\)"
    r"(?: const| override| noexcept| throws [\w, .]+)*\s*\{?\s*$|[\w']+ ::|[\w.]+ (?:<-|=) function\()"
)
# How tools that read files number their lines.
_NUMBERED = re.compile(r"\s*(\d+)(?:\u2192|\t|\||: ?) ?")
_CODE = re.compile(
    r"^\s*(?:import |from \S+ import|#include|use |require|return\b|if .*[:{]$|for .*[:{]$|\}|//|\w+ = )|[;{]$"
)
_DIFF = re.compile(r"^(?:@@|\+\+\+|---|diff --git)")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?%?\Z")
_RULE = re.compile(r"[\s|+:=\-]+\Z")


class OutputKind(Enum):
    """The kind of a tool output: what one of its lines is called."""

    TABLE = "row"
    LOG = "log line"
    TRACE = "line of the trace"
    CODE = "line of code"
    COMMAND = "line"

    def noun(self, number: int) -> str:
        """Return the name of its lines, singular or plural."""
        if number == 1:
            return self.value
        head, _, tail = self.value.partition(" of ")
        return f"{head}s of {tail}" if tail else f"{head}s"

    @property
    def is_uniform(self) -> bool:
        """Whether its lines are much like each other."""
        return self in {OutputKind.TABLE, OutputKind.LOG}


def kind_of_lines(lines: Sequence[str]) -> OutputKind:
    """Tell what kind of output lines are, by the first ones."""
    sample = [line for line in lines[:_SAMPLE] if line.strip()]
    if _TRACE.search("\n".join(sample)):
        return OutputKind.TRACE
    # A file may begin with a long comment.
    whole = [line for line in lines[:: max(len(lines) // _SAMPLE, 1)] if line.strip()]
    if _share(sample, lambda line: bool(_TIMESTAMP.search(line) or _LEVEL.search(line))) > 0.5:  # noqa: PLR2004
        return OutputKind.LOG
    if _delimiter(sample) is not None:
        return OutputKind.TABLE
    if max(_share(each, _is_code) for each in (sample, whole)) > 0.3:  # noqa: PLR2004
        return OutputKind.CODE
    return OutputKind.COMMAND


def _is_code(line: str) -> bool:
    return bool(_CODE.search(line) or _SIGNATURE.search(line))


def rank_lines(lines: Sequence[str], kind: OutputKind, wanted: frozenset[str], most_unlike: int = 0) -> list[float]:
    """Return the rank of each line.

    What was referred to later is best, then errors, ``most_unlike`` lines that are unlike the others, extremes,
    beginning and end.
    """
    ranks: list[float] = [*_RANKING[kind](lines)]
    ends = most_unlike // 3 if kind is OutputKind.CODE else 1
    for at in (*range(min(ends, len(ranks))), *range(max(len(ranks) - ends, 0), len(ranks))):
        ranks[at] = min(ranks[at], BEST)
    if most_unlike and len(lines) >= _MIN_COMPARED:
        scores = unlikeness(lines)
        unlike = [at for at, score in enumerate(scores) if score >= _UNLIKE]
        if len(unlike) <= len(lines) * (_MOST_UNLIKE_CODE if kind is OutputKind.CODE else _MOST_UNLIKE):
            for place, at in enumerate(sorted(unlike, key=lambda at: -scores[at])[:most_unlike]):
                ranks[at] = min(ranks[at], (place + 1) / (most_unlike + 1))
    if wanted:
        for at, line in enumerate(lines):
            if any(token.rstrip(".:") in wanted for token in _TOKEN.findall(line)):
                ranks[at] = BEST
    return ranks


def _table(lines: Sequence[str]) -> list[int]:
    delimiter = _delimiter(lines[:_SAMPLE])
    rows = [_cells(line, delimiter) for line in lines]
    header = next((at for at, line in enumerate(lines) if line.strip() and not _RULE.match(line)), 0)
    ranks = [WEAK if not _names_error(line) else GOOD for line in lines]
    for at in (*range(header + 1), *_rules_after(lines, header)):
        ranks[at] = BEST
    for at in (header + 1, header + 2, len(lines) - 1):
        if at < len(lines):
            ranks[at] = min(ranks[at], FAIR)
    for at in _extremes(rows, header):
        ranks[at] = min(ranks[at], GOOD)
    return ranks


def _rules_after(lines: Sequence[str], header: int) -> Iterable[int]:
    return (at for at in (header + 1,) if at < len(lines) and _RULE.match(lines[at]))


def _extremes(rows: Sequence[Sequence[str]], header: int) -> set[int]:
    """Return the rows with the smallest and largest number of each column."""
    found: set[int] = set()
    for column in range(min(max(map(len, rows), default=0), _MAX_COLUMNS)):
        numbers = [
            (_number(row[column]), at)
            for at, row in enumerate(rows)
            if at > header and column < len(row) and _NUMBER.match(row[column])
        ]
        # A column of counted numbers has no extremes worth a row.
        if len(numbers) > 1 and [value for value, _ in numbers] != sorted(value for value, _ in numbers):
            found |= {min(numbers)[1], max(numbers, key=lambda each: (each[0], -each[1]))[1]}
    return found


def _number(text: str) -> float:
    return float(text.rstrip("%").replace(",", ""))


def _log(lines: Sequence[str]) -> list[int]:
    seen: Counter[bytes] = Counter()
    ranks = []
    for line in lines:
        shape = _shape(line)
        seen[shape] += 1
        ranks.append(_log_rank(line, seen[shape]))
    return _with_ends(ranks, head=2, tail=3)


def _log_rank(line: str, times: int) -> int:
    """Return the rank of a line; one that was seen before in the same shape has a lower rank."""
    if _names_error(line):
        return BEST if times == 1 else FAIR
    if _has(line, _WARNING_PARTS, _WARNING):
        return GOOD if times == 1 else WEAK
    if times == 1:
        return FAIR if _has(line, _RESULT_PARTS, _RESULT) else WEAK
    return REST


def _trace(lines: Sequence[str]) -> list[int]:
    frames = [bool(_FRAME.match(line)) for line in lines]
    # The frames next to the error are at the end of a Python trace, and at the beginning of most others.
    last = frozenset([at for at, is_frame in enumerate(frames) if is_frame][-3:])
    ranks: list[int] = []
    for at, line in enumerate(lines):
        if frames[at]:
            is_edge = not (_near(frames, at, 1) and _near(frames, at, -1))
            ranks.append(GOOD if is_edge or at in last else WEAK)
        elif _CAUSE.match(line) or _names_error(line):
            ranks.append(BEST)
        elif at and frames[at - 1]:
            # The line of code of a frame goes with it.
            ranks.append(ranks[-1])
        else:
            ranks.append(REST if line.startswith((" ", "\t")) else FAIR)
    return ranks


def _near(frames: Sequence[bool], at: int, step: int) -> bool:
    """Tell whether a frame is within the next two lines: a frame may have a line of code below it."""
    return any(0 <= at + step * far < len(frames) and frames[at + step * far] for far in (1, 2))


def _code(lines: Sequence[str]) -> list[float]:
    """Rank definitions by depth, so that the outline of a long file stays."""

    def rank(at: int, line: str) -> float:
        # Among lines alike, those that stay are spread over the file.
        spread = at * _GOLDEN % 1 / 10
        if _SIGNATURE.match(line) or _DIFF.match(line):
            depth = len(line) - len(line.lstrip())
            return GOOD + min(depth / 4, _MAX_DEPTH) / 10 * 0.9 + spread * 0.9
        if line.startswith(("+", "-")) or "TODO" in line or "FIXME" in line or _names_error(line):
            return FAIR + spread
        return WEAK if line[:1].strip() else REST

    return [rank(at, line) for at, line in enumerate(lines)]


def _command(lines: Sequence[str]) -> list[int]:
    seen: set[bytes] = set()
    ranks = []
    for line in lines:
        shape = _shape(line)
        rank = BEST if _names_error(line) else GOOD if _has(line, _RESULT_PARTS, _RESULT) else WEAK
        ranks.append(rank if shape not in seen else min(rank + 2, REST))
        seen.add(shape)
    return _with_ends(ranks, head=3, tail=4)


def _with_ends(ranks: list[int], head: int, tail: int) -> list[int]:
    for at in (*range(min(head, len(ranks))), *range(max(len(ranks) - tail, 0), len(ranks))):
        ranks[at] = min(ranks[at], FAIR)
    return ranks


def _delimiter(lines: Sequence[str]) -> str | None:
    """Return what separates the cells of a table, None if the lines are no table."""
    rows = [line for line in lines if line.strip() and not _RULE.match(line)]
    if len(rows) < _MIN_TABLE_LINES:
        return None
    for delimiter in ("|", "\t", ",", ";", "  "):
        counts = Counter(len(_cells(row, delimiter)) for row in rows)
        columns, times = counts.most_common(1)[0]
        if columns > (2 if delimiter == "," else 1) and times >= len(rows) * 0.8:
            return delimiter
    return None


_WIDE_GAP = re.compile(r"\s{2,}")


def _cells(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return []
    if delimiter == "  ":
        return _WIDE_GAP.split(line.strip())
    return [cell.strip() for cell in line.strip().strip("|").split(delimiter)]


def _names_error(line: str) -> bool:
    return _has(line, _ERROR_PARTS, _ERROR)


def _has(line: str, parts: tuple[str, ...], pattern: re.Pattern[str]) -> bool:
    lowered = line.lower()
    return any(part in lowered for part in parts) and pattern.search(line) is not None


def _shape(line: str) -> bytes:
    """Return what lines have in common that differ in numbers."""
    return line[:200].encode(errors="replace").translate(None, b"0123456789")


def _share(lines: Sequence[str], is_kind: Callable[[str], bool]) -> float:
    return sum(map(is_kind, lines)) / max(len(lines), 1)


_RANKING: dict[OutputKind, Callable[[Sequence[str]], Sequence[float]]] = {
    OutputKind.TABLE: _table,
    OutputKind.LOG: _log,
    OutputKind.TRACE: _trace,
    OutputKind.CODE: _code,
    OutputKind.COMMAND: _command,
}


# A note about lines that were left out takes about this many tokens.
_NOTE_TOKENS = 10
_GAP_TOKENS, _NAMED_GAP_TOKENS = 2, 6
_GAP = "[...]"
# Up to this many gaps have a note each; more have a sign each and one note at the end.
_MAX_NOTES = 3
_LONG_LINE = 400
_JUDGED = 2_000
_LINE_HEAD, _LINE_TAIL = 240, 80
# Names, numbers, paths and addresses: what a later message can refer to.
_TOKEN = re.compile(r"[A-Za-z0-9_][\w./:@#-]{2,}")
_DISTINCTIVE = re.compile(r"[0-9_./@#]|.-.|[a-z][A-Z]")


class SlimOutput(NamedTuple):
    """A shortened result. ``left_out`` says what is not in it, such as "214 rows"; empty if everything is.

    ``unread``: lines or items that were not compared with the others, as there are too many.
    """

    text: str
    left_out: str = ""
    unread: int = 0


def slim_output(text: str, target_tokens: int, count: TokenCounter, wanted: frozenset[str] = frozenset()) -> SlimOutput:
    """Shorten a result of a tool to about the target. ``wanted``: names and numbers that were referred to later."""
    if count(text) <= target_tokens:
        return SlimOutput(text)
    slim = slim_json(text, target_tokens, count, wanted, lambda part, most: _slim_lines(part, most, count, wanted).text)
    return _slim_lines(text, target_tokens, count, wanted) if slim is None else SlimOutput(*slim)


def _slim_lines(text: str, target_tokens: int, count: TokenCounter, wanted: frozenset[str]) -> SlimOutput:
    """Shorten a text by its lines; one with so many that they cannot all be compared, by a sample of them."""
    lines = lines_of(text)
    if len(lines) < 3:  # noqa: PLR2004 - nothing to choose from
        return _clipped(text, target_tokens)
    # Lines of a megabyte are judged by their beginning.
    heads = _without_numbers([line[:_JUDGED].rstrip("\r") for line in lines])
    read = unusual_sample(heads, _MAX_READ, sorted(wanted))
    sample = [heads[at] for at in read]
    kind = kind_of_lines(sample)
    ranks = rank_lines(sample, kind, wanted, max(target_tokens // _TOKENS_PER_UNLIKE, 2))
    chosen = _chosen([lines[at] for at in read], ranks, target_tokens, count, kind)
    return _rendered(lines, [read[at] for at in chosen], kind)._replace(unread=len(lines) - len(read))


def _without_numbers(lines: list[str]) -> list[str]:
    """Return lines without the numbers that a tool wrote before them, if these count up."""
    found = [_NUMBERED.match(line) for line in lines]
    numbers = [int(match[1]) for match in found if match]
    counted = sum(after == before + 1 for before, after in pairwise(numbers))
    if counted < len(lines) * 0.8:
        return lines
    return [line[match.end() :] if match else line for line, match in zip(lines, found, strict=True)]


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as they are counted everywhere: by line feeds, as ``wc``, ``sed`` and ``grep`` do."""
    lines = text.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def references(text: str) -> Iterator[str]:
    """Yield the names, numbers, paths and addresses in a text."""
    return (match.rstrip(".:") for match in _TOKEN.findall(text) if _DISTINCTIVE.search(match))


def clip_line(line: str) -> str:
    """Return a line without the middle if it is very long."""
    if len(line) <= _LONG_LINE:
        return line
    left_out = len(line) - _LINE_HEAD - _LINE_TAIL
    return f"{line[:_LINE_HEAD]} [{left_out} characters left out] {line[-_LINE_TAIL:]}"


def _clipped(text: str, target_tokens: int) -> SlimOutput:
    """Return head and tail of a text without lines."""
    kept = max(target_tokens - _NOTE_TOKENS, 8) * 3
    head, tail = kept * 3 // 4, kept // 4
    left_out = f"{len(text) - head - tail:,} characters"
    return SlimOutput(f"{text[:head]} [{left_out} left out] {text[-tail:]}", left_out)


def _chosen(
    lines: Sequence[str], ranks: Sequence[float], target_tokens: int, count: TokenCounter, kind: OutputKind
) -> list[int]:
    """Return the positions of the best lines that fit, in order; always the best one."""
    gap = _NAMED_GAP_TOKENS if kind is OutputKind.CODE else _GAP_TOKENS
    room = target_tokens - _NOTE_TOKENS
    chosen: set[int] = set()
    for at in sorted(range(len(lines)), key=ranks.__getitem__):
        cost = count(clip_line(lines[at])) + 1
        if at - 1 not in chosen and at + 1 not in chosen:
            cost += gap
        if cost <= room or not chosen:
            chosen.add(at)
            room -= cost
        elif room < _GAP_TOKENS * 2:
            break
    return sorted(chosen)


def _rendered(lines: Sequence[str], chosen: Sequence[int], kind: OutputKind) -> SlimOutput:
    left_out = len(lines) - len(chosen)
    if not left_out:
        return SlimOutput("\n".join(map(clip_line, lines)))
    places = [-1, *chosen, len(lines)]
    gaps = sum(after - before > 1 for before, after in pairwise(places))
    found: list[str] = []
    for before, after in pairwise(places):
        if after - before > 1 and kind is OutputKind.CODE:
            # Which lines to ask for.
            found.append(f"[lines {before + 2}-{after} left out]" if after - before > 2 else f"[line {after} left out]")  # noqa: PLR2004
        elif after - before > 1:
            found.append(_note(after - before - 1, kind) if gaps <= _MAX_NOTES else _GAP)
        if after < len(lines):
            found.append(clip_line(lines[after]))
    if gaps > _MAX_NOTES or kind is OutputKind.CODE:
        found.append(_note(left_out, kind))
    return SlimOutput("\n".join(found), f"{left_out:,} {kind.noun(left_out)}")


def _note(number: int, kind: OutputKind) -> str:
    alike = " like these" if kind.is_uniform and number > 1 else ""
    return f"[{number:,} {kind.noun(number)}{alike} left out]"
