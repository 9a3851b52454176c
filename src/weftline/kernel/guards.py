"""Guards: checks around every call, and on all content that enters Weftline.

A guard sees a call before it runs and its answer after it ran. It sees content that arrives as a stream (uploads,
bundle imports, knowledge hooks, source sync) piece by piece. Each method returns what it was given, returns a
replacement, or refuses by raising a WeftlineError; a refusal that is a denial is audited. An error whose class has
``hold`` holds the call for approval; a guard lets a call pass that has an ``approval`` for this check. See
docs/decisions/0039.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.kernel.errors import WeftlineError, is_audited
from weftline.kernel.identity import Actor, Approval
from weftline.kernel.operation import Operation, PreparationOutdated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractContextManager


EntryPoint = Literal["call", "follow", "upload", "import", "export", "hook", "sync"]


class GuardedCall(msgspec.Struct, frozen=True):
    """One call of an operation: the parsed request, who makes it, and how it entered.

    ``actor`` is None while a caller has no credential yet: for authenticate_agent only. A document that enters by a
    hook or a source sync is a call of knowledge.add_document by the principal that created the source.
    """

    operation: Operation
    request: Any
    actor: Actor | None
    entry: EntryPoint = "call"

    @property
    def approval(self) -> Approval | None:
        """Return the approval under which a held call is performed."""
        return None if self.actor is None else self.actor.approval


class ContentPiece(NamedTuple):
    """A piece of streamed content, cut anywhere; the last one may be empty."""

    data: bytes
    last: bool


class Guard:
    """Base class of guards: admits everything as it is. Override what you need."""

    def applies(self, call: GuardedCall) -> bool:  # noqa: ARG002 - of no use here
        """Tell whether the guard has to see a call; False costs the call nothing more."""
        return True

    def needs_whole_content(self, call: GuardedCall) -> bool:  # noqa: ARG002 - of no use here
        """Tell whether ``content`` is called once with all of the content, which is then held in memory."""
        return False

    async def before(self, call: GuardedCall) -> Any:  # noqa: ANN401 - the request, or another of its type
        """Return the request to run."""
        return call.request

    async def after(self, call: GuardedCall, answer: Any) -> Any:  # noqa: ARG002, ANN401 - a response of the operation
        """Return the answer to give. What a write has changed is committed by now."""
        return answer

    async def content(self, call: GuardedCall, piece: ContentPiece) -> bytes:  # noqa: ARG002 - of no use here
        """Return what is stored in place of the piece; a guard that needs all of it returns nothing until the last."""
        return piece.data


class ImpliedCall(NamedTuple):
    """A call whose effect another call has: a rollback that brings back a key of a board writes it."""

    operation: str
    arguments: Mapping[str, Any]


class CheckedCalls(NamedTuple):
    """The implied calls that were checked before a transaction; None: the caller has no rules about any."""

    admitted: frozenset[str] | None = None

    @classmethod
    def of(cls, calls: Iterable[ImpliedCall]) -> CheckedCalls:
        return cls(frozenset(map(_name, calls)))

    def confirm(self, calls: Iterable[ImpliedCall]) -> None:
        """Raise PreparationOutdated if the call implies others by now: somebody has written since the check."""
        if self.admitted is not None and not self.admitted.issuperset(map(_name, calls)):
            raise PreparationOutdated


def _name(call: ImpliedCall) -> str:
    return f"{call.operation} {sorted(call.arguments.items())}"


class Guards:
    """The installed guards, asked in order; their view of an answer is asked for in reverse order. False if none.

    ``audit_denial`` gets tenant, actor, action and error of a denial, with the ids that the request named.
    """

    def __init__(
        self, audit_denial: Callable[[str, Actor, str, WeftlineError, Mapping[str, Any]], Awaitable[None]]
    ) -> None:
        self._audit_denial = audit_denial
        self._installed: list[Guard] = []

    def __bool__(self) -> bool:
        return bool(self._installed)

    def install(self, guard: Guard) -> None:
        self._installed.append(guard)

    def uninstall(self, guard: Guard) -> None:
        self._installed.remove(guard)

    def apply(self, call: GuardedCall) -> bool:
        """Tell whether any guard has to see a call."""
        for guard in self._installed:  # noqa: SIM110 - on the path of every call: a generator costs more
            if guard.applies(call):
                return True
        return False

    async def before(self, call: GuardedCall) -> GuardedCall:
        for guard in self._installed:
            if not guard.applies(call):
                continue
            request = await guard.before(call)
            if request is not call.request:
                call = structs.replace(call, request=request)
        return call

    async def after(self, call: GuardedCall, answer: Any) -> Any:  # noqa: ANN401 - a response of the operation
        for guard in reversed(self._installed):
            if guard.applies(call):
                answer = await guard.after(call, answer)
        return answer

    async def stream(self, call: GuardedCall, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield content as the guards let it pass, then what they held back until its end."""
        if any(guard.needs_whole_content(call) for guard in self._installed):
            yield await self._content(call, ContentPiece(b"".join([chunk async for chunk in chunks]), last=True))
            return
        async for chunk in chunks:
            yield await self._content(call, ContentPiece(chunk, last=False))
        if self._installed:
            yield await self._content(call, ContentPiece(b"", last=True))

    async def admit(self, call: GuardedCall, content: bytes) -> tuple[Any, bytes]:
        """Return the request and the content that may be stored of a document that enters outside a caller's call."""
        try:
            call = await self.before(call)
            return call.request, await self._content(call, ContentPiece(content, last=True))
        except WeftlineError as error:
            if is_audited(error) and call.actor is not None:
                named = structs.asdict(call.request)
                await self._audit_denial(call.actor.tenant, call.actor, call.operation.name, error, named)
            raise

    async def _content(self, call: GuardedCall, piece: ContentPiece) -> bytes:
        for guard in self._installed:
            piece = piece._replace(data=await guard.content(call, piece))
        return piece.data


# Warnings about a call that was performed: collected while it runs, shown by its interface.

# Header of HTTP answers with the warnings about a call, as a JSON list.
WARNING_HEADER = "weftline-warning"


class CallWarning(UserWarning):
    """A rule warns about a call that was performed."""


_warnings: ContextVar[list[str] | None] = ContextVar("weftline_warnings", default=None)


class _Collector:
    """Context manager as a class: around every call, a generator costs several times as much."""

    __slots__ = ("_token",)

    def __enter__(self) -> list[str]:
        found: list[str] = []
        self._token = _warnings.set(found)
        return found

    def __exit__(self, *_: object) -> None:
        _warnings.reset(self._token)


def collected_warnings() -> AbstractContextManager[list[str]]:
    """Collect the warnings about the calls made inside, for an interface that can show them."""
    return _Collector()


def warn_caller(text: str) -> None:
    """Add a warning to the answer of the current call, if its interface can show it."""
    found = _warnings.get()
    if found is not None and text not in found:
        found.append(text)
