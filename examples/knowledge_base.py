"""A team puts its documents where agents find them by asking: who may look, what was said, and where it stands.

Three stories, each a function. Run it as often as you like; it works in a folder of its own, without a network:

    python examples/knowledge_base.py
"""

from __future__ import annotations

import asyncio
import tempfile

from weft import Weft
from weft.errors import DomainNotFound

LEAVE = """# Leave

## Vacation

Everyone has thirty days of vacation a year. Ask your lead two weeks before you go.

## Sick days

Call the office before nine. From the third day on we need a note from your doctor.
"""
TRAVEL = """# Travel

Trains are booked by the office. A flight needs the approval of a director, unless it is shorter than taking the train.
"""
SALARIES = "The salary bands are reviewed every spring. Band four begins at seventy thousand."


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Weft.open(folder) as weft:
            await weft.agent.create("assistant")
            assistant = weft.acting_as("assistant")
            await ask_in_your_own_words(weft, assistant)
            await change_what_is_known(weft, assistant)
            await keep_some_of_it_apart(weft, assistant)


async def ask_in_your_own_words(weft: Weft, assistant: Weft) -> None:
    """Documents are cut, embedded and indexed by themselves; an agent asks, and is told where the answer stands."""
    heading("Two documents, and a question that shares no word with them")
    chunking = {"chunk_tokens": 32, "overlap_tokens": 0}
    await weft.knowledge.create_domain("handbook", description="How we work", chunking=chunking)
    await weft.knowledge.add_document("handbook", "leave.md", text=LEAVE)
    await weft.knowledge.add_document("handbook", "travel.md", text=TRAVEL)
    await indexed(weft, "handbook")
    found = await assistant.search.query("How long may I be on holiday?", domain="handbook", top_k=1, min_score=0)
    best = found.results[0]
    print(f"found in {best.document_id}, under '{best.heading}'")
    print("says:", last_line(best.text))

    gathered = await assistant.search.get_context(query="I am ill. What must I do?", domain="handbook", max_tokens=120)
    print(f"\nfor the prompt, in {gathered.tokens} tokens:\n{gathered.context}")


async def change_what_is_known(weft: Weft, assistant: Weft) -> None:
    """A document that is put again is found as it is now; only what changed is embedded again."""
    heading("The rules change")
    put = await weft.knowledge.add_document("handbook", "leave.md", text=LEAVE.replace("thirty", "thirty-two"))
    print(f"leave.md is at version {put.version} now")
    await indexed(weft, "handbook")
    found = await assistant.search.query("vacation days a year", domain="handbook", top_k=1, min_score=0)
    print("says:", last_line(found.results[0].text))
    again = await weft.knowledge.add_document("handbook", "travel.md", text=TRAVEL)
    print("travel.md, put again as it was, is unchanged:", again.unchanged)


async def keep_some_of_it_apart(weft: Weft, assistant: Weft) -> None:
    """A domain exists only for those who may look into it."""
    heading("Not everything is for everyone")
    await weft.knowledge.create_domain("salaries", clearance=4)
    await weft.knowledge.add_document("salaries", "bands.txt", text=SALARIES)
    await indexed(weft, "salaries")
    mine = await weft.search.query("Where does band four begin?", top_k=1, min_score=0)
    print("an admin finds:", mine.results[0].text)
    theirs = await assistant.search.query("Where does band four begin?", min_score=0)
    print("the assistant finds something of it:", any("Band" in result.text for result in theirs.results))
    try:
        await assistant.search.query("Where does band four begin?", domain="salaries")
    except DomainNotFound as refused:
        print("and if it asks there:", refused.message)


async def indexed(weft: Weft, domain: str) -> None:
    """Wait until searches find everything that was put into a domain."""
    while (await weft.knowledge.show_domain(domain)).pending:  # noqa: ASYNC110 - nothing tells when it is
        await asyncio.sleep(0.05)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


if __name__ == "__main__":
    asyncio.run(main())
