"""Whether another model finds as much as the one in use: both are asked the same, and must find it among the first ten.

A probe asks for a chunk by one of its own sentences, which tells what a right answer is without anyone having to judge.
What was really asked lately shows beside that how much of the answers stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.indexing.model_migration.model import ModelComparison

if TYPE_CHECKING:
    from weft.capabilities.indexing.collections.model import Chunk
    from weft.capabilities.indexing.collections.store import CollectionStore

FIRST = 10
_MOST_PROBES = 200
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_FEWEST_CHARACTERS = 16
_MOST_CHARACTERS = 200


class Probe(NamedTuple):
    """A question, and the chunk that answers it; none if the question was really asked."""

    collection: str
    text: str
    number: int | None


class ProbeResults(NamedTuple):
    """What both models found nearest to a probe, by numbers of chunks."""

    probe: Probe
    before: Sequence[int]
    after: Sequence[int]


def probe_of(chunk: Chunk) -> Probe | None:
    """Return a question for a chunk; None if it has no sentence that could be one."""
    sentences = [part.strip()[:_MOST_CHARACTERS] for part in _SENTENCE_END.split(chunk.text)]
    telling = [sentence for sentence in sentences if len(sentence) >= _FEWEST_CHARACTERS]
    if not telling:
        return None
    # Always the same one of a chunk, but not always the first.
    return Probe(chunk.collection, telling[chunk.digest[0] % len(telling)], chunk.number)


async def probes_in(collection: str, collections: CollectionStore, shares: int) -> list[Probe]:
    """Return questions for chunks that stand far apart in a collection: its share of as many as are asked."""
    wanted = max(1, _MOST_PROBES // shares)
    last = (await collections.state(collection)).number
    places = sorted({last * each // wanted for each in range(wanted)})
    numbers = [await collections.standing_after(collection, place, 1, None) for place in places]
    chunks = await collections.find(collection, sorted({found[0].number for found in numbers if found}))
    return [probe for probe in map(probe_of, chunks) if probe is not None]


def compare(answers: Iterable[ProbeResults]) -> ModelComparison:
    """Return how two models did; without a single probe, that both found all there was."""
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
