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
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


def is_error(line: str, words: AbstractSet[str]) -> bool:
    """Tell whether a line reports an error; frames of a stack trace do not. ``words``: its words in lower case."""
    if ERROR_WORDS.isdisjoint(words) and not any(ending in line for ending in _ENDINGS):
        return False
    if _FRAME.match(line):
        return False
    return any(pattern.search(line) for pattern in (_CASED, _STATUS, _PHRASE, _FAILURES))


def error_template(line: str) -> str:
    """Return what an error has in common with its repetitions: the line without numbers and addresses."""
    return _VARIABLE.sub("0", line)
