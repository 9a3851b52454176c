"""Scans texts for injected instructions, secrets and personal data.

A scan takes time in proportion to the text, so it runs before the transaction that stores the text: ``prepare`` scans
the texts of a request, long ones in a thread, and very long ones in slices: a pattern lets no other thread run while it
searches, and other callers get their turn between two slices. The gate finds their verdicts in the call, or in the
cache; it scans only what was not prepared.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.events import NewEvent
from weftline.kernel.identity import CLEARANCE, HUMAN, PERMISSION, Permission
from weftline.kernel.thread_pools import ThreadPool
from weftline.safety.injection import HARMLESS, Detection
from weftline.safety.redaction import DETECTORS, Masker, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.kernel.errors import Violation
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import SubmittedText
    from weftline.kernel.ports import ValueCache
    from weftline.safety.injection import InjectionDetector
    from weftline.safety.redaction import DetectorCategory


# Cheap check of short texts: which of the scans can find anything in them.
#
# A short text of an agent or human that is plain English and has none of the words that attacks are made of needs no
# detector; one without a label such as ``password:`` and without a long run of letters and digits holds no secret.
# Both are measured, see docs/decisions/0063. Data (the results of tools, documents, imports) and longer texts are
# always scanned.

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


# Longer texts are scanned in a thread.
_INLINE_CHARS = MAX_CHARS
# Longer texts are scanned in slices, each with the beginning of the next one.
_SLICE_CHARS, _OVERLAP_CHARS = 8_192, 1_024
_CACHE_WEIGHT = 400
# One tenant takes one of them: the other thread is free for others.
_GATE_THREADS = ThreadPool("gate", 2)
_JSON_STARTS = ("{", "[", '"')


class Verdict(NamedTuple):
    """What was found in a text: the detector's result, and the labels of secrets and personal data."""

    detection: Detection = HARMLESS
    secrets: tuple[str, ...] = ()
    # None: not looked for.
    pii: tuple[str, ...] | None = None


CLEAN = Verdict()
# Verdicts of the texts of one call.
Verdicts = dict[tuple[str, bool], Verdict]


class ContentScanner:
    """Scans texts. Each caller has its own verdicts, so that none can tell by the time what another one stored."""

    def __init__(self, detector: InjectionDetector, cache: ValueCache) -> None:
        self._detector = detector
        self._cache = cache
        self._scanners: dict[DetectorCategory, Scanner] = {
            category: Scanner(detectors) for category, detectors in DETECTORS.items()
        }

    async def prepare(self, actor: Actor, texts: Iterable[SubmittedText]) -> Verdicts:
        """Scan the texts of a request before its transaction; return their verdicts."""
        verdicts: Verdicts = {}
        characters = 0
        for text, data in texts:
            known = verdicts.get((text, data)) or self._known(actor, text, data=data)
            if known is not None:
                verdicts[text, data] = known
            else:
                # Also many short texts together would keep other calls waiting.
                characters += len(text)
                if characters <= _INLINE_CHARS:
                    verdicts[text, data] = self.scan(actor, text, data=data)
                else:
                    verdicts[text, data] = await self._scan_in_thread(actor, text, data=data)
        return verdicts

    def _known(self, actor: Actor, text: str, *, data: bool) -> Verdict | None:
        """Return the verdict on a text that was scanned before; short texts of callers are checked as fast."""
        if not data and len(text) <= _INLINE_CHARS:
            return None
        known: Verdict | None = self._cache.get(_key(actor, text, data=data))
        return known

    def scan(self, actor: Actor, text: str, *, data: bool) -> Verdict:
        """Return what is in a text; ``data`` if an instruction is out of place in it."""
        suspicion = EVERYTHING if data else precheck(text)
        if not suspicion.injection:
            return Verdict(secrets=self._labels("secrets", plain_text(text))) if suspicion.secrets else CLEAN
        key = _key(actor, text, data=data)
        verdict: Verdict | None = self._cache.get(key)
        if verdict is None:
            verdict = self._scan(text, data=data)
            self._cache.put(key, verdict, _CACHE_WEIGHT)
        return verdict

    async def _scan_in_thread(self, actor: Actor, text: str, *, data: bool) -> Verdict:
        flow = actor.tenant, actor.path
        if len(text) <= _SLICE_CHARS:
            return await _GATE_THREADS.run_for(flow, partial(self.scan, actor, text, data=data))
        shown = await _GATE_THREADS.run_for(flow, partial(plain_text, text))
        scans = (partial(self._scan_slice, each, data=data, pii=True) for each in _slices(shown))
        verdict = _joined([await _GATE_THREADS.run_for(flow, scan) for scan in scans])
        self._cache.put(_key(actor, text, data=data), verdict, _CACHE_WEIGHT)
        return verdict

    def verdict(self, text: str, *, data: bool) -> Verdict:
        """Return what is in a text without use of the cache, for documents, which would fill it. CPU-bound."""
        return self._scan(text, data=data)

    def _scan(self, text: str, *, data: bool) -> Verdict:
        pii = len(text) > _INLINE_CHARS
        return _joined([self._scan_slice(each, data=data, pii=pii) for each in _slices(plain_text(text))])

    def _scan_slice(self, text: str, *, data: bool, pii: bool) -> Verdict:
        found = self._labels("pii", text) if pii else None
        return Verdict(self._detector.detect(text, data=data), self._labels("secrets", text), found)

    def pii(self, text: str, verdict: Verdict) -> tuple[str, ...]:
        """Return the kinds of personal data in a text; in a short one, they are looked for only where it matters."""
        return self._labels("pii", plain_text(text)) if verdict.pii is None else verdict.pii

    def _labels(self, category: DetectorCategory, text: str) -> tuple[str, ...]:
        return tuple(sorted({span.label for span in self._scanners[category].spans(text)}))


def is_long(texts: Iterable[SubmittedText]) -> bool:
    """Tell whether a scan of texts takes so long that their sizes should be checked first."""
    return sum(len(text) for text, _ in texts) > _SLICE_CHARS


def _slices(text: str) -> Iterator[str]:
    """Yield a text in slices that overlap; a short text, also an empty one, is one slice."""
    for start in range(0, max(1, len(text)), _SLICE_CHARS):
        yield text[start : start + _SLICE_CHARS + _OVERLAP_CHARS]


def _joined(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a text from those on its slices: the highest score, and all that was found."""
    if len(verdicts) == 1:
        return verdicts[0]
    secrets = {label for each in verdicts for label in each.secrets}
    pii = None if verdicts[0].pii is None else tuple(sorted({label for each in verdicts for label in each.pii or ()}))
    detection = max((each.detection for each in verdicts), key=lambda each: (each.strict, each.flagged, each.score))
    return Verdict(detection, tuple(sorted(secrets)), pii)


def masked(text: str, categories: Iterable[DetectorCategory], *, is_json: bool = False) -> str:
    """Return a text with the secrets or personal data in it replaced by placeholders. JSON stays JSON."""
    masker = Masker(categories)
    return masker.json(text) if is_json else masker.text(text)


def plain_text(text: str) -> str:
    """Return the strings of a JSON document, one per line, without its escapes; any other text as it is."""
    if not text.startswith(_JSON_STARTS):
        return text
    try:
        shown = "\n".join(_strings(json.loads(text, object_pairs_hook=_Members)))
        # Half of a surrogate pair, which an escape can hide, is no text.
        return shown.encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return text


class _Members(list[tuple[str, Any]]):
    """Names and values of a JSON object. A name may occur twice; readers of the text see both values."""


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, str):
        yield value
    elif isinstance(value, _Members):
        for name, inner in value:
            # A name is the label of its value, as in ``password``.
            yield f"{name}: {inner}" if isinstance(inner, str) else name
            if not isinstance(inner, str):
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif value is not None:
        yield str(value)


def _key(actor: Actor, text: str, *, data: bool) -> tuple[str, str, bytes, bool]:
    return actor.tenant, actor.principal_id, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), data


# Security events about what was found in texts: who, where and how many, never the text.

# Humans with this clearance read security events; so do admins.
READER_CLEARANCE = 3


def detection_event(actor: Actor, violation: Violation, action: str, agent_id: str, **data: object) -> NewEvent:
    """Return the event that tells reviewers of texts that look like an attack."""
    return NewEvent(
        type="security.violation",
        session_id=None,
        subject=agent_id,
        actor=actor.participant,
        # Both must match: admins match the first always.
        participants=(f"{HUMAN}*",),
        readable_by=(f"{CLEARANCE}{READER_CLEARANCE}", f"{PERMISSION}{Permission.ADMIN}"),
        data={"violation": violation, "action": action, **data},
    )
