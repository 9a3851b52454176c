"""Normal form of a text: undoes the usual ways to hide words from a reader or a filter.

Invisible characters, lookalikes, entities, inline tags, spaced letters, and encoded passages. The text is untrusted:
all patterns take time in proportion to its length.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass

from weftline.kernel.hidden_text import INVISIBLE, SELECTED_BYTES, encoded_passages, selected_bytes, unescape

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
