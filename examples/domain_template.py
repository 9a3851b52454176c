"""A domain from a template of your own: metadata is checked, and example questions are evaluated after indexing.

The example uses a temporary folder and no network:

    python examples/domain_template.py
"""

from __future__ import annotations

import asyncio
import tempfile

from weftline import Weftline
from weftline.errors import MetadataMismatch

TEMPLATE = {
    "name": "team_rules",
    "description": "How our team works",
    "chunking": {"chunk_tokens": 256, "overlap_tokens": 32},
    "metadata": [{"name": "status", "required": True, "values": ["draft", "final"]}],
    "pinned": ["glossary*"],
    "questions": [
        {"question": "How many days of vacation do I have?", "contains": ["thirty days"]},
        {"question": "What does PTO mean?", "contains": ["paid time off"]},
        {"question": "Who approves a flight?", "contains_any": ["director", "lead"]},
    ],
}
FINAL = {"status": "final"}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Weftline.open(folder) as weftline:
            await weftline.knowledge.create_domain("rules", template=TEMPLATE)
            try:
                await weftline.knowledge.add_document(
                    "rules", "leave.md", text="Thirty days.", metadata={"status": "old"}
                )
            except MetadataMismatch as error:
                print(error.message)
            await weftline.knowledge.add_document(
                "rules", "leave.md", text="Everyone has thirty days of vacation.", metadata=FINAL
            )
            await weftline.knowledge.add_document("rules", "glossary.md", text="PTO: paid time off.", metadata=FINAL)
            while (await weftline.knowledge.show_domain("rules")).pending:  # noqa: ASYNC110 - a short wait in an example
                await asyncio.sleep(0.1)
            evaluation = await weftline.knowledge.evaluate_domain("rules")
            for each in evaluation.questions:
                print(f"{'found' if each.found else 'missing':8} {each.question}")
            print(f"{evaluation.found} of {len(evaluation.questions)} questions found their evidence")


if __name__ == "__main__":
    asyncio.run(main())
