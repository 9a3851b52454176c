"""Sessions of Google ADK: events as they were, and the state of a session, a user and an app.

They are in the private memory of the agent that the client acts as, compressed. Of two programs that append to a
session at once, one gets ADK's ``StaleSessionError``, and reads it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from weftline.adapters.bridge import Bridge, missing_framework
from weftline.adapters.entries import Entries
from weftline.adapters.keys import key_part
from weftline.adapters.packed import pack_json, unpack_json
from weftline.errors import VersionConflict

try:
    from google.adk.errors._stale_session_error import StaleSessionError  # nowhere public, but callers catch it
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.platform import time as platform_time
    from google.adk.sessions import BaseSessionService, InMemorySessionService, Session, State
    from google.adk.sessions.base_session_service import ListSessionsResponse
    from pydantic_core import to_jsonable_python
except ImportError as error:
    raise missing_framework("google-adk", error) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from google.adk.sessions.base_session_service import GetSessionConfig

    from weftline.client._operations import Operations, SyncOperations

_SESSIONS, _EVENTS, _SHARED = "sessions", "events", "state"


class WeftlineSessionService(BaseSessionService):
    """A session service over any client of Weftline: ``Runner(..., session_service=...)``.

    If Weftline fails, a session goes on in this process, with a warning; with ``strict``, the call fails.
    """

    def __init__(self, weftline: Operations | SyncOperations, *, strict: bool = False) -> None:
        raised = (AlreadyExistsError, SessionNotFoundError, StaleSessionError)
        self.bridge = Bridge(weftline, strict=strict, raised=raised)
        self._entries = Entries(self.bridge, "google-adk-sessions", "Sessions of Google ADK")
        self._local = InMemorySessionService()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        name = (session_id or "").strip() or uuid4().hex
        new = Session(app_name=app_name, user_id=user_id, id=name, last_update_time=platform_time.get_time())
        created = await self.bridge.arun(self.bridge.guarded(self._create(new, state or {}), lambda: None))
        return created or await self._local.create_session(
            app_name=app_name, user_id=user_id, state=state, session_id=name
        )

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        name = (session_id or "").strip()
        local = await self._local.get_session(app_name=app_name, user_id=user_id, session_id=name, config=config)
        if local is not None:
            return local
        steps = self._get(app_name, user_id, name, config)
        return await self.bridge.arun(self.bridge.guarded(steps, lambda: None))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        stored: Sequence[Session]
        stored = await self.bridge.arun(self.bridge.guarded(self._list(app_name, user_id), tuple))
        local = (await self._local.list_sessions(app_name=app_name, user_id=user_id)).sessions
        known = {(each.user_id, each.id) for each in local}
        sessions = [*local, *(each for each in stored if (each.user_id, each.id) not in known)]
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        name = (session_id or "").strip()
        await self._local.delete_session(app_name=app_name, user_id=user_id, session_id=name)
        await self.bridge.arun(self.bridge.guarded(self._delete(app_name, user_id, name), lambda: None))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        stored: dict[str, Any]
        stored = await self.bridge.arun(self.bridge.guarded(self._shared(app_name, user_id), dict))
        return {**stored, **await self._local.get_user_state(app_name=app_name, user_id=user_id)}

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        if session.id not in self._local.sessions.get(session.app_name, {}).get(session.user_id, {}):
            if await self.bridge.arun(self.bridge.guarded(self._append(session, event), lambda: False)):
                await super().append_event(session, event)
                session.last_update_time = event.timestamp
                return event
            kept = session.model_copy(update={"events": [*session.events], "state": dict(session.state)})
            self._local.sessions.setdefault(session.app_name, {}).setdefault(session.user_id, {})[session.id] = kept
        return await self._local.append_event(session, event)

    def _create(self, new: Session, state: Mapping[str, Any]) -> Generator[Any, Any, Session]:
        own = {key: value for key, value in state.items() if _scope(key) == ""}
        try:
            yield from self._write(new, own, new.last_update_time, 0)
        except VersionConflict as conflict:
            raise AlreadyExistsError(f"Session with id {new.id} already exists.") from conflict
        yield from self._share(new, state)
        return (yield from self._with_state(new, own))

    def _get(
        self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None
    ) -> Generator[Any, Any, Session | None]:
        record = yield from self._entries.get(_key(_SESSIONS, app_name, user_id, session_id))
        if record is None:
            return None
        recent = config.num_recent_events if config else None
        entries = (
            [] if recent == 0 else (yield from self._entries.list(_key(_EVENTS, app_name, user_id, session_id, "")))
        )
        events = [Event.model_validate(unpack_json(each.value)) for each in entries][-recent if recent else None :]
        if config and config.after_timestamp is not None:
            earlier = (n for n, each in enumerate(events, 1) if each.timestamp < config.after_timestamp)
            events = events[max(earlier, default=0) :]
        session = _session(record.value, events)
        return (yield from self._with_state(session, session.state))

    def _list(self, app_name: str, user_id: str | None) -> Generator[Any, Any, list[Session]]:
        users = () if user_id is None else (user_id,)
        sessions: list[Session] = []
        for record in (yield from self._entries.list(_key(_SESSIONS, app_name, *users, ""))):
            session = _session(record.value, [])
            sessions.append((yield from self._with_state(session, session.state)))
        return sessions

    def _append(self, session: Session, event: Event) -> Generator[Any, Any, bool]:
        names = session.app_name, session.user_id, session.id
        record = yield from self._entries.get(_key(_SESSIONS, *names))
        if record is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        if record.value["updated"] > session.last_update_time:
            raise StaleSessionError("The session was changed since it was read: get it again.")
        delta = {key: value for key, value in event.actions.state_delta.items() if _scope(key) != State.TEMP_PREFIX}
        own = {key: value for key, value in delta.items() if _scope(key) == ""}
        try:
            state = unpack_json(record.value["state"]) | own
            yield from self._write(session, state, event.timestamp, record.version)
        except VersionConflict as conflict:
            raise StaleSessionError("Another program has changed the session: get it again.") from conflict
        stored = event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": delta})})
        yield from self._entries.append(
            _key(_EVENTS, *names, ""), pack_json(stored.model_dump(mode="json", exclude_none=True))
        )
        yield from self._share(session, delta)
        return True

    def _delete(self, app_name: str, user_id: str, session_id: str) -> Generator[Any, Any, None]:
        yield from self._entries.delete(_key(_SESSIONS, app_name, user_id, session_id))
        for entry in (yield from self._entries.list(_key(_EVENTS, app_name, user_id, session_id, ""), values=False)):
            yield from self._entries.delete(entry.key)

    def _write(
        self, session: Session, state: Mapping[str, Any], updated: float, version: int
    ) -> Generator[Any, Any, None]:
        value = {
            "app_name": session.app_name,
            "user_id": session.user_id,
            "id": session.id,
            "updated": updated,
            "state": pack_json(to_jsonable_python(state, serialize_unknown=True)),
        }
        key = _key(_SESSIONS, session.app_name, session.user_id, session.id)
        yield from self._entries.set(key, value, if_version=version)

    def _share(self, session: Session, delta: Mapping[str, Any]) -> Generator[Any, Any, None]:
        """Change the state of the app and of the user; again if another program was faster."""
        for scope, names in _shared_places(session.app_name, session.user_id).items():
            changed = {key.removeprefix(scope): value for key, value in delta.items() if _scope(key) == scope}
            while changed:
                entry = yield from self._entries.get(_key(_SHARED, *names))
                state = (unpack_json(entry.value) if entry else {}) | changed
                packed = pack_json(to_jsonable_python(state, serialize_unknown=True))
                try:
                    yield from self._entries.set(
                        _key(_SHARED, *names), packed, if_version=entry.version if entry else 0
                    )
                except VersionConflict:
                    continue
                break

    def _shared(self, *names: str) -> Generator[Any, Any, dict[str, Any]]:
        entry = yield from self._entries.get(_key(_SHARED, *names))
        return unpack_json(entry.value) if entry else {}

    def _with_state(self, session: Session, state: Mapping[str, Any]) -> Generator[Any, Any, Session]:
        """Return a session with its own state and what it shares with others."""
        merged = to_jsonable_python(dict(state), serialize_unknown=True)
        for scope, names in _shared_places(session.app_name, session.user_id).items():
            shared = yield from self._shared(*names)
            merged |= {f"{scope}{key}": value for key, value in shared.items()}
        return session.model_copy(update={"state": merged})


def _session(record: Mapping[str, Any], events: list[Event]) -> Session:
    return Session(
        app_name=record["app_name"],
        user_id=record["user_id"],
        id=record["id"],
        state=unpack_json(record["state"]),
        events=events,
        last_update_time=record["updated"],
    )


def _scope(key: str) -> str:
    """Return the prefix of a key of state that says whose it is; nothing for the session's own."""
    scopes = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
    return next((scope for scope in scopes if key.startswith(scope)), "")


def _shared_places(app_name: str, user_id: str) -> dict[str, tuple[str, ...]]:
    return {State.APP_PREFIX: (app_name,), State.USER_PREFIX: (app_name, user_id)}


def _key(kind: str, *names: str) -> str:
    """Return a key; one that ends with an empty name is a prefix."""
    return "/".join([kind, *(key_part(name) if name or n < len(names) - 1 else "" for n, name in enumerate(names))])
