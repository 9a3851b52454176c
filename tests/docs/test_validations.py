"""The table of validations names what exists, and says what is open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from evals.__main__ import EVALUATIONS
from scripts.validate import VALIDATIONS, main

pytestmark = pytest.mark.req("CE-V", part="the table of commands")


def test_every_validation_runs_what_exists_or_says_what_it_needs() -> None:
    assert len(VALIDATIONS) == 8
    for name, validation in VALIDATIONS.items():
        for argument in validation.arguments:
            if argument.startswith("tests/"):
                assert Path(argument).exists(), (name, argument)
        if "evals" in validation.arguments:
            assert validation.arguments[-1] in EVALUATIONS, name
    assert {name for name, validation in VALIDATIONS.items() if not validation.arguments} == {"quality"}


def test_validations_are_listed_and_open_ones_do_not_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in VALIDATIONS)
    assert main(["quality"]) == 1
    assert main(["nonsense"]) == 2


def test_every_test_that_the_page_on_security_names_exists() -> None:
    named = re.findall(r"`(tests/[^`]+)`", Path("docs/security.md").read_text())
    assert len(named) > 20
    assert [path for path in named if not Path(path).exists()] == []


def test_the_page_on_security_has_every_command() -> None:
    page = Path("docs/security.md").read_text()
    assert "make validate" in page
    for name in VALIDATIONS:
        assert f"`{name}`" in page, name
