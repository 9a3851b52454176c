"""Extractive reduction: the target is met, and what is left is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weftline.kernel.ports import approximate_tokens
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.windows.compaction.reduction.reducer import Utterance, reduce_texts
from weftline.windows.compaction.reduction.units import split

if TYPE_CHECKING:
    from weftline.kernel.ports import TokenCounter

_O200K = TokenizerRegistry().named("o200k_base")
_TALK = [
    Utterance("Project Manager", "Um so okay, well, the remote control should cost twenty five euros, not fifty."),
    Utterance("Marketing", "Mm-hmm."),
    Utterance("Marketing", "Yeah. Do we really want the rubber case in yellow?"),
    Utterance("Project Manager", "No, we don't want yellow. The case will be made of titanium by Friday."),
]


def _tokens(texts: list[Utterance]) -> int:
    return _O200K("\n".join(f"{each.speaker}: {each.text}" for each in texts))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.8])
@pytest.mark.parametrize("count", [_O200K, approximate_tokens])
def test_a_reduction_fills_its_target_and_never_exceeds_it(share: float, count: TokenCounter) -> None:
    """A long talk comes within two percent below the target."""
    talk = [
        Utterance(f"Speaker {n % 3}", f"Item {n} weighs {n} kg and belongs to box {n % 7}, you know.")
        for n in range(400)
    ]
    target = int(share * count("\n".join(f"{each.speaker}: {each.text}" for each in talk)))
    reduced = reduce_texts(talk, target, [], count)
    assert reduced.tokens == count(reduced.text)
    assert 0.98 * target <= reduced.tokens <= target


def test_fillers_go_first_and_the_speaker_stays() -> None:
    """Backchannels are dropped; what was said stays with who said it."""
    reduced = reduce_texts(_TALK, int(0.55 * _tokens(_TALK)), [], _O200K)
    lines = reduced.text.splitlines()
    assert reduced.losses == {("Marketing", "sentences"): 2}, "Mm-hmm and Yeah"
    assert "Um" not in reduced.text
    manager = next(line for line in lines if "titanium" in line)
    assert manager.startswith("Project Manager:")
    assert any(line.startswith("Marketing:") and line.endswith("?") for line in lines)


def test_negations_and_quantities_stay_with_what_they_apply_to() -> None:
    """Whatever the target, a kept verb keeps its negation, and a number its unit."""
    for share in range(20, 100, 5):
        text = reduce_texts(_TALK, _tokens(_TALK) * share // 100, [], _O200K).text.lower()
        assert "fifty" not in text or "not fifty" in text
        assert "want yellow" not in text or "don't want yellow" in text
        assert ("twenty" in text) == ("twenty five euros" in text)


def test_protected_strings_stay_as_they_are() -> None:
    """A protected string stays, shorter if it needs much of the room; one that cannot fit is reported."""
    sentence = "The case will be made of titanium"
    assert sentence in reduce_texts(_TALK, int(0.6 * _tokens(_TALK)), [sentence], _O200K).text
    assert "Case made titanium" in reduce_texts(_TALK, int(0.4 * _tokens(_TALK)), [sentence], _O200K).text
    assert reduce_texts(_TALK, 2, [sentence], _O200K).missing == [sentence]


@pytest.mark.req("CE-F5")
def test_strings_that_matter_most_stay_whole() -> None:
    """Where protected strings need much of the room, the first stay as they were said; later ones are shortened."""
    rule = "Paint drums stay out of dock three as long as hot work is going on."
    small_talk = [
        f"It was the {each} of the days on which we were at the harbour." for each in ("best", "worst", "last")
    ]
    talk = [Utterance("Ines", " ".join((*small_talk, rule))), *_TALK]
    target = int(0.6 * _tokens(talk))
    text = reduce_texts(talk, target, [rule, *small_talk], _O200K).text
    assert rule.rstrip(".") in text
    assert small_talk[-1].rstrip(".") not in text
    shortened = reduce_texts(talk, int(0.4 * _tokens(talk)), [rule], _O200K).text
    assert rule.rstrip(".") not in shortened
    assert "stay out dock three" in shortened


def test_code_is_kept_or_dropped_by_lines() -> None:
    """Lines of code are never shortened word by word."""
    code = "Here is the function that you asked for:\n```python\ndef total(items):\n    return sum(items)\n```"
    texts = [Utterance("assistant", code), *_TALK]
    for share in range(10, 100, 10):
        for line in reduce_texts(texts, _tokens(texts) * share // 100, [], _O200K).text.splitlines():
            assert "return" not in line or line == "    return sum(items)"


def test_unspaced_scripts_are_reduced_by_sentences() -> None:
    """Chinese has no spaces: whole sentences stay."""
    text = "我们决定使用钛。今天天气很好。截止日期是星期五。谢谢你。"
    reduced = reduce_texts([Utterance("user", text)], _O200K(text) // 2 + 4, [], _O200K).text
    kept = [part for part in text.split("。") if part and part in reduced]
    assert kept
    assert reduced.removeprefix("user:") == "".join(f"{part}。" for part in kept)


@pytest.mark.parametrize("texts", [[], [Utterance("user", "")], [Utterance("user", "... !!")]])
def test_nothing_reduces_to_nothing(texts: list[Utterance]) -> None:
    """Empty and wordless talks give an empty text."""
    reduced = reduce_texts(texts, 100, [], _O200K)
    assert (reduced.text, reduced.tokens) == ("", 0)


def test_another_language_keeps_its_content_and_negations() -> None:
    """German has its lists; in a language without one, common short words are its function words."""
    german = "Wir haben uns das noch einmal angesehen und wir werden die Datenbank nicht am Freitag umziehen. " * 6
    text = reduce_texts([Utterance("user", german)], _O200K(german) // 3, [], _O200K).text
    assert "Datenbank nicht" in text
    assert " und " not in text
    polish = " ".join(f"Faktura {n} jest na pewno w skrzyni numer {n}, nie w piwnicy na kwas." for n in range(30))
    text = reduce_texts([Utterance("user", polish)], _O200K(polish) // 2, [], _O200K).text
    assert "skrzyni" in text
    assert text.count(" w ") < polish.count(" w ") / 2


def test_a_label_stays_with_what_is_said_under_it() -> None:
    notes = [
        Utterance("user", "Probiotics\u2014help with digestion, take them in the morning with a large glass of water."),
        Utterance("user", "Daycare: The monthly payment is due on Friday, and bring an extra set of clothes, please."),
    ]
    for share in (0.3, 0.4, 0.5, 0.6):
        text = reduce_texts(notes, int(share * _tokens(notes)), [], _O200K).text
        assert not any(word in text for word in ("igestion", "morning", "glass", "water")) or "Probiotics" in text
        assert not any(word in text for word in ("ayment", "Friday", "lothes")) or "Daycare" in text
        assert "Probiotics" in text or "Daycare" in text


def test_a_dash_ends_a_clause() -> None:
    units = split([Utterance("user", "It does not matter\u2014the titanium hull")], _O200K)
    words = [units.forms[form].key for form in units.form.tolist()]
    assert words == ["it", "does", "not", "matter", "the", "titanium", "hull"]
    assert len({*units.clause.tolist()}) == 2
    assert units.clause[2] == units.clause[3] != units.clause[4]
