"""Long noisy tool sessions with planted items that must survive a compaction. Generated; always the same.

Each session mixes talk, calls of tools and their results (JSON, tables, logs, source code) with items of every kind:
statements in several writing styles and four languages, changed and withdrawn decisions, literals in talk and in
results, errors in long logs, calls without a result, rules, and a last request that is older than the recent events.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.content import ConversationMessage, Role, ToolCall
from weftline.windows.compaction.compacted_events import compacted
from weftline.windows.model import Category, WindowEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.windows.compaction.model import CompactedView

SESSIONS = 24
_MINUTE = 60_000_000
_STARTED = 1_760_000_000_000_000
# Probes of a statement are this near to each other.
_NEAR = 400
_STATEMENT_FILE = Path(__file__).parent / "data" / "fact_statements.jsonl"
_CONTENT = re.compile(r"[^\W_]*\d[^\W_]*|[^\W\d_]{4,}")
_MARKS = re.compile(r"[*`_|\"\u201c\u201d\u2018\u2019']")


class Planted(NamedTuple):
    """Something that must survive. ``probes`` are near each other in every text that tells it.

    ``exact``: character by character. ``old``: probes of what it replaces, which may not stand as the last word.
    """

    name: str
    probes: tuple[str, ...]
    exact: bool = False
    old: tuple[str, ...] = ()


@dataclass
class PlantedSession:
    """The events of a session and what was planted in it."""

    name: str
    random: random.Random
    events: list[WindowEvent] = field(default_factory=list)
    planted: list[Planted] = field(default_factory=list)
    _calls: int = 0

    def say(self, role: Role, content: str, calls: tuple[ToolCall, ...] = (), answers: str | None = None) -> None:
        number = len(self.events) + 1
        category = {"system": Category.SYSTEM, "tool": Category.SYSTEM_OUTPUT}.get(role, Category.DIALOG)
        self.events.append(
            WindowEvent(
                event_id=f"e{number}",
                number=number,
                category=category,
                message=ConversationMessage(role=role, content=content, tool_calls=calls, tool_call_id=answers),
                kind="tool_output" if role == "tool" else "message",
                at=_STARTED + number * _MINUTE,
                author="human:ada" if role == "user" else "agent:builder",
                agent_id="builder",
                tokens=approximate_tokens(content + "".join(call.arguments for call in calls)) + 4,
            )
        )

    def call(self, tool: str, arguments: dict[str, object], result: str | None, said: str = "") -> ToolCall:
        self._calls += 1
        call = ToolCall(f"call_{self.code()}", tool, json.dumps(arguments))
        self.say("assistant", said, (call,))
        if result is not None:
            self.say("tool", result, answers=call.call_id)
        return call

    def plant(self, name: str, *probes: str, exact: bool = False, old: tuple[str, ...] = ()) -> None:
        self.planted.append(Planted(name, probes, exact, old))

    def code(self, length: int = 5) -> str:
        """Return a code that occurs nowhere else."""
        first = self.random.choice("BCDFGHKLMNPQRSTVWXZ")
        return (
            first
            + "".join(self.random.choice("23456789BCDFGHKLMNPQRSTVWXZ") for _ in range(length - 1))
            + str(self.random.randrange(10, 100))
        )

    @property
    def tokens(self) -> int:
        return sum(event.tokens for event in self.events)


_PLACES = [
    "journal",
    "importer",
    "gateway",
    "scheduler",
    "archive",
    "notifier",
    "renderer",
    "indexer",
    "dispatcher",
    "catalogue",
    "mailer",
    "exporter",
]
_TOOLS = [
    "Postgres",
    "MariaDB",
    "SQLite",
    "DuckDB",
    "Kafka",
    "NATS",
    "RabbitMQ",
    "Redis",
    "Valkey",
    "Memcached",
    "Terraform",
    "Pulumi",
    "Ansible",
    "Nginx",
]
_PEOPLE = ["Marta", "Ben", "Chidi", "Aiko", "Lars", "Noor", "Pavel", "Ines", "Tom", "Ravi", "Elif", "Jonas"]
_WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def _distinct(rng: random.Random, values: Sequence[str]) -> tuple[str, str]:
    first, second = rng.sample(values, 2)
    return first, second


def _place(session: PlantedSession) -> str:
    """Return the name of a part of the system that no other item is about."""
    return f"{session.random.choice(_PLACES)}-{session.random.randrange(100, 1000)}"


# Statements: how they are said, and what must be found of them.


def _decision(session: PlantedSession) -> None:
    place, tool = _place(session), session.random.choice(_TOOLS)
    who = session.random.choice(_PEOPLE)
    number = session.random.randrange(2, 40)
    styles: list[Callable[[], None]] = [
        lambda: session.say("user", f"We talked it over: we decided to use {tool} {number} for the {place}."),
        lambda: session.say(
            "assistant", f"Notes of the call\n\n- **Decision:** {tool} {number} for the {place}\n- lunch was nice"
        ),
        lambda: session.say("user", json.dumps({"decision": f"{tool} {number} for the {place}", "by": who})),
        lambda: session.say("user", f"| Topic | Decision |\n|---|---|\n| {place} | {tool} {number} |\n"),
        lambda: (
            session.call(
                "read_minutes",
                {"day": "today"},
                json.dumps({"attendees": 4, "decision": f"{tool} {number} for the {place}"}),
            )
            and None
        ),
        lambda: (
            session.call(
                "tail", {"file": "ops.log"}, _log(session, 40, f"INFO decision: {tool} {number} for the {place}")
            )
            and None
        ),
        lambda: (
            session.call(
                "read_file", {"path": "conf.py"}, _code(session, f"# DECISION: {tool} {number} for the {place}")
            )
            and None
        ),
        lambda: session.say("user", f"Wir haben uns für {tool} {number} im {place} entschieden."),
        lambda: session.say("user", f"Nous avons choisi {tool} {number} pour le {place}."),
        lambda: session.say("user", f"Hemos decidido usar {tool} {number} para el {place}."),
        lambda: session.say(
            "assistant", f"Agreed then. We're going with {tool} {number} for the {place}, as {who} proposed."
        ),
        lambda: session.say("user", f"The team settled on {tool} {number} for the {place}; no more discussion please."),
    ]
    session.random.choice(styles)()
    session.plant("decision", tool, str(number), place)


def _changed(session: PlantedSession) -> Callable[[], None]:
    """Plant a decision now and return what changes it later."""
    place = _place(session)
    before, after = _distinct(session.random, _TOOLS)
    low = session.random.randrange(100, 400)
    high = low + session.random.randrange(7, 90)
    pairs = [
        (f"We decided to use {before} for the {place}.", f"We decided to use {after} for the {place}.", before, after),
        (
            f"Let's use {before} for the {place}.",
            f"Change of plan for the {place}: use {after} instead of {before}.",
            before,
            after,
        ),
        (
            f"The retry limit of the {place} is {low}.",
            f"Update: the retry limit of the {place} is {high}.",
            str(low),
            str(high),
        ),
        (
            f"Wir haben uns für {before} als Speicher im {place} entschieden.",
            f"Wir haben uns doch für {after} als Speicher im {place} entschieden.",
            before,
            after,
        ),
        (
            f"Nous avons décidé d'utiliser {before} pour le {place}.",
            f"Finalement nous avons décidé d'utiliser {after} pour le {place}, au lieu de {before}.",
            before,
            after,
        ),
        (
            f"Hemos decidido usar {before} para el {place}.",
            f"Hemos decidido usar {after} para el {place} en lugar de {before}.",
            before,
            after,
        ),
        (
            f"The {place} budget is limited to {low},000 EUR.",
            f"The {place} budget is now limited to {high},000 EUR.",
            f"{low},000",
            f"{high},000",
        ),
        (
            f"The launch of the {place} is due by 3 May 2026.",
            f"The launch of the {place} is now due by 19 May 2026.",
            "3 May 2026",
            "19 May 2026",
        ),
    ]
    said, changed, old, new = session.random.choice(pairs)
    session.say("user", said)

    def change() -> None:
        session.say("user", changed)
        session.plant("changed_decision", new, place, old=(old, place))

    return change


def _withdrawn(session: PlantedSession) -> Callable[[], None]:
    place = _place(session)
    session.say("user", f"We decided to rewrite the {place} in Rust.")

    def withdraw() -> None:
        session.say("user", f"We dropped the plan to rewrite the {place} in Rust.")
        session.plant("withdrawn_decision", "dropped", place, "Rust", old=("decided to rewrite", place))

    return withdraw


def _constraint(session: PlantedSession) -> None:
    place, number = _place(session), session.random.randrange(11, 99)
    styles = [
        (f"Never restart the {place} during the nightly run {number}.", ("never", place, str(number))),
        (f"Requests to the {place} must not exceed {number} ms.", ("must not exceed", str(number), place)),
        (f"Please do not write to the {place} without ticket {number}.", ("not", place, str(number))),
        (f"- [ ] at most {number} open connections to the {place}", ("at most", str(number), place)),
        (f"Der {place} darf höchstens {number} Sekunden ausfallen.", ("höchstens", str(number), place)),
        (f"Il ne faut jamais vider le {place} avant {number} jours.", ("jamais", place, str(number))),
        (f"No se puede tocar el {place} antes de {number} días.", ("no se puede", place, str(number))),
        (f'{{"constraint": "{place} stays below {number} % load"}}', (place, str(number))),
        (f"Rule: every change of the {place} needs {number} reviewers", (place, str(number))),
        (f"Under no circumstances may the {place} store card numbers (audit {number}).", ("no circumstances", place)),
    ]
    said, probes = session.random.choice(styles)
    session.say("user", said)
    session.plant("constraint", *probes)


def _requirement(session: PlantedSession) -> None:
    place, number = _place(session), session.random.randrange(11, 99)
    styles = [
        (f"The {place} must support {number} tenants.", (place, "must support", str(number))),
        (f"**Requirement**: the {place} exports {number} columns", (place, str(number), "exports")),
        (
            f"Make sure that the {place} keeps {number} backups, the auditors will check.",
            (place, str(number), "backups"),
        ),
        (f"Der {place} muss {number} Mandanten unterstützen.", (place, "muss", str(number))),
        (f"Le {place} doit garder {number} copies.", (place, "doit", str(number))),
        (f"El {place} debe guardar {number} copias.", (place, "debe", str(number))),
        (f"| Requirement | {place} answers within {number} ms |", (place, str(number))),
    ]
    said, probes = session.random.choice(styles)
    session.say("user", said)
    session.plant("requirement", *probes)


def _preference(session: PlantedSession) -> None:
    place, number = _place(session), session.random.randrange(11, 99)
    styles = [
        (f"I prefer reports of the {place} with {number} rows at a time.", ("prefer", place, str(number))),
        (
            f"For the {place} I'd rather have plain text than HTML, at {number} columns.",
            ("rather", place, "plain text"),
        ),
        (f"Ich bevorzuge beim {place} kurze Antworten mit {number} Zeilen.", ("bevorzuge", place, str(number))),
        (f"Pour le {place} je préfère des courriels de {number} lignes.", ("préfère", place, str(number))),
        (f"Para el {place} prefiero informes de {number} filas.", ("prefiero", place, str(number))),
        (f'{{"user preference": "dark charts for {place}", "version": {number}}}', ("dark charts", place)),
    ]
    said, probes = session.random.choice(styles)
    session.say("user", said)
    session.plant("preference", *probes)


def _open_question(session: PlantedSession) -> None:
    place, number = _place(session), session.random.randrange(11, 99)
    styles = [
        (f"Open question: who pays for the {place} after week {number}?", ("who pays", place, str(number))),
        (f"It is still unclear whether the {place} needs shard {number}.", ("unclear", place, str(number))),
        (f"Offene Frage: wer betreibt den {place} ab Woche {number}?", ("wer betreibt", place, str(number))),
        (f"Reste à décider si le {place} garde le lot {number}.", ("reste à", place, str(number))),
        (f"Queda por decidir si el {place} usa el lote {number}.", ("queda por", place, str(number))),
    ]
    if session.random.random() < 0.4:
        session.say("user", f"Which region should host the {place} from week {number} on?")
        session.say("assistant", "I don't know yet, I'll check with the network people.")
        session.plant("open_question", "which region", place, str(number))
        return
    said, probes = session.random.choice(styles)
    session.say("user", said)
    session.plant("open_question", *probes)


def _blocker(session: PlantedSession) -> None:
    place, number = _place(session), session.random.randrange(11, 99)
    styles = [
        (f"The {place} rollout is blocked by the expired certificate {number}.", ("blocked", place, str(number))),
        (f"We are waiting for the legal team to release the {place} (file {number}).", ("waiting", place)),
        (f"Blocker: no quota for {number} nodes of the {place}", (place, str(number), "quota")),
        (f"Der {place} ist blockiert, weil Zertifikat {number} fehlt.", ("blockiert", place, str(number))),
        (f"Le {place} est bloqué par le ticket {number}.", ("bloqué", place, str(number))),
        (f"El {place} está bloqueado por la solicitud {number}.", ("bloqueado", place, str(number))),
    ]
    said, probes = session.random.choice(styles)
    session.say("assistant", said)
    session.plant("blocker", *probes)


def _owner(session: PlantedSession) -> None:
    place, who = _place(session), session.random.choice(_PEOPLE)
    styles = [
        f"{who} is responsible for the {place}.",
        f"The {place} is assigned to {who}.",
        f"Owner: {who} ({place})",
        f'{{"task": "{place} cleanup", "owner": "{who}"}}',
        f"| Task | Owner |\n|---|---|\n| {place} cleanup | {who} |",
        f"{who} ist für den {place} zuständig.",
        f"{who} est responsable du {place}.",
        f"{who} se encarga de {place}.",
    ]
    session.say("user", session.random.choice(styles))
    session.plant("owner", place, who)


def _deadline(session: PlantedSession) -> None:
    place, day, month = _place(session), session.random.randrange(1, 28), session.random.randrange(1, 13)
    name = _MONTHS[month - 1]
    styles = [
        (f"The {place} report is due on {day} {name} 2026.", (place, f"{day} {name} 2026")),
        (f"Deadline for the {place}: 2026-{month:02}-{day:02}", (place, f"2026-{month:02}-{day:02}")),
        (f"We need the {place} by {name} {day}, 2026 at the latest.", (place, f"{name} {day}, 2026")),
        (f"Der {place} ist spätestens am {day:02}.{month:02}.2026 fällig.", (place, f"{day:02}.{month:02}.2026")),
        (f"La date limite du {place} est le {day:02}/{month:02}/2026.", (place, f"{day:02}/{month:02}/2026")),
        (f"La fecha límite de {place} es 2026-{month:02}-{day:02}.", (place, f"2026-{month:02}-{day:02}")),
        (f'{{"item": "{place}", "due_date": "2026-{month:02}-{day:02}"}}', (place, f"2026-{month:02}-{day:02}")),
    ]
    said, probes = session.random.choice(styles)
    session.say("user", said)
    session.plant("deadline", *probes)


def _commitment(session: PlantedSession) -> None:
    place, day = _place(session), session.random.choice(_WEEKDAYS)
    styles = [
        ("assistant", f"I'll send the figures of the {place} by {day}.", ("send the figures", place, day)),
        ("user", f"We will deliver the new {place} to the client on {day}.", ("deliver", place, day)),
        ("user", f"Action item: Noor reviews the {place} alerts on {day}", ("Noor", place, day)),
        ("user", f"Ich schicke die Zahlen zum {place} bis Freitag.", ("schicke", place, "Freitag")),
        ("user", f"Je m'engage à livrer le {place} avant vendredi.", ("engage", place, "vendredi")),
        ("user", f"Me comprometo a entregar el {place} el viernes.", ("comprometo", place, "viernes")),
    ]
    role, said, probes = session.random.choice(styles)
    session.say("user" if role == "user" else "assistant", said)
    session.plant("commitment", *probes)


def statements(*, held_out: bool = False) -> list[str]:
    """Return statements in free wording; none of the ``held_out`` ones was known when the rules were written."""
    lines = map(json.loads, _STATEMENT_FILE.read_text("utf-8").splitlines())
    return [line["text"] for line in lines if line.get("held_out", False) is held_out]


def _in_free_wording(session: PlantedSession, said: str) -> None:
    session.say("user", said)
    words = sorted(_CONTENT.findall(said), key=len, reverse=True)
    session.plant("free_wording", *dict.fromkeys(words[:3]))


# Literals, in talk and in results.


def _literal_in_talk(session: PlantedSession) -> None:
    code = session.code()
    styles = [
        (f"For the record, the contract number is CT-{code}, file it somewhere.", f"CT-{code}"),
        (
            f"The dump is at /srv/dumps/{code.lower()}/full.tar.gz if you need it.",
            f"/srv/dumps/{code.lower()}/full.tar.gz",
        ),
        (
            f"Docs: https://wiki.example.org/pages/{code}?view=full (internal).",
            f"https://wiki.example.org/pages/{code}?view=full",
        ),
        (f"Look at `apply_{code.lower()}_patch`, it is the odd one.", f"apply_{code.lower()}_patch"),
        (f'The banner reads "Service {code} is sleeping" in production.', f"Service {code} is sleeping"),
        (f"The mailbox is audit.{code.lower()}@example.org for questions.", f"audit.{code.lower()}@example.org"),
        (f"Der Schlüssel liegt in src/keys/{code}.pem auf dem Server.", f"src/keys/{code}.pem"),
        (f"La référence de la commande est FR-{code}, merci.", f"FR-{code}"),
        (f"El expediente es ES-{code}, guárdalo.", f"ES-{code}"),
    ]
    said, literal = session.random.choice(styles)
    session.say(session.random.choice(("user", "assistant")), said)
    session.plant("literal", literal, exact=True)


def _value_in_talk(session: PlantedSession) -> None:
    place, number = _place(session), session.random.randrange(1_100, 9_900)
    styles = [
        (f"The restore of the {place} took {number} seconds this time.", (place, str(number))),
        (f"We measured {number} MB of heap in the {place}.", (place, str(number), "MB")),
        (f"The {place} cost ${number:,} in the last quarter.", (place, f"{number:,}")),
        (f"Set max_connections={number} on the {place}, that helped.", (f"max_connections={number}",)),
        (f"The {place} was rebuilt on 7 February 2026, by the way.", (place, "7 February 2026")),
    ]
    said, probes = session.random.choice(styles)
    session.say("assistant", said)
    session.plant("value", *probes)


def _literal_in_result(session: PlantedSession) -> None:
    code = session.code()
    styles = [
        ("book_slot", json.dumps({"status": "ok", "confirmation": f"CNF-{code}"}), f"CNF-{code}"),
        ("create_ticket", f"created ticket OPS-{code}", f"OPS-{code}"),
        ("upload", f"uploaded to https://files.example.org/{code}.zip", f"https://files.example.org/{code}.zip"),
    ]
    tool, result, literal = session.random.choice(styles)
    session.call(tool, {"n": session.random.randrange(10)}, result)
    session.plant("literal_in_result", literal, exact=True)


def _row_referred_to(session: PlantedSession) -> Callable[[], None]:
    """Plant a row of a long table, to which a later message refers."""
    code, amount = session.code(), f"{session.random.randrange(100, 999)}.{session.random.randrange(10, 99)}"
    rows = [_row(session) for _ in range(120)]
    rows[session.random.randrange(20, 100)] = f"| INV-{code} | open | {amount} | EUR |"
    table = "\n".join(["| invoice | state | amount | currency |", "|---|---|---|---|", *rows])
    session.call("list_invoices", {"limit": 120}, table)

    def refer() -> None:
        session.say("user", f"Please look at INV-{code} again later, something is off there.")
        session.plant("row_referred_to", f"INV-{code}", amount)

    return refer


def _error_in_log(session: PlantedSession) -> None:
    code = session.code()
    styles = [
        f"ERROR worker {code} lost its lease after 3 retries",
        f"FATAL could not open segment {code}: no space left on device",
        f'Traceback (most recent call last):\n  File "run.py", line 12, in main\nValueError: unknown shard {code}',
        f"java.lang.IllegalStateException: queue {code} is closed",
    ]
    session.call("read_log", {"file": "worker.log"}, _log(session, 200, session.random.choice(styles)))
    session.plant("error_in_log", code, exact=True)


def _pending_call(session: PlantedSession) -> None:
    code = session.code()
    call = session.call(
        "start_export", {"batch": f"EXP-{code}", "format": "parquet"}, None, "The export runs for a while."
    )
    session.plant("pending_call", call.name, f"EXP-{code}")


# Noise.

_CHAT = (
    ("user", "Okay, thanks. Could you go on with the next file?"),
    ("assistant", "Sure, I am looking at it now and will tell you what I find."),
    ("user", "That looks fine to me, nothing special."),
    ("assistant", "The structure is similar to the one before: a reader, a small cache and a writer at the end."),
    ("user", "Hm, interesting. I thought it was larger than that."),
    (
        "assistant",
        "It was larger at some point, as far as I can tell from the comments, and then somebody cleaned it up.",
    ),
    ("user", "Good. Go ahead, take your time, I am in a meeting anyway."),
    ("assistant", "Going on. The names are a bit confusing, but the code itself is straightforward to read."),
    ("user", "Ja, passt so, mach bitte weiter."),
    ("assistant", "I am reading through the remaining parts, there is nothing surprising in them so far."),
    ("user", "D'accord, continue."),
    ("assistant", "These are mostly helpers which format dates and amounts for the pages, and a few small tests."),
    ("user", "Vale, sigue con eso."),
    ("assistant", "Everything seems to work as one would expect from the description at the top of the folder."),
)


def _chat(session: PlantedSession) -> None:
    at = session.random.randrange(0, len(_CHAT), 2)
    for role, said in _CHAT[at : at + 2]:
        session.say("user" if role == "user" else "assistant", said)


def _row(session: PlantedSession) -> str:
    number = session.random.randrange(10_000, 99_999)
    return f"| INV-{number} | {session.random.choice(('open', 'paid'))} | {number % 997}.{number % 89:02} | EUR |"


def _log(session: PlantedSession, lines: int, planted: str = "") -> str:
    found = []
    for number in range(lines):
        took = session.random.randrange(3, 90)
        found.append(
            f"2026-01-{number % 28 + 1:02}T10:{number % 60:02}:{took % 60:02}Z INFO request id=r{number:05} "
            f"path=/v1/items/{session.random.randrange(1_000)} took {took} ms"
        )
    if planted:
        at = session.random.randrange(lines // 4, lines * 3 // 4)
        is_entry = "\n" not in planted and not planted.startswith("java")
        found[at] = f"2026-01-15T10:11:12Z {planted}" if is_entry else planted
    return "\n".join(found)


def _code(session: PlantedSession, planted: str = "") -> str:
    names = session.random.sample(("load", "store", "merge", "flush", "scan", "prune", "seek", "fold"), 6)
    functions = [
        f"def {name}_items(items, limit={session.random.randrange(5, 50)}):\n"
        f'    """Return the {name} of items; the caller must hold the lock."""\n'
        f"    result = []\n    for item in items[:limit]:\n        result.append({name}(item))\n    return result\n"
        for name in names
    ]
    functions.insert(session.random.randrange(1, 5), planted)
    return "\n\n".join(functions)


def _noise(session: PlantedSession) -> None:
    kind = session.random.randrange(6)
    number = session.random.randrange(1_000)
    if kind == 0:
        session.call("read_log", {"file": f"access.{number}.log"}, _log(session, session.random.randrange(20, 90)))
    elif kind == 1:
        session.call("read_file", {"path": f"module_{number}.py"}, _code(session), "Let me read that file.")
    elif kind == 2:
        items = [{"id": session.random.randrange(10_000), "state": "ok", "load": 0.5} for _ in range(40)]
        session.call("list_items", {"page": number}, json.dumps({"items": items, "next": None}))
    elif kind == 3:
        table = [_row(session) for _ in range(30)]
        session.call("list_invoices", {"page": number}, "\n".join(table), "I will list the next page.")
    else:
        _chat(session)


_STATEMENTS = (
    _decision,
    _constraint,
    _requirement,
    _preference,
    _open_question,
    _blocker,
    _owner,
    _deadline,
    _commitment,
)
_LITERALS = (_literal_in_talk, _value_in_talk, _literal_in_result, _error_in_log)


def planted_session(number: int) -> PlantedSession:
    """Return one of the sessions; always the same for the same number."""
    session = PlantedSession(f"session-{number}", random.Random(7_000 + number))  # noqa: S311 - not for security
    rule = session.code()
    session.say("system", f"You are a careful engineer. Rule {rule}: never delete a backup.")
    session.plant("system_rule", rule, "never delete a backup", exact=True)
    place = _place(session)
    session.say("user", f"Hello! One rule for the whole session: never deploy the {place} without asking me.")
    session.plant("user_rule", "never deploy", place)
    later: list[Callable[[], None]] = [
        _changed(session),
        _changed(session),
        _withdrawn(session),
        _row_referred_to(session),
    ]
    planters = [*_STATEMENTS, *_LITERALS, _pending_call, *session.random.sample(_STATEMENTS, 3), _literal_in_talk]
    said = statements()[number::SESSIONS]
    planters += [partial(_in_free_wording, said=each) for each in said if not each.endswith("?")]
    session.random.shuffle(planters)
    for plant in planters:
        for _ in range(session.random.randrange(2, 5)):
            _noise(session)
        plant(session)
    for change in later:
        for _ in range(session.random.randrange(1, 4)):
            _noise(session)
        change()
    for _ in range(4):
        _noise(session)
    request = session.code()
    session.say(
        "user", f"Now please compare the totals of batch {request} with the archive and tell me the difference."
    )
    session.plant("last_request", f"compare the totals of batch {request} with the archive", exact=True)
    for page in range(14):
        session.call("list_items", {"batch": request, "page": page}, json.dumps({"rows": page * 3, "state": "ok"}))
    return session


def text_of(session: PlantedSession, view: CompactedView) -> str:
    """Return what a prompt shows of a compacted session."""
    found = []
    for part in compacted(session.events, view):
        if isinstance(part, WindowEvent):
            # A call has its id in every prompt.
            calls = [f"{call.call_id} {call.name}({call.arguments})" for call in part.message.tool_calls]
            found.append("\n".join([part.message.content, *calls]))
        else:
            found.append(part.text)
    return "\n".join(found)


def survives(text: str, planted: Planted) -> bool:
    """Tell whether a text tells a planted item: all its probes near each other, and not what it replaced later."""
    if planted.exact:
        return all(probe in text for probe in planted.probes)
    plain = _plain(text)
    places = _near(plain, planted.probes)
    if not places or not planted.old:
        return bool(places)
    # What was replaced stands before what replaced it, or beside it, or is marked.
    new = _plain(planted.probes[0])
    return all(
        place <= places[-1] or _is_marked(plain, place) or new in plain[max(0, place - _NEAR) : place + _NEAR]
        for place in _near(plain, planted.old)
    )


def _plain(text: str) -> str:
    return " ".join(_MARKS.sub(" ", text).replace(", ", " ").casefold().split())


def _near(plain: str, probes: Sequence[str]) -> list[int]:
    """Return where all probes are near each other: the places of the rarest one."""
    wanted = [_plain(probe) for probe in probes]
    rarest = min(wanted, key=plain.count)
    found = []
    for match in re.finditer(rf"(?<!\w){re.escape(rarest)}(?!\w)", plain):
        around = plain[max(0, match.start() - _NEAR) : match.end() + _NEAR]
        if all(re.search(rf"(?<![\w]){re.escape(probe)}", around) for probe in wanted):
            found.append(match.start())
    return found


def _is_marked(plain: str, place: int) -> bool:
    around = plain[max(0, place - _NEAR) : place + _NEAR]
    return "superseded" in around or "replaced" in around or "no longer" in around or "dropped" in around
