"""Secrets planted everywhere in an installation, and requests that reach for them."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from support.alerts import by_system
from support.red_team import EVERYTHING
from support.world import SESSION
from weftline.insight.alerts.service import Alerts
from weftline.kernel.events import TENANT_SUBJECT, agent_subject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.world import Caller, World
    from weftline.kernel.operation import Operation

PRIVATE, FOREIGN, ELSEWHERE = "s2", "theirs", "away"
SESSIONS = (SESSION, PRIVATE, FOREIGN)
AGENTS = ("planner", "analysis", "review-2", "outsider", "chief", "human1", "human3", "human5", "admin")
_BOARDS = tuple(f"board:{session}" for session in SESSIONS)
LINES = (
    *_BOARDS,
    f"board:{SESSION}@try",
    f"board:{PRIVATE}@try",
    *(f"window:{session}:{agent}" for session in (SESSION, PRIVATE) for agent in ("planner", "analysis")),
    *(f"context:{agent}" for agent in ("planner", "analysis", "outsider")),
    *(f"agent:{agent}" for agent in ("planner", "analysis")),
    "team:ops",
    "user:human5",
    "layer:tenant",
    "layer:team:ops",
)


@dataclass(slots=True)
class Canaries:
    """Planted secrets by place, and ids of what holds them."""

    places: dict[str, str] = field(default_factory=dict)
    ids: dict[str, list[str]] = field(default_factory=dict)

    def plant(self, place: str) -> str:
        """Return a new secret for a place."""
        # A word without meaning, so that nothing else in an answer looks like it.
        self.places[place] = f"canary{secrets.token_hex(6)}"
        return self.places[place]

    def seen(self, text: str) -> set[str]:
        """Return the places whose secret is in a text."""
        return {place for place, secret in self.places.items() if secret in text}


async def principals(world: World) -> dict[str, Caller]:
    """Return callers of every kind: members and strangers, agents and humans of different clearance."""
    admin, planner = world.admin, world.planner
    people = {
        f"human{level}": await admin.create_agent(f"human{level}", kind="human", clearance=level) for level in (1, 3, 5)
    }
    outsider = await admin.create_agent("outsider", agent_type="planning", clearance=3)
    chief = await admin.create_agent("chief", clearance=5, permissions=EVERYTHING)
    await admin.call("team.create", team="ops")
    for member in ("planner", "human5"):
        await admin.call("team.add_member", team="ops", agent_id=member)
    return {
        "analysis": world.analysis,
        "review": world.review,
        "planner": planner,
        "outsider": outsider,
        **people,
        "chief": chief,
        "admin": admin,
        "foreign": world.stranger,
    }


async def plant_everywhere(world: World, callers: Mapping[str, Caller]) -> Canaries:
    """Write a secret to every place that holds content."""
    canaries = Canaries()
    canaries.places |= {f"api key of {name}": caller.credential for name, caller in callers.items()}
    await _plant_on_boards(world, callers, canaries)
    await _plant_in_messages(world, callers, canaries)
    await _plant_in_memory(world, callers, canaries)
    await _plant_in_windows(world, canaries)
    await _plant_in_settings(world, canaries)
    await _plant_in_knowledge(world, canaries)
    await _plant_in_alerts(world, canaries)
    await world.index_sessions()
    await _assemble_for_another(callers["chief"], canaries)
    return canaries


async def _plant_on_boards(world: World, callers: Mapping[str, Caller], canaries: Canaries) -> None:
    planner = world.planner
    await planner.write("open", canaries.plant("board: open key"))
    await planner.write("closed", canaries.plant("board: closed key"), readable_by=["orchestrator"])
    await planner.write("closing", canaries.plant("board: version before the key was closed"))
    await planner.write("closing", canaries.plant("board: version that closed the key"), readable_by=["orchestrator"])
    await planner.write("gone", canaries.plant("board: deleted closed key"), readable_by=["orchestrator"])
    await planner.delete("gone")
    await planner.snapshot("mark")
    await planner.call("history.branch", context_id=f"board:{SESSION}", branch="try")
    await planner.write(
        "aside", canaries.plant("board: closed key of a branch"), branch="try", readable_by=["orchestrator"]
    )
    private = await planner.create_session(PRIVATE, members=[])
    await private.write("plan", canaries.plant("private session: key"))
    await private.call("history.branch", context_id=f"board:{PRIVATE}", branch="try")
    await private.write("plan", canaries.plant("private session: key of a branch"), branch="try")
    await private.write("plan", canaries.plant("private session: conflicting key"))
    await private.snapshot(canaries.plant("private session: label of a snapshot"))
    merged = await private.call("history.merge", context_id=f"board:{PRIVATE}", from_context_id=f"board:{PRIVATE}@try")
    canaries.ids["review_id"] = [merged["review_id"]]
    theirs = await callers["outsider"].create_session(FOREIGN, members=[])
    await theirs.write("plan", canaries.plant("session of the outsider: key"))
    await world.stranger.call("session.create", purpose=canaries.plant("other tenant: purpose"), session_id=ELSEWHERE)
    await world.stranger.in_session(ELSEWHERE).write("plan", canaries.plant("other tenant: key"))
    await world.stranger.call("session.create", purpose="same name", session_id=SESSION)
    await world.stranger.write("open", canaries.plant("other tenant: key of the same name"))


async def _plant_in_messages(world: World, callers: Mapping[str, Caller], canaries: Canaries) -> None:
    planner = world.planner
    await planner.say(canaries.plant("message: public"))
    await planner.say(canaries.plant("message: private"), visibility="private")
    await planner.say(canaries.plant("message: to analysis"), recipient_id="analysis")
    await planner.say(canaries.plant("message: to the sender's type"), visibility="agent_only")
    await planner.say(canaries.plant("message: to a team"), team="ops")
    await world.admin.say(canaries.plant("message: to admins"), visibility="admin_only")
    await planner.in_session(PRIVATE).say(canaries.plant("private session: message"))
    await world.stranger.say(canaries.plant("other tenant: message"))
    reported = await planner.call(
        "missing.report", session_id=PRIVATE, question=canaries.plant("private session: missing context")
    )
    canaries.ids["missing_id"] = [reported["missing_id"]]
    await callers["outsider"].in_session(FOREIGN).say(canaries.plant("session of the outsider: message"))


async def _plant_in_memory(world: World, callers: Mapping[str, Caller], canaries: Canaries) -> None:
    planner = world.planner
    await planner.remember("goal", canaries.plant("memory: global"))
    await planner.remember("goal", canaries.plant("memory: of a session"), session_id=SESSION)
    await planner.remember("goal", canaries.plant("memory: of the private session"), session_id=PRIVATE)
    await world.analysis.remember("goal", canaries.plant("memory: of a sub-agent"))
    await callers["human5"].remember("goal", canaries.plant("memory: of a human with clearance 5"))
    await callers["chief"].remember("goal", canaries.plant("memory: of an agent with clearance 5"))
    await world.stranger.remember("goal", canaries.plant("other tenant: memory"))
    for caller, place in ((planner, "planner"), (world.analysis, "analysis")):
        entry = {"key": "fact", "value": canaries.plant(f"agent context: of {place}")}
        await caller.call("context.push", knowledge=[entry], if_version=0)
    entry = {"key": "fact", "value": canaries.plant("agent context: of a team")}
    await planner.call("context.push", knowledge=[entry], owner="team:ops", if_version=0)
    entry = {"key": "fact", "value": canaries.plant("agent context: of a human")}
    await callers["human5"].call("context.push", knowledge=[entry], owner="user:human5", if_version=0)


async def _plant_in_windows(world: World, canaries: Canaries) -> None:
    for session in (SESSION, PRIVATE):
        event = {"event_id": "e1", "content": canaries.plant(f"window: of the planner in {session}")}
        await world.planner.call("context.ingest", session_id=session, events=[event])
        await world.planner.call("window.checkpoint", session_id=session, label="before")
        prompt = await world.planner.call(
            "context.assemble", session_id=session, task_description=canaries.plant(f"task: in {session}")
        )
        canaries.ids.setdefault("receipt_id", []).append(prompt["receipt_id"])
    event = {"event_id": "e1", "content": canaries.plant("window: of a sub-agent")}
    await world.analysis.call("context.ingest", session_id=SESSION, events=[event])


async def _plant_in_settings(world: World, canaries: Canaries) -> None:
    admin, planner = world.admin, world.planner
    for agent, place in (("planner", "the planner"), ("analysis", "a sub-agent")):
        rule = {
            "name": "no-news",
            "prohibited_action": ["news.*"],
            "message": canaries.plant(f"rule: of {place}"),
        }
        await admin.call(
            "agent.define",
            agent_id=agent,
            role=canaries.plant(f"role: of {place}"),
            system_prompt=canaries.plant(f"definition: of {place}"),
            config={"note": canaries.plant(f"settings: of {place}")},
            guardrails=[rule],
        )
    await admin.call("layer.define", layer="tenant", text=canaries.plant("layer: of the tenant"))
    await admin.call("layer.define", layer="team:ops", text=canaries.plant("layer: of a team"))
    await world.stranger.call("layer.define", layer="tenant", text=canaries.plant("other tenant: layer"))
    await planner.call(
        "session.create", purpose=canaries.plant("purpose of a private session"), session_id="s4", members=[]
    )
    tool = {"name": "github.search", "description": canaries.plant("registered tool: of the planner's tree")}
    await planner.call("tools.register", tools=[tool])
    hook = await admin.call(
        "webhook.create", url="https://receiver.invalid/hook", description=canaries.plant("webhook: description")
    )
    canaries.ids["webhook_id"] = [hook["webhook_id"]]
    canaries.places["webhook: secret"] = hook["secret"]
    envelope = {
        "schema_version": "0.1.0",
        "context_id": "record1",
        "scope": "turn",
        "lifecycle": "draft",
        "created_at": "2026-02-20T00:00:00Z",
        "metadata": {"note": canaries.plant("record: for the planner")},
    }
    await planner.call("records.add", records=[envelope], session_id=SESSION, readable_by=["orchestrator"])
    canaries.ids["record_id"] = ["record1"]


async def _plant_in_knowledge(world: World, canaries: Canaries) -> None:
    admin = world.admin
    for domain, rights in (("open", {}), ("vault", {"clearance": 5}), ("listed", {"agents": ["type:planning"]})):
        await admin.call("knowledge.create_domain", domain=domain, **rights)
        text = f"# Page\n\n{canaries.plant(f'document: of the domain {domain}')}"
        await admin.call("knowledge.add_document", domain=domain, document_id="page.md", text=text)
        await _plant_in_template(admin, canaries, f"{domain}-template", rights)
    await _plant_in_template(world.stranger, canaries, "open-template", {}, "other tenant: template")
    await world.app.scheduler.drain("knowledge.ingest")
    await world.app.scheduler.drain("knowledge.evaluate")


async def _plant_in_template(
    admin: Caller, canaries: Canaries, domain: str, rights: Mapping[str, Any], place: str = ""
) -> None:
    """Create a domain from a template with a secret in its texts, and evaluate its example question."""
    place = place or f"template: of the domain {domain}"
    secret = canaries.plant(place)
    template = {
        "name": "own",
        "description": secret,
        "metadata": [{"name": "kind", "required": True, "values": [secret], "description": secret}],
        "questions": [{"question": f"What is {secret}?", "contains": [secret]}],
    }
    await admin.call("knowledge.create_domain", domain=domain, template=template, **rights)
    text = f"# Page\n\n{canaries.plant(f'{place}: document')}"
    await admin.call(
        "knowledge.add_document", domain=domain, document_id="page.md", text=text, metadata={"kind": secret}
    )


async def _plant_in_alerts(world: World, canaries: Canaries) -> None:
    for tenant, subject, place in (
        (world.tenant, TENANT_SUBJECT, "alert: about the tenant"),
        (world.tenant, agent_subject("planner"), "alert: about the planner"),
        (world.other_tenant, TENANT_SUBJECT, "other tenant: alert"),
    ):
        about = canaries.plant(place)
        raised = partial(Alerts.raise_, condition="quota.near", subject=subject, data={}, about=about)
        await by_system(world, raised, tenant)
    for caller in (world.admin, world.stranger):
        found = (await caller.call("alerts.list"))["alerts"]
        canaries.ids.setdefault("alert_id", []).extend(alert["alert_id"] for alert in found)


async def _assemble_for_another(chief: Caller, canaries: Canaries) -> None:
    """Assemble the prompt of an agent as a principal that may read more than it."""
    prompt = await chief.call(
        "context.assemble", session_id=SESSION, agent_id="planner", task_description="Summarise the page."
    )
    canaries.ids["receipt_id"].append(prompt["receipt_id"])


def requests(operation: Operation, valid: Mapping[str, Any], canaries: Canaries) -> Iterator[dict[str, Any]]:
    """Yield requests of an operation that reach for everything planted: every name in every field that takes one."""
    names = _names(canaries)
    fields = [name for name in operation.request.__struct_fields__ if name in names]
    yield dict(valid)
    sessions = names["session_id"] if "session_id" in fields else [None]
    others = [name for name in fields if name != "session_id"]
    for session in sessions:
        base = dict(valid) if session is None else {**valid, "session_id": session}
        yield base
        for name in others:
            for value in names[name]:
                yield {**base, name: value}
    for first, second in itertools.combinations(others, 2):
        for pair in zip(names[first], names[second], strict=False):
            yield {**valid, first: pair[0], second: pair[1]}


def _names(canaries: Canaries) -> dict[str, list[Any]]:
    """Return the names that fields of requests may be given."""
    keys = ["open", "closed", "closing", "gone", "aside", "plan", "goal", "fact"]
    items = [f"board:{SESSION}/{key}" for key in keys] + [f"board:{PRIVATE}/plan", f"board:{SESSION}/closing/1.1"]
    return {
        "session_id": [*SESSIONS, "s4", ELSEWHERE, "all"],
        "key": keys,
        "keys": [keys],
        "agent_id": [*AGENTS],
        "from_agent_id": ["planner", "analysis"],
        "with_agent_id": ["planner", "analysis"],
        "owner": ["team:ops", "user:human5"],
        "context_id": [*LINES],
        "other_context_id": [*_BOARDS],
        "from_context_id": [f"board:{PRIVATE}@try"],
        "branch": ["try"],
        "label": ["mark", "before"],
        "from_label": ["mark"],
        "domain": ["open", "vault", "listed", "open-template", "vault-template", "listed-template"],
        "document_id": ["page.md"],
        "query": ["canary", "page", "plan"],
        "item": items,
        "item_id": items,
        "record_id": [*items, "record1", f"message:{SESSION}/1"],
        "sender": ["planner"],
        "team": ["ops"],
        "layer": ["tenant", "team:ops"],
        "after": [0],
        "personal": [True],
        "version": [1],
        "from_version": ["1"],
        "target_version": ["1"],
        "ids": [["e1"]],
        "message_id": [1, 2, 3, 4, 5, 6],
        "memory_type": ["learned_knowledge"],
        "format": ["prov"],
        "history": [True],
        "include_archived": [True],
        "candidates": [True],
        **canaries.ids,
    }


def resources() -> Iterator[str]:
    """Yield the URIs of everything planted that is a resource."""
    for session in (*SESSIONS, "s4", ELSEWHERE):
        yield from (f"board://{session}", f"session://{session}", f"board://{session}/*")
        yield from (f"board://{session}/{key}" for key in ("open", "closed", "closing", "gone", "aside", "plan"))
    yield from (f"agent://{agent}/memory" for agent in AGENTS)
    yield from ("inbox://me", "performance://metrics")
