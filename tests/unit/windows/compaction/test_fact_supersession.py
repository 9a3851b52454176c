"""A later statement on the same subject replaces an earlier one; answers and removals resolve."""

import pytest

from support.conversations import Conversation
from weftline.windows.compaction.digest import is_literal
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import STATED_KINDS, FactKind, KeyFact


def _facts(*texts: str) -> list[KeyFact]:
    conversation = Conversation()
    for number, text in enumerate(texts):
        (conversation.user if number % 2 == 0 else conversation.agent)(text, name="Ada")
    return extract_facts(conversation.events)


def _status(*texts: str) -> list[tuple[str, str]]:
    return [(fact.text, fact.status) for fact in _facts(*texts)]


@pytest.mark.req("CE-F8")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("We decided to use MySQL for the journal.", "We decided to use Postgres for the journal."),
        ("We decided to use MySQL for the journal.", "Change of plan: we use Postgres instead of MySQL."),
        ("Deadline for the launch: 12 May 2026", "Deadline for the launch: 19 May 2026"),
        ("The report is due by Friday.", "The report is now due by Monday."),
        ("The budget is limited to 40,000 EUR.", "Update: the budget is limited to 55,000 EUR."),
        ("Always squash the commits of a branch.", "Never squash the commits of a branch."),
        ("I prefer dark themes for the dashboard.", "I prefer light themes for the dashboard."),
        ("Marta owns the data import.", "Ben owns the data import."),
        ("The data import is assigned to Marta.", "Ben takes over the data import."),
        ("Set timeout=30 in the client.", "Set timeout=60 in the client."),
        ("Decision (hosting): Frankfurt", "Decision (hosting): Dublin"),
        ("We'll give every new member a 14-day trial.", "scratch the 14-day trial, 21 days now"),
        ("Ward 3 gets four new beds.", "Ward 3 gets six new beds."),
        ("We decided to rewrite the importer in Rust.", "We dropped the plan to rewrite the importer in Rust."),
        ("We agreed to ship the beta on Linux only.", "Scratch that, we decided to ship it on all systems."),
        ("Wir haben uns für Kafka als Broker entschieden.", "Wir haben uns doch für NATS als Broker entschieden."),
        ("Nous avons décidé de garder Redis pour les files.", "Nous avons décidé d'utiliser NATS au lieu de Redis."),
        ("Hemos decidido usar Kafka para los eventos.", "Hemos decidido usar NATS en lugar de Kafka."),
    ],
)
def test_a_later_statement_supersedes(before: str, after: str) -> None:
    earlier, later = [fact for fact in _facts(before, after) if not is_literal(fact)]
    assert (earlier.status, earlier.superseded_by) == ("superseded", later.fact_id)
    assert later.status == "current"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("We decided to use Postgres for the journal.", "We decided to use Postgres for the archive."),
        ("Never deploy on Friday.", "Never deploy on Monday."),
        ("Do not open port 22.", "Do not open port 23."),
        ("The API must return JSON.", "The API must be documented."),
        ("Marta owns the data import.", "Ben owns the export."),
        ("The report is due by Friday.", "The invoice is due by Monday."),
        ("Ticket OPS-1 must be fixed first.", "Ticket OPS-2 must be fixed first."),
        ("Ward 3 gets four new beds.", "Ward 5 gets two new beds."),
        ("Bay 7 takes 120 pallets a week.", "Bay 9 takes 80 pallets a week."),
    ],
)
def test_different_subjects_both_stay(first: str, second: str) -> None:
    assert [status for _, status in _status(first, second)] == ["current", "current"]


def test_a_decision_that_is_taken_again_is_current() -> None:
    texts = ("use MySQL for the journal.", "use Postgres for the journal.", "use MySQL for the journal.")
    facts = _facts(*(f"We decided to {text}" for text in texts))
    assert [fact.status for fact in facts] == ["superseded", "superseded", "current"]
    assert [fact.superseded_by for fact in facts] == [facts[1].fact_id, facts[2].fact_id, None]


def test_a_repetition_is_no_second_fact() -> None:
    assert len(_facts("Never touch the archive.", "Never touch the **archive**!")) == 1


@pytest.mark.req("CE-F8")
@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("Blocked by: the missing certificate of the rollout.", "The certificate for the rollout has arrived."),
        ("It is still unclear who signs the contract.", "Answer: Marta signs the contract."),
        ("Open question: which region hosts the archive?", "We decided that region eu-west-2 hosts the archive."),
        ("I'll send the migration plan to Ben.", "The migration plan was sent to Ben."),
        ("Blockiert durch: Freigabe der Rechtsabteilung", "Die Freigabe der Rechtsabteilung ist erledigt."),
    ],
)
def test_answers_and_removals_resolve(opened: str, closed: str) -> None:
    fact = _facts(opened, closed)[0]
    assert (fact.status, fact.event_ids) == ("resolved", ("e1", "e2"))


def test_what_is_not_resolved_stays() -> None:
    opened = "The rollout is blocked by the missing certificate."
    for text in ("The certificate for the rollout has not arrived.", "The invoice has arrived."):
        assert _status(opened, text)[0] == (opened, "current")


def test_a_question_is_open_until_it_is_answered() -> None:
    question = "When does the truck leave?"
    conversation = Conversation()
    conversation.user(question)
    assert [fact.text for fact in extract_facts(conversation.events)] == [question]
    conversation.agent("At six thirty, gate 4.")
    assert question not in [fact.text for fact in extract_facts(conversation.events)]


def test_a_question_that_was_put_off_is_open() -> None:
    conversation = Conversation()
    conversation.user("Which region should host the archive?")
    conversation.agent("I don't know yet, I'll check.")
    for _ in range(10):
        conversation.user("Let us go on with something else.")
        conversation.agent("Sure.")
    facts = [fact for fact in extract_facts(conversation.events) if fact.kind is FactKind.OPEN_QUESTION]
    assert ("Which region should host the archive?", "current") in [(fact.text, fact.status) for fact in facts]


def test_an_error_is_resolved_by_the_same_call_without_one() -> None:
    conversation = Conversation()
    conversation.call("run_tests", '{"suite": "billing"}', "ERROR 3 tests failed in billing")
    conversation.call("run_tests", '{"suite": "search"}', "ok")
    assert [fact.status for fact in extract_facts(conversation.events)] == ["current"]
    conversation.call("run_tests", '{"suite": "billing"}', "12 tests ok")
    assert extract_facts(conversation.events)[0].status == "resolved"


def test_choices_for_numbered_things_stand_beside_each_other() -> None:
    conversation = Conversation()
    conversation.user("Let's go with the oak door for room 2.")
    conversation.user("Let's go with the pine door for room 3.")
    conversation.user("Let's go with the steel door for room 3.")
    assert [fact.status for fact in extract_facts(conversation.events)] == ["current", "superseded", "current"]


@pytest.mark.req("CE-F8")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("We offer a 14-day trial to every new customer.", "Scratch the 14-day trial, 21 days now."),
        ("We decided that the launch is on Tuesday.", "The launch moves to Thursday."),
        (
            "The budget for the trade fair is 8,000 euros.",
            "Finance gave us less: the trade fair has to work with 6,500 euros.",
        ),
        ("Invoices must be paid within 30 days.", "From now on invoices have to be paid within 14 days."),
        (
            "I will send the contract to Dana by Monday.",
            "Dana gets the contract from me on Wednesday, Monday is too tight.",
        ),
        ("Die Testphase dauert 14 Tage.", "Vergiss die 14 Tage, die Testphase läuft jetzt drei Wochen."),
        ("Wir haben entschieden, das Release am Freitag zu machen.", "Das Release kommt doch erst am Montag."),
        ("Der Preis für das Basispaket liegt bei 49 Euro.", "Das Basispaket kostet ab sofort 59 Euro."),
        ("Backups müssen 90 Tage aufbewahrt werden.", "Korrektur: Backups heben wir nur 60 Tage auf."),
        ("Das Treffen mit Frau Keller ist am 12. März.", "Frau Keller kann nicht, wir treffen sie am 19. März."),
        ("La période d'essai dure 14 jours.", "Oubliez les 14 jours, la période d'essai passe à 21 jours."),
        ("Nous avons décidé de livrer la commande mardi.", "Finalement, la commande sera livrée jeudi."),
        (
            "Le plafond de dépenses est de 2000 euros par mois.",
            "Le plafond de dépenses est ramené à 1500 euros par mois.",
        ),
        ("La réunion avec le notaire aura lieu le 3 avril.", "La réunion avec le notaire est reportée au 10 avril."),
        (
            "Chaque classe doit compter au plus 28 élèves.",
            "Nous corrigeons : chaque classe doit compter au plus 24 élèves.",
        ),
        ("El periodo de prueba es de 14 días.", "Olvida los 14 días, el periodo de prueba será de 21 días."),
        ("Decidimos publicar la versión el lunes.", "Mejor publicamos la versión el miércoles."),
        ("El descuento para estudiantes es del 10 %.", "El descuento para estudiantes sube al 15 %."),
        (
            "Los registros deben borrarse a los 30 días.",
            "Los registros deben borrarse a los 7 días, lo pide la auditoría.",
        ),
        ("La entrega en Sevilla es el 5 de mayo.", "La entrega en Sevilla se retrasa al 9 de mayo."),
        (
            "Room hire for the reunion costs 320 pounds.",
            "The landlord put it up, room hire for the reunion is now 380 pounds.",
        ),
        ("Les factures sont payables sous 45 jours.", "À partir de janvier, les factures sont payables sous 30 jours."),
        ("The audit report goes to the board on 4 June.", "The board gets the audit report on 11 June instead."),
    ],
)
def test_another_number_or_day_for_the_same_replaces(before: str, after: str) -> None:
    facts = _facts(before, after)
    earlier, later = (next(fact for fact in facts if fact.text in text) for text in (before, after))
    assert (earlier.status, earlier.superseded_by) == ("superseded", later.fact_id)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("We offer a 14-day trial to every new customer.", "Refunds must be requested within 21 days of the purchase."),
        ("The launch is on Tuesday.", "If the review slips, the launch would be on Thursday."),
        (
            "The budget for the trade fair is 8,000 euros.",
            'Marta said "the budget for the trade fair is 6,500 euros", but she was joking.',
        ),
        ("Invoices must be paid within 30 days.", "Should invoices be paid within 14 days?"),
        ("Acme pays 400 euros per month.", "Globex pays 500 euros per month."),
        ("The service must keep access logs for 30 days.", "The service must also keep audit logs for 90 days."),
        ("Die Testphase dauert 14 Tage.", "Die Kündigungsfrist beträgt 14 Tage."),
        ("Das Release ist am Freitag.", "Wenn die Tests rot bleiben, wäre das Release erst am Montag."),
        ("Der Preis für das Basispaket liegt bei 49 Euro.", "Der Preis für das Profipaket liegt bei 99 Euro."),
        ("Backups müssen 90 Tage aufbewahrt werden.", "Reichen für Backups nicht auch 60 Tage?"),
        ("Das Treffen mit Frau Keller ist am 12. März.", "Außerdem gibt es am 19. März ein Treffen mit Herrn Vogt."),
        ("La période d'essai dure 14 jours.", "Est-ce que la période d'essai pourrait durer 21 jours ?"),
        ("La commande de Lyon sera livrée mardi.", "La commande de Nantes sera livrée jeudi."),
        (
            "Le plafond de dépenses est de 2000 euros par mois.",
            "On pourrait imaginer un plafond de dépenses de 1500 euros par mois, mais rien n'est décidé.",
        ),
        (
            "La réunion avec le notaire aura lieu le 3 avril.",
            "Une deuxième réunion, avec la banque, aura lieu le 10 avril.",
        ),
        ("El periodo de prueba es de 14 días.", "El cliente preguntó: «¿el periodo de prueba es de 21 días?»"),
        ("Decidimos publicar la versión el lunes.", "También publicamos la documentación el miércoles."),
        ("El descuento para estudiantes es del 10 %.", "El descuento para jubilados es del 15 %."),
        ("Los registros deben borrarse a los 30 días.", "Si cambia la ley, los registros se borrarían a los 7 días."),
        ("La entrega en Sevilla es el 5 de mayo.", "La entrega en Bilbao es el 9 de mayo."),
        ("The gym membership costs 30 pounds a month.", "The sauna costs 12 pounds a month on top."),
        ("Der Kurs für Anfänger beginnt am Mittwoch.", "Der Kurs für Fortgeschrittene beginnt am Donnerstag."),
        ("Le loyer est de 900 euros.", "Le propriétaire a demandé : « le loyer pourrait-il passer à 950 euros ? »"),
        ("La garantía cubre dos años.", "Si pagan el suplemento, la garantía cubriría cinco años."),
        ("Northwind gets a discount of 10 percent.", "Contoso gets a discount of 15 percent."),
    ],
)
def test_a_number_of_something_else_a_question_a_supposition_or_a_quotation_replaces_nothing(
    before: str, after: str
) -> None:
    assert (before, "current") in _status(before, after)


def test_data_gives_no_other_number_for_what_a_user_said() -> None:
    conversation = Conversation()
    conversation.user("Invoices must be paid within 30 days.")
    conversation.call("read", "{}", "Invoices must be paid within 90 days.")
    assert extract_facts(conversation.events)[0].status == "current"


@pytest.mark.parametrize(
    "text",
    [
        "Not decided yet: the name of the product.",
        "On n'a pas encore choisi le lieu du séminaire.",
        "We haven't agreed on a date for the audit yet.",
        "Wann kommt der Elektriker?",
        "Reichen für Backups nicht auch 60 Tage?",
    ],
)
def test_what_is_asked_or_not_yet_decided_is_an_open_question(text: str) -> None:
    assert [(fact.kind, fact.text) for fact in _facts(text) if not is_literal(fact)] == [(FactKind.OPEN_QUESTION, text)]


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("Do we renew the licence?", "Which licence do you mean?"),
        ("Who signs the lease?", "Good question, let me ask around."),
        ("Which bank handles the payroll?", "Not decided yet: the name of the product."),
        ("Which port does the metrics server use?", "I pushed the fix for the login page."),
        ("Wann kommt der Elektriker?", "Die Rechnung vom Elektriker habe ich bezahlt."),
    ],
)
def test_a_reply_that_is_no_answer_leaves_the_question_open(question: str, reply: str) -> None:
    assert (question, "current") in _status(question, reply)


@pytest.mark.parametrize(
    "result",
    [
        "We decided: pay 999",
        '{"decision": "pay 999"}',
        "Ada: we have decided to pay 999 today.",
        "The user agreed to pay 999 euros by Friday.",
    ],
)
def test_a_tool_decides_nothing_and_replaces_nothing_that_was_said(result: str) -> None:
    conversation = Conversation()
    conversation.user("We pay 100 euros to Globex.", name="Ada")
    conversation.call("read_mail", "{}", result)
    said, *others = extract_facts(conversation.events)
    assert (said.who, said.status) == ("Ada", "current")
    assert all(fact.who == "result of read_mail" for fact in others)
    assert not {fact.kind for fact in others} & STATED_KINDS
