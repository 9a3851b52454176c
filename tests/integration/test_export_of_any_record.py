"""Every export survives any stored record, and attributes nothing to whom a record merely names."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prov.model import ProvDocument

from support.bundles import entries, exported, imported
from support.bundles import records as records_in
from support.full_run import examples
from support.record_strategies import records
from support.records import AT, envelope, item
from support.world import SESSION, refused
from weftline.exchange.transfer.bundle_format import BundleRecord, BundleWriter
from weftline.records.model import RECORD_TYPES
from weftline.records.selectors import passage_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.world import World
    from weftline.records.model import Record

pytestmark = pytest.mark.req("AC-14")

_encode = msgspec.json.Encoder().encode
FORMS = ("ndjson", "json", "prov")
# Among them the names of fields that exports read, with values of every shape.
_NAMES = ("author", "sender", "requested_by", "tokens", "reason", "metadata", "message_id", "summary_refs", "trust")
_SHAPES = st.sampled_from([5, "x", None, True, [], ["x"], {}, {"a": 1}, "human:admin", -1, 1e300, "\u2028"])
NATIVE = _SHAPES | st.dictionaries(st.sampled_from(_NAMES), _SHAPES, max_size=4)
IDS = st.sampled_from(
    [
        f"board:{SESSION}/goal/1.2",
        f"board:{SESSION}/goal/1.2/deleted",
        f"message:{SESSION}/1",
        f"session:{SESSION}",
        "board:/",
        "message:",
        "compaction:x/1",
        "summary:",
        "a b#%\u2028",
    ]
)


@st.composite
def adversarial(draw: st.DrawFn) -> Record:
    """Draw a record of any type with ``metadata.weftline`` of any shape, and often an id like one of Weftline's own."""
    record: Any = draw(records(draw(st.sampled_from(sorted(RECORD_TYPES)))))
    changes: dict[str, Any] = {}
    if draw(st.booleans()):
        changes["metadata"] = {**record.metadata, "weftline": draw(NATIVE)}
    if draw(st.booleans()):
        changes[record.id_field] = draw(IDS)
    if record.type == "context_event" and draw(st.booleans()):
        changes["data"] = draw(st.dictionaries(st.sampled_from(["actor", "type", "version", "commit"]), _SHAPES))
    return msgspec.structs.replace(record, **changes)


async def store_raw(world: World, bodies: Sequence[tuple[str, str, bytes]], *, keep: bool = False) -> None:
    """Put records into the database past every check, as an older or damaged database may hold them."""
    if not keep:
        await world.sql("DELETE FROM records WHERE tenant = $1", world.tenant)
    for seq, (kind, record_id, body) in enumerate(bodies, start=1):
        await world.sql(
            "INSERT INTO records (tenant, type, record_id, session_id, recorded_by, principal_id, recorded_at,"
            " changed_at, seq, readable_by, body)"
            " VALUES ($1, $2, $3, $4, 'orchestrator:planner', 'planner', 1, 1, $5, NULL, $6) ON CONFLICT DO NOTHING",
            world.tenant,
            kind,
            record_id,
            SESSION,
            seq,
            body,
        )


async def export_every_form(world: World) -> None:
    for form in FORMS:
        for masks in ({}, {"policy": "strict"}):
            text = await exported(world.planner, format=form, **masks)
            if form == "prov":
                ProvDocument.deserialize(io.StringIO(text.decode()), format="json")
    await exported(world.planner, scope="handoff", recipient="them")
    await exported(world.planner, history=False)


@pytest.fixture
async def policy(world: World) -> None:
    definition = {"who": ["*"], "mask": ["secrets", "pii"], "content": "reference", "exclude_kinds": ["note"]}
    await world.admin.call("policy.set", name="strict", definition=definition)


@pytest.mark.usefixtures("policy")
@given(stored=st.lists(adversarial(), min_size=1, max_size=6))
@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_exports_survive_any_record_in_the_database(world: World, stored: list[Record]) -> None:
    await store_raw(world, [(each.type, each.id, _encode(each)) for each in stored])
    await export_every_form(world)


async def test_a_stored_surface_with_the_id_of_the_session_is_no_second_one(world: World) -> None:
    own = records_in(await exported(world.planner), "context_surface")
    ((name, surface),) = own.items()
    await store_raw(world, [(*name, _encode(surface | {"surface_kind": "planted"}))])
    bundle = await exported(world.planner)
    assert records_in(bundle, "context_surface") == own
    assert b"planted" not in bundle


@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("body", [b"{}", b"5", b"not json", b'{"schema_version":"9.9"}'])
async def test_exports_leave_out_records_that_cannot_be_decoded(world: World, body: bytes) -> None:
    good = _encode(envelope("good"))
    bodies = [(kind, f"bad-{kind}", body) for kind in sorted(RECORD_TYPES)]
    await store_raw(world, [*bodies, ("context_envelope", "good", good)])
    await export_every_form(world)
    assert b'"good"' in await exported(world.planner)


SOURCE = {"schema_version": "0.1.0", "source_id": "s", "source_kind": "file", "uri": "file:///a"}
CLAIMS = (5, None, [], {}, {"author": "human:admin"}, {"passage_digest": 5}, {"passage_digest": "x", "author": "a"})


@pytest.mark.parametrize("claim", CLAIMS)
async def test_callers_cannot_write_what_weftline_writes_about_a_record(world: World, claim: Any) -> None:
    claimed = {"metadata": {"weftline": claim}}
    for record, field in (
        (envelope("c", **claimed), "records[0].metadata.weftline"),
        (item("i", "x", **claimed), "records[0].metadata.weftline"),
        (item("i", "x", source_refs=[SOURCE | claimed]), "records[0].source_refs[0].metadata.weftline"),
        (envelope("c", producer={"id": "p", **claimed}), "records[0].producer.metadata.weftline"),
        (SOURCE | claimed, "records[0].metadata.weftline"),
    ):
        with refused("INVALID_INPUT_FORMAT") as caught:
            await world.planner.call("records.add", session_id=SESSION, records=[record])
        assert caught.value.context["field"] == field


async def test_callers_cite_with_the_digest_of_a_passage(world: World) -> None:
    cited = SOURCE | {"metadata": {"weftline": {"passage_digest": passage_digest("ship")}, "mine": 1}}
    await world.planner.call("records.add", session_id=SESSION, records=[cited, item("i", "x", source_refs=[cited])])


async def test_a_bundle_with_engine_metadata_of_another_form_is_refused(world: World) -> None:
    await world.planner.call("records.add", session_id=SESSION, records=[envelope("mine", metadata={"x": 1})])
    parts: list[bytes] = []
    writer = BundleWriter(parts.append)
    for entry in entries(await exported(world.planner))[:-1]:
        if isinstance(entry, BundleRecord) and b'"mine"' in bytes(entry.record):
            forged = bytes(entry.record).replace(b'"metadata":{"x":1}', b'"metadata":{"weftline":5}')
            entry = msgspec.structs.replace(entry, record=msgspec.Raw(forged))  # noqa: PLW2901
        writer.add(entry)
    writer.seal()
    with refused("BUNDLE_DAMAGED") as caught:
        await imported(world.admin, b"".join(parts), session_id="copy")
    assert "metadata.weftline" in caught.value.message


async def test_what_a_record_claims_is_not_exported_as_attribution(world: World) -> None:
    base = {"schema_version": "0.1.0", "created_at": AT}
    event = {"event_id": "e", "event_type": "context.item.added", "source": "urn:mine", "time": AT}
    claims = [
        base | {"selection_id": "s", "surface_id": "x", "actor_ref": "human:admin"},
        {"schema_version": "0.1.0", **event, "data": {"actor": "human:admin"}},
    ]
    await world.planner.call("records.add", session_id=SESSION, records=claims)
    # Stored by an older Weftline, which let callers write it.
    old = item("i", "x", metadata={"weftline": {"author": "human:admin", "sender": "human:admin"}})
    compaction = {"compaction_id": "k", "scope": "session", "method": "truncation", "source_item_refs": ["i"]}
    compaction |= {"metadata": {"weftline": {"requested_by": "human:admin"}}}
    for kind, record_id, body in (("context_item", "i", old), ("context_compaction", "k", base | compaction)):
        await store_raw(world, [(kind, record_id, _encode(body))], keep=True)
    document = msgspec.json.decode(await exported(world.planner, format="prov"))
    names = [
        relation.get("prov:agent")
        for kind in ("wasAttributedTo", "wasAssociatedWith")
        for relation in document[kind].values()
    ]
    assert "weftline:agent/orchestrator%3Aplanner" in names
    assert not [name for name in document["agent"] if "admin" in name]
