"""A knowledge base: add documents, search them, replace one, and restrict access to a domain.

The example uses a temporary folder and no network:

    python examples/knowledge_base.py
"""

from __future__ import annotations

import asyncio
import tempfile

from weftline import Weftline
from weftline.errors import DomainNotFound

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
        async with Weftline.open(folder) as weftline:
            await weftline.agent.create("assistant")
            assistant = weftline.acting_as("assistant")
            await search_documents(weftline, assistant)
            await replace_a_document(weftline, assistant)
            await restrict_a_domain(weftline, assistant)


async def search_documents(weftline: Weftline, assistant: Weftline) -> None:
    """Weftline chunks, embeds and indexes documents; a search returns the passage and its position."""
    heading("Search: two documents, and a question that shares no word with them")
    chunking = {"chunk_tokens": 32, "overlap_tokens": 0}
    await weftline.knowledge.create_domain("handbook", description="How we work", chunking=chunking)
    await weftline.knowledge.add_document("handbook", "leave.md", text=LEAVE)
    await weftline.knowledge.add_document("handbook", "travel.md", text=TRAVEL)
    await wait_until_indexed(weftline, "handbook")
    found = await assistant.search.query(
        "How long may I be on holiday?", domain="handbook", top_k=1, low_confidence=True
    )
    best = found.results[0]
    print(f"found in {best.document_id}, under '{best.heading}'")
    print("text:", last_line(best.text))

    built = await assistant.search.get_context(query="I am ill. What must I do?", domain="handbook", max_tokens=200)
    print(f"\nfor the prompt, in {built.tokens} tokens with citations:\n{built.context}")


async def replace_a_document(weftline: Weftline, assistant: Weftline) -> None:
    """Searches find the new version; only changed text is embedded again."""
    heading("Replace a document")
    replaced = await weftline.knowledge.add_document("handbook", "leave.md", text=LEAVE.replace("thirty", "thirty-two"))
    print(f"leave.md is at version {replaced.version} now")
    await wait_until_indexed(weftline, "handbook")
    found = await assistant.search.query("vacation days a year", domain="handbook", top_k=1, low_confidence=True)
    print("text:", last_line(found.results[0].text))
    again = await weftline.knowledge.add_document("handbook", "travel.md", text=TRAVEL)
    print("travel.md, added again, is unchanged:", again.unchanged)


async def restrict_a_domain(weftline: Weftline, assistant: Weftline) -> None:
    """A domain is invisible to callers who may not read it."""
    heading("Restrict a domain by clearance")
    await weftline.knowledge.create_domain("salaries", clearance=4)
    await weftline.knowledge.add_document("salaries", "bands.txt", text=SALARIES)
    await wait_until_indexed(weftline, "salaries")
    found = await weftline.search.query("Where does band four begin?", top_k=1, low_confidence=True)
    print("the admin finds:", found.results[0].text)
    hidden = await assistant.search.query("Where does band four begin?", low_confidence=True)
    print("the assistant finds it:", any("Band" in result.text for result in hidden.results))
    try:
        await assistant.search.query("Where does band four begin?", domain="salaries")
    except DomainNotFound as refused:
        print("a search in the domain:", refused.message)


async def wait_until_indexed(weftline: Weftline, domain: str) -> None:
    """Wait until every document of a domain is indexed."""
    while (await weftline.knowledge.show_domain(domain)).pending:  # noqa: ASYNC110 - short example; events would work too
        await asyncio.sleep(0.05)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


if __name__ == "__main__":
    asyncio.run(main())
