"""Script of the demo: an orchestrator states a problem, one agent finds the cause, the user decides, another acts."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.demo.agents import connected
from weftline.demo.project import FINDER, FIXER, MODEL, ORCHESTRATOR, STEPS, TOKEN_BUDGET, conversation, documents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.demo.agents import Agent
    from weftline.demo.run import Narrator


@dataclass(frozen=True, slots=True)
class Cast:
    """URL of the server and the API key of each agent."""

    url: str
    keys: Mapping[str, str]


class Played(NamedTuple):
    """The session of the demo, and the receipt of a prompt with the agent it is of."""

    session_id: str
    receipt_id: str
    agent: str


async def play(cast: Cast, narrator: Narrator) -> Played:
    """Play all scenes."""
    async with AsyncExitStack() as stack:
        founder = await stack.enter_async_context(
            connected(ORCHESTRATOR, f"{cast.url}/mcp", cast.keys[ORCHESTRATOR], narrator)
        )
        narrator.chapter("1 · The orchestrator frames the problem")
        made = await founder.call("create_session", purpose="Find out why orders became slow")
        session_id = str(made["session_id"])
        planner, analysis, remediation = [
            await stack.enter_async_context(
                connected(name, f"{cast.url}/mcp/session/{session_id}", cast.keys[name], narrator)
            )
            for name in (ORCHESTRATOR, FINDER, FIXER)
        ]
        await _frame(planner)
        await _investigate(planner, analysis, session_id, narrator)
        await _decide(planner, narrator)
        await _remedy(remediation, narrator)
        agents = (planner, analysis, remediation)
        await _conclude(agents, narrator)
        await _work_on(agents, narrator)
        receipt_id = await _assemble(agents, narrator)
        return Played(session_id, receipt_id, FINDER)


async def _frame(planner: Agent) -> None:
    await planner.board("write", key="current_phase", value="investigation")
    await planner.board(
        "write", key="problem_summary", value="Since Tuesday's release an order takes four seconds instead of one."
    )
    await planner.board("write", key="scope", value="Name the change that did it. Change nothing that customers use.")
    await planner.board("write", key="constraints", value="Production is read-only; staging is free to use.")


async def _investigate(planner: Agent, analysis: Agent, session_id: str, narrator: Narrator) -> None:
    narrator.chapter("2 · A sub-agent starts with an empty head, and reads only what it needs")
    narrator.aside("The orchestrator meanwhile watches the board; nobody polls.")

    async def investigate() -> None:
        await analysis.board("list_keys")
        await analysis.board("read_batch", keys=["problem_summary", "scope", "constraints"])
        narrator.says(analysis.name, "… compares releases, replays Tuesday's traffic on staging …")
        await analysis.board(
            "write",
            key="findings_summary",
            value="The release cut the price cache from 300 s to 3 s. On staging, 300 s brings back the one second.",
        )
        await analysis.board(
            "write",
            key="open_questions",
            value="Was the shorter cache intended? The user should confirm before a revert.",
        )
        await analysis.call("add_message", content="Found it: the price cache. One question is on the board.")
        await analysis.call("set_memory", key="replayed_until", value={"day": "Tuesday", "orders": 1_204})

    changed = await planner.next_change(f"board://{session_id}/open_questions", investigate())
    narrator.says(planner.name, f"is notified: {changed} has changed")


async def _decide(planner: Agent, narrator: Narrator) -> None:
    narrator.chapter("3 · The user decides, and the decision replaces the question")
    await planner.board("read", key="open_questions")
    narrator.says("user", "“No, that was a typing error.”")
    await planner.board(
        "write", key="decisions_made", value="The shorter cache was a mistake; the user approves going back to 300 s."
    )
    await planner.board("delete", key="open_questions")
    await planner.board("snapshot", label="approved")
    await planner.call(
        "add_message", content="The user approves the revert. Draft the plan, please.", recipient_id=FIXER
    )


async def _remedy(remediation: Agent, narrator: Narrator) -> None:
    narrator.chapter("4 · The next sub-agent knows what to do without investigating anything")
    request = (await remediation.call("inbox"))["messages"][0]
    await remediation.board("list_keys")
    await remediation.board("read", key="findings_summary")
    await remediation.board("read", key="decisions_made")
    await remediation.board(
        "write", key="deliverables_status", value="Revert plan drafted and filed as change CHG-118."
    )
    await remediation.call("inbox", acknowledge=[request["handle"]])
    narrator.aside("It also tries what is not for sub-agents:")
    await remediation.call("archive_session")


async def _conclude(agents: Sequence[Agent], narrator: Narrator) -> None:
    planner = agents[0]
    narrator.chapter("5 · The board now, in fewer tokens than one page of transcript")
    board = await planner.board("list_keys")
    rows = [["key", "version", "tokens", "written by"]]
    rows += [
        [key["key"], str(key["version"]), str(key["value_size_tokens"]), key["written_by"]] for key in board["keys"]
    ]
    narrator.table(rows)
    narrator.chapter("6 · Search finds it again, in other words, for those who may read it")
    for agent in agents:
        await agent.until_found()
    await planner.search("what made ordering so sluggish?")


async def _work_on(agents: Sequence[Agent], narrator: Narrator) -> None:
    narrator.chapter("7 · The project goes on: every agent's conversation is ingested, event by event")
    for agent in agents:
        window = await agent.ingest(conversation(agent.name))
        summary = f"{len(window['events'])} messages, calls and results: {window['tokens']:,} tokens"
        narrator.does(agent.name, "ingest_event", {"events": "…"}, summary)
    narrator.aside(f"And there are {len(documents())} documents: {', '.join(documents())}.")


async def _assemble(agents: Sequence[Agent], narrator: Narrator) -> str:
    """Assemble three prompts for each agent, compare them with what they would send, and return a receipt's id."""
    narrator.chapter(f"8 · Before each model call: a prompt of at most {TOKEN_BUDGET:,} tokens that has what matters")
    answers: dict[str, list[dict[str, Any]]] = {agent.name: [] for agent in agents}
    for agent in agents:
        for number, step in enumerate(STEPS[agent.name]):
            await agent.ingest([{"event_id": f"question-{number}", "content": step.question}])
            answer = await agent.assemble(step.question, model=MODEL, token_budget=TOKEN_BUDGET)
            narrator.result(f"{'has' if step.evidence in str(answer['body']) else 'lacks'} “{step.evidence}”")
            await agent.ingest([{"event_id": f"answer-{number}", "role": "assistant", "content": step.answer}])
            answers[agent.name].append(answer)
    narrator.chapter("9 · Before and after: tokens and money")
    narrator.table(_comparison(answers))
    narrator.aside(
        f"Saved: against the conversation alone, and against the conversation with the whole documents of which "
        f"evidence is in the prompt. Money: input tokens of {MODEL}, against the conversation alone, with the "
        f"provider's prompt cache on both sides. No model was called."
    )
    return str(answers[FINDER][1]["receipt_id"])


def _comparison(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[list[str]]:
    """Return the table of tokens and money before and after, by agent and in all."""
    rows = [
        ["agent", "calls", "with Weftline", "conversation alone", "saved", "and documents", "saved", "money", "saved"]
    ]
    savings = {name: [answer["savings"] for answer in given] for name, given in answers.items()}
    savings["all"] = [each for given in savings.values() for each in given]
    for name, given in savings.items():
        fields = "engine_assembled_tokens", "naive_baseline_tokens", "document_tokens", "cost", "naive_cost"
        used, alone, documents, cost, naive_cost = (sum(each[field] or 0 for each in given) for field in fields)
        against = [[f"{tokens:,}", _saved(used, tokens)] for tokens in (alone, alone + documents)]
        money = [f"${cost:.4f}", _saved(cost, naive_cost)]
        rows.append([name, str(len(given)), f"{used:,}", *against[0], *against[1], *money])
    return rows


def _saved(used: float, baseline: float) -> str:
    return f"{1 - used / baseline:.0%}"
