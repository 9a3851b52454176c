"""A tenant with an admin, agents and a session, and helpers to call operations as each of them."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from weftline.access.model import parse_key
from weftline.access.sql import AccessStore
from weftline.app.app import App
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import WeftlineError
from weftline.sessions.events.sql import EventStore
from weftline.settings import Settings
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from weftline.sessions.events.model import EventPage
    from weftline.testing.clock import FrozenClock

SESSION = "s1"


def arriving(body: bytes) -> Callable[[], Awaitable[bytes]]:
    """Return what reads the body of a request."""

    async def read() -> bytes:
        return body

    return read


@contextlib.contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[WeftlineError]]:
    """Expect the error with this code; the caught error is yielded."""
    with pytest.raises(WeftlineError) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code}: {caught.value.message}"


async def outcome(call: Awaitable[Any]) -> str:
    """Return the error code of a call, or ok."""
    try:
        await call
    except WeftlineError as error:
        return error.code
    return "ok"


def wire_form(response: msgspec.Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(response))


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller with a credential. Responses are decoded from their wire form."""

    app: App
    credential: str
    session: str = SESSION

    def at(self, app: App) -> Caller:
        """Return the same caller on another App."""
        return Caller(app, self.credential, self.session)

    def in_session(self, session: str) -> Caller:
        return Caller(self.app, self.credential, session)

    def with_credential(self, credential: str) -> Caller:
        return Caller(self.app, credential, self.session)

    @property
    def key_id(self) -> str:
        key = parse_key(self.credential)
        assert key is not None
        return key.key_id

    async def call(self, operation: str, **raw: Any) -> Any:
        return wire_form(await self.app.call(self.app.registry[operation], raw, CallContext(self.credential)))

    async def write(self, key: str, value: Any = "text", **options: Any) -> Any:
        return await self.call("board.write", session_id=self.session, key=key, value=value, **options)

    async def read(self, key: str, **options: Any) -> Any:
        return await self.call("board.read", session_id=self.session, key=key, **options)

    async def value(self, key: str, **options: Any) -> Any:
        return (await self.read(key, **options))["value"]

    async def delete(self, key: str, **options: Any) -> Any:
        return await self.call("board.delete", session_id=self.session, key=key, **options)

    async def list(self, **options: Any) -> Any:
        return await self.call("board.list_keys", session_id=self.session, **options)

    async def keys(self, **options: Any) -> list[str]:
        return [entry["key"] for entry in (await self.list(**options))["keys"]]

    async def size(self, **options: Any) -> int:
        return (await self.list(**options))["metadata"]["total_size_tokens"]

    async def batch(self, *keys: str) -> Any:
        return await self.call("board.read_batch", session_id=self.session, keys=list(keys))

    async def history(self, key: str, **filters: Any) -> Any:
        return await self.call("board.read_history", session_id=self.session, key=key, **filters)

    async def snapshot(self, label: str, **options: Any) -> Any:
        return await self.call("board.snapshot", session_id=self.session, label=label, **options)

    async def snapshots(self, **options: Any) -> list[str]:
        answer = await self.call("board.list_snapshots", session_id=self.session, **options)
        return [snapshot["label"] for snapshot in answer["snapshots"]]

    async def read_snapshot(self, label: str) -> dict[str, Any]:
        answer = await self.call("board.read_snapshot", session_id=self.session, label=label)
        return {entry["key"]: entry["value"] for entry in answer["entries"]}

    async def compare(self, label: str, other: str | None = None) -> Any:
        return await self.call("board.compare_snapshots", session_id=self.session, from_label=label, to_label=other)

    async def restore(self, label: str, **options: Any) -> Any:
        return await self.call("board.restore_snapshot", session_id=self.session, label=label, **options)

    async def check_board(self, **fields: Any) -> Any:
        return await self.call("board.check", session_id=self.session, **fields)

    async def inspect(self) -> Any:
        return await self.call("session.inspect", session_id=self.session)

    async def say(self, content: str, **fields: Any) -> int:
        """Add a message and return its number."""
        answer = await self.call("message.add", session_id=self.session, content=content, **fields)
        return answer["message_id"]

    async def messages(self, **filters: Any) -> Any:
        return await self.call("message.list", session_id=self.session, **filters)

    async def message_texts(self, **filters: Any) -> list[str]:
        """Return the texts of the messages this caller may see."""
        return [message["content"] for message in (await self.messages(**filters))["messages"]]

    async def search(self, query: str, **options: Any) -> Any:
        return await self.call("message.search", session_id=self.session, query=query, **options)

    async def found(self, query: str, **options: Any) -> list[str]:
        """Return the texts of search results, best first."""
        return [result["message"]["content"] for result in (await self.search(query, **options))["results"]]

    async def remember(self, key: str, value: Any = "text", **options: Any) -> Any:
        return await self.call("memory.set", key=key, value=value, **options)

    async def recall(self, key: str, session_id: str | None = None) -> Any:
        return await self.call("memory.get", key=key, session_id=session_id)

    async def recalled(self, key: str, session_id: str | None = None) -> Any:
        return (await self.recall(key, session_id))["value"]

    async def forget(self, key: str, **options: Any) -> Any:
        return await self.call("memory.delete", key=key, **options)

    async def memories(self, **filters: Any) -> Any:
        return await self.call("memory.list", **filters)

    async def memory_keys(self, **filters: Any) -> list[str]:
        return [entry["key"] for entry in (await self.memories(**filters))["entries"]]

    async def memory_events(self, **filters: Any) -> list[tuple[str, str]]:
        """Return the memory events visible to this caller, as types and keys."""
        events = (await self.events(**filters))["events"]
        return [(event["type"], event["subject"]) for event in events if event["type"].startswith("memory.")]

    async def events(self, **filters: Any) -> Any:
        return await self.call("events.read", **{"after": 0, **filters})

    async def create_session(self, session_id: str, *, members: Sequence[str] | None = None, **config: Any) -> Caller:
        """Create a session and return this caller inside it."""
        fields = {"session_id": session_id, "config": config or None, "members": members}
        await self.call("session.create", purpose="a test", **fields)
        return self.in_session(session_id)

    async def admit(self, *members: str) -> Any:
        """Add members to the session."""
        return await self.call("session.add_members", session_id=self.session, members=members)

    async def create_agent(self, agent_id: str, **fields: Any) -> Caller:
        answer = await self.call("agent.create", agent_id=agent_id, **fields)
        return self.with_credential(answer["api_key"])

    async def audit(self, **filters: Any) -> list[dict[str, Any]]:
        return (await self.call("audit.list", **filters))["entries"]

    async def token(self, agent_id: str, agent_type: str | None = None, **fields: Any) -> str:
        answer = await self.app.call(
            self.app.registry["token.issue"],
            {"agent_id": agent_id, "agent_type": agent_type or agent_id, "api_key": self.credential, **fields},
            CallContext(None),
        )
        return wire_form(answer)["token"]

    async def with_token(self, agent_id: str, agent_type: str | None = None, **fields: Any) -> Caller:
        return self.with_credential(await self.token(agent_id, agent_type, **fields))

    def follow(self, interest: Any, after: int | None) -> AsyncIterator[EventPage]:
        return self.app.follow(CallContext(self.credential), interest, after)


class Residents(NamedTuple):
    """The tenants of a world, and the credentials of those in them."""

    tenant: str
    other_tenant: str
    admin: str
    planner: str
    analysis: str
    review: str
    stranger: str


async def settle(app: App) -> Residents:
    """Create the tenants of a world with their agents and the session."""
    tenant, other_tenant = (f"{name}{secrets.token_hex(4)}" for name in ("home", "away"))
    admin = Caller(app, (await app.tenants.create(tenant)).admin_key)
    stranger = (await app.tenants.create(other_tenant)).admin_key
    planner = await admin.create_agent("planner", agent_type="planning", clearance=3)
    analysis = await admin.create_agent("analysis", parent_id="planner")
    review = await admin.create_agent("review-2", agent_type="review", parent_id="planner")
    await planner.create_session(SESSION)
    agents = (each.credential for each in (planner, analysis, review))
    return Residents(tenant, other_tenant, admin.credential, *agents, stranger)


@dataclass(slots=True)
class World:
    """One installation with a tenant that has a planner, two sub-agents and a session; and a second tenant."""

    url: str
    clock: FrozenClock
    settings: Settings
    app: App = field(init=False)
    tenant: str = field(init=False)
    other_tenant: str = field(init=False)
    admin: Caller = field(init=False)
    planner: Caller = field(init=False)
    analysis: Caller = field(init=False)
    review: Caller = field(init=False)
    stranger: Caller = field(init=False)
    _apps: list[App] = field(default_factory=list)

    async def open(self, residents: Residents | None = None) -> None:
        """Start an App, and create the tenants unless the database has them."""
        self.app = await self.another_app()
        if residents is None:
            residents = await settle(self.app)
        self.tenant, self.other_tenant = residents.tenant, residents.other_tenant
        self.admin, self.planner, self.analysis, self.review, self.stranger = (
            Caller(self.app, credential) for credential in residents[2:]
        )
        # The App knows those who have created the others, and their rules: tests that count statements rely on it.
        for caller in (self.admin, self.planner):
            await caller.call("team.list")

    async def close(self) -> None:
        for app in self._apps:
            await app.close()

    async def another_app(self, **settings: Any) -> App:
        """Open another App on the same database, like a second process."""
        app = App(replace(self.settings, **settings), clock=self.clock)
        await app.open()
        self._apps.append(app)
        return app

    async def close_app(self, app: App) -> None:
        self._apps.remove(app)
        await app.close()

    async def index_sessions(self) -> None:
        """Index all sessions now, so that searches find everything."""
        self.app.lease_runner.rest = 0
        await self.app.scheduler.drain("search.index_sessions", "search.embed_sessions")

    async def last_event(self, tenant: str | None = None) -> int:
        return await self.app.database.read(Scope(tenant or self.tenant), lambda tx: EventStore(tx).last_seq())

    async def epoch(self) -> int | None:
        return await self.app.database.read(Scope(self.tenant), lambda tx: AccessStore(tx).epoch())

    async def sql(self, statement: str, *values: Any) -> None:
        """Change rows directly in the database."""
        await self.app.database.write(Scope(self.tenant), lambda tx: tx.run(statement, *values))

    async def rows(self, statement: str, *values: Any) -> Any:
        return await self.app.database.read(Scope(self.tenant), lambda tx: tx.all(statement, *values))
