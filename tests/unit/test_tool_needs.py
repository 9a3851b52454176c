"""Phrases by which the tool search finds tools, and how well it does."""

from __future__ import annotations

from weftline.app.registry import all_operations
from weftline.app.tools.catalogue import everyday_words, synonyms_of
from weftline.app.tools.toolbox import WEFTLINE_TOOLS, entry_name


def test_every_tool_and_action_has_phrases_of_its_own() -> None:
    names = {entry_name(operation) for operation in all_operations() if operation.tool != WEFTLINE_TOOLS}
    assert everyday_words()["needs"].keys() == names
    phrases = [phrase for given in everyday_words()["needs"].values() for phrase in given]
    assert len(phrases) == len(set(phrases))
    assert all(0 < len(phrase) <= 100 for phrase in phrases)


def test_synonyms_are_those_of_the_nouns_in_a_text() -> None:
    assert synonyms_of("Delete the Session") == everyday_words()["synonyms"]["session"]
    assert synonyms_of("Unrelated") == ""
