"""Export policies: what is exported, in which form and by whom."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.bundles import contents, entries, exported, imported, items, records, texts
from support.records import AT, item
from support.world import SESSION, outcome, refused
from weftline.exchange.record_log.engine_items import EngineItem
from weftline.exchange.transfer.policy_filter import AppliedPolicy, PolicyDefinition
from weftline.records.model import RECORD_TYPES, ContextItem
from weftline.records.validation import check_record

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("AC-11"), pytest.mark.req("AC-04")]
KEY = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
MAIL = "bob@example.com"
GOAL = f"board:{SESSION}/goal/1.1"


async def set_policy(caller: Caller, name: str, **definition: Any) -> Any:
    return await caller.call("policy.set", name=name, definition=definition)


async def fill_session(world: World) -> None:
    await world.planner.write("goal", f"use {KEY}", reason=f"ask {MAIL}")
    await world.planner.write("plan", "ship on Friday")
    await world.planner.say(f"tell {MAIL}", metadata={"key": KEY})


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).hexdigest().encode()


async def test_the_standard_policy_masks_secrets_only(world: World) -> None:
    await fill_session(world)
    bundle = await exported(world.planner)
    item_texts = texts(bundle)
    assert item_texts[GOAL] == "use [github token 1]"
    assert item_texts[f"message:{SESSION}/1"] == f"tell {MAIL}"
    goal, plan = items(bundle)[GOAL], items(bundle)[f"board:{SESSION}/plan/1.1"]
    assert (goal["redaction_state"], goal["redacted_by"]) == ("masked", "policy:standard")
    assert goal["redaction_method"] == "secrets masked by the policy standard"
    assert (plan["redaction_state"], plan["content"], "policy_refs" in plan) == ("none", "ship on Friday", False)
    assert items(bundle)[f"message:{SESSION}/1"]["metadata"]["weftline"]["metadata"] == {"key": "[github token 1]"}
    assert KEY.encode() not in bundle
    assert digest_of(f"use {KEY}") not in bundle


async def test_the_masked_policy_masks_personal_data_too(world: World) -> None:
    await fill_session(world)
    bundle = await exported(world.planner, policy="masked")
    assert texts(bundle)[f"message:{SESSION}/1"] == "tell [email 1]"
    assert items(bundle)[GOAL]["metadata"]["weftline"]["reason"] == "ask [email 1]"
    assert MAIL.encode() not in bundle


async def test_the_metadata_policy_exports_no_content(world: World) -> None:
    await fill_session(world)
    await world.planner.call("missing.report", session_id=SESSION, question=f"Who is {MAIL}?", needed_for="the plan")
    quoted = {
        "schema_version": "0.1.0",
        "source_id": "src-1",
        "uri": "https://example.com/",
        "source_kind": "page",
        "selector": {"type": "css", "selector": "main"},
        "digest": f"sha256:{digest_of('page').decode()}",
    }
    await world.planner.call("records.add", session_id=SESSION, records=[assembly("a1", "ship"), summary("x"), quoted])
    bundle = await exported(world.planner, policy="metadata")
    assert texts(bundle) == {}
    assert contents(bundle) == {}
    for text in (KEY, MAIL, "Friday", "the plan", "ship", "a test", digest_of("ship on Friday").decode()):
        assert text.encode() not in bundle, text
    plan = items(bundle)[f"board:{SESSION}/plan/1.1"]
    assert (plan["redaction_state"], plan["byte_size"], plan["title"]) == ("policy_blocked", 14, "plan")
    (gap,) = records(bundle, "missing_context").values()
    assert (gap["question"], gap["severity"]) == ("[redacted]", "medium")
    assert "needed_for" not in gap


async def test_the_full_policy_is_for_admins(world: World) -> None:
    await fill_session(world)
    bundle = await exported(world.admin, policy="full")
    assert texts(bundle)[GOAL] == f"use {KEY}"
    with refused("POLICY_FORBIDDEN") as caught:
        await exported(world.planner, policy="full")
    assert "list" in caught.value.hint
    with refused("POLICY_NOT_FOUND"):
        await exported(world.planner, policy="nothing")


async def test_the_trust_policy_masks_with_every_export_policy(world: World) -> None:
    await fill_session(world)
    await world.admin.call("layer.define", layer="tenant", policy={"secrets": {"export": "mask"}})
    bundle = await exported(world.admin, policy="full")
    assert texts(bundle)[GOAL] == "use [github token 1]"
    assert texts(bundle)[f"message:{SESSION}/1"] == f"tell {MAIL}"
    assert KEY.encode() not in bundle
    await world.admin.call("layer.define", layer="tenant", policy={"pii": {"export": "mask"}})
    assert MAIL.encode() not in await exported(world.planner)


async def test_the_trust_policy_blocks_items_with_secrets(world: World) -> None:
    await fill_session(world)
    await world.admin.call("layer.define", layer="tenant", policy={"secrets": {"export": "block"}})
    bundle = await exported(world.admin, policy="full")
    goal, plan = items(bundle)[GOAL], items(bundle)[f"board:{SESSION}/plan/1.1"]
    assert (goal["redaction_state"], "content" in goal) == ("policy_blocked", False)
    assert plan["content"] == "ship on Friday"
    assert KEY.encode() not in bundle
    assert digest_of(f"use {KEY}") not in bundle


async def test_an_export_names_its_policy_and_the_digest_of_its_definition(world: World) -> None:
    answer = await set_policy(world.admin, "partners", who=["*"], mask=["pii"])
    bundle = await exported(world.planner, policy="partners")
    header = entries(bundle)[0]
    link = {"kind": "export_policy", "id": "partners", "digest": answer["digest"]}
    assert msgspec.to_builtins(header.policy) == link
    (envelope,) = records(bundle, "context_envelope").values()
    assert envelope["policy_refs"] == [link]
    changed = await set_policy(world.admin, "partners", who=["*"], mask=["pii"], description="else")
    assert changed["digest"] != answer["digest"]


async def test_an_export_is_audited_with_its_policy(world: World) -> None:
    await exported(world.planner)
    await exported(world.review, policy="masked")
    await outcome(exported(world.review, policy="full"))
    rows = [row for row in await world.admin.audit() if row["action"] == "bundle.export"]
    audited = [(row["actor"], row["outcome"], row["detail"].get("policy")) for row in reversed(rows)]
    assert audited == [
        ("orchestrator:planner", "done", "standard"),
        ("subagent:review:review-2", "done", "masked"),
        ("subagent:review:review-2", "denied", None),
    ]


async def test_a_policy_limits_the_sensitivity_of_exported_items(world: World) -> None:
    await world.planner.write("open", "for all")
    await world.planner.write("some", "for some", readable_by=["orchestrator", "human:*"])
    await world.planner.say("mine", visibility="private")
    await world.planner.call("records.add", session_id=SESSION, records=[item("odd", "odd one", sensitivity="cosmic")])
    closed = {"session_id": SESSION, "readable_by": ["orchestrator"], "records": [assembly("a1", "for some")]}
    await world.planner.call("records.add", **closed)
    expected = {
        "internal": {"for all"},
        "restricted": {"for all", "for some"},
        "private": {"for all", "for some", "mine", "odd one"},
    }
    for level, visible_texts in expected.items():
        await set_policy(world.admin, level, who=["*"], sensitivity=level)
        bundle = await exported(world.planner, policy=level)
        assert set(texts(bundle).values()) == visible_texts
        assert (("context_assembly", "a1") in records(bundle)) is (level != "internal")
        assert (b"for some" in bundle) is (level != "internal")


async def test_withheld_items_are_counted_or_exported_without_content(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.say("hello")
    await set_policy(world.admin, "quiet", who=["*"], exclude_kinds=["message"])
    answer = await world.planner.call("bundle.export", session_id=SESSION, policy="quiet")
    assert (answer["omitted"], answer["masked"]) == (1, 0)
    assert set(items(answer["bundle"].encode())) == {GOAL}
    await set_policy(world.admin, "quiet", who=["*"], include_kinds=["message"], on_block="policy_blocked")
    answer = await world.planner.call("bundle.export", session_id=SESSION, policy="quiet")
    assert (answer["omitted"], answer["masked"]) == (0, 1)
    goal = items(answer["bundle"].encode())[GOAL]
    assert goal["redaction_state"] == "policy_blocked"
    assert not {"content", "content_ref", "byte_size", "token_estimate"} & set(goal)
    assert digest_of("ship") not in answer["bundle"].encode()


async def test_reference_policies_export_digests_without_content(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.write("large", "word " * 500)
    await world.planner.call("records.add", session_id=SESSION, records=[item("note", {"a": 1}), summary("shipped")])
    await set_policy(world.admin, "named", who=["*"], content="reference")
    bundle = await exported(world.planner, policy="named")
    assert contents(bundle) == {}
    assert texts(bundle) == {}
    goal = items(bundle)[GOAL]
    assert (goal["content_mode"], goal["content_ref"]["digest"].encode()[7:]) == ("ref", digest_of("ship"))
    assert items(bundle)["note"]["content_mode"] == "ref"
    (made,) = records(bundle, "context_summary").values()
    assert made["content_ref"]["digest"].encode()[7:] == digest_of("shipped")


async def test_quotes_in_records_are_masked(world: World) -> None:
    selection = {
        "schema_version": "0.1.0",
        "selection_id": "s1",
        "surface_id": "session:s1",
        "created_at": AT,
        "query": f"mail {MAIL}",
        "rationale": f"uses {KEY}",
        "omitted_item_refs": [{"item_ref": "x", "reason": "budget", "detail": MAIL}],
        "metadata": {"deep": [{"note": MAIL}]},
        "external_mappings": [{"native": "mcp", "resource_uri": f"https://u:s3cr3t@example.com/{MAIL}"}],
    }
    await world.planner.call("records.add", session_id=SESSION, records=[selection, assembly("a1", f"write {MAIL}")])
    await world.planner.call("missing.report", session_id=SESSION, question=f"Who is {MAIL}?")
    bundle = await exported(world.planner, policy="masked")
    made = records(bundle)["context_selection", "s1"]
    assert (made["query"], made["rationale"]) == ("mail [email 1]", "uses [github token 1]")
    assert made["omitted_item_refs"][0]["detail"] == "[email 1]"
    assert made["metadata"] == {"deep": [{"note": "[email 1]"}]}
    assert made["external_mappings"][0]["resource_uri"] == "https://u:[password-1]@example.com/[email-1]"
    assert MAIL.encode() not in bundle


async def test_an_injection_loses_its_hash_if_its_content_is_masked(world: World) -> None:
    await world.planner.write("goal", f"use {KEY}")
    await world.planner.write("plan", "ship")
    plan = f"board:{SESSION}/plan/1.1"
    shown = [
        assembly("a1", f"use {KEY}"),
        assembly("a2", None, GOAL),
        assembly("a3", "ship", plan),
        *(injection(f"i{n}", f"a{n}", f"text {n}") for n in (1, 2, 3)),
    ]
    await world.planner.call("records.add", session_id=SESSION, records=shown)
    made = records(await exported(world.planner))
    assert ["hash" in made["context_injection", f"i{n}"] for n in (1, 2, 3)] == [False, False, True]
    assert made["context_assembly", "a3"]["ordered_blocks"][0]["content"] == "ship"
    await set_policy(world.admin, "some", who=["*"], exclude_kinds=["note"])
    held = records(await exported(world.planner, policy="some"))
    assert "content" not in held["context_assembly", "a3"]["ordered_blocks"][0]


async def test_no_digest_of_masked_content_is_exported(world: World) -> None:
    text = f"use {KEY}"
    digest = f"sha256:{digest_of(text).decode()}"
    named = {"kind": "file", "id": "f", "digest": digest}
    source = {
        "schema_version": "0.1.0",
        "source_id": "src",
        "uri": "https://example.com/",
        "source_kind": "page",
        "selector": {"type": "text_quote", "exact": text},
        "digest": digest,
        "metadata": {"weftline": {"passage_digest": digest}},
    }
    block = {"item_refs": ["x"], "content": text, "content_ref": named}
    made = [
        source,
        {**summary(text), "content_ref": named},
        {**assembly("a1", None), "ordered_blocks": [block]},
        item("n1", text, content_ref=named, source_refs=[{**source, "source_id": "src2"}]),
        item("n2", {"say": text}, content_ref=named, byte_size=99),
        item("n3", "nothing to hide", title=text),
    ]
    await world.planner.call("records.add", session_id=SESSION, records=made)
    bundle = await exported(world.planner)
    assert digest.encode() not in bundle
    assert KEY.encode() not in bundle
    assert texts(bundle)["n3"] == "nothing to hide"
    assert "byte_size" not in items(bundle)["n2"]
    assert digest.encode() in await exported(world.admin, policy="full")


async def test_a_session_is_imported_without_masked_content(world: World) -> None:
    secret = {"purpose": f"talk to {MAIL}", "metadata": {"password": "hunter2", "to": MAIL}}
    await world.planner.call("session.create", session_id="s2", **secret)
    bundle = await exported(world.planner.in_session("s2"), policy="masked")
    assert not [word for word in (MAIL, "hunter2") if word.encode() in bundle]
    await imported(world.stranger, bundle)
    opened = (await world.stranger.call("session.get", session_id="s2"))["session"]
    assert (opened["purpose"], opened["metadata"]) == (
        "talk to [email 1]",
        {"password": "[password 1]", "to": "[email 1]"},
    )


async def test_a_policy_named_default_applies_and_cannot_be_bypassed(world: World) -> None:
    await fill_session(world)
    await set_policy(world.admin, "default", who=["orchestrator", "human:*"], mask=["secrets", "pii"])
    bundle = await exported(world.planner)
    assert entries(bundle)[0].policy.id == "default"
    assert MAIL.encode() not in bundle
    for name in ("standard", "masked", "metadata", "full"):
        with refused("POLICY_FORBIDDEN"):
            await exported(world.planner, policy=name)
        await exported(world.admin, policy=name)
    with refused("POLICY_FORBIDDEN"):
        await exported(world.review)
    await world.admin.call("policy.delete", name="default")
    assert entries(await exported(world.review))[0].policy.id == "standard"


async def test_a_policy_does_not_extend_read_access(world: World) -> None:
    await world.planner.write("closed", "for us", readable_by=["orchestrator"])
    await set_policy(world.admin, "open", who=["*"], mask=[])
    for caller in (world.admin, world.review):
        assert b"for us" not in await exported(caller, policy="open")
    assert "for us" in texts(await exported(world.planner, policy="open")).values()


async def test_policies_are_set_listed_and_deleted(world: World) -> None:
    made = await set_policy(world.admin, "partners", description="for partners")
    assert (made["definition"]["who"], made["definition"]["mask"]) == (["permission:admin"], ["secrets"])
    names = [policy["name"] for policy in (await world.admin.call("policy.list"))["policies"]]
    assert names == ["standard", "masked", "metadata", "full", "partners"]
    seen = (await world.review.call("policy.list"))["policies"]
    assert [policy["name"] for policy in seen] == ["standard", "masked", "metadata"]
    assert [policy["name"] for policy in seen if policy.get("is_default")] == ["standard"]
    assert (await world.admin.call("policy.delete", name="partners"))["default"] == "standard"
    with refused("POLICY_NOT_FOUND"):
        await world.admin.call("policy.delete", name="partners")
    for built_in in ("standard", "full"):
        with refused("POLICY_BUILT_IN"):
            await set_policy(world.admin, built_in)
        with refused("POLICY_BUILT_IN"):
            await world.admin.call("policy.delete", name=built_in)
    done = [row["action"] for row in await world.admin.audit(outcome="done")]
    assert {"policy.set", "policy.delete"} <= set(done)


async def test_only_admins_set_policies_and_they_are_per_tenant(world: World) -> None:
    for call in (set_policy(world.planner, "mine"), world.planner.call("policy.delete", name="mine")):
        assert await outcome(call) == "PERMISSION_DENIED"
    await set_policy(world.admin, "partners", who=["*"])
    assert "partners" not in json.dumps(await world.stranger.call("policy.list"))
    await world.stranger.create_session("s9")
    with refused("POLICY_NOT_FOUND"):
        await exported(world.stranger.in_session("s9"), policy="partners")


@pytest.mark.parametrize("policy", ["standard", "masked", "metadata", "full"])
async def test_every_exported_record_is_valid(world: World, policy: str) -> None:
    await fill_session(world)
    texty = f"{KEY} {MAIL} " * 50
    many = [assembly("a1", texty), summary(texty), item("n1", texty, title=texty), item("n2", [texty])]
    await world.planner.call("records.add", session_id=SESSION, records=many)
    bundle = await exported(world.admin, policy=policy)
    for (kind, _), record in records(bundle).items():
        check_record(msgspec.json.encode(record), kind)


def test_text_that_grows_by_masking_stays_valid() -> None:
    short = " ".join(["1.1.1.1"] * 12_000)
    applied = AppliedPolicy("p", PolicyDefinition(mask=("pii",)))
    raw = {"schema_version": "0.1.0", "summary_id": "s", "created_at": AT, "content": short}
    made = msgspec.convert(raw, RECORD_TYPES["context_summary"])
    leaving = applied.record(made, ("*",))
    assert leaving is not None
    msgspec.convert(msgspec.to_builtins(leaving), RECORD_TYPES["context_summary"])


def test_an_item_without_content_is_unchanged() -> None:
    applied = AppliedPolicy("p", PolicyDefinition(content="none"))
    gone = ContextItem(
        schema_version="0.1.0", item_id="x", context_kind="note", content_mode="opaque", visibility=("*",)
    )
    assert applied.item(EngineItem(gone, None), None) == EngineItem(gone, None)
    assert (applied.masked, applied.omitted) == (0, 0)


def assembly(name: str, content: str | None, *names: str) -> dict[str, Any]:
    block = {"item_refs": [*names] or ["x"], **({} if content is None else {"content": content})}
    made = {"assembly_id": name, "target": "model", "ordered_blocks": [block], "created_at": AT}
    return {"schema_version": "0.1.0", **made}


def injection(name: str, of: str, text: str) -> dict[str, Any]:
    shown = {"injection_id": name, "assembly_id": of, "target": "model", "injection_point": "system_prompt"}
    return {"schema_version": "0.1.0", **shown, "hash": f"sha256:{digest_of(text).decode()}", "created_at": AT}


def summary(content: str) -> dict[str, Any]:
    return {"schema_version": "0.1.0", "summary_id": "sum", "content": content, "created_at": AT}
