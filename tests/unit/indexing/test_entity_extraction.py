"""Entities of a text, by rules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from support.full_run import FULL
from support.processor_time import at_most
from weftline.indexing.entities import (
    MAX_ENTITIES,
    MAX_VALUE_LENGTH,
    entity_index_terms,
    extract_entities,
    filter_term,
    pack_entities,
    query_entity_terms,
    unpack_entities,
)
from weftline.indexing.text_analysis import terms
from weftline.kernel.clock import to_micros

# A Tuesday.
NOW = to_micros(datetime(2025, 4, 15, 12, tzinfo=UTC))


def found(text: str, **options: object) -> list[str]:
    return [str(entity) for entity in extract_entities(text, timestamp=NOW, **options)]  # type: ignore[arg-type]


@pytest.mark.req("CE-F14")
@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("Ada said it works.", ["person:Ada"]),
        ("Please ask Priya Patel and Dr. Johansson.", ["person:Priya Patel", "person:Johansson"]),
        ("@keiko can you look?", ["person:keiko"]),
        ("Ada's notes mention Project Atlas.", ["person:Ada", "project:Atlas"]),
        ("We moved the Blue Harbor project to May.", ["project:Blue Harbor"]),
        ("subagent:review:r1 asked human:ada", ["agent:subagent:review:r1", "person:ada"]),
        ("Frau Keller prüft das Projekt Nordlicht.", ["person:Keller", "project:Nordlicht"]),
        (
            "See src/app.py:42, README.md and C:\\logs\\run.txt",
            ["file:src/app.py", "file:README.md", "file:C:\\logs\\run.txt"],
        ),
        ('{"path": "src/app.py", "mode": "w"}', ["file:src/app.py"]),
        (
            "ABC-123 broke `parse_query` in v1.2.3",
            ["identifier:parse_query", "identifier:ABC-123", "identifier:v1.2.3"],
        ),
        ("commit 3f2a1bc closes #412", ["identifier:3f2a1bc", "identifier:#412"]),
        ("550e8400-e29b-41d4-a716-446655440000", ["identifier:550e8400-e29b-41d4-a716-446655440000"]),
        ("mail Bob@Example.org", ["email:bob@example.org"]),
        ("https://u:secret@Example.com/a?b=c.", ["url:https://example.com/a?b=c"]),
        (
            "请看 src/main.py 和 ABC-42\uff0c2024年5月6日开会。",
            ["file:src/main.py", "identifier:ABC-42", "date:2024-05-06"],
        ),
        ("met on 2024-05-06 and May 7, 2024", ["date:2024-05-06", "date:2024-05-07"]),
        ("due next Friday, started three days ago", ["date:2025-04-18", "date:2025-04-12"]),
        ("yesterday, last week, 6. Mai", ["date:2025-04-14", "date:2025-W15", "date:2025-05-06"]),
    ],
)
def test_entities_are_found(text: str, entities: list[str]) -> None:
    assert found(text) == entities


@pytest.mark.req("CE-F14")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "and/or he/she 1/2 km/h TCP/IP input/output n/a e.g. i.e.",
        "We use Node.js, YouTube and PostgreSQL with UTF-8.",
        "Will you come in June? It may rain in New York.",
        "The customer said no. Everyone agreed. Please review it.",
        "Project Manager wanted: the project is late.",
        "Die neue Version wurde gestern Abend nicht getestet."[: len("Die neue Version wurde")],
        "3/4/2025 is ambiguous, 99/99/2025 is none",
        "@property def x(self): ...",
        "2.5 of 10,000 in 1999",
    ],
)
def test_nothing_is_found_where_there_is_nothing(text: str) -> None:
    assert found(text) == []


@pytest.mark.req("CE-F14")
def test_the_speaker_is_an_entity_unless_it_is_a_role() -> None:
    assert found("ok", speaker="human:ada") == ["person:ada"]
    assert found("ok", speaker="subagent:review") == ["agent:review"]
    assert found("ok", speaker="subagent:review:r1") == ["agent:r1"]
    assert found("ok", speaker="Melanie") == ["person:Melanie"]
    assert found("ok", speaker="user") == []


@pytest.mark.req("CE-F14")
def test_code_has_no_names_or_symbols() -> None:
    assert found("Ada fixed it:\n```\nfrom a import SearchStores  # see src/a.py\n```") == [
        "person:Ada",
        "file:src/a.py",
    ]
    assert found("class SearchStores: my_name = 1", is_code=True) == []


@pytest.mark.req("CE-F14")
def test_stored_entities_come_back_and_have_terms_that_text_never_has() -> None:
    packed = pack_entities(extract_entities("Ada Lovelace wrote src/app.py on 2024-05-06", timestamp=NOW))
    assert pack_entities(unpack_entities(packed)) == packed
    index_terms = entity_index_terms(packed)
    assert all(":" in term for term in index_terms)
    assert not any(":" in term for term in terms(packed))
    for wanted in (
        "ada",
        "@Ada",
        "person:ada lovelace",
        "file:src/app.py",
        "app.py",
        "date:2024-05",
        "2024",
        "person:",
    ):
        assert filter_term(wanted) in index_terms
    for other in ("ad", "file:ada", "src", "project:"):
        assert filter_term(other) not in index_terms
    assert entity_index_terms("") == []


@pytest.mark.req("CE-F14")
def test_queries_name_entities_in_any_case() -> None:
    assert "person:ada" in query_entity_terms("what did ada say about app.py?")
    assert ":app.py" in query_entity_terms("what did ada say about app.py?")
    assert query_entity_terms("what will it be") == []


@pytest.mark.req("CE-F14")
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "A ",
        "Ab ",
        "ab/",
        "`",
        "`a\n",
        "a@",
        ".",
        "_a",
        "A.",
        "Aa",
        "Ada ",
        "http://",
        "1.",
        "x.py ",
        "a()",
        "a-1",
        "0a",
    ],
)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    with at_most(8):
        entities = extract_entities(unit * ((1_000_000 if FULL else 200_000) // len(unit)), timestamp=NOW)
    assert len(entities) <= MAX_ENTITIES
    assert all(len(entity.value) <= MAX_VALUE_LENGTH for entity in entities)
