"""Turns what was gathered into the materials of a plan. Texts that others wrote are screened on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.models.language_models.model import ConversationMessage
from weftline.prompts.assembly.model import OmittedCandidate, PlannedBlock, digest_of
from weftline.prompts.assembly.packers import PackedText, TextPacker
from weftline.prompts.assembly.prompt_trust import ItemTrust, item_trust
from weftline.safety.trust.model import Source, Trust
from weftline.state.layers.prefix import render_layers
from weftline.state.layers.tags import sanitise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.exchange.missing_context.model import Gap
    from weftline.prompts.assembly.packers import CountMessages
    from weftline.prompts.assembly.prompt_trust import Screening
    from weftline.state.board.model import EntryWithValue
    from weftline.state.layers.model import Layer

_BOARD = "board of the session"
_MISSING = "open questions"
_LINE = "\n  "


class ScreenedTexts(NamedTuple):
    """Texts that may go into a prompt, and those that the policy leaves out."""

    kept: list[PackedText]
    omitted: list[OmittedCandidate]

    @classmethod
    def of(cls, texts: Iterable[PackedText], screening: Screening) -> ScreenedTexts:
        found = cls([], [])
        for each in texts:
            reason = screening.omission(each.ref, each.text, each.trust)
            if reason is None:
                found.kept.append(each._replace(text=screening.shown(each.text)))
            else:
                found.omitted.append(reason)
        return found


def layer_blocks(layers: Sequence[Layer], count: CountMessages) -> list[PlannedBlock]:
    """Return the block of the layers, the beginning of every prompt."""
    messages = (ConversationMessage(role="system", content=render_layers(layers)),)
    block = PlannedBlock(
        block_id="layers",
        kind="layer",
        messages=messages,
        tokens=count(messages),
        items=layer_versions(layers),
        source=Source.SYSTEM,
        trust=Trust.TRUSTED,
    )
    return [block] if layers else []


def layer_versions(layers: Iterable[Layer]) -> dict[str, str]:
    """Return the versions of layers by the ids of their lines."""
    return {layer.line_id or f"layer:{layer.name}": f"{layer.version}" for layer in layers}


def task_block(task: str, count: CountMessages, found: ItemTrust | None = None) -> PlannedBlock:
    """Return the block of the task, which the caller itself gave; ``found``: it looks like an attack."""
    messages = (ConversationMessage(role="user", content=sanitise(task)),)
    digest = digest_of(messages).hex()[:16]
    return PlannedBlock(
        block_id=f"task:{digest}",
        kind="task",
        messages=messages,
        tokens=count(messages),
        items={f"task:{digest}": ""},
        source=Source.SYSTEM if found is None else found.source,
        trust=Trust.TRUSTED if found is None else found.trust,
    )


def board_texts(
    session_id: str, entries: Sequence[EntryWithValue], scores: Mapping[str, float], reader: str
) -> list[PackedText]:
    """Return the entries of a board, those relevant for the task first, then the newest."""

    def rank(found: EntryWithValue) -> tuple[float, int, str]:
        return (-scores.get(found.entry.key, 0.0), -found.entry.written_at, found.entry.key)

    return [
        PackedText(
            ref=f"board:{session_id}/{found.entry.key}",
            version=f"{found.entry.incarnation}.{found.entry.version}",
            text=_listed(f"{found.entry.key} (by {found.entry.written_by})", found.value),
            trust=item_trust(found.entry.trust, found.entry.written_by, reader),
            score=scores.get(found.entry.key),
        )
        for found in sorted(entries, key=rank)
    ]


def board_packer(texts: Sequence[PackedText], count: CountMessages, *, mark_words: bool = False) -> TextPacker:
    return TextPacker("board", "board", _BOARD, texts, count, mark_words)


def missing_texts(gaps: Sequence[Gap], suspicious: Mapping[str, ItemTrust]) -> list[PackedText]:
    """Return the open questions, most severe first."""
    return [
        PackedText(
            ref=gap.record.missing_id,
            version=gap.record.status,
            text=_listed(gap.record.severity, gap.record.question),
            trust=suspicious.get(gap.record.missing_id) or ItemTrust(Source.AGENT, Trust.UNTRUSTED),
        )
        for gap in gaps
    ]


def missing_packer(texts: Sequence[PackedText], count: CountMessages, *, mark_words: bool = False) -> TextPacker:
    return TextPacker("missing", "missing", _MISSING, texts, count, mark_words)


def _listed(name: str, text: str) -> str:
    """Return an item of a list; its further lines are indented, so that none passes for another item."""
    return f"- {name}: {_LINE.join(text.splitlines())}"
