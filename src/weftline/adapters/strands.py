"""Strands: sessions of agents that last: their messages as they were, and their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.entries import Entries
from weftline.adapters.keys import key_part
from weftline.adapters.packed import pack_json, unpack_json
from weftline.errors import VersionConflict

try:
    from strands.session import RepositorySessionManager, SessionRepository
    from strands.types.exceptions import SessionException
    from strands.types.session import Session, SessionAgent, SessionMessage
except ImportError as error:
    raise missing_framework("strands", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator

    from strands.multiagent import MultiAgentBase

    from weftline.client._operations import Operations, SyncOperations


def weftline_session(session_id: str, weftline: Operations | SyncOperations) -> RepositorySessionManager:
    """Return a session manager over a blocking client: ``Agent(..., session_manager=weftline_session(...))``."""
    return RepositorySessionManager(session_id, WeftlineSessionRepository(weftline))


class WeftlineSessionRepository(SessionRepository):
    """A session repository over any client of Weftline: in the private memory of the agent that it acts as, compressed.

    Strands calls it without ``await``: give it a blocking client. A failure is raised as Strands' ``SessionException``,
    since an agent would go on without its messages otherwise.
    """

    def __init__(self, weftline: Operations | SyncOperations) -> None:
        self.bridge = Bridge(weftline, strict=True)
        self._entries = Entries(self.bridge, "strands-sessions", "Sessions of Strands")

    def create_session(self, session: Session, **kwargs: Any) -> Session:  # noqa: ANN401, ARG002 - of other repositories
        self._write(session.to_dict(), _key("sessions", session.session_id), is_new=True)
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:  # noqa: ANN401, ARG002
        stored = self._read(_key("sessions", session_id))
        return Session.from_dict(stored) if stored else None

    def delete_session(self, session_id: str) -> None:
        self._run(self._delete(session_id))

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        self._write(session_agent.to_dict(), _key("agents", session_id, session_agent.agent_id))

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:  # noqa: ANN401, ARG002
        stored = self._read(_key("agents", session_id, agent_id))
        return SessionAgent.from_dict(stored) if stored else None

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        before = self.read_agent(session_id, session_agent.agent_id)
        if before is None:
            raise SessionException(f"Agent {session_agent.agent_id} in session {session_id} does not exist")
        session_agent.created_at = before.created_at
        self._write(session_agent.to_dict(), _key("agents", session_id, session_agent.agent_id))

    def create_message(
        self,
        session_id: str,
        agent_id: str,
        session_message: SessionMessage,
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> None:
        self._write(session_message.to_dict(), _message_key(session_id, agent_id, session_message.message_id))

    def read_message(
        self,
        session_id: str,
        agent_id: str,
        message_id: int,
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> SessionMessage | None:
        stored = self._read(_message_key(session_id, agent_id, message_id))
        return SessionMessage.from_dict(stored) if stored else None

    def update_message(
        self,
        session_id: str,
        agent_id: str,
        session_message: SessionMessage,
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> None:
        before = self.read_message(session_id, agent_id, session_message.message_id)
        if before is None:
            raise SessionException(f"Message {session_message.message_id} does not exist")
        session_message.created_at = before.created_at
        self.create_message(session_id, agent_id, session_message)

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> list[SessionMessage]:
        entries = self._run(self._entries.list(_key("messages", session_id, agent_id, "")))
        end = None if limit is None else offset + limit
        return [SessionMessage.from_dict(unpack_json(entry.value)) for entry in entries[offset:end]]

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        self._write(multi_agent.serialize_state(), _key("multi-agents", session_id, multi_agent.id))

    def read_multi_agent(
        self,
        session_id: str,
        multi_agent_id: str,
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> dict[str, Any] | None:
        stored: dict[str, Any] | None = self._read(_key("multi-agents", session_id, multi_agent_id))
        return stored

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            raise SessionException(f"MultiAgent state {multi_agent.id} in session {session_id} does not exist")
        self.create_multi_agent(session_id, multi_agent)

    def _read(self, key: str) -> Any:  # noqa: ANN401 - what was stored
        entry = self._run(self._entries.get(key))
        return unpack_json(entry.value) if entry else None

    def _write(self, value: object, key: str, *, is_new: bool = False) -> None:
        options = {"if_version": 0} if is_new else {}
        self._run(self._entries.set(key, pack_json(value), **options))

    def _delete(self, session_id: str) -> Generator[Any, Any, None]:
        for kind in ("agents", "messages", "multi-agents"):
            for entry in (yield from self._entries.list(_key(kind, session_id, ""), values=False)):
                yield from self._entries.delete(entry.key)
        yield from self._entries.delete(_key("sessions", session_id))

    def _run(self, steps: Generator[Any, Any, Any]) -> Any:  # noqa: ANN401 - of any steps
        try:
            return self.bridge.run(steps)
        except VersionConflict as conflict:
            raise SessionException("There is a session with this id already.") from conflict
        except Exception as failed:
            self.bridge.failures.append(failed)
            raise SessionException(f"The session is not reachable: {failed}") from failed


def _message_key(session_id: str, agent_id: str, message_id: int) -> str:
    if not isinstance(message_id, int):
        raise ValueError(f"message_id=<{message_id}> | message id must be an integer")  # noqa: TRY004 - Strands' type
    return f"{_key('messages', session_id, agent_id)}/{message_id:010}"


def _key(kind: str, *names: str) -> str:
    """Return a key; one that ends with an empty name is a prefix."""
    return "/".join([kind, *(key_part(name) if name else "" for name in names)])
