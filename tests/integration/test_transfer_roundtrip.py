"""A session moved to a database of the other kind is unchanged."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.bundles import contents, entries, exported, imported, records, without_trust
from support.full_run import examples
from support.world import Caller, outcome
from weftline.app.app import App
from weftline.exchange.transfer.bundle_format import BundleSession, BundleSnapshot
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.world import World
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.both_databases

KEYS = st.sampled_from(["goal", "plan", "notes"])
SECRETS = "mail bob@example.com with AKIAIOSFODNN7EXAMPLE"
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.just("long " * 600),
    st.just(SECRETS),
    st.just(f"{SECRETS} {'w' * 2_000}"),
)
READERS = st.sampled_from([None, ["*"], ["human:*", "orchestrator"], ["human:admin"]])
VISIBILITIES = st.sampled_from(["public", "private", "agent_only", "admin_only"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
METADATA = st.none() | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), JSON, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS, VALUES, READERS, st.sampled_from([None, 30, 7_200])),
        st.tuples(st.just("work"), KEYS, VALUES, st.sampled_from(["plan", "build"])),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("say"), VALUES.filter(bool), VISIBILITIES, METADATA),
        st.tuples(st.just("answer"), st.text("abc é🚢", min_size=1, max_size=20)),
        st.tuples(st.just("hide"), VISIBILITIES),
        st.tuples(st.just("snapshot")),
        st.tuples(st.just("restore")),
        st.tuples(st.just("branch"), KEYS, VALUES),
        st.tuples(st.just("item"), VALUES),
        st.tuples(st.just("gap"), st.sampled_from(["low", "blocking"])),
        st.tuples(st.just("pull"), st.text("abc", min_size=1, max_size=5)),
        st.tuples(st.just("remember"), st.text("abc", min_size=1, max_size=5)),
        st.tuples(st.just("redact"), KEYS, st.sampled_from(["masked", "removed", "summarized", "encrypted_ref"])),
        st.tuples(st.just("wait"), st.integers(1, 4_000)),
    ),
    max_size=14,
)


@pytest.fixture
def other_url(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> str:
    """Return the URL of a database of the other kind."""
    on_sqlite = not database_url.startswith("postgres")
    return request.getfixturevalue("postgres_url") if on_sqlite else str(tmp_path / "elsewhere.db")


@pytest.fixture
async def other_app(other_url: str, clock: FrozenClock, tmp_path: Path) -> AsyncIterator[App]:
    """Return an App on the other database."""
    app = App(Settings(database_url=other_url, data_dir=str(tmp_path / "elsewhere"), rate_limits="off"), clock=clock)
    await app.open()
    try:
        yield app
    finally:
        await app.close()


async def run_step(admin: Caller, planner: Caller, clock: FrozenClock, number: int, step: tuple[Any, ...]) -> None:  # noqa: C901, PLR0912
    """Run one step in a session; refusals are ignored."""
    match step:
        case ("write", key, value, readers, ttl):
            await outcome(planner.write(key, value, readable_by=readers, ttl_seconds=ttl, reason=f"step {number}"))
        case ("work", key, value, name):
            await outcome(admin.write(key, value, step=name))
        case ("delete", key):
            await outcome(planner.delete(key))
        case ("say", content, visibility, metadata):
            await outcome(admin.say(content, visibility=visibility, metadata=metadata))
        case ("answer", content):
            await outcome(planner.say(content, parent_message_id=1, recipient_id="admin", category="CONTEXT"))
        case ("hide", visibility):
            # Only the admin's own messages: others may be hidden from it.
            own_messages = [m["id"] for m in (await admin.messages())["messages"] if m["sender"] == "admin"]
            if own_messages:
                where = {"session_id": admin.session, "message_id": own_messages[-1]}
                await admin.call("message.set_visibility", **where, visibility=visibility)
        case ("snapshot",):
            await outcome(admin.snapshot(f"mark-{number}"))
        case ("restore",):
            labels = [label for label in await admin.snapshots() if label.startswith("mark")]
            if labels:
                await outcome(admin.restore(labels[0]))
        case ("branch", key, value):
            await outcome(admin.call("history.branch", context_id=f"board:{admin.session}", branch="try"))
            await outcome(admin.write(key, value, branch="try"))
        case ("item", content):
            item = {
                "schema_version": "0.1.0",
                "item_id": f"item-{admin.session}-{number}",
                "context_kind": "note",
                "content_mode": "inline",
                "content": content,
                "visibility": ["*"],
            }
            await outcome(planner.call("records.add", session_id=admin.session, records=[item]))
        case ("gap", severity):
            what = {"question": f"Why {number}?", "severity": severity, "missing_id": f"gap-{admin.session}-{number}"}
            await outcome(planner.call("missing.report", session_id=admin.session, **what))
        case ("pull", value):
            known = {"knowledge": [{"key": "facts", "value": value}], "if_version": number}
            await outcome(admin.call("context.push", **known))
            await outcome(admin.call("context.pull", session_id=admin.session))
        case ("remember", value):
            await outcome(admin.remember("note", value, session_id=admin.session))
        case ("redact", key, state):
            version = (await admin.history(key))["versions"][0]["version"] if key in await admin.keys() else 0
            what = {"item_id": f"board:{admin.session}/{key}/1.{version}", "state": state, "reason": SECRETS}
            instead = {"replacement": SECRETS} if state == "summarized" else {}
            await outcome(admin.call("records.redact", **what, **instead, method=SECRETS))
        case ("wait", seconds):
            clock.advance(seconds=seconds)


def names_of(name: tuple[str, str], record: dict[str, Any]) -> set[str]:
    """Return the ids that a record and its subject begin with: those an export makes begin with its bundle's."""
    return {each.partition("/")[0] for each in (name[1], record.get("subject", ""))}


def without_export_records(bundle: bytes) -> dict[tuple[str, str], Any]:
    """Return the records of a bundle without those of its export and an earlier import."""
    own = entries(bundle)[0].bundle_id
    return {
        name: without_trust(record)
        for name, record in records(bundle).items()
        if own not in names_of(name, record) and record.get("data", {}).get("type") != "session.imported"
    }


def others(bundle: bytes) -> list[Any]:
    return [entry for entry in entries(bundle) if isinstance(entry, BundleSession | BundleSnapshot)]


def without_hashes(log: Any) -> list[Any]:
    return [{name: value for name, value in entry.items() if name != "hash"} for entry in log["commits"]]


async def assert_same_content(source: Caller, target: Caller) -> None:
    """Check that history, messages and keys of both sessions are equal."""
    line = f"board:{source.session}"
    logs = [await caller.call("history.log", context_id=line, limit=100) for caller in (source, target)]
    # Labels are part of the hashes, and no item of a human is trusted in another installation.
    assert without_hashes(logs[0]) == without_hashes(logs[1])
    assert await target.message_texts(limit=1_000) == await source.message_texts(limit=1_000)
    assert sorted(await target.keys()) == sorted(await source.keys())


@pytest.mark.req("AC-14")
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(12),
    deadline=None,
)
@given(steps=STEPS, policy=st.sampled_from(["full", "standard", "masked"]))
async def test_a_transferred_session_is_unchanged(
    world: World, other_app: App, clock: FrozenClock, steps: list[tuple[Any, ...]], policy: str
) -> None:
    session = f"s{secrets.token_hex(6)}"
    planner = await world.planner.create_session(session, max_value_tokens=5_000, max_total_tokens=100_000)
    admin = world.admin.in_session(session)
    for number, step in enumerate(steps):
        await run_step(admin, planner, clock, number, step)
    # Expired entries are history in both.
    await admin.write("last", "word")
    first = await exported(admin, policy=policy)
    tenant = await other_app.tenants.create(f"there{secrets.token_hex(4)}")
    target = Caller(other_app, tenant.admin_key, session)
    await imported(target, first)
    second = await exported(target, policy=policy)
    before, after = without_export_records(first), without_export_records(second)
    envelope = entries(first)[0].bundle_id
    export_records = {name: record for name, record in after.items() if envelope in names_of(name, record)}
    assert {name: record for name, record in after.items() if name not in export_records} == before
    # The events of its envelope, its selection and its budget.
    assert {kind for kind, _ in export_records} == {"context_event"}
    assert len(export_records) == 3
    assert contents(second) == contents(first)
    assert others(second) == others(first)
    assert (await target.call("history.verify", context_id=f"board:{session}", deep=True))["intact"]
    if policy == "full" and not any(step[0] == "redact" for step in steps):
        await assert_same_content(admin, target)
