"""Guards see every call before and after it runs, and all content that enters, and may replace or refuse either."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from support.bundles import exported
from support.jobs import pause_jobs
from support.world import arriving, refused
from weftline.app.dispatch import CallContext
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import PermissionDenied, Rejected
from weftline.kernel.fields import new_id
from weftline.kernel.guards import ContentPiece, Guard, GuardedCall
from weftline.sessions.events.model import EventFilter
from weftline.sessions.events.operations import Events, ReadEvents
from weftline.sessions.events.webhooks import signed_headers
from weftline.state.board.operations import WriteEntry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.world import Caller, World
    from weftline.kernel.operation import Request
    from weftline.settings import Settings

DOMAIN = "handbook"


class Injected(Rejected):
    """The content contains instructions."""

    code = "TEST_INJECTED"


class NoInjection(Guard):
    """Refuses content with instructions in it, even if split over pieces."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self._buffer = b""

    async def content(self, call: GuardedCall, piece: ContentPiece) -> bytes:
        self._buffer += piece.data
        if not piece.last:
            return b""
        content, self._buffer = self._buffer, b""
        self.entries.append(call.entry)
        if b"purple prose" in content:
            raise Injected
        return content


class Masking(Guard):
    """Masks a word in content."""

    async def content(self, call: GuardedCall, piece: ContentPiece) -> bytes:  # noqa: ARG002
        return piece.data.replace(b"secret", b"******")


class DenyDocuments(Guard):
    """Denies adding documents."""

    async def before(self, call: GuardedCall) -> Any:
        if call.operation.name == "knowledge.add_document":
            raise PermissionDenied("The library is closed.")
        return call.request


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "roots" / "docs"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def settings(settings: Settings, folder: Path) -> Settings:
    return replace(settings, knowledge_folders=str(folder.parent))


@pytest.fixture(autouse=True)
def _jobs_run_when_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, "knowledge.sync", "knowledge.ingest")


@pytest.fixture
async def library(world: World) -> World:
    await world.admin.call("knowledge.create_domain", domain=DOMAIN)
    return world


async def pieces(*texts: bytes) -> AsyncIterator[bytes]:
    for text in texts:
        yield text


async def upload(world: World, document_id: str, *texts: bytes) -> None:
    raw = {"domain": DOMAIN, "document_id": document_id}
    await world.app.uploads.receive(raw, CallContext(world.admin.credential), pieces(*texts))


async def import_bundle(caller: Caller, *chunks: bytes, **what: Any) -> None:
    await caller.app.transfers.receive(what, CallContext(caller.credential), pieces(*chunks))


async def call_hook(world: World, source: Any, *documents: dict[str, str]) -> None:
    body = json.dumps({"documents": documents}).encode()
    headers = signed_headers(source["secret"], new_id("call"), to_micros(world.clock.now()) // 1_000_000, body)
    tenant, source_id, token = source["hook"].removeprefix("/v1/knowledge/hooks/").split("/")
    await world.app.receive_hook((tenant, source_id, token), headers, arriving(body), CallContext(None))


async def add_source(world: World, kind: str, **what: Any) -> Any:
    return await world.admin.call("knowledge.add_source", domain=DOMAIN, kind=kind, **what)


async def documents(world: World) -> dict[str, int]:
    """Return the sizes of the stored documents."""
    listed = await world.admin.call("knowledge.list_documents", domain=DOMAIN)
    return {each["document_id"]: each["bytes"] for each in listed["documents"]}


async def denials(world: World) -> list[tuple[str, str, str]]:
    rows = await world.admin.audit(outcome="denied")
    return [(row["action"], row["agent_id"], row["detail"]["reason"]) for row in rows]


async def test_a_guard_sees_the_parsed_request_and_its_actor(world: World) -> None:
    seen: list[tuple[str, str, str, Request]] = []

    class Recorder(Guard):
        async def before(self, call: GuardedCall) -> Any:
            assert call.actor is not None
            seen.append((call.entry, call.actor.participant, call.operation.name, call.request))
            return call.request

    world.app.guards.install(Recorder())
    await world.analysis.write("goal", "ship")
    await anext(world.review.follow(EventFilter("s1", ("goal",)), 0))
    with refused("INVALID_INPUT_FORMAT"):
        await world.analysis.write("goal", if_version="one")
    with refused("PERMISSION_DENIED"):
        await world.analysis.audit()
    read = ReadEvents(session_id="s1", keys=("goal",), after=0)
    assert seen == [
        ("call", "subagent:analysis", "board.write", WriteEntry(session_id="s1", key="goal", value="ship")),
        ("follow", "subagent:review:review-2", "events.read", read),
    ]


@pytest.mark.req("MS-13")
async def test_a_refused_call_changes_nothing_and_its_denial_is_audited(world: World) -> None:
    class Goals(Guard):
        async def before(self, call: GuardedCall) -> Any:
            request, actor = call.request, call.actor
            if isinstance(request, WriteEntry) and actor and actor.is_subagent and request.key == "goal":
                raise PermissionDenied("Goals are set by the orchestrator.")
            return request

    world.app.guards.install(Goals())
    with refused("PERMISSION_DENIED"):
        await world.analysis.write("goal")
    await world.analysis.write("finding")
    assert await world.planner.keys() == ["finding"]
    assert await denials(world) == [("board.write", "analysis", "Goals are set by the orchestrator.")]


async def test_a_guard_replaces_requests_and_answers(world: World) -> None:
    class Masker(Guard):
        async def before(self, call: GuardedCall) -> Any:
            if isinstance(call.request, WriteEntry):
                return structs.replace(call.request, value=call.request.value.replace("secret", "***"))
            return call.request

        async def after(self, call: GuardedCall, answer: Any) -> Any:
            if call.operation.name == "board.read":
                return structs.replace(answer, value=answer.value.upper())
            return answer

    await world.planner.write("before", "a secret")
    world.app.guards.install(Masker())
    await world.planner.write("after", "a secret")
    assert await world.planner.value("before") == "A SECRET"
    assert await world.planner.value("after") == "A ***"


async def test_guards_run_in_order_before_a_call_and_in_reverse_after(world: World) -> None:
    asked: list[str] = []

    class Named(Guard):
        def __init__(self, name: str) -> None:
            self._name = name

        async def before(self, call: GuardedCall) -> Any:
            asked.append(f"before {self._name}")
            return call.request

        async def after(self, call: GuardedCall, answer: Any) -> Any:  # noqa: ARG002
            asked.append(f"after {self._name}")
            return answer

    world.app.guards.install(Named("outer"))
    world.app.guards.install(Named("inner"))
    await world.planner.keys()
    assert asked == ["before outer", "before inner", "after inner", "after outer"]


async def test_an_answer_can_be_refused(world: World) -> None:
    class Sealed(Guard):
        async def after(self, call: GuardedCall, answer: Any) -> Any:
            if call.operation.name == "board.read":
                raise PermissionDenied("The answer is sealed.")
            return answer

    await world.planner.write("goal")
    world.app.guards.install(Sealed())
    with refused("PERMISSION_DENIED"):
        await world.planner.read("goal")
    assert (await denials(world))[0] == ("board.read", "planner", "The answer is sealed.")


async def test_a_guard_filters_the_events_of_a_stream(world: World) -> None:
    class Quiet(Guard):
        async def after(self, call: GuardedCall, answer: Any) -> Any:  # noqa: ARG002
            if isinstance(answer, Events):
                return structs.replace(answer, events=[event for event in answer.events if event.subject != "noise"])
            return answer

    await world.planner.write("noise")
    await world.planner.write("goal")
    world.app.guards.install(Quiet())
    page = await anext(world.planner.follow(EventFilter("s1", types=("board.*",)), 0))
    assert [event.subject for event in page.events] == ["goal"]


async def test_a_token_request_has_no_actor(world: World) -> None:
    seen: list[tuple[str, object]] = []

    class Recorder(Guard):
        async def before(self, call: GuardedCall) -> Any:
            seen.append((call.operation.name, call.actor))
            return call.request

    world.app.guards.install(Recorder())
    await world.analysis.token("analysis")
    assert seen == [("token.issue", None)]


async def test_content_of_every_entry_point_is_guarded_and_refused_content_is_not_stored(
    library: World, folder: Path, world: World
) -> None:
    await world.planner.write("goal", "a line of purple prose")
    bundle = await exported(world.planner, session_id="s1")
    hook = await add_source(library, "hook", prefix="wiki/")
    source = await add_source(library, "folder", folder=str(folder), prefix="docs/")
    guard = NoInjection()
    library.app.guards.install(guard)
    with refused("TEST_INJECTED"):
        await upload(library, "a.txt", b"A line of purple", b" prose.")
    with refused("TEST_INJECTED"):
        await import_bundle(world.admin, bundle[:100], bundle[100:], session_id="copy")
    with refused("HOOK_REFUSED"):
        await call_hook(
            library, hook, {"document_id": "a", "text": "fine"}, {"document_id": "b", "text": "purple prose"}
        )
    (folder / "bad.txt").write_text("More purple prose.")
    (folder / "good.txt").write_text("Nothing of the kind.")
    await library.app.scheduler.drain("knowledge.sync")
    assert guard.entries == ["upload", "import", "hook", "hook", "sync", "sync"]
    assert list(await documents(library)) == ["docs/good.txt"]
    with refused("SESSION_NOT_FOUND"):
        await world.planner.in_session("copy").keys()
    listed = (await library.admin.call("knowledge.list_sources", domain=DOMAIN))["sources"]
    failures = next(each for each in listed if each["source_id"] == source["source_id"])["last_sync"]["failures"]
    assert [(each["document_id"], each["reason"]) for each in failures] == [
        ("docs/bad.txt", "The content contains instructions.")
    ]


async def test_replaced_content_is_stored(library: World, folder: Path) -> None:
    class Short(Guard):
        async def content(self, call: GuardedCall, piece: ContentPiece) -> bytes:  # noqa: ARG002
            return piece.data[:3]

    hook = await add_source(library, "hook", prefix="wiki/")
    await add_source(library, "folder", folder=str(folder), prefix="docs/")
    library.app.guards.install(Masking())
    library.app.guards.install(Short())
    await upload(library, "a.txt", b"secret", b"secret")
    await call_hook(library, hook, {"document_id": "b", "text": "secret"})
    (folder / "c.txt").write_text("secret")
    await library.app.scheduler.drain("knowledge.sync")
    assert await documents(library) == {"a.txt": 6, "wiki/b": 3, "docs/c.txt": 3}


async def test_a_denied_document_is_audited_at_every_entry_point(library: World, folder: Path) -> None:
    hook = await add_source(library, "hook", prefix="wiki/")
    await add_source(library, "folder", folder=str(folder), prefix="docs/")
    library.app.guards.install(DenyDocuments())
    with refused("PERMISSION_DENIED"):
        await upload(library, "a.txt", b"text")
    with refused("HOOK_REFUSED"):
        await call_hook(library, hook, {"document_id": "b", "text": "text"})
    (folder / "c.txt").write_text("text")
    await library.app.scheduler.drain("knowledge.sync")
    assert await documents(library) == {}
    denied = [each for each in await denials(library) if each[0] == "knowledge.add_document"]
    assert denied == [("knowledge.add_document", "admin", "The library is closed.")] * 3


async def test_those_who_feed_a_source_do_not_stop_the_agent_that_set_it_up(library: World, folder: Path) -> None:
    """A rule that ends agents refuses a document of others, who could otherwise disable an agent and all below it."""
    keeper = await library.admin.create_agent("keeper", clearance=3, permissions=["read", "write", "admin"])
    hook = await keeper.call("knowledge.add_source", domain=DOMAIN, kind="hook", prefix="wiki/")
    await keeper.call("knowledge.add_source", domain=DOMAIN, kind="folder", folder=str(folder), prefix="docs/")
    rule = {
        "name": "poison",
        "prohibited_action": ["knowledge.add_document"],
        "condition": "arguments.text.contains('poison')",
        "violation_response": "terminate",
    }
    await library.admin.call("layer.define", layer="tenant", guardrails=[rule])
    with refused("HOOK_REFUSED"):
        await call_hook(library, hook, {"document_id": "b", "text": "poison"})
    (folder / "c.txt").write_text("poison")
    await library.app.scheduler.drain("knowledge.sync")
    assert await documents(library) == {}
    await keeper.call("agent.capabilities")


async def test_an_export_can_be_refused_before_and_after_it_is_written(world: World) -> None:
    class NoExports(Guard):
        async def after(self, call: GuardedCall, answer: Any) -> Any:
            if call.entry == "export":
                raise PermissionDenied("Nothing leaves.")
            return answer

    world.app.guards.install(NoExports())
    with refused("PERMISSION_DENIED"):
        await exported(world.planner, session_id="s1")
