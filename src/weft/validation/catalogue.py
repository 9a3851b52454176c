"""The eight validations of the context engine, in the order of its requirements."""

from __future__ import annotations

from weft.validation.model import Validation

VALIDATIONS = {
    validation.name: validation
    for validation in (
        Validation(
            "tokens",
            "tokens of assembled prompts against the whole context, for the same tasks",
            "Measured on the nine tasks of the demo; weft validate tokens --receipts measures your own prompts.",
        ),
        Validation(
            "quality",
            "blind review: answers with Weft are no worse than answers with the full context",
            "Needs reviewers: weft validate quality --export DIR writes their sheets, --score reads them.",
        ),
        Validation(
            "compaction",
            "facts that prompts still have after each of 50 compactions",
            "Measured on ten generated sessions with planted facts, without a language model.",
        ),
        Validation(
            "retrieval",
            "recall of passages that are known to answer a question",
            "Measured on the 60 sections of an invented handbook; weft validate retrieval --domain measures your own.",
        ),
        Validation(
            "push-pull",
            "pushes, pulls and snapshots behave as a model says, also at the same time",
            "Measured on random sequences, the same each time.",
        ),
        Validation(
            "immutability",
            "an agent cannot change its own role, rights, guardrails or layers by any vector",
            "Attempted by an agent with every permission and clearance 5: calls, tools, content, prompts, database.",
        ),
        Validation(
            "isolation",
            "no operation shows or changes anything of another tenant",
            "Every operation is called by the admin of one tenant with the ids of another, on SQLite.",
        ),
        Validation(
            "failures",
            "degraded answers, and nothing lost, with parts of the installation broken",
            "Injected: unreachable models, a locked database, empty caches, lost index files, a killed process.",
        ),
    )
}
