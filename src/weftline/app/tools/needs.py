"""What agents want when they need a tool, in everyday words: the tool search ranks these beside the descriptions.

Descriptions use the product's nouns (board, window, domain); those who ask do not know them yet. Each tool, or action
of a grouped tool, has a few short phrases that name the need with other words than its description does. Synonyms are
everyday words for the nouns; a text that uses the noun is found by them too.
"""

from __future__ import annotations

from typing import TypedDict

from weftline.kernel.data_files import JsonFile


class EverydayWords(TypedDict):
    """Words for each noun of the product, and phrases for each tool."""

    synonyms: dict[str, str]
    needs: dict[str, list[str]]


everyday_words = JsonFile("app/tools/needs.json", EverydayWords)


def synonyms_of(text: str) -> str:
    """Return the synonyms of the nouns in a text."""
    words = text.lower()
    return " ".join(synonyms for noun, synonyms in everyday_words()["synonyms"].items() if noun in words)
