"""What users of Weftline see, as digests: a change of the code that should change nothing leaves them alone.

scripts/generate.py writes them to ``tests/data/golden.txt``, one line for each item, and so accepts a change.
``golden.py`` shows the items that differ from the last commit with their old and new text; ``golden.py REVISION`` from
another one.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import click
import msgspec
from command_line_page import commands
from error_tree import all_errors, kind_of
from played_calls import played

from weftline.access.steps import PROFILES
from weftline.app.registry import all_operations
from weftline.app.tools.toolbox import Toolbox
from weftline.kernel.events import EventType
from weftline.kernel.identity import Actor, Permission, PrincipalKind
from weftline.storage.migrations.runner import known_migrations
from weftline.storage.sql.dialects import postgres, sqlite
from weftline.transports.cli.main import weftline
from weftline.transports.http.openapi import openapi_document

ROOT = Path(__file__).resolve().parent.parent
PATH = "tests/data/golden.txt"
_PRINT_TEXTS = "--texts"
_DIGEST_CHARACTERS = 16
_HELP_WIDTH = 120
_SHOWN_LINES = 60


def main(arguments: list[str]) -> int:
    if arguments == [_PRINT_TEXTS]:
        print(json.dumps(golden_texts()))
        return 0
    revision = arguments[0] if arguments else "HEAD"
    before, now = texts_at(revision), golden_texts()
    for item in sorted(before.keys() | now.keys()):
        old, new = before.get(item, ""), now.get(item, "")
        if old != new:
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), revision, "now", n=1, lineterm="")
            print(f"\n{item}", *list(lines)[:_SHOWN_LINES], sep="\n")
    return int(before != now)


def golden_file() -> dict[str, str]:
    """Return the text of the file with the digests, by its path."""
    lines = [f"{item}  {_digest(text)}" for item, text in sorted(golden_texts().items())]
    head = "# Written by scripts/generate.py. scripts/golden.py shows what is behind a line that differs.\n"
    return {PATH: head + "\n".join(lines) + "\n"}


def texts_at(revision: str) -> dict[str, str]:
    """Return the texts of a revision, by running its own code."""
    archive = subprocess.run(["git", "archive", revision, "src", "scripts"], cwd=ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        printed = subprocess.run(
            [sys.executable, f"{folder}/scripts/{Path(__file__).name}", _PRINT_TEXTS],
            env={**os.environ, "PYTHONPATH": f"{folder}/src"},
            capture_output=True,
            check=True,
        )
    found: dict[str, str] = json.loads(printed.stdout)
    return found


def golden_texts() -> dict[str, str]:
    """Return the text of each item."""
    found = {
        **dict(_routes()),
        **dict(_tools()),
        **dict(_errors()),
        **dict(_help()),
        **dict(_schema()),
        **{f"event {name}": name for name in EventType.__args__},
        **{f"played {name}": _json(answer) for name, answer in played().items()},
    }
    return {item.replace("\n", " "): text for item, text in found.items()}


def _routes() -> Iterator[tuple[str, str]]:
    document = openapi_document(all_operations())
    for path, methods in document["paths"].items():
        for method, definition in methods.items():
            yield f"route {method.upper()} {path}", _json(definition)
    for name, schema in document["components"]["schemas"].items():
        yield f"route schema {name}", _json(schema)
    yield (
        "route document",
        _json({name: part for name, part in document.items() if name not in {"paths", "components"}}),
    )


def _tools() -> Iterator[tuple[str, str]]:
    """Yield the list of each profile for each kind of caller, and each view of a tool once."""
    toolbox = Toolbox(all_operations())
    views: dict[str, str] = {}
    for (name, caller), profile, in_session in product(_callers().items(), PROFILES, (False, True)):
        place = f"{profile} for {name}{' in a session' * in_session}"
        listed = []
        for view in toolbox.listed(caller, profile, in_session=in_session):
            text = _json({**view.as_json(), "read_only": view.read_only})
            listed.append(views.setdefault(text, f"tool {view.name} in {place}"))
        yield f"tools of {place}", _json(listed)
    yield "tools without a credential", _json([view.as_json() for view in toolbox.listed_without_credential()])
    yield from ((name, text) for text, name in views.items())


def _callers() -> dict[str, Actor]:
    agent = Actor("default", "planner", PrincipalKind.AGENT, "general", False, frozenset(Permission), 3, 1)  # noqa: FBT003
    return {
        "a human": msgspec.structs.replace(agent, kind=PrincipalKind.HUMAN),
        "an orchestrator": msgspec.structs.replace(agent, permissions=frozenset((Permission.READ, Permission.WRITE))),
        "a sub-agent": msgspec.structs.replace(agent, parent_is_agent=True, permissions=frozenset((Permission.READ,))),
    }


def _errors() -> Iterator[tuple[str, str]]:
    for error in all_errors():
        about = ("code", "hint", "severity", "related", "http_status", "exit_code", "recoverable")
        body: dict[str, Any] = {name: getattr(error, name, None) for name in about}
        yield (
            f"error {error.code} {error.__name__}",
            _json({**body, "kind": kind_of(error).__name__, "meaning": (error.__doc__ or "").strip()}),
        )


def _help() -> Iterator[tuple[str, str]]:
    for path, command in commands(weftline, ()):
        context = click.Context(command, info_name=" ".join(("weftline", *path)), terminal_width=_HELP_WIDTH)
        yield f"help {' '.join(path)}", command.get_help(context)


def _schema() -> Iterator[tuple[str, str]]:
    for name, dialect in (("sqlite", sqlite.DIALECT), ("postgresql", postgres.DIALECT)):
        for step in known_migrations():
            yield f"schema {name} {step.name}", step.sql.format_map(dialect)


def _json(value: object) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=1, default=str)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
