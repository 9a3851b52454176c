"""Other words that people try for a command: one that means the same runs it, the others are suggested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

# Verbs that mean the same, best first.
_SAME: Final = (
    ("get", "show", "read", "cat", "view", "info"),
    ("list", "ls"),
    ("create", "add", "new", "send", "post", "define", "register"),
    ("set", "write", "put", "update", "edit"),
    ("delete", "remove", "rm", "del", "revoke", "drop"),
    ("search", "find", "grep", "query"),
    ("refuse", "reject", "deny", "decline"),
)
# Commands that a word stands for in one group, or the words of one; "" is the top level.
_IN_GROUP: Final[dict[str, dict[str, str]]] = {
    "": {"status": "doctor", "assemble": "context assemble"},
    "board": {"list": "list-keys", "ls": "list-keys", "history": "read-history"},
    "events": {"list": "read", "ls": "read", "tail": "read"},
    "knowledge": {"list": "list-domains", "ls": "list-domains", "create": "create-domain"},
    "session": {"status": "overview"},
    "token": {"create": "issue", "new": "issue"},
}
# Commands that a word may stand for, which do too much else to run unasked.
_SUGGESTED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "": {"start": ("serve",), "run": ("serve",), "log": ("history", "audit"), "config": ("doctor",)},
    "agent": {
        **dict.fromkeys(("show", "get"), ("list", "read-definition")),
        **dict.fromkeys(("delete", "remove", "rm"), ("disable",)),
    },
    "knowledge": dict.fromkeys(("delete", "remove", "rm"), ("delete-document", "delete-domain", "remove-source")),
    "session": dict.fromkeys(("close", "end"), ("archive",)),
}


def same_command(group: str, word: str, commands: Collection[str]) -> str | None:
    """Return the command of a group that a word certainly stands for."""
    own = _IN_GROUP.get(group, {}).get(word)
    if own is not None:
        return own
    found = [
        other
        for other in (*_synonyms(word), *_other_number(word))
        if other in commands and word not in _SUGGESTED.get(group, ())
    ]
    return found[0] if len(found) == 1 else None


def similar_commands(group: str, word: str, commands: Collection[str]) -> Sequence[str]:
    """Return the commands of a group that a word may stand for, other than by its spelling."""
    words = {word, *_synonyms(word)}
    return _SUGGESTED.get(group, {}).get(word) or [
        name for name in commands if name in words or name.partition("-")[0] in words
    ]


def _other_number(word: str) -> tuple[str, ...]:
    """Return a noun in the plural for one in the singular, and the other way round: groups have either."""
    singular = f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")
    return (singular,) if singular != word else (f"{word}s",)


def _synonyms(word: str) -> Iterator[str]:
    return (other for verbs in _SAME if word in verbs for other in verbs if other != word)
