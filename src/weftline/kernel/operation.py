"""Operations: each thing Weftline can do, defined once.

MCP tools, REST routes, CLI commands, client methods and reference pages are generated from the registry.
The first parameter of the decorated function is the request; every further parameter is a dependency, injected by type.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, dataclass_transform, get_type_hints

import msgspec

from weftline.kernel.errors import UnknownOperation, WeftlineError
from weftline.kernel.identity import Permission
from weftline.kernel.json_input import invalid_input

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from weftline.kernel.identity import Actor


# Reading more rows than this takes long enough that others would notice it.
_LARGE_PAGE = 200


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Wire(msgspec.StructMeta):
    """Makes requests and responses frozen and keyword-only."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Wire:  # noqa: ANN401
        return super().__new__(cls, name, bases, namespace, **{"frozen": True, "kw_only": True, **config})


class Request(msgspec.Struct, metaclass=Wire, forbid_unknown_fields=True):
    """Base of requests; unknown fields are rejected."""


class Response(msgspec.Struct, metaclass=Wire, omit_defaults=True):
    """Base of responses; fields with their default value are omitted.

    ``on_record`` names the fields that are written to the audit log of an audited operation.
    """

    on_record: ClassVar[tuple[str, ...]] = ()


class Success(Response, omit_defaults=False):
    """The change was made."""

    success: Literal[True] = True


def shared_fields(source: object, target: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the values of the fields of ``target`` that ``source`` has under the same names."""
    return {name: getattr(source, name) for name in target.__struct_fields__ if hasattr(source, name)}


class Effect(Enum):
    """What an operation does to storage; decides the transaction it runs in."""

    READ = "read"
    WRITE = "write"
    # Opens its own transactions, or none.
    OWN_TRANSACTIONS = "own_transactions"
    # Likewise, and may wait for events.
    WAIT = "wait"


class Audience(Enum):
    """Who may see and call an operation."""

    EVERYONE = "everyone"
    NOT_SUBAGENTS = "not_subagents"
    HUMANS = "humans"
    ANONYMOUS = "anonymous"


class SessionUse(Enum):
    """How an operation uses sessions, and so what it does on a connection that is bound to one session."""

    # In the session of its session_id. A bound connection fills it in; another session does not exist there.
    WORKS_IN = "works_in"
    # Likewise, but not filled in: without a session_id it is about what belongs to no session.
    MAY_NAME = "may_name"
    # Names or lists by other ids what may lie in sessions. It finds what is in sessions that admit the caller: on a
    # bound connection only that one does.
    FINDS = "finds"
    # Neither shows nor changes anything of a session.
    NONE = "none"
    # Creates sessions, or covers all of them: refused on a bound connection.
    OUTSIDE = "outside"


class RateClass(StrEnum):
    """Classes of calls, each with its rate limit per agent; messages of anonymous callers are limited by address.

    What an MCP message asks for is in its body: as ``mcp`` it is counted before that is read, and a call in it then
    counts for the class of its operation too.
    """

    ANONYMOUS = "anonymous"
    AUTHENTICATION = "authentication"
    MCP = "mcp"
    SESSION = "session"
    BOARD = "board"
    MESSAGE = "message"
    SEARCH = "search"
    MEMORY = "memory"
    KNOWLEDGE = "knowledge"
    ADMIN = "admin"


class SubmittedText(NamedTuple):
    """A text of a request that will be stored; ``data`` if it came from a tool or document."""

    text: str
    data: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """HTTP route of an operation."""

    method: str
    path: str
    status: int = 200


class PreparationOutdated(Exception):
    """What was prepared no longer holds, because others have written since: prepare again, then repeat the call."""


@dataclass(frozen=True)
class Preparation:
    """Slow work done before the transaction begins, so that it holds no lock."""

    run: Callable[..., Awaitable[Any]]

    @cached_property
    def needs(self) -> tuple[type, ...]:
        return tuple(_parameters(self.run)[1:])


@dataclass(frozen=True)
class Operation:
    """Definition of one operation, for all interfaces.

    An ``audited`` one adds a row to the audit log, without the fields in ``off_record`` (values).
    A ``destructive`` one removes something that no other call brings back: interfaces for humans ask first.
    A ``heavy`` request costs more the more is stored. As a read it gets a thread and a connection of its own; with its
    own transactions it holds one of the slots that tenants and principals share. Large pages are always heavy.
    ``requires`` raises PermissionDenied for callers that may not use it, whatever the request.
    ``forbids`` raises for raw requests that no caller may make, before permissions are checked.
    ``session_use`` declares ``session``; an operation that declares none works in the session of its session_id.
    ``content`` returns the texts of a request that are stored and later shown to agents: they are scanned before the
    transaction, and admitted by the content gate inside it. ``limits`` refuses texts that are too large for where they
    go: it is asked for long ones, before they are scanned.
    """

    name: str
    tool: str
    action: str | None
    route: Route
    permission: Permission | None
    rate: RateClass
    effect: Effect
    audience: Audience
    declared_errors: Callable[[], tuple[type[WeftlineError], ...]]
    audited: bool
    destructive: bool
    off_record: frozenset[str]
    heavy: Callable[[Any], bool]
    session_use: SessionUse | None
    requires: Callable[[Actor], None]
    forbids: Callable[[Mapping[str, Any], Actor], None]
    run: Callable[..., Awaitable[Any]]
    prepare: Preparation | None
    content: Callable[[Any], Iterable[SubmittedText]] | None
    limits: Preparation | None

    # Resolving annotations is slow, so it is left to the first use.
    @cached_property
    def _types(self) -> list[Any]:
        return _parameters(self.run)

    @cached_property
    def request(self) -> type[Request]:
        request: type[Request] = self._types[0]
        return request

    @cached_property
    def needs(self) -> tuple[type, ...]:
        return tuple(self._types[1:])

    @cached_property
    def plan(self) -> str | None:
        """Return the name of the parameter for what ``prepare`` returns, which is keyword-only; None if it has none."""
        parameters = inspect.signature(self.run).parameters.values()
        return next((each.name for each in parameters if each.kind is each.KEYWORD_ONLY), None)

    @cached_property
    def session(self) -> SessionUse:
        """Return how it uses sessions; one without a session_id has to declare it."""
        if self.session_use is not None:
            return self.session_use
        if "session_id" not in self.request.__struct_fields__:
            raise LookupError(f"{self.name} has no session_id: declare its SessionUse")
        return SessionUse.WORKS_IN

    @cached_property
    def response(self) -> type[Response]:
        response: type[Response] = get_type_hints(self.run)["return"]
        return response

    @cached_property
    def help(self) -> str:
        return inspect.cleandoc(self.run.__doc__ or "")

    @property
    def errors(self) -> tuple[type[WeftlineError], ...]:
        return self.declared_errors()

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    @property
    def verb(self) -> str:
        return self.name.partition(".")[2]

    @property
    def summary(self) -> str:
        return self.help.partition("\n")[0]

    def parse(self, raw: Mapping[str, Any], *, strict: bool = True) -> Request:
        """Return the typed request; raises InvalidInput with the field that is wrong."""
        try:
            return msgspec.convert(raw, self.request, strict=strict)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            if "got `float`" in str(error):
                return self._parse_whole_numbers(raw, error)
            raise invalid_input(self.request, self.tool, str(error), raw) from error

    def _parse_whole_numbers(self, raw: Mapping[str, Any], refusal: Exception) -> Request:
        """Accept 60.0 for an integer: JSON Schema does, and models write it. Fields of any type stay as they are."""
        typed = {name for name, hint in get_type_hints(self.request).items() if hint is not Any}
        whole = {
            name: int(v) if name in typed and isinstance(v, float) and v.is_integer() else v for name, v in raw.items()
        }
        try:
            return msgspec.convert(whole, self.request)
        except msgspec.ValidationError:
            raise invalid_input(self.request, self.tool, str(refusal), raw) from refusal


@dataclass(slots=True)
class Registry:
    """All operations, by name."""

    _by_name: dict[str, Operation] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Operation:
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownOperation(f"There is no operation named '{name[:100]}'.") from None

    def add(self, operation: Operation) -> None:
        if operation.name in self._by_name:
            raise ValueError(f"two operations are named {operation.name}")
        self._by_name[operation.name] = operation

    def tools(self) -> dict[str, list[Operation]]:
        """Return the operations of each tool; several differ by ``action``."""
        grouped: dict[str, list[Operation]] = {}
        for operation in self:
            grouped.setdefault(operation.tool, []).append(operation)
        return grouped


def operation(
    name: str,
    *,
    tool: str,
    http: str,
    permission: Permission | None,
    rate: RateClass,
    effect: Effect,
    action: str | None = None,
    status: int = 200,
    audience: Audience = Audience.EVERYONE,
    errors: Iterable[type[WeftlineError]] | Callable[[], tuple[type[WeftlineError], ...]] = (),
    audited: bool = False,
    destructive: bool | None = None,
    off_record: Iterable[str] = (),
    heavy: bool | Callable[[Any], bool] = False,
    session: SessionUse | None = None,
    requires: Callable[[Actor], None] = lambda _: None,
    forbids: Callable[[Mapping[str, Any], Actor], None] = lambda *_: None,
    prepare: Callable[..., Awaitable[Any]] | None = None,
    content: Callable[[Any], Iterable[SubmittedText]] | None = None,
    limits: Callable[..., Awaitable[None]] | None = None,
) -> Callable[[Callable[..., Awaitable[Any]]], Operation]:
    """Define an operation from the function that performs it.

    One that deletes has to state whether it is ``destructive``.
    """

    def define(run: Callable[..., Awaitable[Any]]) -> Operation:
        method, _, path = http.partition(" ")
        if method == "DELETE" and destructive is None:
            raise ValueError(f"{name} deletes: state whether it is destructive, or whether another call undoes it")
        return Operation(
            name=name,
            tool=tool,
            action=action,
            route=Route(method, path, status),
            permission=permission,
            rate=rate,
            effect=effect,
            audience=audience,
            declared_errors=_lazy(errors),
            audited=audited,
            destructive=bool(destructive),
            off_record=frozenset(off_record),
            heavy=_heavy(effect, heavy if callable(heavy) else lambda _: heavy),
            session_use=session,
            requires=requires,
            forbids=forbids,
            run=run,
            prepare=None if prepare is None else Preparation(prepare),
            content=content,
            limits=None if limits is None else Preparation(limits),
        )

    return define


admin_operation = partial(operation, permission=Permission.ADMIN, rate=RateClass.ADMIN, audience=Audience.NOT_SUBAGENTS)
admin_write = partial(admin_operation, effect=Effect.WRITE, audited=True)


def _heavy(effect: Effect, declared: Callable[[Any], bool]) -> Callable[[Any], bool]:
    if effect is not Effect.READ:
        return declared
    return lambda request: (getattr(request, "limit", None) or 0) > _LARGE_PAGE or declared(request)


def _lazy(
    errors: Iterable[type[WeftlineError]] | Callable[[], tuple[type[WeftlineError], ...]],
) -> Callable[[], tuple[type[WeftlineError], ...]]:
    """Return a function to the errors. A callable is not evaluated before all slices are imported."""
    if callable(errors):
        return errors
    declared = tuple(errors)
    return lambda: declared


def _parameters(run: Callable[..., Awaitable[Any]]) -> list[Any]:
    """Return the types of a function's parameters: the request, then its dependencies, without a plan."""
    hints = get_type_hints(run)
    return [
        hints[each.name] for each in inspect.signature(run).parameters.values() if each.kind is not each.KEYWORD_ONLY
    ]
