"""Efficiency of prompts: what the reported answer used, estimates without one, and who may learn what."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from support.assemblies import add_documents, assemble, ingest, receipt
from support.world import SESSION, Caller, World, refused
from weftline.prompts import efficiency
from weftline.prompts.assembly import usage_report

USAGE = {"input_tokens": 100, "output_tokens": 9}
QUESTION = "Who owns the price cache, and for how long does it keep prices?"


async def report(caller: Caller, prompt: Any, **fields: Any) -> Any:
    where = {"session_id": caller.session, "receipt_id": prompt["receipt_id"]}
    return await caller.call("context.emit_metrics", **where, **{"usage": USAGE, **fields})


async def asked(world: World, **options: Any) -> Any:
    """Assemble a prompt with two documents, a board entry and an exchange."""
    await add_documents(
        world,
        "The price cache keeps prices for 300 seconds. Tomas owns the price cache.",
        "The invoice cache keeps invoices of the finance team for one day. Nobody owns the invoice cache.",
    )
    await world.planner.write("release_plan", "The release is on Friday, if all tests of the shop pass.")
    await ingest(world.analysis, {"content": "Good morning."}, {"role": "assistant", "content": "What can I do?"})
    return await assemble(world.analysis, QUESTION, **options)


def uses(shown: Any) -> dict[str, str]:
    """Return the use of each item by the end of its ref."""
    return {use["ref"].rpartition("/")[2]: use["use"] for use in shown["efficiency"]["items"]}


@pytest.mark.req("CE-F45")
async def test_an_answer_shows_what_of_the_prompt_was_used(world: World) -> None:
    prompt = await asked(world)
    found = await report(world.analysis, prompt, answer="Tomas owns it. The price cache keeps prices for 300 seconds.")
    scored = found["efficiency"]
    assert scored["basis"] == "answer"
    assert "items" not in scored
    assert scored["sent_tokens"] == prompt["tokens"]
    assert 0 < scored["useful_tokens"] < scored["sent_tokens"] - scored["overhead_tokens"]
    assert scored["score"] == pytest.approx(
        scored["useful_tokens"] / (scored["sent_tokens"] - scored["overhead_tokens"]), abs=1e-3
    )
    assert scored["window_fill"] == pytest.approx(prompt["tokens"] / prompt["limit"], abs=1e-3)
    shown = await receipt(world.analysis, prompt)
    by_use = uses(shown)
    assert by_use["release_plan"] == by_use["e0"] == by_use["e1"] == "unused"
    passages = {use["use"] for use in shown["efficiency"]["items"] if use["kind"] == "retrieved"}
    assert passages == {"quoted", "unused"}
    listed = (await world.analysis.call("receipt.list"))["receipts"][0]
    assert (listed["efficiency"], listed["efficiency_basis"]) == (scored["score"], "answer")


@pytest.mark.both_databases
@pytest.mark.req("CE-F45")
@pytest.mark.req("CE-U6")
async def test_scores_are_reported_per_call_agent_session_and_tenant(world: World) -> None:
    prompts = [await asked(world), await assemble(world.analysis, "When is the release?")]
    prompts.append(await assemble(world.planner, "When is the release?"))
    answers = ["Tomas owns the price cache.", "The release is on Friday, if all tests of the shop pass.", None]
    scores = [
        (await report(caller, prompt, **({"answer": answer} if answer else {})))["efficiency"]
        for caller, prompt, answer in zip(
            (world.analysis, world.analysis, world.planner), prompts, answers, strict=True
        )
    ]
    listed = (await world.admin.call("receipt.list"))["receipts"]
    by_call = {each["receipt_id"]: (each["efficiency"], each["efficiency_basis"]) for each in listed}
    for prompt, score in zip(prompts, scores, strict=True):
        assert by_call[prompt["receipt_id"]] == (score["score"], score["basis"])
        assert (await receipt(world.admin, prompt))["efficiency"]["score"] == score["score"]
    for by, groups in (
        ("agent", {"analysis": scores[:2], "planner": scores[2:]}),
        ("session", {SESSION: scores}),
        ("tenant", {"": scores}),
    ):
        rows = {row["group"]: row for row in (await world.admin.call("usage.report", by=by))["rows"]}
        assert rows.keys() == groups.keys()
        for group, own in groups.items():
            useful, sent = (sum(each[name] for each in own) for name in ("useful_tokens", "sent_tokens"))
            overhead = sum(each["overhead_tokens"] for each in own)
            assert rows[group]["efficiency"] == pytest.approx(useful / (sent - overhead), abs=1e-3)
            assert rows[group]["estimated_calls"] == sum(each["basis"] != "answer" for each in own)
            assert 0 < rows[group]["window_fill"] < 1


async def test_an_answer_is_compared_in_threads_and_embedded_after_the_queries_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = await asked(world)
    threads: dict[str, int] = {}
    embedded: list[int] = []
    embed = type(world.app.embeddings).of_unstored

    def watch(module: Any, name: str) -> None:
        work = getattr(module, name)

        def watched(*given: Any) -> Any:
            threads[name] = threading.get_ident()
            return work(*given)

        monkeypatch.setattr(module, name, watched)

    async def watched_embed(self: Any, texts: Any, model: str) -> Any:
        embedded.append(len(texts))
        return await embed(self, texts, model)

    async def refuse(*_: Any) -> None:
        pytest.fail("An answer takes the place of a query.")

    for module, name in ((usage_report, "scored_prompt"), (efficiency, "compare"), (efficiency, "_efficiency")):
        watch(module, name)
    monkeypatch.setattr(efficiency, "DOUBT", (0.0, 1.1))
    monkeypatch.setattr(type(world.app.embeddings), "of_unstored", watched_embed)
    monkeypatch.setattr(type(world.app.embeddings), "of_query", refuse)
    found = await report(world.analysis, prompt, answer="Tomas, who else. " * 5_000)
    assert found["efficiency"]["basis"] == "answer"
    assert threads.keys() == {"scored_prompt", "compare", "_efficiency"}
    assert threading.get_ident() not in threads.values()
    assert len(embedded) == 1
    assert embedded[0] <= 16 + 4


@pytest.mark.req("CE-O", part="layers counted as overhead")
async def test_layers_and_task_are_required_overhead(world: World) -> None:
    prompt = await asked(world)
    await report(world.analysis, prompt, answer="Tomas.")
    shown = await receipt(world.analysis, prompt)
    required = [use for use in shown["efficiency"]["items"] if use["use"] == "required"]
    assert {use["kind"] for use in required} == {"layer", "task"}
    # The provider adds three tokens to every prompt.
    assert shown["efficiency"]["overhead_tokens"] == sum(use["tokens"] for use in required) + 3
    assert sum(use["tokens"] for use in shown["efficiency"]["items"]) + 3 == shown["tokens"]


async def test_the_items_of_a_receipt_are_all_accounted_for(world: World) -> None:
    prompt = await asked(world, data_marking="words")
    await report(world.analysis, prompt, answer="The price cache keeps prices for 300 seconds.")
    shown = await receipt(world.analysis, prompt)
    items = [ref for block in shown["blocks"] if block["kind"] != "layer" for ref in block["items"]]
    scored = [use["ref"] for use in shown["efficiency"]["items"] if use["kind"] != "layer"]
    assert sorted(scored) == sorted(items)
    assert "quoted" in uses(shown).values()


async def test_without_an_answer_the_score_is_an_estimate_and_says_so(world: World) -> None:
    prompt = await asked(world)
    found = (await report(world.analysis, prompt))["efficiency"]
    assert found["basis"] == "retrieval_scores"
    assert 0 < found["useful_tokens"] < found["sent_tokens"]
    assert (await receipt(world.analysis, prompt))["efficiency"] == found


async def test_tools_are_used_if_they_are_called(world: World) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    tools = [{"name": name, "description": f"Does {name}.", "input_schema": schema} for name in ("look_up", "restart")]
    await ingest(world.analysis, {"content": "Go."})
    prompt = await assemble(world.analysis, form="anthropic", model="claude-sonnet-5", tools=tools)
    answer = {"content": [{"type": "tool_use", "id": "t1", "name": "look_up", "input": {"name": "cache"}}]}
    found = (await report(world.analysis, prompt, answer=answer))["efficiency"]
    by_use = uses(await receipt(world.analysis, prompt))
    assert (by_use["tool:look_up"], by_use["tool:restart"]) == ("called", "unused")
    assert found["useful_tokens"] > 0


async def test_the_first_answer_counts_and_may_follow_the_usage(world: World) -> None:
    prompt = await asked(world)
    assert (await report(world.analysis, prompt))["efficiency"]["basis"] == "retrieval_scores"
    first = await report(world.analysis, prompt, answer="Tomas owns the price cache.")
    assert first["efficiency"]["basis"] == "answer"
    again = await report(world.analysis, prompt, answer="The release is on Friday, if all tests of the shop pass.")
    assert again == first
    with refused("USAGE_CONFLICT"):
        await report(world.analysis, prompt, usage={**USAGE, "output_tokens": 10}, answer="Tomas.")


async def test_an_answer_is_refused_that_is_too_long_or_empty(world: World) -> None:
    prompt = await asked(world)
    for answer in ("", {"content": []}, "a" * 512_001, 7):
        with refused("INVALID_INPUT_FORMAT"):
            await report(world.analysis, prompt, answer=answer)
    assert (await receipt(world.analysis, prompt))["usage"] is None


async def test_an_answer_is_not_compared_with_texts_that_the_caller_may_not_read(world: World) -> None:
    await world.analysis.call("memory.set", key="pin", value="The combination of my locker is 4711.")
    await world.index_sessions()
    prompt = await assemble(world.analysis, "What is the combination of my locker?")
    found = await report(world.planner, prompt, answer="The combination of my locker is 4711.")
    assert found["efficiency"]["basis"] == "retrieval_scores"
    with refused("RECEIPT_NOT_FOUND"):
        await report(world.review, prompt, answer="Tomas.")


async def test_what_was_redacted_since_is_not_compared(world: World) -> None:
    prompt = await asked(world)
    plan = f"board:{SESSION}/release_plan/1.1"
    await world.admin.call("records.redact", item_id=plan, state="removed", reason="A test.")
    found = await report(world.analysis, prompt, answer="The release is on Friday, if all tests of the shop pass.")
    assert found["efficiency"]["basis"] == "retrieval_scores"


async def test_nothing_of_an_answer_is_stored(world: World) -> None:
    prompt = await asked(world)
    await report(world.analysis, prompt, answer="Tomas owns it; ask zanzibarquark for the rest.")
    rows = await world.rows("SELECT usage, efficiency_basis FROM receipts")
    assert [row[1] for row in rows] == ["answer"]
    shown = await receipt(world.analysis, prompt)
    events = await world.analysis.call("events.read", session_id=SESSION)
    assert "zanzibarquark" not in f"{shown}{events}{rows}"
