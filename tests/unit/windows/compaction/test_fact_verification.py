"""Facts are found in other spellings, and never where a number changed or a negation was lost."""

import pytest

from support.conversations import Conversation
from support.processor_time import at_most
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import FactKind, KeyFact
from weftline.windows.compaction.verification import invented_literals, verify


def _facts_in(text: str) -> list[KeyFact]:
    conversation = Conversation()
    conversation.user(text)
    facts = extract_facts(conversation.events)
    assert facts
    return facts


def _literal(kind: FactKind, text: str) -> KeyFact:
    return KeyFact(fact_id="e1#1", kind=kind, text=text, who="Ada", at=0, event_ids=("e1",), literals=(text,))


@pytest.mark.req("CE-E", part="a summary that loses a fact")
@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("We decided to use Postgres 16 for the journal.", "Ada: We decided to use **Postgres 16** for the journal."),
        ("We decided to use Postgres 16 for the journal.", "decided use Postgres 16 journal"),
        ("The payload must not exceed 2,000 KB.", "The payload must not exceed 2000 KB"),
        ("The budget is limited to 1,200,000 EUR.", "the budget is limited to €1.2 million"),
        ("Wait at least twenty-five minutes.", "Wait at least 25 minutes."),
        ("The report is due on 8 May 2026.", "The report is due on 2026-05-08."),
        ("The report is due on May 8, 2026.", "the report is due on 08.05.2026"),
        ("Never push to the main branch.", "- NEVER push to the `main` branch"),
        ("It \u2014 the \u201cnew\u201d plan \u2014 must not fail.", 'It - the "new" plan - must not fail.'),
        ("The query took 340 ms on the replica.", "query took 340ms on the replica"),
        ("Usage grew by 40 percent in March.", "usage grew by 40% in March"),
    ],
)
def test_a_fact_is_found_in_its_normal_form(said: str, written: str) -> None:
    assert verify(written, _facts_in(said)).missing == []


@pytest.mark.req("CE-E", part="a summary that loses a fact")
@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("Never push to the main branch.", "Push to the main branch."),
        ("Never push to the main branch.", "Always push to the main branch."),
        ("We decided to use Postgres for the journal.", "We decided not to use Postgres for the journal."),
        ("Deploy is approved: we agreed to deploy on Friday.", "We did not agree to deploy on Friday."),
        ("The payload must not exceed 2 MB.", "The payload must not exceed 20 MB."),
        ("The payload must not exceed 2 MB.", "The payload must exceed 2 MB."),
        ("The payload must not exceed 2 MB.", "The payload must not exceed 2 Mb."),
        ("The payload must not exceed 2 MB.", "The payload should not exceed 2 MB."),
        ("Wait at least 5 minutes.", "Wait at most 5 minutes."),
        ("Wait at least 5 minutes.", "Wait at least 5 hours."),
        ("The budget is limited to 5.", "The budget is limited to 5 million."),
        ("The budget is limited to 40,000 EUR.", "The budget is limited to 40.5 EUR."),
        ("The price is limited to 1.200 Euro.", "The price is limited to 1.2 Euro."),
        ("The report is due on 8 May 2026.", "The report is due on 9 May 2026."),
        ("The report is due on 3/4/2026.", "The report is due on 4 March 2026."),
        ("We decided to use Postgres for the journal.", "Postgres was mentioned. The journal is large. We decided."),
        ("We decided to use Postgres only for the journal.", "We decided to use Postgres for the journal."),
        ("The query took 340 ms on the replica.", "Something else took 340 ms."),
        ("Wir dürfen die Daten nicht löschen.", "Wir dürfen die Daten löschen."),
        ("Il ne faut jamais supprimer les sauvegardes.", "Il faut supprimer les sauvegardes."),
        ("No se puede guardar el número.", "Se puede guardar el número."),
        ("Paint drums stay out of dock three for now.", "Paint drums stay dock three."),
        ("We decided that letters go out the same day.", "We decided that letters go out day."),
        ("We decided that the fee is paid by the owner.", "We decided that the fee is paid owner."),
    ],
)
def test_a_changed_fact_is_missing(said: str, written: str) -> None:
    assert verify(written, _facts_in(said)).found == []


@pytest.mark.parametrize(
    ("kind", "literal", "written", "is_found"),
    [
        (FactKind.IDENTIFIER, "ORD-12", "order ORD-12.", True),
        (FactKind.IDENTIFIER, "ORD-12", "order ORD-123", False),
        (FactKind.IDENTIFIER, "ORD-12", "order ORD-12-A", False),
        (FactKind.IDENTIFIER, "ORD-12", "order ord-12", False),
        (FactKind.PATH, "src/app.py", "see src/app.py:12 and more", True),
        (FactKind.PATH, "src/app.py", "see lib/src/app.py", False),
        (FactKind.URL, "https://a.io/x", "at https://a.io/x, now", True),
        (FactKind.URL, "https://a.io/x", "at https://a.io/x/y", False),
        (FactKind.SYMBOL, "max_retries", "`max_retries` is 3", True),
        (FactKind.SYMBOL, "max_retries", "max_retries_total", False),
        (FactKind.QUOTE, "Quota exceeded", "the page says \u201cquota exceeded\u201d", True),
        (FactKind.QUOTE, "Quota exceeded", "the quota was exceeded", False),
    ],
)
def test_literals_are_found_whole(kind: FactKind, literal: str, written: str, *, is_found: bool) -> None:
    assert bool(verify(written, [_literal(kind, literal)]).found) is is_found


def test_everything_is_found_in_its_own_text() -> None:
    text = (
        "We decided to use Postgres 16 for the journal. Never touch `archive_2019`. "
        "The report is due on 12 March 2026, it costs $1,200.50 and takes 30-60 seconds. "
        "See https://a.io/x?y=1 and src/app/main.py.\n"
        "| Task | Owner | Due |\n|---|---|---|\n| Import | Marta | 2026-03-01 |\n\n"
        '{"decision": "ship in two regions", "ticket": "OPS-4411"}\n'
        "2026-01-01T10:00:00Z ERROR connection refused by 10.0.3.17:5432\n"
    )
    facts = _facts_in(text)
    assert len(facts) >= 8
    assert verify(text, facts).missing == []


@pytest.mark.req("CE-E", part="a summary that loses a fact")
def test_invented_literals_are_named() -> None:
    source = "On 8 May 2026 the query took 45 ms in src/app.py, ticket OPS-4411; twenty users were affected."
    right = "1. On 2026-05-08: 45ms (src/app.py, OPS-4411).\n2. 20 users affected."
    assert invented_literals(right, source) == []
    wrong = 'On 9 May 2026: 47 ms in src/main.py, OPS-4412, "all users", see https://a.io/x, 21 users.'
    assert set(invented_literals(wrong, source)) == {
        *("9 May 2026", "47 ms", "src/main.py", "OPS-4412", "all users", "https://a.io/x", "21 users"),
    }


@pytest.mark.parametrize(
    "text", ["must not " * 110_000, "8 May 2026 " * 95_000, "1,200 EUR " * 100_000, "\n" * 1_000_000]
)
def test_a_hostile_megabyte_is_verified_in_little_time(text: str) -> None:
    facts = _facts_in("We decided to use Postgres 16 by 8 May 2026. It must not exceed 1,200 EUR.")
    with at_most(20):
        verify(text, facts)
