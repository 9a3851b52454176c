"""Where the conclusion of a board ranks among documents and messages about the same subject.

Every scene has a session with a board and messages, and documents that explain the subject in general. Some questions
are answered by a key of the board, others by a document, which must not lose its place to the board. The rank is that
of the answer in one search over everything; ``first`` is the share of answers that come first.
"""

from __future__ import annotations

import asyncio
import json
from importlib.resources import files
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.product import CachedEmbedder, open_product
from evals.results import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from evals.product import Product

_DATA = files("evals") / "data" / "board_answers.jsonl"
_DIGITS = 3
_MAX_RESULTS = 50


class Found(NamedTuple):
    """The rank of an answer, 0 if it was not found, and what kind of source has it."""

    half: str
    kind: str
    rank: int


def board_answers(_folder: Path | None) -> Iterator[Row]:
    found = asyncio.run(measure())
    for half in ("open", "closed"):
        for kind in ("board", "document"):
            ranks = [each.rank for each in found if (each.half, each.kind) == (half, kind)]
            name = f"board_answers.{half}.{kind}"
            yield Row(
                f"{name}.first", round(fmean(rank == 1 for rank in ranks), _DIGITS), "of answers", None, None, None
            )
            reciprocal = fmean(1 / rank if rank else 0.0 for rank in ranks)
            yield Row(f"{name}.reciprocal_rank", round(reciprocal, _DIGITS), "mean", None, None, None)


async def measure() -> list[Found]:
    scenes = [json.loads(line) for line in _DATA.read_text(encoding="utf-8").splitlines()]
    async with open_product(CachedEmbedder()) as product:
        for number, scene in enumerate(scenes):
            await _add(product, f"scene{number}", scene)
        await product.index()
        return [
            await _rank(product, f"scene{number}", scene["half"], question)
            for number, scene in enumerate(scenes)
            for question in scene["questions"]
        ]


async def _add(product: Product, name: str, scene: dict[str, Any]) -> None:
    await product.call("session.create", session_id=name, purpose=scene["source"])
    for content in scene["messages"]:
        await product.call("message.add", session_id=name, content=content)
    for key, value in scene["board"].items():
        await product.call("board.write", session_id=name, key=key, value=value)
    await product.add_documents(name, scene["documents"])


async def _rank(product: Product, session_id: str, half: str, question: dict[str, str]) -> Found:
    answer = await product.call(
        "search.query", query=question["query"], session_id=session_id, top_k=_MAX_RESULTS, low_confidence=True
    )
    kind = "board" if "board" in question else "document"
    field = "key" if kind == "board" else "document_id"
    ranks = (at for at, each in enumerate(answer["results"], 1) if each.get(field) == question[kind])
    return Found(half, kind, next(ranks, 0))
