"""Relevance of passages in prompts: nothing where nothing is needed, evidence where there is some.

Four rulers. Scenes that two authors wrote without a view of the product or of each other, assembled by the product at
three budgets: a conversation about one thing, documents about another, and next messages with and without evidence in
the documents. The second author's scenes are closed: they are read by a release only, `relevance_closed`. Third, scenes
whose documents are about the subject of the conversation (`subjects`), of which half are closed as well: in half of the
open ones the conversation asks the documents. Last, the public sets, whose questions are asked of their own content, of
other content and of both, at an unlimited budget: the baseline is the rule from before, a threshold of the score. Each
set is judged by constants fitted without it.
"""

from __future__ import annotations

import asyncio
import json
from itertools import chain
from pathlib import Path
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

from evals.calibration import auroc
from evals.product import CachedEmbedder, open_product
from evals.relevance_cases import OTHERS, relevance_cases
from evals.relevance_fit import left_out
from evals.results import Row
from evals.rulers import closed
from weftline.search.calibration import calibrate
from weftline.search.model import CONFIDENT, MAX_PASSAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from evals.product import Product
    from evals.relevance_cases import RelevanceCase
    from weftline.search.calibration import CollectionEvidence

    Chosen = list[NDArray[np.bool_]]

_DATA = Path(__file__).parent / "data"
_BUDGETS = (4_000, 32_000, None)
_MODEL = "gpt-5.6"
_MAX_MEDIAN, _MAX_P95 = 300, 1_000
_DIGITS = 3
_WHOLE = 0.98
# The rule from before: scores from 0.7, in doubt from half of it and twice as many.
_OLD_MIN_SCORE, _OLD_WIDENING, _OLD_RESULTS = 0.7, 2, 200
_DOUBT_TOKENS = MAX_PASSAGE_TOKENS * 12 // 100


def relevance(folder: Path | None) -> Iterator[Row]:
    yield from _scene_rows("scenes", "relevance_scenes")
    yield from _scene_rows("subjects", "relevance_subjects")
    if folder is not None:
        yield from _set_rows(folder)


def relevance_closed(folder: Path | None) -> Iterator[Row]:
    """Yield the figures of the closed scenes: for a release, after everything was decided."""
    del folder
    yield from closed("relevance_closed", _closed_rows)


def _closed_rows() -> Iterator[Row]:
    yield from _scene_rows("closed", "relevance_scenes_closed")
    yield from _scene_rows("closed_subjects", "relevance_subjects_closed")


def _scene_rows(name: str, file: str) -> Iterator[Row]:
    scenes = [json.loads(line) for line in (_DATA / f"{file}.jsonl").read_text("utf-8").splitlines()]
    languages = sorted({scene["language"] for scene in scenes})
    parts = {each: [scene for scene in scenes if scene["language"] == each] for each in languages}
    assembled = {each: asyncio.run(_assemble_scenes(part)) for each, part in parts.items()}
    for budget in _BUDGETS:
        used = [tokens for without, *_ in assembled.values() for tokens in without[budget]]
        label = "unlimited" if budget is None else budget
        yield _row(f"{name}.{label}.median", _middle(used), "tokens without evidence", None, _MAX_MEDIAN)
        yield _row(f"{name}.{label}.p95", quantiles(used, n=20)[-1], "tokens without evidence", None, _MAX_P95)
        yield _row(f"{name}.{label}.mean", fmean(used), "tokens without evidence", None)
    yield _row(
        f"{name}.found", fmean(chain(*(found for _, found, _ in assembled.values()))), "of tasks with evidence", None
    )
    yield _row(f"{name}.tokens", fmean(chain(*(each for *_, each in assembled.values()))), "tokens with evidence", None)
    for language, (without, found, _) in assembled.items():
        yield _row(f"{name}.{language}.median", _middle(without[None]), "tokens without evidence, unlimited", None)
        yield _row(f"{name}.{language}.found", fmean(found), "of tasks with evidence", None)


def _middle(used: Sequence[int]) -> int:
    return sorted(used)[len(used) // 2]


async def _assemble_scenes(
    scenes: Sequence[dict[str, Any]],
) -> tuple[dict[int | None, list[int]], list[bool], list[int]]:
    """Return the retrieved tokens of tasks without evidence by budget, and for the others whether it was found."""
    without: dict[int | None, list[int]] = {budget: [] for budget in _BUDGETS}
    found, tokens = [], []
    for scene in scenes:
        async with open_product(CachedEmbedder()) as product:
            await _add(product, scene)
            for task in scene["no_evidence_tasks"]:
                for budget in _BUDGETS:
                    without[budget].append(_retrieved(await _assemble(product, task, budget)))
            for each in scene["evidence_tasks"]:
                answer = await _assemble(product, each["task"], None)
                text = _normalised("\n".join(message["content"] for message in answer["body"]["messages"][:-1]))
                found.append(_normalised(each["quote"]) in text)
                tokens.append(_retrieved(answer))
    return without, found, tokens


async def _add(product: Product, scene: dict[str, Any]) -> None:
    await product.call("session.create", session_id="scene", purpose="An evaluation.")
    turns = [{"event_id": f"turn{number}", **turn} for number, turn in enumerate(scene["conversation"])]
    await product.ingest("scene", turns)
    await product.add_documents("documents", {f"{each['id']}.md": each["text"] for each in scene["documents"]})
    await product.index()


async def _assemble(product: Product, task: str, budget: int | None) -> Any:  # noqa: ANN401 - JSON
    return await product.call(
        "context.assemble",
        session_id="scene",
        task_description=task,
        token_budget=budget,
        model=_MODEL,
        fresh=True,
    )


def _retrieved(answer: Any) -> int:  # noqa: ANN401 - JSON
    return sum(each["tokens"] for each in answer["blocks"] if each["kind"] == "retrieved")


def _set_rows(folder: Path) -> Iterator[Row]:
    cases = relevance_cases(folder)
    known = list(zip(cases, left_out(cases), strict=True))
    now = [(case, _by_evidence(case, found)) for case, found in known]
    before = [(case, _by_score(case)) for case in cases]
    for name in OTHERS:
        for kind in ("own", "mixed"):
            ours, old = (_figures([each for each in part if _is(each[0], name, kind)]) for part in (now, before))
            for figure in ("whole", "precision"):
                yield _row(f"{name}.{kind}.{figure}", ours[figure], "baseline: score threshold", old[figure])
        ours, old = ([_tokens(*each) for each in part if _is(each[0], name, "elsewhere")] for part in (now, before))
        yield _row(f"{name}.elsewhere.tokens", fmean(ours), "baseline: score threshold", fmean(old))
        inside = [
            auroc(
                found[0].probabilities[gold], np.ones(gold.sum()), found[0].probabilities[~gold], np.ones((~gold).sum())
            )
            for case, found in known
            if _is(case, name, "own") and 0 < (gold := case.collections[0].gold).sum() < len(gold)
        ]
        yield _row(f"{name}.auroc", fmean(inside), "of candidates of one question", None)
    unanswered = sorted(_tokens(*each) for each in now if each[0].kind == "elsewhere")
    yield _row("elsewhere.median", unanswered[len(unanswered) // 2], "tokens without evidence", None, _MAX_MEDIAN)
    yield _row("elsewhere.p95", quantiles(unanswered, n=20)[-1], "tokens without evidence", None, _MAX_P95)


def _is(case: RelevanceCase, name: str, kind: str) -> bool:
    return case.name == name and case.kind == kind


def _by_evidence(case: RelevanceCase, found: Sequence[CollectionEvidence]) -> Chosen:
    """Choose as a prompt without other limits does."""
    known = list(zip(case.collections, found, strict=True))
    sure = [each.admitted(those.tokens) & ~each.doubtful() for those, each in known]
    doubtful = [each.admitted(those.tokens) & each.doubtful() for those, each in known]
    chosen = _best_within(case, sure, MAX_PASSAGE_TOKENS)
    more = _best_within(case, doubtful, _DOUBT_TOKENS)
    return [one | other for one, other in zip(chosen, more, strict=True)]


def _by_score(case: RelevanceCase) -> Chosen:
    calibration = calibrate(case.features)
    factor = _OLD_WIDENING if calibration.confidence < CONFIDENT else 1
    scores = [calibration.scores(each.totals) for each in case.collections]
    eligible = [each >= _OLD_MIN_SCORE / factor for each in scores]
    return _best_within(case, eligible, MAX_PASSAGE_TOKENS * factor, _OLD_RESULTS * factor)


def _best_within(case: RelevanceCase, eligible: Chosen, max_tokens: int, results: int = _OLD_RESULTS) -> Chosen:
    """Choose the best eligible candidates of all collections that fit."""
    ranked = sorted(
        (-float(each.totals[row]), place, row)
        for place, (each, rows) in enumerate(zip(case.collections, eligible, strict=True))
        for row in np.flatnonzero(rows).tolist()
    )
    chosen = [np.zeros(len(each.totals), np.bool_) for each in case.collections]
    for _, place, row in ranked[:results]:
        max_tokens -= int(case.collections[place].tokens[row])
        if max_tokens < 0:
            break
        chosen[place][row] = True
    return chosen


def _figures(chosen: Sequence[tuple[RelevanceCase, Chosen]]) -> dict[str, float]:
    """Return the share of questions with whole evidence, and of tokens that are gold."""
    gold = sum(
        _tokens(case, [rows & c.gold for rows, c in zip(part, case.collections, strict=True)]) for case, part in chosen
    )
    every = sum(_tokens(case, part) for case, part in chosen)
    whole = fmean(case.recall(part) >= _WHOLE for case, part in chosen)
    return {"whole": whole, "precision": gold / max(every, 1)}


def _tokens(case: RelevanceCase, chosen: Chosen) -> int:
    return sum(int(each.tokens[rows].sum()) for each, rows in zip(case.collections, chosen, strict=True))


def _normalised(text: str) -> str:
    return " ".join(text.split())


def _row(name: str, value: float, unit: str, baseline: float | None, most: float | None = None) -> Row:
    value, baseline = round(value, _DIGITS), None if baseline is None else round(baseline, _DIGITS)
    target = None if most is None else f"<= {most}"
    return Row(f"relevance.{name}", value, unit, baseline, target, None if most is None else value <= most)
