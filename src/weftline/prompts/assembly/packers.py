"""Packers of short texts: pins, board entries and open questions. They are data of others, and marked as such."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from weftline.models.language_models.model import ConversationMessage
from weftline.prompts.assembly.model import Candidate, OmittedCandidate, PackingLog, PlannedBlock, digest_of
from weftline.prompts.assembly.plan import Packed
from weftline.prompts.assembly.prompt_trust import ItemTrust, least_trusted
from weftline.state.layers.data_elements import data_element, element_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weftline.models.language_models.model import BlockKind
    from weftline.prompts.assembly.model import CandidateKind

    CountMessages = Callable[[tuple[ConversationMessage, ...]], int]


class PackedText(NamedTuple):
    """A candidate with its text as rendered, and its trust."""

    ref: str
    version: str
    text: str
    trust: ItemTrust
    score: float | None = None


@dataclass(frozen=True)
class TextPacker:
    """Texts in one message; earlier ones have priority. ``name`` says in the prompt what they are.

    Suspicious ones are in a data element of their own, which says so.
    """

    kind: BlockKind
    candidate_kind: CandidateKind
    name: str
    texts: Sequence[PackedText]
    count: CountMessages
    mark_words: bool = False

    @property
    def candidates(self) -> list[Candidate]:
        return [
            Candidate(ref=each.ref, kind=self.candidate_kind, tokens=self._tokens([each]), version=each.version)
            for each in self.texts
        ]

    @property
    def tokens(self) -> int:
        return self._tokens(self.texts) if self.texts else 0

    def wanted_tokens(self, known: Mapping[str, str]) -> int:
        wanted = [each for each in self.texts if known.get(each.ref) != each.version]
        return self._tokens(wanted) if wanted else 0

    def pack(self, room: int, known: Mapping[str, str]) -> Packed:
        wanted = [each for each in self.texts if known.get(each.ref) != each.version]
        taken = list(wanted) if wanted and self._tokens(wanted) <= room else self._fitting(wanted, room)
        left = [OmittedCandidate(each.ref, "budget") for each in wanted if each not in taken]
        block = self._block(taken) if taken else None
        self.log.add(room, len(wanted), block)
        return Packed(block, left)

    @cached_property
    def log(self) -> PackingLog:
        return PackingLog(self.candidate_kind)

    def _fitting(self, wanted: Sequence[PackedText], room: int) -> list[PackedText]:
        """Return the texts that fit; one that is too long does not exclude shorter ones."""
        taken: list[PackedText] = []
        for each in wanted:
            if self._tokens([*taken, each]) <= room:
                taken.append(each)
        return taken

    def _block(self, texts: Sequence[PackedText]) -> PlannedBlock:
        messages = self._messages(texts)
        least = least_trusted(each.trust for each in texts)
        return PlannedBlock(
            block_id=f"{self.kind}:{digest_of(messages).hex()[:16]}",
            kind=self.kind,
            messages=messages,
            tokens=self.count(messages),
            items={each.ref: each.version for each in texts},
            source=least.source,
            trust=least.trust,
            spans=self._spans(texts, messages[0].content),
        )

    def _spans(self, texts: Sequence[PackedText], content: str) -> dict[str, tuple[int, int]]:
        ordered = sorted(texts, key=lambda each: each.trust.is_suspicious)
        shown = [element_text(each.text, mark_words=self.mark_words) for each in ordered]
        return {each.ref: span for each, span in zip(ordered, spans_of(shown, content), strict=True) if span}

    def _tokens(self, texts: Sequence[PackedText]) -> int:
        return self.count(self._messages(texts))

    def _messages(self, texts: Sequence[PackedText]) -> tuple[ConversationMessage, ...]:
        clean = [each.text for each in texts if not each.trust.is_suspicious]
        suspect = [each.text for each in texts if each.trust.is_suspicious]
        return data_messages(self.name, "\n".join(clean), "\n".join(suspect), mark_words=self.mark_words)


def spans_of(texts: Iterable[str], content: str) -> Iterator[tuple[int, int] | None]:
    """Yield where texts begin and end in a content that has them in this order; None for one that was altered."""
    end = 0
    for text in texts:
        start = content.find(text, end)
        if start < 0:
            yield None
        else:
            end = start + len(text)
            yield start, end


def data_messages(name: str, clean: str, suspect: str, *, mark_words: bool) -> tuple[ConversationMessage, ...]:
    """Return the message of texts of others: one data element, and one for those that are suspicious."""
    elements = [
        data_element(text, name, suspect=is_suspect, mark_words=mark_words)
        for text, is_suspect in ((clean, False), (suspect, True))
        if text
    ]
    return (ConversationMessage(role="user", content="\n".join(elements)),)
