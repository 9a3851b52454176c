"""What templates print and send: commands that exist, forms that are allowed, no script and no style in them."""

from __future__ import annotations

import re
from importlib.resources import files

import click
import pytest

from weft.transports.cli.main import weft
from weft.transports.console.actions import DONE
from weft.transports.console.pages import PAGES

TEMPLATES = {
    file.name: file.read_text(encoding="utf-8")
    for file in (files("weft.transports.console") / "templates").iterdir()
    if file.name.endswith(".html")
}
COMMAND = re.compile(r"""["'>]weft ((?:[a-z][a-z-]*(?: |\b))+)""")


def test_printed_commands_exist() -> None:
    printed = {(name, found) for name, text in TEMPLATES.items() for found in COMMAND.findall(text)}
    assert len(printed) >= 15
    for name, words in printed:
        command: click.Command | None = weft
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            command = command.get_command(click.Context(command), word)
            assert command is not None, (name, words)


def test_forms_send_operations_that_are_allowed() -> None:
    sent = {
        operation
        for text in TEMPLATES.values()
        for operation in re.findall(r'(?:form_token, "|/console/actions/)([a-z_]+\.[a-z_]+)', text)
    }
    assert sent == set(DONE)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_templates_have_no_script_style_or_unescaped_text(name: str) -> None:
    text = TEMPLATES[name]
    assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=|<style|javascript:|\|\s*safe\b", text)
    assert "autoescape" not in text


def test_each_page_of_the_menu_has_a_key_of_its_own() -> None:
    keys = [page.key for page in PAGES if page.menu]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert not any(page.key for page in PAGES if not page.menu)
