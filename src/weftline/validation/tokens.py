"""Token reduction: assembled prompts against the whole context, for the same tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.models.metering import savings_ratio
from weftline.validation.model import Figure, all_of, share_at_least
from weftline.validation.temporary_weftline import prepare_project, prompts_of_steps, temporary_weftline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.prompts.assembly.receipt_operations import SavingsReport
    from weftline.settings import Settings

_LEAST_SAVED = 60.0
_SAVED = "tokens saved against conversations and documents"


async def measure(settings: Settings) -> Sequence[Figure]:
    """Assemble the prompts of the demo's project: they must be small, and have the evidence that their task needs."""
    alone, documents, sent, steps, lacking = 0, 0, 0, 0, []
    async with temporary_weftline(settings) as admin:
        await prepare_project(admin)
        async for _, step, prompt in prompts_of_steps(admin):
            alone += prompt["savings"]["naive_baseline_tokens"]
            documents += prompt["savings"]["document_tokens"]
            sent += prompt["savings"]["engine_assembled_tokens"]
            steps += 1
            if step.evidence not in str(prompt["body"]):
                lacking.append(step.question)
    return [
        *_figures(alone, documents, sent),
        all_of("prompts that have the evidence for their task", steps, lacking),
    ]


def tokens_of_receipts(report: SavingsReport) -> Sequence[Figure]:
    """Return the figures of prompts that agents of this installation have asked for."""
    calls = sum(row.calls for row in report.rows)
    alone = sum(row.naive_baseline_tokens for row in report.rows)
    documents = sum(row.document_tokens for row in report.rows)
    sent = sum(row.engine_assembled_tokens for row in report.rows)
    if not calls:
        return []
    return [Figure(measured="prompts", value=calls), *_figures(alone, documents, sent)]


def _figures(alone: int, documents: int, sent: int) -> Sequence[Figure]:
    """Compare with the whole context, conversations and documents; and, without a target, with conversations alone."""
    whole = alone + documents
    return [
        Figure(measured="tokens of the conversations alone", value=alone),
        Figure(measured="tokens of the conversations and documents", value=whole),
        Figure(measured="tokens of the assembled prompts", value=sent),
        Figure(
            measured="tokens saved against the conversations alone",
            value=round(100 * savings_ratio(alone, sent), 2),
            unit="%",
        ),
        share_at_least(_SAVED, whole - sent, whole, _LEAST_SAVED),
    ]
