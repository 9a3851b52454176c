"""Generated training texts for the injection detector: attacks, requests and hard harmless texts, in our own words.

Grammars with slots (grammars/*.json), in English, German, French, Spanish and Chinese, and sentences in further
languages. The same random seed gives the same texts. Each text has the set of classes it may belong to:

- ``DOCUMENT``: text that informs, or that asks something of a human reader (mails, policies, manuals, security prose);
- ``REQUEST``: an ordinary request to an assistant or agent; harmless from a human or agent, out of place in a document;
- ``ATTACK``: wording that overrides, hijacks, unlocks or exfiltrates; suspicious from anyone.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DOCUMENT, REQUEST, ATTACK = 1, 2, 4

_SLOT = re.compile(r"\{(\w+)\}")
_LANGUAGES = {"en": 0.70, "de": 0.13, "fr": 0.035, "es": 0.035, "zh": 0.07, "other": 0.03}
_GRAMMARS: dict[str, dict[str, list[str]]] = {
    language: json.loads((Path(__file__).parent / "grammars" / f"{language}.json").read_text("utf-8"))
    for language in _LANGUAGES
}
# Symbol of the grammar, classes of its texts, and share of the texts.
_ENGLISH = [
    ("override", ATTACK, 3.0),
    ("Leak", ATTACK, 0.7),
    ("rolenow", ATTACK, 0.7),
    ("jailbreak", ATTACK, 1.6),
    ("system_says_task", ATTACK, 1.0),
    ("task", REQUEST, 1.6),
    ("question", REQUEST, 1.6),
    ("wish", REQUEST, 0.8),
    ("style", REQUEST, 1.6),
    ("codereq", REQUEST | ATTACK, 0.9),
    ("actionreq", REQUEST, 0.9),
    ("business", REQUEST, 0.9),
    ("coding", REQUEST | ATTACK, 1.0),
    ("team_talk", DOCUMENT | REQUEST, 1.8),
    ("trigger", DOCUMENT | REQUEST, 1.6),
    ("mailline", DOCUMENT, 1.2),
    ("policy", DOCUMENT, 0.8),
    ("readme", DOCUMENT, 0.7),
    ("toolresult", DOCUMENT, 0.6),
    ("security", DOCUMENT, 1.0),
]
_GERMAN_TALK = ("team_talk", DOCUMENT | REQUEST, 1.0)
_TRANSLATED = [
    ("override", ATTACK, 2.6),
    ("leakde", ATTACK, 0.5),
    ("rolenow", ATTACK, 0.8),
    ("task", REQUEST, 1.0),
    ("question", REQUEST, 1.0),
    ("wish", REQUEST, 4.0),
    ("style", REQUEST, 0.6),
    ("trigger", DOCUMENT | REQUEST, 2.0),
    ("mailline", DOCUMENT, 1.2),
]
_OTHER = [("override", ATTACK, 1.0), ("wish", REQUEST, 1.0), ("mailline", DOCUMENT, 0.6)]
_MIXES = {"en": _ENGLISH, "de": [*_TRANSLATED, _GERMAN_TALK], "other": _OTHER}


class Generator:
    """Draws texts from the grammars."""

    def __init__(self, random_seed: int, phrases: Sequence[str] = ()) -> None:
        """Draw at random; ``phrases`` are noun phrases of documents, which fill slots so that no topic is a sign."""
        self._random = random.Random(random_seed)  # noqa: S311 - training data, no secret
        self._phrases = phrases or _GRAMMARS["en"]["country"]

    def texts(self, number: int) -> Iterator[tuple[str, int]]:
        """Yield texts with the classes they may belong to."""
        languages, shares = list(_LANGUAGES), list(_LANGUAGES.values())
        for _ in range(number):
            [language] = self._random.choices(languages, shares)
            mix = _MIXES.get(language, _TRANSLATED)
            [(symbol, classes, _)] = self._random.choices(mix, [share for _, _, share in mix])
            yield self.text(symbol, language), classes

    def text(self, symbol: str, language: str = "en") -> str:
        """Return a text of one symbol of the grammar of a language, sometimes with a small disturbance."""
        return self._disturb(self._expand(symbol, language), language)

    def payload(self) -> tuple[str, int]:
        """Return a text that is out of place in a document: an attack or a request."""
        while True:
            [(text, classes)] = self.texts(1)
            if not classes & DOCUMENT:
                return text, classes

    def _expand(self, symbol: str, language: str) -> str:
        grammar = _GRAMMARS[language]
        if symbol == "np" and "np" not in grammar:
            return self._random.choice(self._phrases)
        rule = self._random.choice(grammar.get(symbol) or _GRAMMARS["en"][symbol])
        text = _SLOT.sub(lambda match: self._slot(match[1], language), rule.replace("{{", "\0").replace("}}", "\1"))
        return " ".join(text.replace("\0", "{").replace("\1", "}").split(" ")).strip()

    def _slot(self, symbol: str, language: str) -> str:
        is_known = symbol == "np" or symbol in _GRAMMARS[language] or symbol in _GRAMMARS["en"]
        return self._expand(symbol, language) if is_known else symbol

    def _disturb(self, text: str, language: str) -> str:
        """Change the case, drop the full stop or the punctuation, as people do."""
        text = re.sub(r" +([.,;])(?=\s|$)", r"\1", re.sub(r"  +", " ", text))
        chance = self._random.random()
        if language == "zh" or "```" in text:
            return text
        if chance < 0.10:
            return text.lower()
        if chance < 0.13:
            return text.upper()
        if chance < 0.23:
            return text.rstrip(".!?")
        return re.sub(r"[,.!?']", "", text) if chance < 0.27 else text
