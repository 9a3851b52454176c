"""Sentences of a summary that say the opposite of their source, or what is not in it."""

from __future__ import annotations

import pytest

from weftline.windows.compaction.verification import check_sentences

SOURCE = """\
user: We decided to use PostgreSQL for the journal. Never deploy the billing service on a Friday.
assistant: I moved the export into src/export.py and asked Grace to review it, because the old one was too slow.
user: The export must not send personal data to the warehouse, but it may send totals.
assistant: Should the nightly report include the refunds?
"""


@pytest.mark.parametrize(
    "sentence",
    [
        "They use PostgreSQL for the journal.",
        "The billing service is never deployed on a Friday.",
        "The billing service must not be deployed on a Friday.",
        "Grace was asked to review the export.",
        "The export may send totals to the warehouse.",
        "It is open whether the nightly report should include the refunds.",
        "Should the nightly report not include the refunds?",
        "The team decided on PostgreSQL.",
    ],
)
def test_faithful_sentences_stay(sentence: str) -> None:
    assert check_sentences(sentence, SOURCE) == (sentence, 1, 0, 0)


@pytest.mark.parametrize(
    "sentence",
    [
        "They decided not to use PostgreSQL for the journal.",
        "They decided against PostgreSQL for the journal.",
        "Deploy the billing service on a Friday.",
        "The export must send personal data to the warehouse.",
    ],
)
def test_the_opposite_is_left_out(sentence: str) -> None:
    assert check_sentences(f"Grace was asked to review the export. {sentence}", SOURCE) == (
        "Grace was asked to review the export.",
        2,
        1,
        0,
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "The export will be reviewed by Margarethe.",
        "The marketing department hired photographers for an autumn brochure.",
    ],
)
def test_what_the_source_does_not_say_is_left_out(sentence: str) -> None:
    assert check_sentences(f"They use PostgreSQL for the journal.\n{sentence}", SOURCE) == (
        "They use PostgreSQL for the journal.",
        2,
        0,
        1,
    )


def test_a_source_that_says_both_supports_both() -> None:
    source = f"{SOURCE}\nuser: We decided not to use PostgreSQL for the journal after all."
    for sentence in ("They use PostgreSQL for the journal.", "They do not use PostgreSQL for the journal."):
        assert check_sentences(sentence, source).left_out == 0


def test_german_nouns_are_not_taken_for_names() -> None:
    source = "user: Wir haben beschlossen, die Datenbank nicht am Freitag zu wechseln."
    text = "Der Wechsel der Datenbank am Freitag wurde von der Gruppe nicht beschlossen."
    assert check_sentences(text, source).left_out == 0
    assert check_sentences("Wir haben beschlossen, die Datenbank am Freitag zu wechseln.", source).negated == 1
