"""``make validate``: the eight validations of the context engine; each runs one command.

make validate                       list them
make validate ARGS=immutability     run one, or several
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple


class Validation(NamedTuple):
    """What a validation shows, and the arguments of Python that run it; none: it cannot run yet."""

    shows: str
    arguments: tuple[str, ...] = ()


def _tests(*paths: str) -> tuple[str, ...]:
    return ("-m", "pytest", *paths)


VALIDATIONS = {
    "tokens": Validation(
        "tokens of assembled prompts against the whole context, for the same tasks", ("-m", "evals", "assembly")
    ),
    "quality": Validation("blind review of answers with and without Weft: needs readers and a model"),
    "compaction": Validation(
        "planted facts and key facts that 50 compactions keep; nothing removed survives in a summary",
        _tests("tests/integration/test_fifty_compactions.py", "tests/red_team/test_poisoned_summaries.py"),
    ),
    "retrieval": Validation("recall of relevant passages on public question sets", ("-m", "evals", "retrieval")),
    "push-pull": Validation(
        "pushes, pulls and snapshots, also by random sequences against a model",
        _tests(
            "tests/integration/test_context_push.py",
            "tests/integration/test_context_pull.py",
            "tests/integration/test_context_machine.py",
        ),
    ),
    "immutability": Validation(
        "red team: every door to change oneself, one's rights or the layers is closed, and attempts are logged",
        _tests(
            "tests/red_team",
            "tests/integration/test_context_definitions.py",
            "tests/integration/test_agent_tree.py",
            "tests/integration/test_security_events.py",
        ),
    ),
    "isolation": Validation(
        "no operation, search or side channel crosses tenants",
        _tests(
            "tests/red_team/test_cross_tenant.py",
            "tests/red_team/test_operation_matrix.py",
            "tests/integration/test_tenant_isolation.py",
            "tests/integration/test_search_isolation.py",
            "tests/integration/test_search_side_channels.py",
        ),
    ),
    "failures": Validation(
        "databases that are down, slow or full, killed processes, damaged files: degraded answers, nothing lost",
        _tests("tests/faults"),
    ),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in VALIDATIONS]
    if unknown:
        print(f"Unknown validation {unknown[0]}; choose from: {', '.join(VALIDATIONS)}.")
        return 2
    if not names:
        for name, validation in VALIDATIONS.items():
            print(f"{name:<14}{validation.shows}{'' if validation.arguments else ' (open)'}")
        return 0
    return max(_run(name, VALIDATIONS[name]) for name in names)


def _run(name: str, validation: Validation) -> int:
    if not validation.arguments:
        print(f"{name} is open: {validation.shows}.")
        return 1
    return subprocess.run([sys.executable, *validation.arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
