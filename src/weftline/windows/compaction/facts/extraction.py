"""Extraction of key facts from the events of a window, without a model.

Statements come from what people and agents say; from results of tools only errors, labelled lines, a few literals, and
the lines of literals that were referred to later: a log of 10,000 lines has no 10,000 facts. A tool decides nothing.
Time is linear in the length of the events, and the number of facts of an event is bounded.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.identity import HUMAN
from weftline.kernel.thread_pools import COMPACTION_THREADS
from weftline.safety.trust.model import Trust
from weftline.windows.compaction.facts.supersession import (
    CLOSING_WORDS,
    MAX_REPLY_DISTANCE,
    FactLog,
    OpenQuestions,
    is_undecided,
)
from weftline.windows.compaction.facts.units import (
    LABEL_WORDS,
    MAX_UNIT,
    Statement,
    Unit,
    header_kind,
    label_in,
    read_statements,
    units_of,
)
from weftline.windows.compaction.facts.values import Literal, literals_in
from weftline.windows.compaction.model import RESULT_OF, STATED_KINDS, FactKind, KeyFact, binds
from weftline.windows.model import Category, is_from_user

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.models.language_models.content import ToolCall
    from weftline.windows.model import WindowEvent


# Errors in talk, logs, stack traces and results of tools.

_CASED = re.compile(
    r"\b[A-Z][\w.]{0,80}(?:Error|Exception|Failure|Fault)\b|"
    r"\b(?:ERROR|FATAL|CRITICAL|PANIC|SEVERE|ORA-\d{4,5})\b|"
    r"\bpanic:|\berror\[\w{1,10}\]|(?:^|[\s\"])(?:[Ee]rror|fatal|FAILED|[Ff]ailed)\"?: ?[^\s0]"
)
_STATUS = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?(?: code| status)|HTTP(?:/\d(?:\.\d)?)?|status(?:[_ ]code)?)[\" =:]{1,4}"
    r"(?:[1-9]\d?\b|[45]\d\d\b)",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"\b(?:segmentation fault|out of memory|no such file or directory|permission denied|connection refused|"
    r"access denied|deadlock detected|core dumped|cannot allocate memory|no space left on device|command not found)\b",
    re.IGNORECASE,
)
# What follows a number of failures in the summary of a test run.
_FAILURES = re.compile(r"\b[1-9]\d{0,5} (?:failed|failures?|errors?)\b")
# One of these is in every error, as a word or at the end of one; most lines have none.
ERROR_WORDS = frozenset(
    {
        *(
            "error",
            "errors",
            "fatal",
            "failed",
            "failure",
            "failures",
            "exception",
            "critical",
            "severe",
            "panic",
            "ora",
        ),
        *(
            "exit",
            "exited",
            "status",
            "http",
            "refused",
            "denied",
            "memory",
            "dumped",
            "deadlock",
            "space",
            "segmentation",
        ),
        *("such", "command"),
    }
)
_ENDINGS = ("Error", "Exception", "Failure", "Fault")
_FRAME = re.compile(r"\s*(?:File \"|at \S+\(|\.{3} \d+ more|Traceback|\^)")
# What differs between repetitions: addresses, hashes and plain numbers. Codes and names tell one error from another.
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b(?=[a-f]*\d)[0-9a-f]{8,64}\b")
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(
    r"((?:\b(?:code|status|exit|signal|errno|error|HTTP(?:/\d(?:\.\d)?)?)\W{1,3}|\b[A-Za-z][A-Za-z_]{0,40}[-_]?)"
    r"\d[\w-]{0,40})|\d+",
    re.IGNORECASE,
)


def is_error(line: str, words: AbstractSet[str]) -> bool:
    """Tell whether a line reports an error; frames of a stack trace do not. ``words``: its words in lower case."""
    if ERROR_WORDS.isdisjoint(words) and not any(ending in line for ending in _ENDINGS):
        return False
    if _FRAME.match(line):
        return False
    return any(pattern.search(line) for pattern in (_CASED, _STATUS, _PHRASE, _FAILURES))


def error_kind(line: str) -> str:
    """Return what errors of one kind have in common: the line without any number, code or address."""
    return _DIGITS.sub("0", _VARIABLE.sub("0", line))


def error_template(line: str) -> str:
    """Return what an error has in common with its repetitions: the line without addresses and numbers.

    Codes and identifiers stay, such as E1234, HTTP 503, exit code 137 or job-7: with another one it is another error.
    """
    return _NUMBER.sub(lambda found: found[1] or "0", _VARIABLE.sub("0", line))


# Of longer messages, literals are read at the beginning and at the end only.
_LONG_TEXT = 24_000
_MAX_STATEMENTS = 48
_MAX_LITERALS = 32
# Kinds of errors of a result, and further ones of these kinds with another code or identifier.
_MAX_ERRORS = 6
_MAX_VARIANTS = 4
_MAX_REFERRED = 4
# Sentences of one event that are read for statements, from its beginning and from its end.
_MAX_READ, _READ_AT_END = 200, 50
# Results of tools up to this length tell few things, and each may matter.
_SHORT_RESULT = 600
_MAX_RESULT_LITERALS = 3
_MAX_RESULT_STATEMENTS = 12
_MAX_ARGUMENTS = 300
_MAX_ARGUMENT_LITERALS = 6
_MIN_STATEMENT_WORDS = 2
# From this probability on it is looked for whether a question was answered.
_ASKED = 0.2
# Kinds of what is settled: a question or what is not yet decided is none, whatever the classifier takes it for.
_SETTLED = frozenset({FactKind.DECISION, FactKind.CONSTRAINT})
_MIN_REFERENCE = 4
_SNIPPET = 110
_RESULT_KINDS = frozenset({FactKind.IDENTIFIER, FactKind.URL, FactKind.QUANTITY})
_CLAUSE_END = re.compile(r"[,;:.!?](?=\s)|\s[\u2013\u2014-]\s")
_REFERENCE = re.compile(r"[^\s,;\"'(){}\[\]<>|=*`]{4,200}")
_EDGES = ".,;:!?"
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_CUE_WORDS = LABEL_WORDS | CLOSING_WORDS | ERROR_WORDS
_TURN_SECONDS = 0.05
# Events that are read ahead in one turn at most.
_MAX_AHEAD = 64
_USER = "user"


class _Draft(NamedTuple):
    kind: FactKind
    text: str
    literals: tuple[str, ...] = ()
    probability: float = 1.0


def extract_facts(events: Sequence[WindowEvent], earlier: Sequence[KeyFact] = ()) -> list[KeyFact]:
    """Return ``earlier`` facts and those of a window's events, in their order, with status and supersession."""
    log = FactLog.of(earlier)
    for _ in _read_events(events, log):
        pass
    return log.facts


async def extract_in_turns(events: Sequence[WindowEvent], earlier: Sequence[KeyFact] = ()) -> list[KeyFact]:
    """Return facts as above, extracted in a thread in short turns: other windows have theirs in between."""
    log = FactLog.of(earlier)
    reading = _read_events(events, log)
    while await COMPACTION_THREADS.run(_turn, reading):
        pass
    return log.facts


class WindowReader:
    """Reads the events of a growing window once, so that a compaction or a prompt finds what they state.

    What they state is remembered where every extraction looks (statements.py). The newest events are read alone: what
    answers them may come yet.
    """

    def __init__(self) -> None:
        self._log = FactLog()
        self._read: list[str] = []

    async def read(self, events: Sequence[WindowEvent]) -> bool:
        """Read for a short time, in a thread; tell whether there is more."""
        return await COMPACTION_THREADS.run(self._turn, events)

    def _turn(self, events: Sequence[WindowEvent]) -> bool:
        sources = [event for event in events if is_source(event)]
        if [event.event_id for event in sources[: len(self._read)]] != self._read:
            # Another history, such as after a rollback.
            self._log, self._read = FactLog(), []
        first = len(self._read)
        return _turn(self._steps(sources[first : first + _MAX_AHEAD])) or len(sources) > first + _MAX_AHEAD

    def _steps(self, events: Sequence[WindowEvent]) -> Iterator[None]:
        reader = _Reader(_Session.of(events))
        for number, event in enumerate(events):
            if len(events) - number > MAX_REPLY_DISTANCE:
                reader.add(number, event, self._log)
                self._read.append(event.event_id)
            elif event.message.role != "tool":
                _stated(event, list(units_of(event.message.content)))
            yield


def _turn(reading: Iterator[None]) -> bool:
    """Read events for a short time; tell whether there are more."""
    until = time.monotonic() + _TURN_SECONDS
    return any(time.monotonic() >= until for _ in reading)


def _read_events(events: Sequence[WindowEvent], log: FactLog) -> Iterator[None]:
    """Add the facts of events to a log, one event after the other."""
    read = [event for event in events if is_source(event)]
    reader = _Reader(_Session.of(read))
    for number, event in enumerate(read):
        yield
        reader.add(number, event, log)
    yield
    log.resolve_errors(_successes(read, reader.session, log.facts))


def is_source(event: WindowEvent) -> bool:
    """Tell whether facts are taken from an event: not from instructions, which always stay, nor from attacks."""
    is_suspicious = event.trust is not None and event.trust.trust is Trust.SUSPICIOUS
    return not (event.redacted or event.routed or is_suspicious or event.category is Category.SYSTEM)


def is_data_event(event: WindowEvent) -> bool:
    """Tell whether an event is data rather than what somebody says: a result of a tool, or labelled as such."""
    return event.message.role == "tool" or (event.trust is not None and event.trust.source.is_data)


def _successes(events: Sequence[WindowEvent], session: _Session, facts: Sequence[KeyFact]) -> dict[str, str]:
    """Return, for the event of an error, the later event of the same call without one."""
    failed = {fact.event_ids[0] for fact in facts if fact.kind is FactKind.ERROR}
    found: dict[str, str] = {}
    successes: dict[tuple[str, str], str] = {}
    for event in reversed(events):
        call = session.calls.get(event.message.tool_call_id or "")
        if call is None:
            continue
        key = (call.name, call.arguments)
        if event.event_id in failed:
            if key in successes:
                found[event.event_id] = successes[key]
        elif not _begins_with_error(event.message.content):
            successes[key] = event.event_id
    return found


def _begins_with_error(text: str) -> bool:
    beginning = text[:MAX_UNIT]
    return is_error(beginning, words_of(beginning))


@dataclass(frozen=True, slots=True)
class _Session:
    """What is known of all events: calls by their id, answered calls, where a token is mentioned last, questions."""

    calls: Mapping[str, ToolCall]
    answered: frozenset[str]
    last_mention: Mapping[str, int]
    questions: OpenQuestions

    @classmethod
    def of(cls, events: Sequence[WindowEvent]) -> _Session:
        calls = {call.call_id: call for event in events for call in event.message.tool_calls}
        answered = frozenset(event.message.tool_call_id for event in events if event.message.tool_call_id is not None)
        return cls(calls, answered, _last_mentions(events), OpenQuestions.of(events))


def _last_mentions(events: Sequence[WindowEvent]) -> dict[str, int]:
    """Return the number of the last event that mentions a token with a digit or sign, in talk or in arguments."""
    mentions: dict[str, int] = {}
    if not any(event.message.role == "tool" for event in events):
        # They are about results only.
        return mentions
    for number, event in enumerate(events):
        if event.message.role == "tool":
            continue
        texts = (
            event.message.content[:_LONG_TEXT],
            *(call.arguments[:_LONG_TEXT] for call in event.message.tool_calls),
        )
        for text in texts:
            for token in _REFERENCE.findall(text):
                if not token.isalpha():
                    mentions[token.strip(_EDGES)] = number
    return mentions


@dataclass(slots=True)
class _Reader:
    session: _Session
    seen_errors: set[str] = field(default_factory=set)
    seen_kinds: set[str] = field(default_factory=set)
    closings: list[str] = field(default_factory=list)

    def add(self, number: int, event: WindowEvent, log: FactLog) -> None:
        """Add the facts of an event to a log."""
        self.closings.clear()
        facts = self.facts(number, event)
        is_data = is_data_event(event)
        for text in self.closings:
            log.close(text, event.event_id, is_data=is_data)
        for fact in facts:
            log.add(fact, is_data=is_data)

    def facts(self, number: int, event: WindowEvent) -> list[KeyFact]:
        """Return the facts of an event; what may close earlier ones is added to ``closings``."""
        drafts = dict.fromkeys(self._drafts(number, event))
        who = self.who(event)
        return [_fact(event, order, draft, who) for order, draft in enumerate(drafts, start=1)]

    def who(self, event: WindowEvent) -> str:
        """Return who an event's statements are of: its speaker or the tool, never who merely recorded them."""
        if event.message.role == "tool":
            call = self.session.calls.get(event.message.tool_call_id or "")
            name = call.name if call is not None else event.message.name
            return f"{RESULT_OF}{name or 'a tool'}"
        if event.message.name:
            return event.message.name
        if is_from_user(event) and not event.author.startswith(HUMAN):
            return _USER
        return event.author if event.message.role == "user" else event.agent_id

    def _drafts(self, number: int, event: WindowEvent) -> Iterator[_Draft]:
        if event.message.role == "tool":
            yield from self._of_result(number, event.message.content)
            return
        yield from self._of_talk(number, event)
        yield from self._of_calls(event.message.tool_calls)

    def _of_talk(self, number: int, event: WindowEvent) -> Iterator[_Draft]:
        """Yield the statements, errors and literals of what somebody said."""
        text = event.message.content
        units = list(units_of(text))
        statements = literals = position = 0
        for unit, stated in zip(units, _stated(event, units), strict=True):
            position += len(unit.text)
            words = words_of(unit.text) & _CUE_WORDS
            if words and not CLOSING_WORDS.isdisjoint(words):
                self.closings.append(unit.text)
            draft = None
            if statements < _MAX_STATEMENTS:
                draft = _labelled(unit, words) or self._statement(number, event, unit.text, stated)
            if draft is None and statements < _MAX_STATEMENTS and is_error(unit.text, words) and not unit.is_code:
                draft = self._error(unit.text)
            if draft is not None:
                statements += 1
                yield draft
                if binds(draft.kind, draft.probability):
                    continue
            is_read = position < _LONG_TEXT or len(text) - position < _LONG_TEXT // 2
            if is_read and literals < _MAX_LITERALS:
                for literal in literals_in(unit.text, is_code=unit.is_code, is_data=unit.is_data):
                    literals += 1
                    yield _literal(unit.text, literal)

    def _statement(self, number: int, event: WindowEvent, text: str, stated: Statement | None) -> _Draft | None:
        """Return the statement of a sentence. What an agent that calls a tool says it will do is being done."""
        if stated is None or (stated.kind is FactKind.COMMITMENT and event.message.tool_calls):
            return None
        kind = FactKind.OPEN_QUESTION if stated.kind in _SETTLED and is_undecided(text) else stated.kind
        is_question = kind is FactKind.OPEN_QUESTION and stated.probability >= _ASKED
        if is_question and not self.session.questions.is_open(number, event.item_id, text):
            return None
        return _Draft(kind, text, _texts(literals_in(text)), stated.probability)

    def _of_calls(self, calls: Sequence[ToolCall]) -> Iterator[_Draft]:
        """Yield the literals in the arguments of calls, such as the files that they change, and calls that are open."""
        for call in calls:
            arguments = call.arguments
            if call.call_id not in self.session.answered:
                text = f"{call.name}({_shortened(arguments)})"
                yield _Draft(FactKind.PENDING_CALL, text, (call.name, call.call_id))
            units = units_of(arguments[:_LONG_TEXT])
            found = (each for unit in units for each in literals_in(unit.text, is_data=True))
            kept = [each for each in found if each.kind in {FactKind.PATH, FactKind.URL, FactKind.IDENTIFIER}]
            for literal in kept[:_MAX_ARGUMENT_LITERALS]:
                yield _Draft(literal.kind, literal.text, (literal.text,))

    def _of_result(self, number: int, text: str) -> Iterator[_Draft]:
        """Yield errors, labelled lines, literals of a short result, and lines that were referred to later.

        A label that only somebody's statement may have makes a quotation.
        """
        errors = variants = statements = literals = 0
        is_short = len(text) <= _SHORT_RESULT
        referred: list[_Draft] = []
        for unit in units_of(text):
            words = words_of(unit.text) & _CUE_WORDS
            if errors < _MAX_ERRORS and is_error(unit.text, words):
                is_variant = error_kind(unit.text) in self.seen_kinds
                draft = None if is_variant and variants >= _MAX_VARIANTS else self._error(unit.text)
                if draft is not None:
                    errors, variants = errors + (not is_variant), variants + is_variant
                    yield draft
                if draft is not None or not is_short:
                    continue
            labelled = _labelled(unit, words) if statements < _MAX_RESULT_STATEMENTS else None
            if labelled is not None:
                statements += 1
                yield _as_claim(labelled)
                continue
            if is_short and literals < _MAX_RESULT_LITERALS:
                for literal in literals_in(unit.text, is_data=True):
                    if literal.kind in _RESULT_KINDS and literals < _MAX_RESULT_LITERALS:
                        literals += 1
                        yield _literal(unit.text, literal)
            elif len(referred) < _MAX_REFERRED and (token := self._referred(number, unit.text)):
                referred.append(_Draft(FactKind.QUOTE, unit.text[:MAX_UNIT], (token,)))
        yield from referred

    def _referred(self, number: int, line: str) -> str | None:
        """Return the first token of a line that talk or arguments mention later."""
        for token in _REFERENCE.findall(line):
            if not token.isalpha() and self.session.last_mention.get(token.strip(_EDGES), -1) > number:
                return str(token.strip(_EDGES))
        return None

    def _error(self, line: str) -> _Draft | None:
        """Return an error, the first time that it is reported."""
        template = error_template(line)
        if template in self.seen_errors:
            return None
        self.seen_errors.add(template)
        self.seen_kinds.add(error_kind(line))
        return _Draft(FactKind.ERROR, line, _texts(literals_in(line, is_data=True)))


def words_of(text: str) -> set[str]:
    """Return the distinct words of a text in lower case."""
    return set(_WORD.findall(text.casefold().replace("\u2019", "'")))


def _stated(event: WindowEvent, units: Sequence[Unit]) -> list[Statement | None]:
    """Return what each unit of a message states; sentences are read, code and data are not."""
    places = [place for place, unit in enumerate(units) if _is_sentence(unit)]
    if len(places) > _MAX_READ:
        places = [*places[: _MAX_READ - _READ_AT_END], *places[-_READ_AT_END:]]
    found: list[Statement | None] = [None] * len(units)
    read = read_statements(event.item_id, [units[place].text for place in places])
    for place, statement in zip(places, read, strict=True):
        found[place] = statement
    return found


def _is_sentence(unit: Unit) -> bool:
    return not (unit.is_code or unit.is_data) and unit.text.count(" ") >= _MIN_STATEMENT_WORDS - 1


def _labelled(unit: Unit, words: set[str]) -> _Draft | None:
    labelled = label_in(unit.text, words)
    kind = labelled.kind if labelled is not None else header_kind(unit.header) if unit.header else None
    if kind is None:
        return None
    return _Draft(kind, unit.text, _texts(literals_in(unit.text, is_code=unit.is_code, is_data=unit.is_data)))


def _as_claim(draft: _Draft) -> _Draft:
    """Return a labelled line of a result: a quotation if its label is one of somebody's statement."""
    return _Draft(FactKind.QUOTE, draft.text, (draft.text,)) if draft.kind in STATED_KINDS else draft


def _texts(literals: Sequence[Literal]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(literal.text for literal in literals))


def _literal(unit: str, literal: Literal) -> _Draft:
    """Return a literal; a quantity or a date with its clause, since it means nothing alone."""
    is_value = literal.kind in {FactKind.QUANTITY, FactKind.DATE}
    text = _clause(unit, literal) if is_value else literal.text
    return _Draft(literal.kind, text, (literal.text,))


def _clause(unit: str, literal: Literal) -> str:
    """Return the clause around a literal, of bounded length."""
    start = max(0, literal.end - _SNIPPET)
    for match in _CLAUSE_END.finditer(unit, start, literal.start):
        start = match.end()
    following = _CLAUSE_END.search(unit, literal.end, min(len(unit), start + _SNIPPET * 2))
    end = following.start() if following is not None else min(len(unit), max(literal.end, start + _SNIPPET))
    if end < len(unit) and not unit[end].isspace() and following is None:
        end = max(literal.end, unit.rfind(" ", literal.end, end))
    if start and not unit[start - 1].isspace() and not unit[start].isspace():
        start = min(literal.start, unit.find(" ", start) + 1 or literal.start)
    return unit[start:end].strip()


def _shortened(arguments: str) -> str:
    return arguments if len(arguments) <= _MAX_ARGUMENTS else f"{arguments[:_MAX_ARGUMENTS]}..."


def _fact(event: WindowEvent, order: int, draft: _Draft, who: str) -> KeyFact:
    return KeyFact(
        fact_id=f"{event.event_id}#{order}",
        kind=draft.kind,
        # Facts are listed one in a line: none may begin another.
        text=" ".join(draft.text.splitlines()),
        who=who,
        at=event.at,
        event_ids=(event.event_id,),
        literals=draft.literals,
        probability=round(draft.probability, 3),
    )
