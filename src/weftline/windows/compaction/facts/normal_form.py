"""Forms in which a text is searched for facts.

The plain form keeps case and numbers and undoes typography: Unicode forms, quotation marks, dashes, markdown, white
space. The normal form also folds case and writes numbers, quantities and dates in one way.
"""

from __future__ import annotations

import re
import unicodedata

from weftline.windows.compaction.facts.values import normal_values

_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe00-\ufe0f]")
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        # A dash between clauses joins no words.
        "\u2014": " - ",
        "\u2026": "...",
    }
)
# Emphasis and code; headings, quotations, list marks and table borders.
_EMPHASIS = re.compile(r"(?=[`*_])(?:`{1,3}|(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w))")
_BLOCK_MARK = re.compile(r"^[ \t]{0,20}(?:#{1,6}[ ]|>[ ]?|[-+*\u2022][ ](?:\[[ xX]\][ ])?)|\|", re.MULTILINE)

# A text without any of these characters has none of those.
_MARKDOWN = re.compile(r"[`*_#>|+\u2022-]")


def plain_form(text: str) -> str:
    """Return a text without typography and markdown; case, numbers and lines stay."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_TYPOGRAPHY)
    if _MARKDOWN.search(text) is not None:
        text = _EMPHASIS.sub("", _BLOCK_MARK.sub(" ", text))
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))


def normal_form(text: str) -> str:
    """Return the form in which statements are compared."""
    return "\n".join(map(normal_values, plain_form(text).split("\n"))).casefold()


def normal_line(text: str) -> str:
    """Return the normal form of a text as one line."""
    return one_line(normal_form(text))


def one_line(text: str) -> str:
    """Return a text with all its white space as single spaces."""
    return " ".join(text.split())
