"""The eight validations of the context engine, in the order of its requirements."""

from __future__ import annotations

from weftline.validation.model import ProductValidation

VALIDATIONS = {
    validation.name: validation
    for validation in (
        ProductValidation(
            "tokens",
            "tokens of assembled prompts against the whole context, for the same tasks",
            "Measured on the nine tasks of the demo; weftline validate tokens --receipts measures your own prompts.",
        ),
        ProductValidation(
            "quality",
            "blind review: answers with Weftline are no worse than answers with the full context",
            "Needs reviewers: weftline validate quality --export DIR writes their sheets, --score reads them.",
        ),
        ProductValidation(
            "compaction",
            "statements that prompts still have after each of 50 compactions",
            "Measured on ten sessions with statements of authors who did not see Weftline, without a language model.",
            drawn=True,
        ),
        ProductValidation(
            "retrieval",
            "recall of passages that are known to answer a question",
            "Measured on messages of authors who did not see Weftline, and on a handbook invented by "
            "its own; --domain and "
            "--session measure yours.",
            drawn=True,
        ),
        ProductValidation(
            "push-pull",
            "pushes, pulls and snapshots behave as a model says, also at the same time",
            "Measured on random sequences, the same each time.",
        ),
        ProductValidation(
            "immutability",
            "an agent cannot change its own role, rights, guardrails or layers by any vector",
            "Attempted by an agent with every permission and clearance 5: calls, tools, content, prompts, database. "
            "The words of its attempts are drawn.",
            drawn=True,
        ),
        ProductValidation(
            "isolation",
            "no operation shows or changes anything of another tenant",
            "Every operation is called by the admin of one tenant with the ids of another, on SQLite.",
        ),
        ProductValidation(
            "failures",
            "degraded answers, and nothing lost, with parts of the installation broken",
            "Injected: unreachable models, a locked database, empty caches, lost index files, a killed process.",
        ),
    )
}
