"""The mutants that the tests have to notice: each still changes the source, into source that can be compiled."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import mutants  # noqa: E402 - a script, found by the line above


def test_every_mutant_changes_the_source_in_one_place() -> None:
    for mutant in mutants.MUTANTS:
        compile(mutants.mutated(mutant), mutant.file, "exec")


def test_the_tests_of_every_mutant_exist() -> None:
    assert [test for mutant in mutants.MUTANTS for test in mutant.tests if not (ROOT / "tests" / test).is_file()] == []


def test_every_rule_has_mutants_and_there_are_twenty() -> None:
    assert len(mutants.MUTANTS) == 20
    assert {mutant.rule for mutant in mutants.MUTANTS} == {"visibility", "versions", "tenants", "secrets", "budgets"}
