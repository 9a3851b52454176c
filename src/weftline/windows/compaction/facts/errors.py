"""Errors in talk, logs, stack traces and results of tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_CASED = re.compile(
    r"\b[A-Z][\w.]{0,80}(?:Error|Exception|Failure|Fault)\b|"
    r"\b(?:ERROR|FATAL|CRITICAL|PANIC|SEVERE|ORA-\d{4,5})\b|"
    r"\bpanic:|\berror\[\w{1,10}\]|(?:^|[\s\"])(?:[Ee]rror|fatal|FAILED|[Ff]ailed)\"?: ?[^\s0]"
)
_STATUS = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?(?: code| status)|HTTP(?:/\d(?:\.\d)?)?|status(?:[_ ]code)?)[\" =:]{1,4}"
    r"(?:[1-9]\d?\b|[45]\d\d\b)",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"\b(?:segmentation fault|out of memory|no such file or directory|permission denied|connection refused|"
    r"access denied|deadlock detected|core dumped|cannot allocate memory|no space left on device|command not found)\b",
    re.IGNORECASE,
)
# What follows a number of failures in the summary of a test run.
_FAILURES = re.compile(r"\b[1-9]\d{0,5} (?:failed|failures?|errors?)\b")
# One of these is in every error, as a word or at the end of one; most lines have none.
ERROR_WORDS = frozenset(
    {
        *(
            "error",
            "errors",
            "fatal",
            "failed",
            "failure",
            "failures",
            "exception",
            "critical",
            "severe",
            "panic",
            "ora",
        ),
        *(
            "exit",
            "exited",
            "status",
            "http",
            "refused",
            "denied",
            "memory",
            "dumped",
            "deadlock",
            "space",
            "segmentation",
        ),
        *("such", "command"),
    }
)
_ENDINGS = ("Error", "Exception", "Failure", "Fault")
_FRAME = re.compile(r"\s*(?:File \"|at \S+\(|\.{3} \d+ more|Traceback|\^)")
# What differs between repetitions: addresses, hashes and plain numbers. Codes and names tell one error from another.
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b(?=[a-f]*\d)[0-9a-f]{8,64}\b")
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(
    r"((?:\b(?:code|status|exit|signal|errno|error|HTTP(?:/\d(?:\.\d)?)?)\W{1,3}|\b[A-Za-z][A-Za-z_]{0,40}[-_]?)"
    r"\d[\w-]{0,40})|\d+",
    re.IGNORECASE,
)


def is_error(line: str, words: AbstractSet[str]) -> bool:
    """Tell whether a line reports an error; frames of a stack trace do not. ``words``: its words in lower case."""
    if ERROR_WORDS.isdisjoint(words) and not any(ending in line for ending in _ENDINGS):
        return False
    if _FRAME.match(line):
        return False
    return any(pattern.search(line) for pattern in (_CASED, _STATUS, _PHRASE, _FAILURES))


def error_kind(line: str) -> str:
    """Return what errors of one kind have in common: the line without any number, code or address."""
    return _DIGITS.sub("0", _VARIABLE.sub("0", line))


def error_template(line: str) -> str:
    """Return what an error has in common with its repetitions: the line without addresses and numbers.

    Codes and identifiers stay, such as E1234, HTTP 503, exit code 137 or job-7: with another one it is another error.
    """
    return _NUMBER.sub(lambda found: found[1] or "0", _VARIABLE.sub("0", line))
