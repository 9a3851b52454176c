"""Where a conclusion ranks among documents and messages about the same subject.

Every scene has a session with a board and messages, and documents that explain the subject in general. Some questions
are answered by a key of the board, by a message of the category DECISION or FACT, or by one to the reader; others by a
document, which must not lose its place to them. The rank is that of the answer in one search over everything; ``first``
is the share of answers that come first. ``misled``: of questions asked in the session of another scene, the share for
which something of that session comes first.
"""

from __future__ import annotations

import asyncio
import json
from importlib.resources import files
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.product import AGENT, CachedEmbedder, open_product
from evals.results import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from evals.product import Product

_DATA = files("evals") / "data" / "board_answers.jsonl"
_DIGITS = 3
_MAX_RESULTS = 50
_COLLEAGUE = "colleague"
# The field of a result that names the answer of each kind.
_FIELDS = {"board": "key", "decision": "text", "fact": "text", "direct": "text", "document": "document_id"}


class Found(NamedTuple):
    """The rank of an answer, 0 if it was not found, and what kind of source has it.

    ``misled``: in the session of another scene, something of that session came first.
    """

    half: str
    kind: str
    rank: int
    misled: bool


def board_answers(_folder: Path | None) -> Iterator[Row]:
    found = asyncio.run(measure())
    for half in ("open", "closed"):
        for kind in _FIELDS:
            ranks = [each.rank for each in found if (each.half, each.kind) == (half, kind)]
            name = f"board_answers.{half}.{kind}"
            yield Row(
                f"{name}.first", round(fmean(rank == 1 for rank in ranks), _DIGITS), "of answers", None, None, None
            )
            reciprocal = fmean(1 / rank if rank else 0.0 for rank in ranks)
            yield Row(f"{name}.reciprocal_rank", round(reciprocal, _DIGITS), "mean", None, None, None)
        misled = fmean(each.misled for each in found if each.half == half)
        yield Row(f"board_answers.{half}.misled", round(misled, _DIGITS), "of questions", None, None, None)


async def measure() -> list[Found]:
    scenes = [json.loads(line) for line in _DATA.read_text(encoding="utf-8").splitlines()]
    async with open_product(CachedEmbedder()) as product:
        # A message of a sub-agent is not pinned, whatever its category: pins are no results.
        await product.call("agent.create", principal=AGENT, agent_id=_COLLEAGUE)
        for number, scene in enumerate(scenes):
            await _add(product, f"scene{number}", scene)
        await product.index()
        return [
            await _rank(product, number, (number + 1) % len(scenes), scene["half"], question)
            for number, scene in enumerate(scenes)
            for question in scene["questions"]
        ]


async def _add(product: Product, name: str, scene: dict[str, Any]) -> None:
    await product.call("session.create", session_id=name, purpose=scene["purpose"], members=[_COLLEAGUE])
    for message in scene["messages"]:
        fields = {"content": message} if isinstance(message, str) else dict(message)
        fields |= {"recipient_id": AGENT} if fields.pop("to_reader", False) else {}
        await product.call("message.add", principal=_COLLEAGUE, session_id=name, **fields)
    for key, value in scene["board"].items():
        await product.call("board.write", session_id=name, key=key, value=value)
    await product.add_documents(name, scene["documents"])


async def _rank(product: Product, number: int, other: int, half: str, question: dict[str, str]) -> Found:
    answer = await _search(product, number, question["query"])
    kind = next(kind for kind in _FIELDS if kind in question)
    ranks = (at for at, each in enumerate(answer, 1) if each.get(_FIELDS[kind]) == question[kind])
    elsewhere = await _search(product, other, question["query"])
    return Found(half, kind, next(ranks, 0), elsewhere[0].get("document_id") is None)


async def _search(product: Product, number: int, query: str) -> list[dict[str, Any]]:
    answer = await product.call(
        "search.query", query=query, session_id=f"scene{number}", top_k=_MAX_RESULTS, low_confidence=True
    )
    results: list[dict[str, Any]] = answer["results"]
    return results
