"""What adapters of agent loops share: record, assemble, report, and check the calls of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.adapters.bridge import Bridge
from weftline.adapters.keys import session_name
from weftline.errors import (
    ApprovalExpired,
    ApprovalPending,
    ApprovalRejected,
    BudgetExceeded,
    GuardrailViolation,
    SessionNotFound,
    SessionTerminated,
    ToolNotInStep,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from weftline.client._operations import Operations, SyncOperations

# What somebody has decided, as opposed to what has failed: it holds whether the adapter is strict or not.
DECISIONS = (
    ApprovalExpired,
    ApprovalPending,
    ApprovalRejected,
    BudgetExceeded,
    GuardrailViolation,
    SessionTerminated,
    ToolNotInStep,
)
_TASK_CHARACTERS = 4_000
_CONTEXT_TOKENS = 2_000
_PURPOSE = "A conversation with agents"


class Prompt(NamedTuple):
    """An assembled prompt: the system text, the messages in the form they were given in, and its receipt."""

    session_id: str
    receipt_id: str
    system: str
    messages: list[dict[str, Any]]


class Refusal(NamedTuple):
    """Why a tool is not called, or its answer is not shown, for the model to read."""

    text: str


class Conversation:
    """Records what an agent hears and says in its window of a session, and has its prompts assembled.

    ``session_id``: of the Weftline session, which is made if there is none; by default that of the framework's thread.
    ``prompts``: options of ``context.assemble``, such as ``token_budget`` and ``domains``.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        session_id: str | None = None,
        strict: bool = False,
        **prompts: Any,  # noqa: ANN401 - of several types
    ) -> None:
        self.bridge = Bridge(weftline, strict=strict)
        self._weftline = self.bridge.weftline
        self._session_id = session_id
        self._prompts = prompts

    def session(self, thread_id: str | None) -> str:
        """Return the session of a thread of the framework."""
        return self._session_id or (session_name(thread_id) if thread_id else "agents")

    def prompt(
        self, thread_id: str | None, form: str, messages: Sequence[Mapping[str, Any]], task: str, model: str | None
    ) -> Generator[Any, Any, Prompt | None]:
        """Record messages and return the prompt for the next call of the model; None if Weftline fails."""
        return (yield from self.bridge.guarded(self._assembled(thread_id, form, messages, task, model), _nothing))

    def report(self, prompt: Prompt, usage: Mapping[str, Any] | None, answer: object) -> Generator[Any, Any, None]:
        """Report what a call of the model has used, and its answer."""
        if usage:
            yield from self.bridge.guarded(self._reported(prompt, usage, answer), _nothing)

    def check(
        self, thread_id: str | None, tool: str, arguments: Mapping[str, Any], answer: object = None
    ) -> Generator[Any, Any, Any]:
        """Return the arguments to call a tool with, or the answer to show if there is one; or a Refusal."""
        return (
            yield from self.bridge.guarded(
                self._checked(self.session(thread_id), tool, arguments, answer),
                lambda: arguments if answer is None else answer,
            )
        )

    def record(self, thread_id: str | None, events: Sequence[Mapping[str, Any]]) -> Generator[Any, Any, None]:
        """Record events in the agent's window, for frameworks that assemble their prompts themselves."""
        yield from self.bridge.guarded(self._recorded(self.session(thread_id), events), _nothing)

    def find(self, thread_id: str | None, question: str) -> Generator[Any, Any, str]:
        """Return what others wrote that matters for a question, apart from the conversation itself; or nothing."""
        return (yield from self.bridge.guarded(self._relevant(self.session(thread_id), question), str))

    def _recorded(self, session_id: str, events: Sequence[Mapping[str, Any]]) -> Generator[Any, Any, None]:
        try:
            yield self._weftline.context.ingest(session_id, events)
        except SessionNotFound:
            yield self._weftline.session.create(_PURPOSE, session_id=session_id, exist_ok=True)
            yield self._weftline.context.ingest(session_id, events)

    def _relevant(self, session_id: str, question: str) -> Generator[Any, Any, str]:
        try:
            relevant: Any = yield self._weftline.search.get_context(
                query=question[:_TASK_CHARACTERS],
                session_id=session_id,
                sources=["board", "document", "memory", "message"],
                max_tokens=self._prompts.get("token_budget") or _CONTEXT_TOKENS,
            )
        except SessionNotFound:
            return ""
        return str(relevant.context)

    def _assembled(
        self, thread_id: str | None, form: str, messages: Sequence[Mapping[str, Any]], task: str, model: str | None
    ) -> Generator[Any, Any, Prompt]:
        session_id = self.session(thread_id)
        given = {"form": form, "messages": messages, "model": model, **self._prompts}
        task = task[:_TASK_CHARACTERS] or "Go on."
        try:
            assembled = yield self._weftline.context.assemble(session_id, task, **given)
        except SessionNotFound:
            yield self._weftline.session.create(_PURPOSE, session_id=session_id, exist_ok=True)
            assembled = yield self._weftline.context.assemble(session_id, task, **given)
        texts, others = [], []
        for message in assembled.body.get("messages") or assembled.body["input"]:
            if message.get("role") in {"system", "developer"}:
                texts.append(text_of(message["content"]))
            else:
                others.append(message)
        return Prompt(session_id, assembled.receipt_id, "\n\n".join(texts), others)

    def _reported(self, prompt: Prompt, usage: Mapping[str, Any], answer: object) -> Generator[Any, Any, None]:
        said = answer if isinstance(answer, str) and answer else None
        yield self._weftline.context.emit_metrics(prompt.session_id, prompt.receipt_id, usage, answer=said)

    def _checked(
        self, session_id: str, tool: str, arguments: Mapping[str, Any], answer: object
    ) -> Generator[Any, Any, Any]:
        # Conditions read an answer as a map.
        options: dict[str, Any] = {"arguments": arguments, "answer": None if answer is None else {"content": answer}}
        try:
            try:
                checked = yield self._weftline.guardrail.check(tool, session_id=session_id, **options)
            except SessionNotFound:
                checked = yield self._weftline.guardrail.check(tool, **options)
        except DECISIONS as refused:
            return Refusal(" ".join(text for text in (refused.message, refused.hint) if text))
        if answer is None:
            return checked.arguments or arguments
        return checked.answer["content"] if checked.answer else answer


class Conversations:
    """A conversation for each agent that has a client of its own, and one for the others.

    ``clients``: by the name of an agent, the client that acts as it, so that agents of one program have windows and
    rights of their own. Other options are those of ``Conversation``.
    """

    def __init__(
        self,
        weftline: Operations | SyncOperations,
        *,
        clients: Mapping[str, Operations | SyncOperations] | None = None,
        **options: Any,  # noqa: ANN401 - of several types
    ) -> None:
        self._default = Conversation(weftline, **options)
        self._by_agent = {name: Conversation(client, **options) for name, client in (clients or {}).items()}

    def of(self, agent: str | None) -> Conversation:
        """Return the conversation of an agent."""
        return self._by_agent.get(agent or "", self._default)


def _nothing() -> None:
    return None


def text_of(content: object) -> str:
    """Return the text of a content: one text, or parts."""
    if isinstance(content, str) or not content:
        return str(content or "")
    parts: Sequence[Any] = content if isinstance(content, Sequence) else [content]
    texts = (part.get("text") if isinstance(part, Mapping) else getattr(part, "text", None) for part in parts)
    return "\n".join(str(text) for text in texts if text)


def identity(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return what two messages of OpenAI's chat API have in common that say the same.

    An answer of a tool is known by its call. What an assembled prompt has unchanged can so stay the object of the
    framework, with its ids and signatures.
    """
    if message["role"] == "tool":
        return "tool", str(message["tool_call_id"])
    calls = ",".join(str(call["id"]) for call in message.get("tool_calls") or ())
    return str(message["role"]), calls or text_of(message.get("content"))


def latest_question(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what a user said last, which is what a prompt is for."""
    return next((text_of(each.get("content")) for each in reversed(messages) if each.get("role") == "user"), "")
