"""What templates print and send: commands that exist, forms that are allowed, no script and no style in them."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files

import click

from weftline.transports.cli.main import weftline
from weftline.transports.console.actions import DONE
from weftline.transports.console.pages import PAGES

TEMPLATES = {
    file.name: file.read_text(encoding="utf-8")
    for file in (files("weftline.transports.console") / "templates").iterdir()
    if file.name.endswith(".html")
}
# A command in a template, with the expressions that are joined to it.
COMMAND = re.compile(r"""(["'])(weftline (?:\\.|(?!\1).)+)\1|<code>(weftline [^<{]+)</code>""")
JOINED = re.compile(r"""(["']) ~ [a-z_.]+ ~ \1|(["']) ~ [a-z_.]+""")


def test_printed_commands_can_be_run_as_they_are() -> None:
    """Each exists and has what it needs: a reader copies it."""
    printed = {
        (name, found[1] or found[2])
        for name, text in TEMPLATES.items()
        for found in COMMAND.findall(JOINED.sub(lambda part: "X" if part[1] else f"X{part[2]}", text))
    }
    assert len(printed) >= 15
    for name, line in printed:
        words = shlex.split(re.sub(r"^weftline --as X ", "weftline ", line.replace("\\'", "'").replace('\\"', '"')))[1:]
        command: click.Command | None = weftline
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words[0])
            assert command is not None, (name, line)
            words = words[1:]
        try:
            command.make_context("weftline", words)
        except click.BadParameter as error:
            # The reader's own file is not there, and a value that is joined to the command stands for one of a list.
            if "cannot be read" not in error.message and not error.message.startswith("'X' is not one of"):
                raise


def test_forms_send_operations_that_are_allowed() -> None:
    sent = {
        operation
        for text in TEMPLATES.values()
        for operation in re.findall(r'(?:form_token, "|/console/actions/)([a-z_]+\.[a-z_]+)', text)
    }
    assert sent == set(DONE)


def test_templates_have_no_script_style_or_unescaped_text() -> None:
    for name, text in TEMPLATES.items():
        assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=|<style|javascript:|\|\s*safe\b", text), name
        assert "autoescape" not in text, name


def test_states_that_templates_name_have_a_colour() -> None:
    """A state of several words has a class of several words: one by its first word would match nothing."""
    plain = {"as before", "dearer", "own", "replaced by the originals"}
    named = {name for text in TEMPLATES.values() for name in re.findall(r'm\.state\("([^"]+)"', text)}
    style = (files("weftline.transports.console") / "assets" / "console.css").read_text(encoding="utf-8")
    without = {name for name in named if not re.search(rf"\.state-{name.replace(' ', '-')}[ ,{{]", style)}
    assert without == plain


def test_each_page_of_the_menu_has_a_key_of_its_own() -> None:
    keys = [page.key for page in PAGES if page.menu]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert not any(page.key for page in PAGES if not page.menu)
