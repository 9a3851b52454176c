"""Detection of prompt injection: text from outside that tries to give an agent instructions."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.kernel.errors import Unavailable
from weftline.kernel.hidden_text import INVISIBLE, SELECTED_BYTES, encoded_passages, selected_bytes, unescape

if TYPE_CHECKING:
    from collections.abc import Callable


# Port of the injection detector, and its result.


class DetectorUnavailable(Unavailable):
    """The injection detector cannot be loaded."""

    code = "INJECTION_DETECTOR_UNAVAILABLE"
    hint = (
        "Install Weftline again where it runs, or correct WEFTLINE_INJECTION_MODEL; nothing is "
        "accepted unchecked until then."
    )


# Level at which one text is flagged, and by how much ten times as many texts raise it.
_FLAGGED_LEVEL = 2.0
_LEVEL_OF_TEN_TEXTS = 0.4


@dataclass(frozen=True, slots=True)
class Detection:
    """Score of a text, whether it exceeds the thresholds, and the passage that caused it."""

    # A logit: higher is more suspicious. Comparable between texts of the same kind only.
    score: float
    # Fewer than 1 % of harmless texts of this kind score as high, even among those that look like attacks.
    flagged: bool
    # Fewer than 0.1 % of ordinary texts of this kind do.
    strict: bool
    # The most suspicious passage, in normal form: decoded, without invisible characters.
    excerpt: str
    # How rare such a score is among harmless texts of this kind: 2 for one in a hundred, 3 for one in a thousand. None
    # if the detector knows no more than its two thresholds.
    level: float | None = None

    def is_rare_among(self, texts: int) -> bool:
        """Whether the score is high even for the highest of many texts, such as the passages of a document.

        Fewer than one in a hundred harmless documents has such a passage, whatever their length: measured with up to
        450 passages. Those of one document resemble each other, so the bar rises by less than independent ones need.
        """
        if self.level is None:
            return self.strict
        return self.level >= _FLAGGED_LEVEL + _LEVEL_OF_TEN_TEXTS * math.log10(max(texts, 1))


HARMLESS = Detection(score=-8.0, flagged=False, strict=False, excerpt="")


class InjectionDetector(Protocol):
    """Scores texts for prompt injection. Thread-safe; CPU-bound, so long texts belong in a thread."""

    def detect(self, text: str, *, data: bool) -> Detection:
        """Score a text.

        ``data`` is true for documents, tool results and imports, where any request to an assistant is out of place.
        Humans and agents give each other orders: in their text only the wording of an attack counts.
        """
        ...


# Normal form of a text: undoes the usual ways to hide words from a reader or a filter.
#
# Invisible characters, lookalikes, entities, inline tags, spaced letters, and encoded passages. The text is untrusted:
# all patterns take time in proportion to its length.

# A shorter decoded text is an accident.
_MIN_DECODED = 8
_MIN_READABLE_SHARE = 0.9
# Tag characters repeat ASCII from here; flags are pairs of letters from here.
_FIRST_TAG, _FIRST_FLAG = 0xE0000, 0x1F1E6
_PRINTABLE = range(0x20, 0x7F)

_TAG_CHARACTERS = re.compile(r"[\U000e0000-\U000e007f]+")
# Shown from right to left, so that a reader sees what a filter reads backwards.
_REVERSED = re.compile(r"\u202e([^\u202c\u202e\n]{8,})")
_MAX_HIDDEN = 64
_FLAG_LETTERS = re.compile(r"[\U0001f1e6-\U0001f1ff](?:\s?[\U0001f1e6-\U0001f1ff]){2,}")
_COMBINING = re.compile(r"[\u0300-\u036f\u0489\u20d0-\u20f0]+")
_GREEK_OR_CYRILLIC = re.compile(r"[\u0370-\u03ff\u0400-\u052f]")
_LATIN = re.compile(r"[A-Za-z]")
_WORD = re.compile(r"\w+")
_INLINE_TAG = re.compile(
    r"</?(?:b|i|em|strong|span|font|u|s|small|wbr|mark|sub|sup)\b[^<>]{0,200}>|<!--\s{0,20}-->", re.IGNORECASE
)
# What separates hidden text from its surroundings: comments, elements, titles of links and images.
_HIDING = re.compile(
    r"<!--|-->|</?(?:div|p|td|th|tr|li|ul|ol|h[1-6]|title|body|section|article|br)\b[^<>]{0,300}>", re.IGNORECASE
)
_MARKDOWN_COMMENT = re.compile(r"^\[[^\]\n]{0,40}\]: ?#[^(\"'\n]{0,20}[(\"'](.*)[)\"']\s*$", re.MULTILINE)
_LINK_TITLE = re.compile(r"\]\([^\s()]{0,500}\s{1,4}[\"']([^\"'\n]{1,1000})[\"']\)")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});")
_SPACED_LETTERS = re.compile(r"(?<!\w)(?:[^\W_][ .\-_*/|,\u00b7]{1,4}){7,}[^\W_](?![^\W_])")
_SPACING = re.compile(r"[ .\-_*/|,\u00b7]")
_WORD_GAP = re.compile(r"[ .\-_*/|,\u00b7]{2,}")
_LETTERS_AND_SPACING = bytes(
    ord(" ") if chr(code) in " .-_*/|," else ord("x") if chr(code).isalnum() else ord("|") for code in range(256)
)
_SPACED_RUN = b"x " * 4 + b"x"
_ESCAPED_BREAK = re.compile(r"(?:\\{1,2}[nr])+")
# Cyrillic and Greek letters that look like Latin ones; replaced only in words that mix alphabets.
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u051b\u0432\u043a\u043c\u043d\u0442\u0433"
    "\u0410\u0415\u041e\u0420\u0421\u0425\u0406\u041c\u041d\u0422\u0412\u041a"
    "\u03b1\u03b5\u03bf\u03c1\u03c5\u03bd\u03b9\u03ba\u03c4\u0391\u0395\u039f\u03a1\u0399\u039a\u03a4\u039d",
    "aeopcyxijsdqbkmhtrAEOPCXIMHTBKaeopuvikt" + "AEOPIKTN",
)


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A text as a model reads it, and the texts that were encoded in it."""

    text: str
    decoded: tuple[str, ...]


def normalise(text: str) -> NormalForm:
    """Return the normal form of a text."""
    decoded: list[str] = []
    if not text.isascii():
        text, hidden = _plain_letters(text)
        decoded += hidden
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    if "<" in text:
        text = _HIDING.sub("\n", _INLINE_TAG.sub("", text))
    if "](" in text or "]: #" in text:
        text = _LINK_TITLE.sub(r"]\n\1\n", _MARKDOWN_COMMENT.sub(r"\1", text))
    escaped, text = text, unescape(text)
    if "\\" in text:
        text = _ESCAPED_BREAK.sub("\n", text)
    if _may_have_spaced_letters(text):
        text = _SPACED_LETTERS.sub(_joined_letters, text)
    # Undoing escapes may join a passage with what follows it.
    for each in dict.fromkeys((text, escaped)):
        decoded += [passage.text for passage in encoded_passages(each) if passage.text not in decoded]
    return NormalForm(text, tuple(one for one in decoded if _is_readable(one)))


def _plain_letters(text: str) -> tuple[str, list[str]]:
    """Replace letters in disguise and remove what is invisible; also return what only characters without a look say."""
    tags = [ord(tag) - _FIRST_TAG for run in _TAG_CHARACTERS.findall(text) for tag in run]
    hidden = "".join(chr(tag) for tag in tags if tag in _PRINTABLE)
    also = [selected_bytes(run).decode(errors="ignore") for run in SELECTED_BYTES.findall(text)[:_MAX_HIDDEN]]
    also += [run[::-1] for run in _REVERSED.findall(text)[:_MAX_HIDDEN]]
    text = INVISIBLE.sub("", _TAG_CHARACTERS.sub("", text))
    text = _FLAG_LETTERS.sub(_letters_of_flags, text)
    # What does not compose with its letter is decoration.
    text = _COMBINING.sub("", unicodedata.normalize("NFKC", text))
    if _GREEK_OR_CYRILLIC.search(text):
        text = _WORD.sub(_one_alphabet, text)
    return text, [one for one in (hidden, *also) if one]


def _letters_of_flags(match: re.Match[str]) -> str:
    letters = (ord(flag) - _FIRST_FLAG for flag in match[0])
    return "".join(chr(letter + ord("a")) if letter >= 0 else " " for letter in letters)


def _one_alphabet(match: re.Match[str]) -> str:
    word = match[0]
    mixes = not word.isascii() and _LATIN.search(word) and _GREEK_OR_CYRILLIC.search(word)
    return word.translate(_LOOKALIKES) if mixes else word


def _may_have_spaced_letters(text: str) -> bool:
    """Tell whether single letters alternate with separators; much faster than the pattern, which needs as many."""
    return not text.isascii() or _SPACED_RUN in text.encode().translate(_LETTERS_AND_SPACING)


def _joined_letters(match: re.Match[str]) -> str:
    """Join single letters to words: wider gaps, or blanks where letters have dots between them, separate the words."""
    run = match[0]
    if _WORD_GAP.search(run):
        words = _WORD_GAP.split(run)
    else:
        others = {sign for sign in run[1::2] if sign != " "}
        words = run.split(" ") if others else [run]
    joined = [_SPACING.sub("", word) for word in words]
    return " ".join(joined) if all(word.isalpha() for word in joined if word) else run


def _is_readable(text: str) -> bool:
    letters = sum(character.isalpha() or character == " " for character in text)
    return len(text) >= _MIN_DECODED and letters >= _MIN_READABLE_SHARE * len(text) and " " in text.strip()


# Segments of a normalised text: sentences, lines and pieces of code.

# Longer segments are cut.
_MAX_WORDS = 40
# So are those of few words that are very long.
_MAX_CHARACTERS = 800
# Every segment costs the same, so a text of many short ones, such as one letter in each line, is cut into longer ones.
_MANY_SEGMENTS = 150
_SHORT_CHARACTERS = 20
_JOINED_CHARACTERS = 120

_FENCE = re.compile(r"^\s*```")
# A quoted text is a sentence of its own: "The page says: ..." does not excuse what the page says.
_REPORTING_VERBS = ("says", "said", "wrote", "writes", "returned", "reads", "states", "replied", "reports")
_QUOTED = "|".join(f"(?<={verb}:)" for verb in _REPORTING_VERBS)
_SENTENCE_END = re.compile(
    rf"(?<=[.!?\u2026])[\"')\]]?\s+|(?:{_QUOTED})\s+|(?<=[\u3002\uff01\uff1f])|(?<=[a-z0-9)][.!?])(?=[A-Z][a-z])"
)
# Without one before the end, there is only one sentence.
_MARK = re.compile(r"[.!?:\u2026\u3002\uff01\uff1f]")
# A sentence inside a piece of code, such as a request that was put there.
_PROSE_START = re.compile(r"[A-Z][a-z']+(?: [A-Za-z',-]+){4}")
_CODE_CHARACTER = re.compile(r"[=;{}()\[\]]")
_OPEN_END = re.compile(r"[\w,)\]'\"-]\Z")
_CONTINUED = re.compile(r"[a-z(\"']")


def segments(text: str) -> list[str]:
    """Cut a normalised text into sentences, lines and pieces of code."""
    cutter = _Cutter()
    for line in text.split("\n"):
        cutter.add(line)
    cutter.end_paragraph()
    cutter.end_code()
    return _joined([segment for segment in cutter.found if any(map(str.isalpha, segment))])


def _joined(found: list[str]) -> list[str]:
    """Join the segments of a text that has many and, on average, short ones."""
    if len(found) <= _MANY_SEGMENTS or sum(map(len, found)) >= _SHORT_CHARACTERS * len(found):
        return found
    joined = [""]
    for segment in found:
        if len(joined[-1]) >= _JOINED_CHARACTERS:
            joined.append(segment)
        else:
            joined[-1] = f"{joined[-1]} {segment}".lstrip()
    return joined


class _Cutter:
    """Collects the lines of paragraphs and of fenced code."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._paragraph: list[str] = []
        self._code: list[str] = []
        self._is_fenced = False

    def add(self, line: str) -> None:
        if _FENCE.match(line):
            self.end_paragraph()
            self.end_code()
            self._is_fenced = not self._is_fenced
        elif self._is_fenced:
            self._add_code(line.strip())
        else:
            self._add_prose(line.strip())

    def _add_code(self, line: str) -> None:
        if _is_prose(line):
            self.end_code()
            self.found += _sentences(line)
        else:
            self._code.append(line)

    def _add_prose(self, line: str) -> None:
        """Add a line; one that starts in lower case continues the sentence of the line before, if that is open."""
        if not (self._paragraph and _CONTINUED.match(line) and _OPEN_END.search(self._paragraph[-1][-1:])):
            self.end_paragraph()
        if line:
            self._paragraph.append(line)

    def end_paragraph(self) -> None:
        if self._paragraph:
            self.found += _sentences(" ".join(self._paragraph))
            self._paragraph = []

    def end_code(self) -> None:
        if self._code:
            self.found += _pieces(" \n ".join(self._code).split(" "))
            self._code = []


def _is_prose(line: str) -> bool:
    start = _PROSE_START.match(line)
    return start is not None and line[-1] in ".:!?" and not _CODE_CHARACTER.search(line, start.end())


def _sentences(paragraph: str) -> list[str]:
    if not _MARK.search(paragraph, 0, len(paragraph) - 1):
        return _pieces(paragraph.split())
    return [piece for sentence in _SENTENCE_END.split(paragraph) if sentence for piece in _pieces(sentence.split())]


def _pieces(words: list[str]) -> list[str]:
    """Return segments of equal size and at most ``_MAX_WORDS`` words; parts of longer ones than allowed."""
    number = max(1, -(-len(words) // _MAX_WORDS))
    size = -(-len(words) // number)
    pieces = [" ".join(words[start : start + size]) for start in range(0, len(words), size or 1)]
    return [
        piece[start : start + _MAX_CHARACTERS] for piece in pieces for start in range(0, len(piece), _MAX_CHARACTERS)
    ]


# Windows of a text for an encoder: neighbouring segments, as many as fit, each window beginning with the last ones.

# Tokens of a window, with start and end.
MAX_TOKENS = 160
# Tokens of the window before that are read again, so that an instruction is seen with what precedes it.
_OVERLAP = 40
_FIRST_TOKENS, _LAST_TOKENS = 101, 102


class TokenWindow(NamedTuple):
    """Token ids with start and end, and which segments they are of."""

    tokens: list[int]
    first: int
    last: int


def token_windows(segments: Sequence[Sequence[int]]) -> list[TokenWindow]:
    """Return the windows of segments, each given by its token ids; longer segments are cut."""
    room = MAX_TOKENS - 2
    windows: list[TokenWindow] = []
    first, count = 0, 0
    for number, segment in enumerate(segments):
        size = min(len(segment), room)
        if count and count + size > room:
            windows.append(_window(segments, first, number))
            first, count = _again(segments, first, number, room - size)
        count += size
    if count:
        windows.append(_window(segments, first, len(segments)))
    return windows


def _again(segments: Sequence[Sequence[int]], first: int, end: int, room: int) -> tuple[int, int]:
    """Return from which segment on the next window begins, and the tokens of what it repeats."""
    count, start = 0, end
    while start - 1 > first and count + len(segments[start - 1]) <= min(_OVERLAP, room):
        start -= 1
        count += len(segments[start])
    return start, count


def _window(segments: Sequence[Sequence[int]], first: int, end: int) -> TokenWindow:
    ids = [token for segment in segments[first:end] for token in segment[: MAX_TOKENS - 2]]
    return TokenWindow([_FIRST_TOKENS, *ids, _LAST_TOKENS], first, end - 1)


# The injection detector that is included in Weftline: an encoder reads a text in windows, and the worst window counts.
#
# A text is normalised and cut into segments, and neighbouring segments are read together. In the text of humans and
# agents only the wording of an attack counts: they give each other orders. In data any instruction to its reader is
# out of place. The encoder was trained for both (evals/classifier).

_UNKNOWN, _START, _END = 100, 101, 102
_MAX_EXCERPT = 300
# Segments of a suspicious window that are read by themselves, and what they must exceed a bar by: without their
# neighbours harmless ones score higher too. Measured on an author left out: no more false alarms, and more is caught.
_MAX_ALONE, _MARGIN_ALONE = 12, 4.0
# Data of one sentence gives one occasion for a false alarm, a page gives hundreds: its bar is lower. Measured on
# texts of up to 160 characters.
_SINGLE_SENTENCE = 1.0
_CODE = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
_FEW_DIGITS, _FEW_SIGNS, _LONG = 10, 5, 40
_FIELD_NAME = re.compile(r"(?:^|\s)[\w.-]{1,40}:\s")
# Lower than any logit: read to the end.
_WHATEVER = -100.0
_NOT_LETTERS = re.compile(r"[\W\d_]+")
# A repeated sentence has words; headings and lines of tables that recur are not read again.
_MIN_BLANKS, _MAX_REPEATED = 3, 12
# Different segments that are compared with each other.
_MAX_COMPARED = 40


class Thresholds(NamedTuple):
    """Scores above which a text is flagged, and above which it is so at the strict bar.

    A window whose first score is below ``least`` is read no further.
    """

    flagged: float
    strict: float
    least: float

    def level(self, score: float) -> float:
        """Return how rare a score is among harmless texts, on the scale of the two thresholds."""
        return 2 + (score - self.flagged) / (self.strict - self.flagged)


class Encoder(Protocol):
    """Reads windows of tokens."""

    def tokens(self, text: str) -> list[int]: ...

    def instructs(self, tokens: Sequence[int], *, data: bool, least: float) -> float: ...


class EncoderDetector:
    """Implements ``InjectionDetector``."""

    def __init__(self, encoder: Callable[[], Encoder], *, talk: Thresholds, data: Thresholds) -> None:
        """Judge by an encoder, which is asked for with each text: it may have been released meanwhile."""
        self._encoder = encoder
        self._thresholds = {False: talk, True: data}

    def detect(self, text: str, *, data: bool) -> Detection:
        normal = normalise(text)
        found = [segment for each in (normal.text, *normal.decoded) for segment in segments(each)]
        parts = [segment for segment in found if not _is_code(segment)]
        if not parts:
            return HARMLESS
        encoder = self._encoder()
        least = self._thresholds[data].least
        distinct, repeated = _without_copies(parts)
        readings = [_Reading.of(encoder, each) for each in (distinct, *repeated)]
        scored = [
            (encoder.instructs(window.tokens, data=data, least=least), window, reading)
            for reading in readings
            for window in token_windows(reading.tokens)
        ]
        score, window, reading = max(scored, key=lambda each: each[0])
        bar = self._thresholds[data]
        if least <= score <= bar.strict:
            score = max(score, _alone(encoder, window, reading, data=data, least=least) - _MARGIN_ALONE)
        if data and len(parts) == 1:
            score += _SINGLE_SENTENCE
        is_flagged = score > bar.flagged
        return Detection(
            score,
            flagged=is_flagged,
            strict=score > bar.strict,
            excerpt=_excerpt(encoder, window, reading, data=data) if is_flagged else "",
            level=bar.level(score),
        )

    def thresholds(self, *, data: bool) -> Thresholds:
        return self._thresholds[data]


def _is_code(segment: str) -> bool:
    """Tell whether a segment is noise: a few signs again and again, or a key, a hash or encoded content.

    What is encoded was decoded; by itself the encoder has no opinion about it.
    """
    if len(segment) > _LONG and len(set(segment)) < _FEW_SIGNS:
        return True
    return _CODE.fullmatch(segment) is not None and _FEW_DIGITS * sum(map(str.isdigit, segment)) > len(segment)


class _Reading(NamedTuple):
    """Segments that are read together, with their tokens."""

    parts: Sequence[str]
    tokens: list[list[int]]

    @classmethod
    def of(cls, encoder: Encoder, parts: Sequence[str]) -> _Reading:
        return cls(parts, [encoder.tokens(part)[: MAX_TOKENS - 2] or [_UNKNOWN] for part in parts])


def _without_copies(parts: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return each segment once; and the sentences of which there were copies, by themselves and with the next one.

    An encoder that was trained on single attacks does not know a window full of copies, and harmless sentences
    between them thin out each one. So copies count once, and what was repeated is read alone too.
    """
    if len(parts) == 1:
        return [*parts], []
    first: dict[str, str] = {}
    copies: Counter[str] = Counter()
    for part in parts:
        # Without digits, signs and case: numbered copies are copies.
        key = _NOT_LETTERS.sub(" ", part.casefold()).strip() or part
        first.setdefault(key, part)
        copies[key] += 1
    if len(first) <= _MAX_COMPARED:
        # A copy with a few words before or after it is one too.
        for key in first:
            within = next((other for other in first if other is not key and _is_within(other, key)), None)
            copies[within or key] += within is not None
    if max(copies.values()) == 1:
        return [*parts], []
    chosen = [key for key, count in copies.most_common() if count > 1 and key.count(" ") >= _MIN_BLANKS]
    repeated = set(chosen[:_MAX_REPEATED])
    alone = [[first[key]] for key in first if key in repeated]
    pairs = [[first[one], first[other]] for one, other in pairwise(first) if {one, other} <= repeated]
    return [*first.values()], alone + pairs


def _is_within(sentence: str, other: str) -> bool:
    return sentence.count(" ") >= _MIN_BLANKS and sentence in other


def _alone(encoder: Encoder, window: TokenWindow, reading: _Reading, *, data: bool, least: float) -> float:
    """Return the score of the worst sentence or field of a window by itself: harmless ones around it may hide it.

    Without the names of fields, which make an order look like a record.
    """
    parts = reading.parts[window.first : window.last + 1]
    texts = {text for part in parts for text in (part, *_FIELD_NAME.split(part)) if text}
    if len(texts) == 1:
        return least
    # The longest say most.
    chosen = sorted(texts, key=len, reverse=True)[:_MAX_ALONE]
    tokens = [encoder.tokens(text)[: MAX_TOKENS - 2] or [_UNKNOWN] for text in chosen]
    return max(encoder.instructs([_START, *each, _END], data=data, least=least) for each in tokens)


def _excerpt(encoder: Encoder, window: TokenWindow, reading: _Reading, *, data: bool) -> str:
    """Return the segment of a window that says most by itself, with the one after it."""
    parts, tokens = reading
    worst = max(
        range(window.first, window.last + 1),
        key=lambda place: encoder.instructs([_START, *tokens[place], _END], data=data, least=_WHATEVER),
    )
    return " ".join(parts[worst : worst + 2])[:_MAX_EXCERPT]
