"""Evaluation of two embedding models on the same probes: recall@10 and agreement of the top tens.

A probe is a sentence of a chunk; the chunk itself is the correct answer, so no labels are needed. Recent user queries
are used for agreement only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.model_migration.model import ModelComparison

if TYPE_CHECKING:
    from weftline.indexing.collections.model import Chunk
    from weftline.indexing.collections.sql import CollectionStore

TOP_K = 10
_MAX_PROBES = 200
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_MIN_CHARACTERS = 16
_MAX_CHARACTERS = 200


class Probe(NamedTuple):
    """A query and the chunk that answers it; None for a user's query."""

    collection: str
    text: str
    number: int | None


class ProbeResults(NamedTuple):
    """The chunk numbers that both models rank highest for a probe."""

    probe: Probe
    before: Sequence[int]
    after: Sequence[int]


def probe_of(chunk: Chunk) -> Probe | None:
    """Return a probe for a chunk; None if it has no sentence that is long enough."""
    sentences = [part.strip()[:_MAX_CHARACTERS] for part in _SENTENCE_END.split(chunk.text)]
    candidates = [sentence for sentence in sentences if len(sentence) >= _MIN_CHARACTERS]
    if not candidates:
        return None
    # Deterministic for a chunk, but not always the first sentence.
    return Probe(chunk.collection, candidates[chunk.digest[0] % len(candidates)], chunk.number)


async def probes_in(collection: str, collections: CollectionStore, shares: int) -> list[Probe]:
    """Return probes for chunks spread evenly over a collection: its share of all probes."""
    count = max(1, _MAX_PROBES // shares)
    last = (await collections.state(collection)).number
    positions = sorted({last * each // count for each in range(count)})
    numbers = [await collections.chunks_after(collection, position, 1, None) for position in positions]
    chunks = await collections.find(collection, sorted({found[0].number for found in numbers if found}))
    return [probe for probe in map(probe_of, chunks) if probe is not None]


def compare(answers: Iterable[ProbeResults]) -> ModelComparison:
    """Compare two models; without probes both have recall 1."""
    answers = list(answers)
    probes = [each for each in answers if each.probe.number is not None]
    return ModelComparison(
        probes=len(probes),
        recall_before=_share(each.probe.number in each.before for each in probes),
        recall_after=_share(each.probe.number in each.after for each in probes),
        agreement=_mean(_overlap(each) for each in answers),
    )


def _overlap(answers: ProbeResults) -> float:
    before = set(answers.before)
    return len(before & set(answers.after)) / len(before) if before else 1.0


def _share(found: Iterable[bool]) -> float:
    return _mean(map(float, found))


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return round(sum(values) / len(values), 4) if values else 1.0
