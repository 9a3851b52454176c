"""Patterns that calls of tools look for in the text of a handle, and the lines that match.

The pattern is that of a field beside the handle (`pattern`), or of `grep` or `rg` in a command. Patterns are untrusted:
they are RE2 expressions, which take linear time.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.windows.compaction.tool_outputs import clip_line, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FIELDS = ("pattern", "regex", "regexp", "query", "search")
_PROGRAMS = frozenset({"grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack"})
_WRITTEN_PLAIN = frozenset({"grep", "zgrep"})
_READERS = frozenset({"cat", "bat", "less", "more"})
_VALUED = frozenset("ABCmefdDgtT")
_BASIC = re.compile(r"\\?[|+?(){}]")
_MAX_PATTERN = 500
_MAX_LINES = 200
_MAX_CONTEXT = 20
_MAX_DEPTH = 8


class HandleSearch(NamedTuple):
    """A pattern as RE2 writes it, and lines around each match. ``written``: the pattern as the call has it."""

    written: str
    expression: str
    before: int = 0
    after: int = 0

    def opened(self, handle: str, text: str) -> tuple[str, str] | None:
        """Return in words what was looked for, and the matching lines with their numbers; None if it cannot be told."""
        lines = lines_of(text)
        try:
            found = list(_matching(lines, 0, len(lines), _compiled(self.expression), _MAX_LINES + 1))
        except ValueError:
            return None
        more = len(found) > _MAX_LINES
        shown = found[:_MAX_LINES]
        near = {at + step for at in shown for step in range(-self.before, self.after + 1)} - set(shown)
        numbered = {at: f"{at + 1}:{clip_line(lines[at])}" for at in shown}
        numbered |= {at: f"{at + 1}-{clip_line(lines[at])}" for at in near if 0 <= at < len(lines)}
        many = f"the first {_MAX_LINES}" if more else f"{len(shown):,}"
        place = f"{handle}, {many} of its {len(lines):,} lines, those that match {self.written!r}"
        return place, "\n".join(numbered[at] for at in sorted(numbered)) or "no line matches"


@cache
def _environment() -> Any:  # noqa: ANN401 - has no types
    # Loaded only where a call has a pattern.
    from cel_expr_python import cel  # noqa: PLC0415

    return cel.NewEnv(variables={"text": cel.Type.STRING})


class _Compiled(NamedTuple):
    expression: Any

    def matches(self, text: str) -> bool:
        """Tell whether a text has a match; raises ValueError for what is no expression."""
        found = self.expression.eval(_environment().Activation({"text": text})).value()
        if not isinstance(found, bool):
            raise ValueError("this is no regular expression")  # noqa: TRY004 - like what the compiler raises
        return found


def _compiled(expression: str) -> _Compiled:
    literal = msgspec.json.encode(expression).decode()
    try:
        return _Compiled(_environment().compile(f"text.matches({literal})"))
    except Exception as error:
        raise ValueError("this is no regular expression") from error


def _matching(lines: Sequence[str], first: int, end: int, pattern: _Compiled, most: int) -> Iterator[int]:
    """Yield the positions of matching lines in order, by halves: RE2 says whether a text matches, and not where."""
    pending = [(first, end)]
    while pending and most:
        first, end = pending.pop()
        if not pattern.matches("\n".join(lines[first:end])):
            continue
        if end - first == 1:
            yield first
            most -= 1
            continue
        middle = (first + end) // 2
        pending += [(middle, end), (first, middle)]


def search_of(arguments: bytes, handle: str) -> HandleSearch | None:
    """Return the pattern that the arguments of a call look for in a handle; None if there is none to be told."""
    try:
        given = msgspec.json.decode(arguments)
        if isinstance(given, str) and given.lstrip()[:1] in {"{", "["}:
            given = msgspec.json.decode(given)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    found = _search_in(given, handle, _MAX_DEPTH)
    return None if found is None or not 0 < len(found.written) <= _MAX_PATTERN else found


def _search_in(given: Any, handle: str, depth: int) -> HandleSearch | None:  # noqa: ANN401 - any JSON
    if depth == 0:
        return None
    if isinstance(given, dict):
        texts = {name: each for name, each in given.items() if isinstance(each, str)}
        pattern = next((texts[name] for name in _FIELDS if name in texts and handle not in texts[name]), None)
        if pattern is not None and any(handle in each for each in texts.values()):
            ignores_case = given.get("-i") is True or given.get("case_sensitive") is False
            return HandleSearch(pattern, _expression(pattern, ignores_case=ignores_case))
        return next((found for each in given.values() if (found := _search_in(each, handle, depth - 1))), None)
    if isinstance(given, list):
        words = [each for each in given if isinstance(each, str)]
        found = _in_words(words, handle) if len(words) == len(given) else None
        return found or next((found for each in given if (found := _search_in(each, handle, depth - 1))), None)
    return _in_command(given, handle) if isinstance(given, str) and handle in given else None


def _in_command(command: str, handle: str) -> HandleSearch | None:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|;&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return _in_words(list(lexer), handle)
    except ValueError:
        return None


def _in_words(words: Sequence[str], handle: str) -> HandleSearch | None:
    """Return what is looked for by the program that reads the handle, or the one that its text is piped to."""
    at = next((at for at, word in enumerate(words) if handle in word), None)
    if at is None:
        return None
    breaks = [-1, *(place for place, word in enumerate(words) if word and set(word) <= set("|;&\n")), len(words)]
    starts = [place + 1 for place in breaks if place < at]
    end = next(place for place in breaks if place > at)
    found = _in_program(words[starts[-1] : end], handle)
    is_piped = end < len(words) and words[end] == "|" and PurePosixPath(words[starts[-1]]).name in _READERS
    if found is None and is_piped:
        return _in_program([*takewhile(lambda word: not set(word) <= set("|;&\n"), words[end + 1 :])], handle)
    return found


def _in_program(words: Sequence[str], handle: str) -> HandleSearch | None:
    """Return what a command with the name of a searching program looks for; None for options that turn it around."""
    at = next((at for at, word in enumerate(words) if PurePosixPath(word).name in _PROGRAMS), None)
    if at is None:
        return None
    program = PurePosixPath(words[at]).name
    flags: set[str] = set()
    values: dict[str, str] = {}
    plain: list[str] = []
    rest = iter(words[at + 1 :])
    for word in rest:
        if word == "--" or not word.startswith("-") or word == "-":
            plain += [] if word == "--" else [word]
            continue
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            short = _LONG.get(name, "")
            values |= {short: value or next(rest, "")} if short in _VALUED and short else {}
            flags |= {short}
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter in _VALUED:
                values[letter] = word[place:] or next(rest, "")
                break
            flags.add(letter)
    pattern = values.get("e") or next((word for word in plain if handle not in word), "")
    if not pattern or flags & {"v", "L"}:
        return None
    is_basic = program in _WRITTEN_PLAIN and not flags & {"E", "P"}
    is_literal = program == "fgrep" or "F" in flags
    expression = _expression(
        pattern,
        ignores_case="i" in flags,
        is_basic=is_basic,
        is_literal=is_literal,
        is_word="w" in flags,
    )
    context = _count(values.get("C", ""))
    before, after = _count(values.get("B", "")) or context, _count(values.get("A", "")) or context
    return HandleSearch(pattern, expression, before, after)


_LONG = {
    "ignore-case": "i",
    "invert-match": "v",
    "files-without-match": "L",
    "word-regexp": "w",
    "fixed-strings": "F",
    "extended-regexp": "E",
    "perl-regexp": "P",
    "regexp": "e",
    "context": "C",
    "before-context": "B",
    "after-context": "A",
    "glob": "g",
    "type": "t",
    "max-count": "m",
}


def _count(written: str) -> int:
    return min(int(written), _MAX_CONTEXT) if written.isdecimal() and len(written) < _MAX_DEPTH else 0


def _expression(
    pattern: str,
    *,
    ignores_case: bool = False,
    is_basic: bool = False,
    is_literal: bool = False,
    is_word: bool = False,
) -> str:
    r"""Return a pattern as RE2 writes it; basic ones have `\|` for an alternative, and `(` for a parenthesis."""
    if is_literal:
        pattern = re.escape(pattern)
    elif is_basic:
        pattern = _BASIC.sub(lambda found: found[0][1:] if found[0][0] == "\\" else f"\\{found[0]}", pattern)
    flags = "(?mi)" if ignores_case else "(?m)"
    return f"{flags}\\b(?:{pattern})\\b" if is_word else f"{flags}{pattern}"
