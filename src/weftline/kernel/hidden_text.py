"""Texts inside a text: what invisible characters, escapes and encodings hide from a filter but not from a model.

One place for all filters: the injection gate, guardrails, labels and redaction. The text is untrusted: every pattern
takes time in proportion to its length, and the number, size and depth of decoded passages are bounded.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import unicodedata
import zlib
from contextlib import suppress
from itertools import islice, product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# A shorter decoded text is an accident.
_MIN_DECODED = 8
# Encoded passages may hold encoded passages.
_MAX_DEPTH = 3
_MAX_PASSAGES = 64
_MAX_BYTES = 262_144
_MIN_PRINTABLE_SHARE = 0.95
_FEW_ESCAPES = 3

_UNSEEN = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\U000e0100-\U000e01ef"
)
INVISIBLE = re.compile(f"[{_UNSEEN}]")
# Each stands for a byte where many follow each other; one changes how the character before it looks.
SELECTED_BYTES = re.compile(r"[\ufe00-\ufe0f\U000e0100-\U000e01ef]{8,}")
_STROKES = r"\u0300-\u036f\u0489\u20d0-\u20f0"
# Letters that only look different: full width, mathematical, in circles, and tags.
_DISGUISED = re.compile(
    rf"{SELECTED_BYTES.pattern}|[{_UNSEEN}{_STROKES}\u2460-\u24ff\uff01-\uff5e"
    r"\U0001d400-\U0001d7ff\U0001f130-\U0001f189\U000e0020-\U000e007e]"
)
_NOTHING = re.compile(f"[{_UNSEEN}{_STROKES}]")
_FIRST_TAG, _FIRST_SELECTOR = 0xE0000, 0xE0100
# Base64 and its kin have no blanks: one long word, or lines without any.
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{20,}={0,2}(?![\w+/=])")
_LINE = r"[A-Za-z0-9+/_-]{8,}={0,2}[ \t]{0,8}\r?\n"
_BASE64_LINES = re.compile(rf"(?<![^\s])(?:{_LINE}[ \t]{{0,8}})+[A-Za-z0-9+/_-]+={{0,2}}(?![^\s])")
_SHORT_LINES = re.compile(rf"(?<![^\s]){_LINE}[ \t]{{0,8}}[A-Za-z0-9+/_-]+={{0,2}}(?![^\s])")
_BASE32 = re.compile(r"(?<![\w=])[A-Z2-7]{24,}(?:\s{1,4}[A-Z2-7]{8,})*={0,6}(?![\w=])")
# With signs that neither names nor addresses have.
_BASE85 = re.compile(r"(?<!\S)(?=(?:[^\s!#$%&()*+;<=>?@^`{|}~]{0,40}[!#$%&()*+;<=>?@^`{|}~]){3})[!-~]{20,}(?!\S)")
# Lines that begin with the number of their bytes, as a letter.
_UUENCODED = re.compile(r"(?<!\S)begin [0-7]{3,4} [^\n]{1,100}\n(?:[ -`]{1,61}\r?\n){1,5000}")
_HEXADECIMAL = re.compile(
    r"(?:0x)?[0-9a-fA-F]{32,}|(?:\b(?:0x)?[0-9a-fA-F]{2}[ :,;\n-]{1,2}){16,}(?:(?:0x)?[0-9a-fA-F]{2}\b)?"
)
_NUMBERS = re.compile(r"(?<![\w.])(?:[01]?[0-9]{2}[ ,;\n]{1,2}){11,}[01]?[0-9]{2}(?![\w.])")
_BINARY = re.compile(r"(?<!\d)(?:[01]{8}[ ,;\n]{0,2}){8,}(?!\d)")
# Words of one length, such as the lines of a quoted or listed passage, or its groups of four.
_PIECE = re.compile(r"[A-Za-z0-9+/_-]{4,}={0,2}")
_BETWEEN_PIECES = re.compile(r"[\s>\"'+,|*;.\\-]{1,8}")
_LAST_PIECE = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
# What encoded words have, and few others: many digits, digits beside letters, and capitals inside.
_MIXED = re.compile(r"[0-9]{6}|[0-9][A-Za-z]|[A-Za-z][0-9]|[a-z][A-Z]")
_FEW_MIXED = 3
_MIN_LINE, _MIN_IN_PIECES = 16, 24
_MAX_SKIPPED = 2
_BACKSLASH = (
    r"\\{1,2}(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|u\{(?P<b>[0-9a-fA-F]{1,6})\}|U(?P<l>[0-9a-fA-F]{8})"
    r"|(?P<o>[0-3]?[0-7]{2})(?![0-9]))"
)
_PERCENT = r"%(?P<p>[0-9a-fA-F]{2})"
# In lower case only next to another one: `key=face` is none.
_QUOTED = r"=(?P<q>[0-9A-F]{2})|=(?P<a>[0-9a-f]{2})(?==[0-9a-f]{2})|(?<==[0-9a-f]{2})=(?P<z>[0-9a-f]{2})|=\r?\n"
_ENTITY = r"&#(?P<d>[0-9]{1,7});?|&#[xX](?P<h>[0-9a-fA-F]{1,6});?"
_CODE_POINT = r"U\+(?P<n>[0-9a-fA-F]{4,6})[ ,]?"
# Each kind of escape with the character that it begins with.
_KINDS = {"\\": _BACKSLASH, "%": _PERCENT, "=": _QUOTED, "&": _ENTITY, "U": _CODE_POINT}
_ESCAPES = {sign: re.compile(pattern) for sign, pattern in _KINDS.items()}
_ANY_ESCAPE = re.compile("|".join(_KINDS.values()))
_BASES = {"o": 8, "d": 10}
# Characters with the same separator between each two, as `k.e.y` has; and how a run of them looks, cheaply.
_SPACED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]([ .\-_*/|,\t\n\u00a0\u00b7])(?:[^\s]\1){10,}[^\s](?![A-Za-z0-9])")
# Marks that are not shown, and ends of quoted parts, in the middle of a word. Single tags only: cells are separate.
_MARKS = re.compile(
    r"[*`<\"'\\](?<=[A-Za-z0-9_@-].)(?:(?<=\*)\*{0,2}|(?<=`)`{0,2}|(?<=<)/?(?:b|i|u|s|em|strong|span|code|wbr)>|"
    r"(?<=[\"'])\s{0,8}[+.]?\s{0,8}[\"']|(?<=\\)\r?\n[ \t]{0,40})(?=[A-Za-z0-9_@-])"
)
_DECIMAL_LIMIT = 126
# The end of a sentence about an encoded passage.
_ENDS = ".,"


def _table(matches: Callable[[str], bool], others: str = "") -> bytes:
    """Return a table that leaves an x for each byte of a kind, and these other characters; bytes are searched fast."""
    return bytes(120 if matches(chr(code)) else code if chr(code) in others else 0 for code in range(128)) + bytes(128)


_WORDS = _table(lambda sign: sign.isalnum() or sign in "+/_-")
_SIGNS = _table(lambda sign: "!" <= sign <= "~")
_DIGITS = _table(lambda sign: sign in "0123456789abcdefABCDEF", " ,:;-\n").translate(
    bytes(32 if chr(code) in ",:;-\n" else code for code in range(256))
)
_ALTERNATING = bytes(32 if chr(code) in " .-_*/|,\t\n\u00a0\u00b7" else 120 for code in range(256))
_SPACED_RUN = b"x " * 5
_LONG_WORD = _LONG_SIGNS = b"x" * 20
_HEXADECIMAL_RUNS = (b"x" * 32, b"xx " * 16, b"xx  " * 16, b"x\0xx " * 8, b"x\0xx  " * 8)
_BINARY_RUNS = (b"x" * 64, b"xxxxxxxx " * 8, b"xxxxxxxx  " * 8)
# Codes of letters have two or three digits, and a comma, a blank or both after them.
_NUMBER_RUNS = (b"xxx " * 3, b"xxx  " * 3, b"xx " * 8, b"xx  " * 8)
_SURROGATES = range(0xD800, 0xE000)
_GZIP, _ZLIB = b"\x1f\x8b", b"\x78"


class Passage(NamedTuple):
    """An encoded passage of a text, and what it says."""

    start: int
    end: int
    text: str


class Reading(NamedTuple):
    """What a text says when some of what hides it is undone; for each character and the end, its place in the text."""

    text: str
    places: Sequence[int]

    def of(self, outer: Reading) -> Reading:
        """Return this reading of another one's text with places in the text that the other one reads."""
        return Reading(self.text, [outer.places[place] for place in self.places])


def unescape(text: str) -> str:
    r"""Return a text with several escapes, such as ``\x69``, ``\u0069``, ``\151``, ``%69`` or ``=69``, as they read."""
    for _ in range(_MAX_DEPTH):
        if not _has_escapes(text):
            break
        text = _ANY_ESCAPE.sub(_character, text)
    return text


def readings(text: str) -> Iterator[Reading]:
    """Yield a text, and what it says without disguises, escapes, marks and spacing, each undone on top of others."""
    reading = Reading(text, range(len(text) + 1))
    yield reading
    for _ in range(_MAX_DEPTH):
        before = reading
        for undo in (_undisguised, _unescaped, _unmarked, _unspaced):
            undone = undo(reading.text)
            reading = reading if undone is None else undone.of(reading)
        if reading is before:
            return
        yield reading


def _unescaped(text: str) -> Reading | None:
    return _replaced(text, _ANY_ESCAPE, _character) if _has_escapes(text) else None


def _undisguised(text: str) -> Reading | None:
    return None if text.isascii() or not _DISGUISED.search(text) else _replaced(text, _DISGUISED, _plain_letter)


def _unmarked(text: str) -> Reading | None:
    return _replaced(text, _MARKS, lambda _: "") if _MARKS.search(text) else None


def _unspaced(text: str) -> Reading | None:
    """Return a text whose words have no separators between their letters; None if it has no such words."""
    if _SPACED_RUN not in text.encode("latin-1", "replace").translate(_ALTERNATING):
        return None
    pieces: list[str] = []
    places: list[int] = []
    end = 0
    for match in _SPACED.finditer(text):
        letters = match[0][::2]
        if any(letter.isalpha() for letter in letters):
            pieces += [text[end : match.start()], letters]
            places += [*range(end, match.start()), *range(match.start(), match.end(), 2)]
            end = match.end()
    return Reading("".join((*pieces, text[end:])), [*places, *range(end, len(text) + 1)]) if pieces else None


def _replaced(text: str, pattern: re.Pattern[str], by: Callable[[re.Match[str]], str]) -> Reading:
    pieces: list[str] = []
    places: list[int] = []
    end = 0
    for match in pattern.finditer(text):
        new = by(match)
        pieces += [text[end : match.start()], new]
        letters = range(*match.span()) if len(new) == len(match[0]) else [match.start()] * len(new)
        places += [*range(end, match.start()), *letters]
        end = match.end()
    return Reading("".join((*pieces, text[end:])), [*places, *range(end, len(text) + 1)])


def selected_bytes(selectors: str) -> bytes:
    """Return the bytes that variation selectors stand for."""
    codes = (ord(selector) for selector in selectors)
    return bytes(code - 0xFE00 if code < _FIRST_SELECTOR else code - _FIRST_SELECTOR + 16 for code in codes)


def _plain_letter(match: re.Match[str]) -> str:
    sign = match[0]
    if len(sign) > 1:
        # A letter for each selector, so that each has its place.
        return selected_bytes(sign).decode("latin-1")
    if ord(sign) - _FIRST_TAG in range(0x20, 0x7F):
        return chr(ord(sign) - _FIRST_TAG)
    if _NOTHING.match(sign):
        return ""
    return unicodedata.normalize("NFKC", sign)


def encoded_passages(text: str) -> list[Passage]:
    """Return the encoded passages of a text with what they say; passages inside them are decoded too."""
    found: list[Passage] = []
    room = [_MAX_PASSAGES, _MAX_BYTES]
    for passage in _passages(text, room):
        level = [passage.text]
        found.append(passage)
        for _ in range(_MAX_DEPTH - 1):
            level = [inner.text for outer in level for inner in _passages(outer, room)]
            found += [passage._replace(text=inner) for inner in level]
    return found


def _passages(text: str, room: list[int]) -> Iterator[Passage]:
    """Yield what the passages of one level say, while there is room for more: their number and their bytes."""
    for start, end, pieces in _split_passages(text):
        if sum(map(len, pieces)) < _MIN_IN_PIECES or not _MIXED.search("".join(pieces)):
            continue
        for skipped, decode in product(range(_MAX_SKIPPED + 1), _OF_PIECES):
            decoded = _readable(decode, "".join(pieces[skipped:]), room) if min(room) > 0 else None
            if decoded is not None:
                room[0] -= 1
                yield Passage(start, end, decoded)
                break
    for pattern, decoders in _decoders(text):
        for match in pattern.finditer(text):
            if room[0] <= 0 or room[1] <= 0:
                return
            encoded = _without_next_word(match[0]) if pattern is _BASE64_LINES else match[0]
            for decode in decoders:
                decoded = _readable(decode, encoded, room)
                if decoded is not None:
                    # Only what says something counts: long names in code would use up the room.
                    room[0] -= 1
                    yield Passage(match.start(), match.start() + len(encoded), decoded)
                    break


def _split_passages(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the words of one length that follow each other: perhaps parts of one passage."""
    if len([*islice(_MIXED.finditer(text), _FEW_MIXED)]) < _FEW_MIXED:
        return
    run: list[re.Match[str]] = []
    for match in _PIECE.finditer(text):
        if run and len(match[0]) == len(run[0][0]) and _BETWEEN_PIECES.fullmatch(text, run[-1].end(), match.start()):
            run.append(match)
            continue
        yield from _run_of(run, text)
        run = [match]
    yield from _run_of(run, text)


def _run_of(run: list[re.Match[str]], text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the words, and with the next one if that is no longer: the end of the passage, or of what follows it."""
    if not run or (len(run) == 1 and len(run[0][0]) < _MIN_LINE):
        return
    pieces = [piece[0] for piece in run]
    gap = _BETWEEN_PIECES.match(text, run[-1].end())
    last = _LAST_PIECE.match(text, gap.end()) if gap else None
    length = sum(map(len, pieces))
    # A passage that is whole without the next word has ended.
    if last is not None and len(last[0]) <= len(pieces[0]) and (length % 4 or not len(last[0]) % 4):
        yield run[0].start(), last.end(), [*pieces, last[0]]
    yield run[0].start(), run[-1].end(), pieces


def _without_next_word(lines: str) -> str:
    """Return lines of base64 without the last one if it is the first word of what follows: then they are whole."""
    whole, before = (len("".join(each.split())) for each in (lines, lines.rpartition("\n")[0]))
    return lines.rpartition("\n")[0] if whole % 4 and not before % 4 else lines


def _decoders(text: str) -> Iterator[tuple[re.Pattern[str], tuple[Callable[[str], bytes], ...]]]:
    """Yield the patterns that can be in a text, with what decodes their matches; cheap checks come first."""
    encoded = text.encode("utf-8", "surrogatepass")
    words, digits = encoded.translate(_WORDS), encoded.translate(_DIGITS)
    if "\n" in text and _SHORT_LINES.search(text):
        yield _BASE64_LINES, (_from_base64,)
    if _LONG_WORD in words:
        yield _BASE64, (_from_base64,)
        yield _BASE32, (_from_base32,)
    if _LONG_SIGNS in encoded.translate(_SIGNS):
        yield _BASE85, (_from_ascii85, _from_base85)
    if b"begin " in encoded:
        yield _UUENCODED, (_from_uuencoded,)
    if any(run in digits for run in _HEXADECIMAL_RUNS):
        yield _HEXADECIMAL, (_from_hexadecimal,)
    if any(run in digits for run in _BINARY_RUNS):
        yield _BINARY, (_from_binary,)
    if any(run in digits for run in _NUMBER_RUNS):
        yield _NUMBERS, (_from_octal, _from_decimal)


def _readable(decode: Callable[[str], bytes], encoded: str, room: list[int]) -> str | None:
    try:
        content = decode(encoded)
        if content.startswith((_GZIP, _ZLIB)):
            # An x begins some texts as well as compressed content.
            with suppress(zlib.error):
                content = _inflated(content, room[1])
        # A text of Latin letters in 16 bits each.
        content = content.replace(b"\0", b"") if 2 * content.count(0) >= len(content) - 2 else content
        text = content.decode(errors="ignore" if len(content) >= room[1] else "strict")
    except (binascii.Error, ValueError, OverflowError):
        return None
    room[1] -= len(content)
    printable = sum(character.isprintable() or character.isspace() for character in text)
    return text if len(text) >= _MIN_DECODED and printable >= _MIN_PRINTABLE_SHARE * len(text) else None


def _inflated(content: bytes, limit: int) -> bytes:
    """Return the beginning of compressed content, within a limit."""
    return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(content, max(1, limit))


def _from_base64(encoded: str) -> bytes:
    joined = "".join(encoded.split()).rstrip("=").translate(_STANDARD_ALPHABET)
    if len(joined) < 2 * _MIN_DECODED:
        raise ValueError
    return base64.b64decode(joined + "=" * (-len(joined) % 4), validate=True)


def _from_base32(encoded: str) -> bytes:
    joined = "".join(encoded.split()).rstrip("=")
    return base64.b32decode(joined + "=" * (-len(joined) % 8))


def _from_ascii85(encoded: str) -> bytes:
    return base64.a85decode(encoded.rstrip(_ENDS).removeprefix("<~").removesuffix("~>"))


def _from_base85(encoded: str) -> bytes:
    return base64.b85decode(encoded.rstrip(_ENDS))


def _from_uuencoded(encoded: str) -> bytes:
    return b"".join(binascii.a2b_uu(line) for line in encoded.splitlines()[1:] if line)


def _from_hexadecimal(encoded: str) -> bytes:
    return bytes.fromhex(re.sub(r"0x|[^0-9a-fA-F]", "", encoded))


def _from_binary(encoded: str) -> bytes:
    digits = re.sub(r"[^01]", "", encoded)
    return bytes(int(digits[start : start + 8], 2) for start in range(0, len(digits), 8))


def _from_octal(encoded: str) -> bytes:
    return bytes(int(number, 8) for number in _numbers(encoded))


def _from_decimal(encoded: str) -> bytes:
    numbers = [int(number) for number in _numbers(encoded)]
    if max(numbers) > _DECIMAL_LIMIT:
        raise ValueError
    return bytes(numbers)


def _numbers(encoded: str) -> list[str]:
    return encoded.replace(",", " ").replace(";", " ").split()


def _character(match: re.Match[str]) -> str:
    """Return the character of an escape; a break in the middle of a line, of quoted-printable text, is none."""
    if match.lastgroup is None:
        return ""
    code = int(match[match.lastgroup], _BASES.get(match.lastgroup, 16))
    # Half of a surrogate pair is no character.
    return match[0] if code > sys.maxunicode or code in _SURROGATES else chr(code)


def _has_escapes(text: str) -> bool:
    """Tell whether a text has several escapes of one kind."""
    return any(
        text.count(sign) >= _FEW_ESCAPES and len([*islice(pattern.finditer(text), _FEW_ESCAPES)]) == _FEW_ESCAPES
        for sign, pattern in _ESCAPES.items()
    )


_STANDARD_ALPHABET = str.maketrans("-_", "+/")
_OF_PIECES: tuple[Callable[[str], bytes], ...] = (_from_base64, _from_base32, bytes.fromhex)
