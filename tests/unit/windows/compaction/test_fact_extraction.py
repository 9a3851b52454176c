"""Key facts are extracted from talk and from tools, bounded in number and in time."""

import pytest
from msgspec import structs

from support.conversations import Conversation
from support.processor_time import at_most
from weftline.safety.trust.model import Source, Trust, TrustLabel
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import FactKind, is_stated


def _facts_of(text: str) -> list[tuple[str, str]]:
    conversation = Conversation()
    conversation.user(text)
    return [(fact.kind.value, fact.text) for fact in extract_facts(conversation.events)]


@pytest.mark.req("CE-F8")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("We decided to use Postgres for the journal.", "decision"),
        ("The board approved the budget plan yesterday, it was approved in full.", "decision"),
        ("**Decision:** ship the beta in two regions", "decision"),
        ('{"decision": "ship the beta in two regions", "by": "Ada"}', "decision"),
        ("Wir haben uns für Kafka als Broker entschieden.", "decision"),
        ("Nous avons décidé de garder Redis pour les files.", "decision"),
        ("Hemos decidido usar Kafka para los eventos.", "decision"),
        ("Never push to the main branch without a review.", "constraint"),
        ("The payload must not exceed 2 MB.", "constraint"),
        ("Die Antwort darf höchstens 300 ms dauern.", "constraint"),
        ("Il ne faut jamais supprimer les sauvegardes.", "constraint"),
        ("No se debe guardar nunca el número de la tarjeta.", "constraint"),
        ("The export must contain every invoice of the year.", "requirement"),
        ("Preference: short answers without tables", "preference"),
        ("I'll send the migration plan to Ben.", "commitment"),
        ("Blocked by: the missing certificate", "blocker"),
        ("It is still unclear who signs the contract.", "open_question"),
        ("Offene Frage: wer zahlt die Lizenz?", "open_question"),
        ("Responsible: Marta, for the data import", "owner"),
        ("Due: the report, 12 March 2026", "deadline"),
        ("Fecha límite: 3 de abril de 2026", "deadline"),
    ],
)
def test_statements_of_every_kind_and_language(text: str, kind: str) -> None:
    assert (kind, text) in _facts_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "Good morning! How are you doing today?",
        "That must have been such a great trip.",
        "I never thought about it that way.",
        "If we decide to move, we can talk again.",
        "Don't worry, it happens to everybody.",
        "It must feel amazing to be back home.",
        "Always great to see you again.",
    ],
)
def test_ordinary_talk_has_no_facts(text: str) -> None:
    conversation = Conversation()
    conversation.user(text)
    conversation.agent("Thanks, let us talk about something else.")
    assert [fact.text for fact in extract_facts(conversation.events) if is_stated(fact)] == []


@pytest.mark.req("CE-F14")
def test_literals_keep_their_spelling() -> None:
    conversation = Conversation()
    conversation.user(
        "See https://status.example.com/i/81 and src/billing/Invoice.py; ticket OPS-4411, container fra-2, "
        'branch `hotfix_retry`, the page says "Quota exceeded today", it took 340 ms on 8 May 2025, port 5432.'
    )
    assert {literal for fact in extract_facts(conversation.events) for literal in fact.literals} == {
        "https://status.example.com/i/81",
        "src/billing/Invoice.py",
        "OPS-4411",
        "fra-2",
        "hotfix_retry",
        "Quota exceeded today",
        "340 ms",
        "8 May 2025",
        "port 5432",
    }


def test_a_quantity_comes_with_its_clause() -> None:
    assert ("quantity", "The nightly backup took 42 minutes") in _facts_of(
        "The nightly backup took 42 minutes, which surprised us."
    )


@pytest.mark.req("CE-F8")
def test_pending_calls_and_files_in_arguments() -> None:
    conversation = Conversation()
    conversation.call("edit_file", '{"path": "src/billing/tax.py"}', "ok")
    conversation.call("deploy", '{"service": "billing", "build": "b-7781"}', None)
    facts = extract_facts(conversation.events)
    pending = [fact for fact in facts if fact.kind is FactKind.PENDING_CALL]
    assert [(fact.text, fact.literals) for fact in pending] == [
        ('deploy({"service": "billing", "build": "b-7781"})', ("deploy", "call-2"))
    ]
    assert (FactKind.PATH, "src/billing/tax.py") in [(fact.kind, fact.text) for fact in facts]


def test_facts_say_who_when_and_where() -> None:
    conversation = Conversation()
    event = conversation.user("We decided to use Postgres for the journal.", name="Marta")
    (fact,) = extract_facts(conversation.events)
    assert (fact.fact_id, fact.who, fact.at, fact.event_ids) == (f"{event.event_id}#1", "Marta", event.at, ("e1",))


def test_instructions_attacks_and_redacted_events_give_no_facts() -> None:
    conversation = Conversation()
    conversation.system("Never reveal the price list.")
    said = conversation.user("We decided to use Postgres for the journal.")
    suspicious = TrustLabel(Source.TOOL, Trust.SUSPICIOUS)
    for change in ({"redacted": True}, {"routed": True}, {"trust": suspicious}):
        assert extract_facts([conversation.events[0], structs.replace(said, **change)]) == []


@pytest.mark.req("CE-F8")
def test_a_long_log_gives_errors_and_what_was_referred_to() -> None:
    lines = [
        f"2026-01-01T10:{n // 60 % 60:02}:{n % 60:02}Z INFO request id=r{n:05} took {n % 90} ms" for n in range(10_000)
    ]
    lines[4_711] = "2026-01-01T11:18:31Z ERROR payment gateway answered 503 for order ORD-55123"
    lines[4_712] = "2026-01-01T11:18:32Z ERROR payment gateway answered 503 for order ORD-55123"
    conversation = Conversation()
    conversation.call("read_log", '{"path": "/var/log/pay.log"}', "\n".join(lines))
    conversation.agent("The slow one is r07003, I will look at it.")
    facts = extract_facts(conversation.events)
    of_log = [fact for fact in facts if fact.event_ids == ("e2",)]
    assert [fact.text for fact in of_log] == [lines[4_711], lines[7_003]]
    assert len(facts) < 6


@pytest.mark.req("CE-F8")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ERROR E62725: the disk failed", "ERROR E62726: the disk failed"),
        ("ERROR ORA-00942 in the import", "ERROR ORA-01555 in the import"),
        ("fatal: the server answered HTTP 500", "fatal: the server answered HTTP 503"),
        ("error: the job job-4411 was lost", "error: the job job-4412 was lost"),
    ],
)
@pytest.mark.parametrize("noise", [0, 300])
def test_errors_with_another_code_are_other_errors(one: str, other: str, noise: int) -> None:
    lines = [f"2026-01-01T10:00:{n % 60:02}Z INFO request took {n % 90} ms" for n in range(noise)]
    apart, together = Conversation(), Conversation()
    for line in (one, other):
        apart.call("import", "{}", "\n".join([*lines, f"10:00:01 {line}", f"10:00:02 {line}"]))
    together.call("import", "{}", "\n".join([*lines, f"10:00:01 {one}", f"10:00:02 {other}"]))
    for conversation in (apart, together):
        errors = [fact.text[9:] for fact in extract_facts(conversation.events) if fact.kind is FactKind.ERROR]
        assert errors == [one, other]


def test_many_errors_of_one_kind_do_not_hide_another() -> None:
    lines = [f"ERROR order ORD-{n} was refused" for n in range(500)]
    conversation = Conversation()
    conversation.call("read_log", "{}", "\n".join([*lines, "FATAL: out of memory"]))
    errors = [fact.text for fact in extract_facts(conversation.events) if fact.kind is FactKind.ERROR]
    assert errors == [*lines[:5], "FATAL: out of memory"]


def test_an_event_has_a_bounded_number_of_facts() -> None:
    conversation = Conversation()
    conversation.user("\n".join(f"We decided to use tool-{n} for task {n}. See T-{n}." for n in range(5_000)))
    assert len(extract_facts(conversation.events)) <= 100


def test_the_same_events_give_the_same_facts_and_appending_changes_no_id() -> None:
    conversation = Conversation()
    conversation.user("We decided to use Postgres for the journal. Never touch the archive.")
    before = extract_facts(conversation.events)
    conversation.agent("Understood, ticket OPS-4411.")
    after = extract_facts(conversation.events)
    assert after[: len(before)] == before == extract_facts(conversation.events[:1])


_HOSTILE = {
    "one word": "must " * 200_000,
    "one character": "a" * 1_000_000,
    "quotation marks": '"' * 1_000_000,
    "cues without an end": "We decided to use X_1 for " * 38_000,
    "sentences": "We never use 5 ms for it. " * 38_000,
    "lines": "\n" * 1_000_000,
    "rows": "|a|b|\n" * 160_000,
    "json": '{"a":"b",' * 110_000,
    "digits": "1," * 500_000,
    "numbers in words": "one two three " * 71_000,
    "path": "/a" * 500_000,
    "code spans": "`a` " * 250_000,
    "dates": "8 May " * 160_000,
    "errors": "Error " * 160_000,
}


@pytest.mark.parametrize("name", _HOSTILE)
@pytest.mark.parametrize("is_result", [False, True])
def test_a_hostile_megabyte_takes_little_time(name: str, *, is_result: bool) -> None:
    conversation = Conversation()
    if is_result:
        conversation.call("read", "{}", _HOSTILE[name])
    else:
        conversation.user(_HOSTILE[name])
    with at_most(8):
        extract_facts(conversation.events)
