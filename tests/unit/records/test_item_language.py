"""The language of a text."""

from __future__ import annotations

import pytest

from weftline.records.engine_metadata import language_of

pytestmark = pytest.mark.req("AC-04")
TEXTS = {
    "The ferry leaves from the east pier and arrives before noon.": "en",
    "Die Fähre legt vom Ostkai ab und ist vor Mittag nicht da.": "de",
    "Le bac part du quai est et arrive avant midi pour les passagers.": "fr",
    "El barco sale del muelle y llega por la tarde con los pasajeros.": "es",
    "Il traghetto parte dal molo e non arriva prima di sera per il vento.": "it",
    "Färjan går från kajen och det är inte säkert att den kommer till kvällen.": "sv",
    "De boot vertrekt van de kade en komt niet voor de avond aan.": "nl",
    "渡し船は朝に出ます。": "ja",
    "渡船早上從碼頭出發。": "zh",
    "배는 아침에 떠납니다.": "ko",
    "Пором відпливає вранці і повертається ввечері.": "uk",  # noqa: RUF001 - its own script
    "Το πλοίο φεύγει το πρωί.": "el",  # noqa: RUF001 - its own script
    "4711": "und",
    "": "und",
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_language_of_a_text_is_told_by_its_script_and_small_words(text: str) -> None:
    assert language_of(text) == TEXTS[text]
