"""Large context values in object storage: stored before commit, checked when read, deleted when unused."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.contexts import (
    artifact,
    entries,
    knowledge_entry,
    problems,
    pull,
    push,
    read_context,
    stop_at_statement,
    value_of,
    version_of,
)
from support.world import outcome, refused
from weftline.history.object_storage import ObjectStorageUnavailable, Pointer

if TYPE_CHECKING:
    from pathlib import Path

    from support.world import World

pytestmark = pytest.mark.req("CE-F4")
LARGE = "large é " * 8_000
BYTES = bytes(range(256)) * 10


def files(world: World) -> list[Path]:
    """Return the files of this tenant's objects."""
    return sorted(path for path in (world.settings.object_store_folder / world.tenant).rglob("*") if path.is_file())


async def states(world: World) -> list[str]:
    rows = await world.rows("SELECT state FROM objects WHERE tenant = $1 ORDER BY path", world.tenant)
    return [row[0] for row in rows]


async def sweep(world: World) -> None:
    """Delete abandoned and unreferenced objects."""
    for _ in range(3):
        world.clock.advance(hours=2)
        await world.app.scheduler.drain("objects.sweep")


async def test_large_values_artifacts_and_bytes_are_stored_under_the_agent(world: World) -> None:
    content = base64.b64encode(BYTES).decode()
    picture = {"key": "picture", "base64": content, "media_type": "image/png", "metadata": {"of": "a ship"}}
    await push(
        world.planner,
        knowledge_entry("large", LARGE),
        artifact("small", [1, None]),
        picture,
        knowledge_entry("tiny", 1),
        if_version=0,
    )
    stored = files(world)
    assert {path.parent for path in stored} == {world.settings.object_store_folder / world.tenant / "planner"}
    assert {path.name for path in stored} == {hashlib.sha256(path.read_bytes()).hexdigest() for path in stored}
    assert (len(stored), await states(world)) == (3, ["kept"] * 3)
    listed = (await pull(world.planner))["context"]["memory"]
    by_key = {entry["key"]: entry for part in listed.values() for entry in part}
    assert {key: entry.get("truncated", False) for key, entry in by_key.items()} == {
        "large": True,
        "small": True,
        "picture": True,
        "tiny": False,
    }
    assert by_key["picture"]["hash"] == hashlib.sha256(BYTES).hexdigest()
    assert (by_key["picture"]["size"], by_key["picture"]["media_type"]) == (len(BYTES), "image/png")
    assert by_key["picture"]["metadata"] == {"of": "a ship"}
    assert await value_of(world.planner, "large") == LARGE
    assert await value_of(world.planner, "small", memory_type="work_artifacts") == [1, None]
    assert await value_of(world.planner, "picture") == content
    assert await problems(world) == []


async def test_bytes_may_be_empty_and_without_a_media_type(world: World) -> None:
    await push(world.planner, {"key": "empty", "base64": ""}, if_version=0)
    await pull(world.planner)
    (entry,) = (await read_context(world.planner, key="empty"))["entries"]
    assert (entry["base64"], entry["media_type"], entry["size"]) == ("", "application/octet-stream", 0)


async def test_unreferenced_objects_are_deleted_and_referenced_ones_kept(world: World) -> None:
    await world.admin.call("history.set_retention", subject="work_artifacts", days="indefinite", versions=1)
    await push(world.planner, artifact("a", "first"), if_version=0)
    await push(world.planner, artifact("a", "second"), if_version=1)
    await sweep(world)
    assert len(files(world)) == 2
    await world.admin.call("history.prune")
    assert await states(world) == ["kept", "doomed"] or await states(world) == ["doomed", "kept"]
    await sweep(world)
    (left,) = files(world)
    assert left.read_bytes() == b'"second"'
    await pull(world.planner)
    assert await value_of(world.planner, "a", memory_type="work_artifacts") == "second"


async def test_equal_values_of_two_keys_share_an_object(world: World) -> None:
    await world.admin.call("history.set_retention", subject="work_artifacts", days="indefinite", versions=1)
    await push(world.planner, artifact("a", "same", metadata={"n": 1}), artifact("b", "same"), if_version=0)
    assert len(files(world)) == 1
    await push(world.planner, artifact("a", "other"), if_version=1)
    await world.admin.call("history.prune")
    await sweep(world)
    await pull(world.planner)
    assert await value_of(world.planner, "b", memory_type="work_artifacts") == "same"


@pytest.mark.req("CE-E", part="a push that fails midway")
async def test_a_push_fails_while_object_storage_is_unavailable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(*_: Any) -> None:
        raise ObjectStorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(world.app.objects._store, "put", unreachable)
        with refused("OBJECT_STORAGE_UNAVAILABLE"):
            await push(world.planner, knowledge_entry("tiny", 1), knowledge_entry("large", LARGE), if_version=0)
        assert await version_of(world.planner) == 0
        await push(world.planner, knowledge_entry("tiny", 1), if_version=0)
    await push(world.planner, knowledge_entry("large", LARGE), if_version=1)
    await pull(world.planner)
    with monkeypatch.context() as patch:
        patch.setattr(world.app.objects._store, "get", unreachable)
        with refused("OBJECT_STORAGE_UNAVAILABLE"):
            await read_context(world.planner, key="large")
        assert await value_of(world.planner, "tiny") == 1
    assert await value_of(world.planner, "large") == LARGE


@pytest.mark.req("CE-E", part="a push that fails midway")
async def test_damaged_objects_are_never_returned(world: World) -> None:
    await push(world.planner, knowledge_entry("large", LARGE), if_version=0)
    await pull(world.planner)
    (stored,) = files(world)
    original = stored.read_bytes()
    stored.chmod(0o600)
    for damaged in (original[:-1], original.replace(b"large", b"LARGE"), b""):
        stored.write_bytes(damaged)
        with refused("OBJECT_DAMAGED"):
            await read_context(world.planner, key="large")
    stored.unlink()
    assert await outcome(read_context(world.planner, key="large")) in {"OBJECT_MISSING", "OBJECT_DAMAGED"}
    assert (await pull(world.planner))["to_version"] == 1


@pytest.mark.req("CE-E", part="a push that fails midway")
async def test_a_refused_push_leaves_no_objects(world: World) -> None:
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    for what, code in [
        ({"if_version": 9}, "VERSION_CONFLICT"),
        ({"if_version": 1, "agent_id": "analysis"}, "PERMISSION_DENIED"),
        ({"if_version": 1, "session_id": "nowhere"}, "SESSION_NOT_FOUND"),
    ]:
        with refused(code):
            await push(world.planner, knowledge_entry("large", LARGE), **what)
    await sweep(world)
    assert (files(world), await states(world)) == ([], [])


@pytest.mark.req("CE-E", part="a push that fails midway")
async def test_a_crashed_push_of_large_values_leaves_no_object(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 500):
        with stop_at_statement(world, monkeypatch, number) as ran:
            result = await outcome(push(world.planner, artifact("a", f"{number}"), if_version=0))
        if len(ran) < number:
            break
        assert result == "INTERNAL_ERROR"
    assert (result, number > 20) == ("ok", True)
    await sweep(world)
    assert (len(files(world)), await states(world)) == (1, ["kept"])
    pulled = await pull(world.planner)
    assert list(entries(pulled)) == ["a"]
    assert await value_of(world.planner, "a", memory_type="work_artifacts") == str(number)


@pytest.mark.req("CE-E", part="a push that fails midway")
async def test_a_refused_push_uploads_nothing(world: World) -> None:
    small = await world.another_app(context_limit_mb=1)
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    for agent, what, code in [
        (world.planner, {"if_version": 9}, "VERSION_CONFLICT"),
        (world.planner, {"if_version": 1, "session_id": "nowhere"}, "SESSION_NOT_FOUND"),
        (world.planner, {"if_version": 1, "branch": "nowhere"}, "BRANCH_NOT_FOUND"),
        (world.planner, {}, "INVALID_INPUT_FORMAT"),
        (world.planner.at(small), {"if_version": 1}, "CONTEXT_LIMIT_EXCEEDED"),
    ]:
        with refused(code):
            # Larger than the limit of the small app.
            await push(agent, knowledge_entry("a", "x" * 1_100_000), **what)
    assert (files(world), await states(world)) == ([], [])


@pytest.mark.req("CE-F4")
async def test_pushing_a_value_again_repairs_a_lost_object(world: World) -> None:
    await push(world.planner, knowledge_entry("large", LARGE), if_version=0)
    await pull(world.planner)
    (stored,) = files(world)
    stored.unlink()
    answer = await push(world.planner, knowledge_entry("large", LARGE), if_version=1)
    assert (answer["unchanged"], await value_of(world.planner, "large")) == (1, LARGE)
    stored.unlink()
    await world.sql("DELETE FROM objects WHERE tenant = $1", world.tenant)
    await push(world.planner, knowledge_entry("large", LARGE), if_version=1)
    await sweep(world)
    assert (await value_of(world.planner, "large"), await states(world)) == (LARGE, ["kept"])


async def test_a_rollback_to_a_lost_value_reports_it_missing(world: World) -> None:
    await push(world.planner, knowledge_entry("large", LARGE), if_version=0)
    await push(world.planner, knowledge_entry("large", 1), if_version=1)
    await world.sql("DELETE FROM objects WHERE tenant = $1", world.tenant)
    with refused("OBJECT_MISSING"):
        await world.admin.call("history.rollback", context_id="context:planner", target_version="1")


async def test_a_value_that_looks_like_a_pointer_does_not_reference_an_object(world: World) -> None:
    for memory_type in ("learned_knowledge", "work_artifacts"):
        await world.admin.call("history.set_retention", subject=memory_type, days="indefinite", versions=1)
    pointer = Pointer.to(world.tenant, "planner", msgspec.json.encode([1, 2, 3]))
    await push(world.planner, knowledge_entry("copycat", msgspec.json.decode(pointer.encode())), if_version=0)
    await push(world.planner, artifact("a", [1, 2, 3]), if_version=1)
    await push(world.planner, knowledge_entry("copycat", 1), artifact("a", "other"), if_version=2)
    await world.admin.call("history.prune")
    await sweep(world)
    assert [stored.read_bytes() for stored in files(world)] == [b'"other"']


@pytest.mark.req("CE-F57")
async def test_pushing_an_artifact_again_renews_its_retention(world: World) -> None:
    await push(world.planner, artifact("a", [1], metadata={"of": "a ship"}), if_version=0)
    world.clock.advance(days=89)
    answer = await push(world.planner, artifact("a", [1], metadata={"of": "a ship"}), if_version=1)
    assert (answer["version"], answer["changed"][0]["version"], answer["unchanged"]) == (2, 2, 0)
    repeated = await push(world.planner, artifact("a", [1], metadata={"of": "a ship"}), if_version=1)
    assert (repeated["version"], repeated["unchanged"]) == (2, 1)
    world.clock.advance(days=2)
    (entry,) = (await pull(world.planner))["context"]["memory"]["work_artifacts"]
    assert (entry["key"], entry["metadata"]) == ("a", {"of": "a ship"})


async def test_expired_artifacts_are_not_copied_or_rolled_back_to(world: World) -> None:
    await push(world.analysis, artifact("a", ["old"]), knowledge_entry("z", 1), if_version=0)
    await push(world.analysis, knowledge_entry("z", 2), if_version=1)
    await world.admin.call("history.snapshot", context_id="context:analysis", label="kept")
    world.clock.advance(days=91)
    await world.admin.call("context.copy", agent_id="review-2", from_agent_id="analysis", version="1")
    assert entries(await pull(world.review)) == {"z": 1}
    assert entries(await pull(world.analysis)) == {"z": 2}
    await world.admin.call("history.rollback", context_id="context:analysis", target_version="1")
    assert entries(await pull(world.analysis)) == {"z": 1}
