"""The commands of validations are documented, and ``make validate`` runs what users run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weftline.validation.catalogue import VALIDATIONS

pytestmark = pytest.mark.req("CE-V", part="the table of commands")


@pytest.mark.parametrize("page", ["docs/security.md", "docs/guides/validate.md"])
def test_the_page_has_every_validation(page: str) -> None:
    text = Path(page).read_text("utf-8")
    assert [name for name in VALIDATIONS if f"| `{name}` |" not in text] == []


def test_make_validate_runs_the_command_of_users() -> None:
    assert "weftline validate $(or $(ARGS),all)" in Path("Makefile").read_text("utf-8")


def test_every_test_that_the_page_on_security_names_exists() -> None:
    named = re.findall(r"`(tests/[^`]+)`", Path("docs/security.md").read_text("utf-8"))
    assert len(named) > 20
    assert [path for path in named if not Path(path).exists()] == []
