"""Cheap check of short texts: which of the scans can find anything in them.

A short text of an agent or human that is plain English and has none of the words that attacks are made of needs no
detector; one without a label such as ``password:`` and without a long run of letters and digits holds no secret. Both
are measured, see docs/decisions/0063. Data (the results of tools, documents, imports) and longer texts
are always scanned.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

# Longer texts are always scanned.
MAX_CHARS = 600
# A run of letters and digits as long as this may be a key, a token or an encoded text.
_LONG_RUN = b"x" * 16
# Letters that are spaced out, and pairs of hexadecimal digits; both are words for the detector.
_SPACED_LETTERS, _SPACED_PAIRS = b" x" * 5, b" xx" * 15
# Escapes, such as percent-encoded characters, that may be a text.
_MANY_ESCAPES = 3
_QUOTED = re.compile(r"(?:=[0-9A-Fa-f]{2}[^=]{0,20}){3}")
# Numbers, which may be the codes of letters, and lines without blanks, which may be an encoded text.
_MANY_NUMBERS = re.compile(r"(?:[0-9]{2,3}[ ,;\n]{1,2}){8}")
_THREES = (b" xxx" * 4, b"  xxx" * 4)
_EIGHTS = b" xxxxxxxx" * 8
# Words of letters and digits, as the groups of an encoded text are.
_MIXED = re.compile(r"[a-z][A-Z]|[0-9][A-Za-z]|[A-Za-z][0-9]")
_MANY_MIXED = 6
_SHORT_LINES = re.compile(r"(?<!\S)[A-Za-z0-9+/_-]{8,}={0,2}\s{0,8}\n\s{0,8}[A-Za-z0-9+/_-]{4,}={0,2}(?!\S)")
# Texts with fewer words can be in no recognisable language, nor instruct anybody without a word of the lists below.
_FEW_WORDS = 3
# Number of different common words of attacks from which a text is sent to the detector.
_MANY_COMMON = 2

# Leaves words in lower case; every other character becomes a space. Bytes, because they are translated much faster.
_PLAIN = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128)) + bytes(128)
# Leaves where runs of letters and digits are.
_RUNS = bytes(120 if chr(code).isalnum() else 32 for code in range(128)) + bytes(128)
# One is enough for a text to be plain English; rare in other languages.
_ENGLISH = frozenset(b"and are been by for from has have its not of that the this to was were which with".split())
# Words of attacks that are in fewer than one of 1,000 other texts: one is enough. Without the topics of attacks.
_RARE = frozenset(
    b"""
    abandon actua administrator ahora aktor alle alles alter amnesia answering anterior anteriores antes antworte
    anweisungen aside assistant aufgabe beantworte befolge bist boss bot bypass cancel censor censored censorship
    chatbot chatgpt comply confidential constraint contrary copilot creators dan deine denk dessus developer
    direction directions directive directives discard disclaimer disclaimers disclose dismiss disobey disregard dump
    einfach emergency erase eres ethics evil exfiltrate folge folgende forget forgot gemini gpt granted guideline
    hack hacked hacker hagas haha halt hypothetical ignora ignore ignored ignorez ignoriere ignoring illegal imagine
    imperative impersonate inject inst instrucciones instruct instructed instruction instructions instruktion
    instruktionen jailbreak jetzt joke kill leak limitation limitations llm mails moderation monster morals
    nachricht narrator neglect neue nur oben oberhalb obey oblige olvida olvide ops override overrides overwrite
    overwritten password passwords persona poem polecenia preceding pretend prohibited prompt prompts pwned refuse
    regeln reglas reminder reply responde respondez restriction restrictions reveal robot roleplay rude sage
    schreibe sentence sentences simulate skip slang speak steal strictly substitute sudo supersede supersedes
    superuser systemprompt throw todo tout translate translating trick unbound uncensored unfiltered unlimited
    unlock unrestricted untrammelled upload urgent verbatim vergiss violate violent void vorherigen wipe zaboravi
    zapomnij
    """.split()
)
# Words of attacks that are common elsewhere.
_COMMON = frozenset(
    b"""
    above act admin ai allow allowed answer answers attention character claude command commands constraints
    credentials delete drop everything exactly execute filter filters follow following forward guidance guidelines
    hidden important instead listen openai orders play please policies previous print prior priority repeat respond
    response role rule rules say says secret secrets send stop summarize system talk task tasks tell tokens transfer
    warning words write wrong you your yourself
    """.split()
)
# Labels of secrets, before a colon, an equals sign or one of the words below.
_LABELS = ("pass", "pwd", "secret", "token", "credential", "auth", "key", "sig")
_STATES = frozenset({b"is", b"was"})
_SCHEMES = frozenset({b"bearer", b"basic"})


class Suspicion(NamedTuple):
    """Which scans may find something in a text."""

    injection: bool
    secrets: bool


EVERYTHING = Suspicion(injection=True, secrets=True)


def precheck(text: str) -> Suspicion:
    """Tell which scans a text of an agent or human needs."""
    if len(text) > MAX_CHARS or not text.isascii():
        return EVERYTHING
    encoded = text.encode()
    if _may_be_encoded(text, encoded):
        return EVERYTHING
    words = encoded.translate(_PLAIN).split()
    different = frozenset(words)
    return Suspicion(_may_instruct(text, different, len(words)), _may_hold_secret(text, different))


def _may_be_encoded(text: str, encoded: bytes) -> bool:
    """Tell whether a text may have words that only the detector sees, because it undoes encodings and spacing."""
    if "\\" in text or "&" in text or text.count("%") >= _MANY_ESCAPES:
        return True
    if text.count("=") >= _MANY_ESCAPES and _QUOTED.search(text):
        return True
    if "\n" in text and _SHORT_LINES.search(text):
        return True
    runs = b" " + encoded.translate(_RUNS)
    if any(each in runs for each in _THREES) and _MANY_NUMBERS.search(text):
        return True
    if _EIGHTS in runs or len([*islice(_MIXED.finditer(text), _MANY_MIXED)]) == _MANY_MIXED:
        return True
    return _LONG_RUN in runs or _SPACED_LETTERS in runs or _SPACED_PAIRS in runs


def _may_instruct(text: str, words: frozenset[bytes], count: int) -> bool:
    if not _RARE.isdisjoint(words) or "<" in text:
        return True
    return count >= _FEW_WORDS and (_ENGLISH.isdisjoint(words) or len(_COMMON & words) >= _MANY_COMMON)


def _may_hold_secret(text: str, words: frozenset[bytes]) -> bool:
    if "://" in text or not _SCHEMES.isdisjoint(words):
        return True
    is_stated = ":" in text or "=" in text or not _STATES.isdisjoint(words)
    if not is_stated:
        return False
    lowered = text.lower()
    # A string is searched faster than bytes.
    return any(label in lowered for label in _LABELS)
