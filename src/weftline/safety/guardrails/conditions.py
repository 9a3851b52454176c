"""Conditions of guardrails: CEL expressions, checked when they are defined and evaluated together.

The text of a condition and the values of a call are untrusted. CEL has no side effects, its regular expressions do not
backtrack and loops have a budget; what one evaluation may read is limited here, because it cannot be interrupted.
"""

from __future__ import annotations

import re
import warnings
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.errors import close_names
from weftline.safety.guardrails.model import Label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LABELS: tuple[str, ...] = Label.__args__  # type: ignore[attr-defined]
AGENT_FIELDS = ("id", "type", "kind", "participant", "clearance", "teams", "ancestors")
RATES = ("minute", "hour")
VARIABLES = {
    "tool": "string",
    "operation": "string",
    "arguments": "map<string, dyn>",
    "agent": "map<string, dyn>",
    "session_id": "string",
    "step": "string",
    "now": "timestamp",
    "calls": "map<string, int>",
    "labels": "list<string>",
    "answer": "map<string, dyn>",
}
_FIELDS = {"agent": AGENT_FIELDS, "calls": RATES}
_LOOPS = frozenset({"all", "exists", "exists_one", "map", "filter"})
# CEL's own limit of iterations in one evaluation.
_MAX_ITERATIONS = 10_000
# The largest regular expression, with counted repetitions written out.
_MAX_REGEX = 1_000
_MIN_REGEX = 5
# RE2 leaves its automaton for larger ones, and then takes much longer for each step.
_LARGE_REGEX, _LARGE_FACTOR = 100, 10
# Bytes times operations of one evaluation: milliseconds as a rule, half a second for the worst expression.
_MAX_WORK = 20_000_000
_OPERATIONS_PER_UNIT = 4
# Conditions that are evaluated as one expression, their characters, and compiled expressions in memory.
GROUP = 50
GROUP_CHARACTERS = 4_000
_MAX_GROUPS = 2_000
_POSITION = re.compile(r"<input>:(\d+):(\d+): (.*)")
_COUNTED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<string>[bB]?[rR][bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n]*"|'[^'\n]*')
        |[bB]?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)


class ConditionError(Exception):
    """A condition that cannot be compiled: what is wrong, and what to do."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class EvaluationError(Exception):
    """A condition has no result for this call. The text may quote values of the call: show it to testers only."""


class CallSize(NamedTuple):
    """How much a condition has to read: bytes of the call's values, and the number of values in it."""

    size: int
    elements: int


class ConditionProfile(NamedTuple):
    """What a condition uses: variables, depth of loops, operations, and the work of its regular expressions."""

    variables: frozenset[str]
    loops: int
    operations: int
    regex_work: int
    literals: tuple[str, ...]


class CompiledCondition:
    """A condition. It is compiled on first use, so that loading many rules is quick.

    ``owner`` is whose rules it is shared with; nobody can tell by the time of compiling which rules others have.
    """

    def __init__(self, source: str, owner: str = "") -> None:
        self.source = source
        self.owner = owner

    @cached_property
    def usage(self) -> ConditionProfile:
        return _usage(self.source)

    @property
    def variables(self) -> frozenset[str]:
        return self.usage.variables

    @property
    def is_grouped(self) -> bool:
        """Tell whether it may share an evaluation: loops share one budget, and rates differ by rule."""
        return self.usage.loops == 0 and "calls" not in self.variables

    @cached_property
    def expression(self) -> Any:  # noqa: ANN401 - CEL has no exported types
        """Return the compiled condition. Compiling takes far longer than evaluating."""
        return _environment().compile(self.source)

    def compile(self) -> None:
        """Compile it, if it was not; raises ConditionError."""
        try:
            self.expression  # noqa: B018 - cached
        except Exception as error:
            raise _compile_error(self.source, str(error)) from error

    def work(self, size: CallSize) -> float:
        """Return an upper bound of the work of one evaluation."""
        usage = self.usage
        if not usage.variables & {"arguments", "answer"}:
            return 0
        per_byte = usage.operations / _OPERATIONS_PER_UNIT + usage.regex_work
        elements = size.elements + self.source.count(",")
        iterations = min(_MAX_ITERATIONS, elements**usage.loops) if usage.loops else 1
        return size.size * per_byte * iterations

    def evaluate(self, activation: Any, size: CallSize) -> bool:  # noqa: ANN401 - likewise
        """Return the result for a call; raises EvaluationError."""
        if self.work(size) > _MAX_WORK:
            raise EvaluationError("the values of the call are too large for this condition")
        try:
            result = self.expression.eval(activation)
            value = result.value()
        except Exception as error:
            raise EvaluationError(str(error)) from error
        if not isinstance(value, bool):
            raise EvaluationError(str(value))
        return value


@lru_cache(maxsize=_MAX_GROUPS)
def check_condition(source: str, owner: str = "") -> CompiledCondition:
    """Compile a condition and check its types, once for an owner; raises ConditionError."""
    condition = CompiledCondition(source, owner)
    usage = _usage(source)
    for literal in usage.literals:
        _check_regex(literal)
    try:
        expression = _environment().compile(source)
    except Exception as error:
        raise _compile_error(source, str(error)) from error
    if expression.return_type() != _cel().Type.BOOL:
        raise ConditionError(
            f"the result is of type {expression.return_type().name()}, not bool",
            "Compare the value, such as arguments.public == true.",
        )
    return condition


class ConditionGroup:
    """Conditions without loops that are evaluated together, in one call of CEL."""

    def __init__(self, conditions: Sequence[CompiledCondition]) -> None:
        self._sources = tuple(condition.source for condition in conditions)
        self._owners = frozenset(condition.owner for condition in conditions)
        # All of them read every byte at most once for each operation, as none has a loop.
        self._work_per_byte = sum(condition.work(CallSize(1, 1)) for condition in conditions)
        self._expression: Any = None

    def compile(self) -> None:
        """Compile the conditions as one expression; equal groups of the same owners share it."""
        self._expression = _group_of(self._sources, self._owners)

    def evaluate(self, activation: Any, size: CallSize) -> list[bool] | None:  # noqa: ANN401 - likewise
        """Return the results in order; None if they have to be evaluated one by one, because one has none."""
        if self._expression is None or size.size * self._work_per_byte > _MAX_WORK:
            return None
        try:
            results = self._expression.eval(activation).plain_value()
        except Exception:  # noqa: BLE001 - found again, and handled, when they are evaluated one by one
            return None
        return results if isinstance(results, list) else None


@lru_cache(maxsize=_MAX_GROUPS)
def _group_of(sources: tuple[str, ...], owners: frozenset[str]) -> Any | None:  # noqa: ANN401 - likewise
    del owners  # part of the key
    try:
        # A line break ends a comment at the end of a condition.
        return _environment().compile("[" + ",".join(f"({source}\n)" for source in sources) + "]")
    except Exception:  # noqa: BLE001 - nested too deeply together; each for itself compiles
        return None


def activation(values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - likewise
    """Return the values of one call, for many conditions. Missing ones are empty."""
    return _environment().Activation({**_EMPTY, **values})


_EMPTY: dict[str, Any] = {
    "tool": "",
    "operation": "",
    "arguments": {},
    "agent": {},
    "session_id": "",
    "step": "",
    "calls": {},
    "labels": [],
    "answer": {},
}


@cache
def _cel() -> Any:  # noqa: ANN401 - likewise
    # Loaded only where a rule has a condition.
    from cel_expr_python import cel  # noqa: PLC0415

    return cel


@cache
def _environment() -> Any:  # noqa: ANN401 - likewise
    types = _cel().Type
    by_name = {
        "string": types.STRING,
        "timestamp": types.TIMESTAMP,
        "map<string, dyn>": types.Map(types.STRING, types.DYN),
        "map<string, int>": types.Map(types.STRING, types.INT),
        "list<string>": types.List(types.STRING),
    }
    return _cel().NewEnv(variables={name: by_name[kind] for name, kind in VARIABLES.items()})


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


def _usage(source: str) -> ConditionProfile:
    """Read a condition without compiling it; raises ConditionError about what CEL would accept and never be true."""
    tokens = [
        _Token(found.lastgroup or "", found.group(), found.start())
        for found in _TOKEN.finditer(source)
        if found.lastgroup != "space"
    ]
    variables: set[str] = set()
    literals: list[str] = []
    parentheses: list[bool] = []
    depth = operations = 0
    for place, token in enumerate(tokens):
        before = tokens[place - 1].text if place else ""
        after = tokens[place + 1].text if place + 1 < len(tokens) else ""
        if token.kind == "name" and after == "(":
            operations += 1
            if token.text == "matches":
                literals.append(_regex_of(source, tokens[place : place + 4], is_member=before == "."))
        elif token.kind == "name" and before != "." and token.text in VARIABLES:
            variables.add(token.text)
            _check_field(source, tokens[place : place + 3])
        elif token.kind == "string" and after == "in":
            _check_label(source, tokens[place : place + 3])
        elif token.text == "(":
            parentheses.append(before in _LOOPS and place > 1 and tokens[place - 2].text == ".")
            depth = max(depth, sum(parentheses))
        elif token.text == ")" and parentheses:
            parentheses.pop()
        elif token.kind == "symbol":
            operations += token.text in "=<>+-*/%!&|?["
    return ConditionProfile(
        frozenset(variables), depth, max(operations, 1), sum(map(_regex_work, literals)), tuple(literals)
    )


def _check_field(source: str, tokens: Sequence[_Token]) -> None:
    known = _FIELDS.get(tokens[0].text)
    if known is None or len(tokens) < 3 or tokens[1].text != "." or tokens[2].text in known:  # noqa: PLR2004
        return
    raise ConditionError(
        f"{_at(source, tokens[2])}: {tokens[0].text} has no field '{tokens[2].text}'",
        _suggestion(tokens[2].text, known, f"The fields of {tokens[0].text} are"),
    )


def _check_label(source: str, tokens: Sequence[_Token]) -> None:
    label = tokens[0].text.strip("rRbB").strip("'\"")
    if len(tokens) == 3 and tokens[2].text == "labels" and label not in LABELS:  # noqa: PLR2004
        raise ConditionError(
            f"{_at(source, tokens[0])}: there is no label '{label}'", _suggestion(label, LABELS, "The labels are")
        )


def _regex_of(source: str, tokens: Sequence[_Token], *, is_member: bool) -> str:
    if not is_member or len(tokens) < 4 or tokens[2].kind != "string" or tokens[3].text != ")":  # noqa: PLR2004
        raise ConditionError(
            f"{_at(source, tokens[0])}: matches needs a regular expression as a literal",
            "Write text.matches('expression').",
        )
    return tokens[2].text


def _check_regex(literal: str) -> None:
    try:
        result = _environment().compile(f"''.matches({literal})").eval(activation({}))
        problem = None if isinstance(result.value(), bool) else str(result.value())
    except Exception as error:  # noqa: BLE001 - whatever CEL refuses
        problem = str(error)
    if problem is not None:
        raise ConditionError(
            f"the regular expression {literal[:60]}: {problem.partition('regular expression: ')[2] or problem}"[:300],
            "Use the syntax of RE2: no backreferences, no look-around.",
        )
    if _regex_size(literal) > _MAX_REGEX:
        raise ConditionError(
            f"the regular expression {literal[:60]} has more than {_MAX_REGEX} steps with its repetitions",
            "Use smaller counts in braces, or + and *.",
        )


def _regex_work(literal: str) -> int:
    size = _regex_size(literal)
    return size if size <= _LARGE_REGEX else size * _LARGE_FACTOR


def _regex_size(literal: str) -> int:
    """Return the size of a regular expression with its counted repetitions written out; at least as large as it is."""
    try:
        # Decoded by CEL: escapes in the literal may hide a repetition.
        pattern = _environment().compile(literal).eval(activation({})).value()
    except Exception:  # noqa: BLE001 - not a literal that CEL accepts: the condition does not compile either
        return _MIN_REGEX
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]  # noqa: SLF001 - no other parser
        return max(_MIN_REGEX, _parsed_size(parsed))
    except (re.error, RecursionError, OverflowError, TypeError):
        # Python does not know this syntax of RE2: as if all repetitions were nested.
        size = len(pattern)
        for found in _COUNTED.finditer(str(pattern)):
            size *= max(int(found[1]), int(found[2] or 0), 1)
        return max(_MIN_REGEX, size)


def _parsed_size(parsed: Any) -> int:  # noqa: ANN401 - a node of Python's parser
    size = 0
    for operation, argument in parsed:
        name = str(operation)
        if name.endswith("REPEAT"):
            least, most, inner = argument
            times = least + 1 if str(most) == "MAXREPEAT" else most
            size += max(times, 1) * _parsed_size(inner)
        elif name == "BRANCH":
            size += sum(_parsed_size(branch) for branch in argument[1])
        elif name == "SUBPATTERN":
            size += _parsed_size(argument[-1])
        else:
            size += 1
    return size


def _compile_error(source: str, text: str) -> ConditionError:
    found = _POSITION.findall(text)
    if not found:
        reason = "it is nested too deeply" if "recursion" in text.lower() else text.partition("[")[0].strip()[:200]
        return ConditionError(reason, "Write it with fewer levels of parentheses.")
    line, column, problem = found[0]
    unknown = re.search(r"undeclared reference to '([A-Za-z0-9_]+)", problem)
    if unknown:
        place = re.search(rf"(?<![.\w]){unknown[1]}\b", source)
        shown = _position(source, place.start()) if place else f"line {line}, column {column}"
        hint = _suggestion(unknown[1], tuple(VARIABLES), "The variables are")
        return ConditionError(f"{shown}: there is no variable or function '{unknown[1]}'", hint)
    shown = f"line {line}, column {column}: {problem}"
    return ConditionError(shown, "Correct it; the page on guardrails has examples of conditions.")


def _suggestion(name: str, known: Sequence[str], introduction: str) -> str:
    close = close_names(name, known)
    return f"Did you mean {close[0]}?" if close else f"{introduction} {', '.join(known)}."


def _at(source: str, token: _Token) -> str:
    return _position(source, token.start)


def _position(source: str, start: int) -> str:
    line = source.count("\n", 0, start) + 1
    return f"line {line}, column {start - source.rfind(chr(10), 0, start)}"
