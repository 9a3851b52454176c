"""Texts inside a text: what invisible characters, escapes and encodings hide from a filter but not from a model.

One place for all filters: the injection gate, guardrails, labels and redaction. The text is untrusted: every pattern
takes time in proportion to its length, and the number, size and depth of decoded passages are bounded.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import zlib
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A shorter decoded text is an accident.
_MIN_DECODED = 8
# Encoded passages may hold encoded passages.
_MAX_DEPTH = 3
_MAX_PASSAGES = 64
_MAX_BYTES = 262_144
_MIN_PRINTABLE_SHARE = 0.95
_FEW_ESCAPES = 3

INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff]"
)
# Base64 and its kin have no blanks: one long word, or lines without any.
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{20,}={0,2}(?![\w+/=])")
_LINE = r"[A-Za-z0-9+/_-]{8,}={0,2}[ \t]{0,8}\r?\n"
_BASE64_LINES = re.compile(rf"(?<![^\s])(?:{_LINE}[ \t]{{0,8}})+[A-Za-z0-9+/_-]+={{0,2}}(?![^\s])")
_SHORT_LINES = re.compile(rf"(?<![^\s]){_LINE}[ \t]{{0,8}}[A-Za-z0-9+/_-]+={{0,2}}(?![^\s])")
_BASE32 = re.compile(r"(?<![\w=])[A-Z2-7]{24,}(?:\s{1,4}[A-Z2-7]{8,})*={0,6}(?![\w=])")
# With signs that neither names nor addresses have.
_BASE85 = re.compile(r"(?<!\S)(?=(?:\S{0,12}[!#$%&()*+;<=>?@^`{|}~]){3})[!-~]{20,}(?!\S)")
_HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-fA-F]{32,}|(?:\b[0-9a-fA-F]{2}[ :]){16,}(?:[0-9a-fA-F]{2}\b)?")
_NUMBERS = re.compile(r"(?<![\w.])(?:[01]?[0-9]{2}[ ,]{1,2}){11,}[01]?[0-9]{2}(?![\w.])")
_BACKSLASH = (
    r"\\x(?P<x>[0-9a-fA-F]{2})|\\u(?P<u>[0-9a-fA-F]{4})|\\u\{(?P<b>[0-9a-fA-F]{1,6})\}|\\U(?P<l>[0-9a-fA-F]{8})"
    r"|\\(?P<o>[0-3]?[0-7]{2})(?![0-9])"
)
_PERCENT = r"%(?P<p>[0-9a-fA-F]{2})"
_QUOTED = r"=(?P<q>[0-9A-F]{2})|=\r?\n"
# Each kind of escape with the character that it begins with.
_ESCAPES = {sign: re.compile(pattern) for sign, pattern in (("\\", _BACKSLASH), ("%", _PERCENT), ("=", _QUOTED))}
_ANY_ESCAPE = re.compile(f"{_BACKSLASH}|{_PERCENT}|{_QUOTED}")
_DECIMAL_LIMIT = 126
# The end of a sentence about an encoded passage.
_ENDS = ".,"


def _table(matches: Callable[[str], bool], others: str = "") -> bytes:
    """Return a table that leaves an x for each byte of a kind, and these other characters; bytes are searched fast."""
    return bytes(120 if matches(chr(code)) else code if chr(code) in others else 0 for code in range(128)) + bytes(128)


_WORDS = _table(lambda sign: sign.isalnum() or sign in "+/_-")
_SIGNS = _table(lambda sign: "!" <= sign <= "~")
_DIGITS = _table(lambda sign: sign in "0123456789abcdefABCDEF", " ,:").replace(b":", b" ").replace(b",", b" ")
_LONG_WORD = _LONG_SIGNS = b"x" * 20
_HEXADECIMAL_RUN, _HEXADECIMAL_PAIRS = b"x" * 32, b"xx " * 16
# Codes of letters have two or three digits, and a comma, a blank or both after them.
_NUMBER_RUNS = (b"xxx " * 3, b"xxx  " * 3, b"xx " * 8, b"xx  " * 8)
_SURROGATES = range(0xD800, 0xE000)
_GZIP, _ZLIB = b"\x1f\x8b", b"\x78"


class Passage(NamedTuple):
    """An encoded passage of a text, and what it says."""

    start: int
    end: int
    text: str


def unescape(text: str) -> str:
    r"""Return a text with several escapes, such as ``\x69``, ``\u0069``, ``\151``, ``%69`` or ``=69``, as they read."""
    return _ANY_ESCAPE.sub(_character, text) if _has_escapes(text) else text


def unescaped(text: str) -> tuple[str, list[int]] | None:
    """Return a text with its escapes replaced, and the place where each character begins; None if it has none."""
    if not _has_escapes(text):
        return None
    pieces: list[str] = []
    places: list[int] = []
    end = 0
    for match in _ANY_ESCAPE.finditer(text):
        character = _character(match)
        pieces += [text[end : match.start()], character]
        places += [*range(end, match.start()), *([match.start()] * len(character))]
        end = match.end()
    return "".join((*pieces, text[end:])), [*places, *range(end, len(text) + 1)]


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


def visible(text: str) -> tuple[str, list[int]]:
    """Return a text without its invisible characters, and the place of each character that is left."""
    places = [place for place, character in enumerate(text) if not INVISIBLE.match(character)]
    return "".join(text[place] for place in places), places


def _passages(text: str, room: list[int]) -> Iterator[Passage]:
    """Yield what the passages of one level say, while there is room for more: their number and their bytes."""
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
    if _HEXADECIMAL_RUN in digits or _HEXADECIMAL_PAIRS in digits:
        yield _HEXADECIMAL, (_from_hexadecimal,)
    if any(run in digits for run in _NUMBER_RUNS):
        yield _NUMBERS, (_from_octal, _from_decimal)


def _readable(decode: Callable[[str], bytes], encoded: str, room: list[int]) -> str | None:
    try:
        content = decode(encoded)
        if content.startswith((_GZIP, _ZLIB)):
            # An x begins some texts as well as compressed content.
            with suppress(zlib.error):
                content = _inflated(content, room[1])
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


def _from_hexadecimal(encoded: str) -> bytes:
    return bytes.fromhex(re.sub(r"^0x|[ :]", "", encoded))


def _from_octal(encoded: str) -> bytes:
    return bytes(int(number, 8) for number in _numbers(encoded))


def _from_decimal(encoded: str) -> bytes:
    numbers = [int(number) for number in _numbers(encoded)]
    if max(numbers) > _DECIMAL_LIMIT:
        raise ValueError
    return bytes(numbers)


def _numbers(encoded: str) -> list[str]:
    return encoded.replace(",", " ").split()


def _character(match: re.Match[str]) -> str:
    """Return the character of an escape; a break in the middle of a line, of quoted-printable text, is none."""
    if match.lastgroup is None:
        return ""
    code = int(match[match.lastgroup], 8 if match.lastgroup == "o" else 16)
    # Half of a surrogate pair is no character.
    return match[0] if code > sys.maxunicode or code in _SURROGATES else chr(code)


def _has_escapes(text: str) -> bool:
    """Tell whether a text has several escapes of one kind."""
    return any(
        text.count(sign) >= _FEW_ESCAPES and len([*islice(pattern.finditer(text), _FEW_ESCAPES)]) == _FEW_ESCAPES
        for sign, pattern in _ESCAPES.items()
    )


_STANDARD_ALPHABET = str.maketrans("-_", "+/")
