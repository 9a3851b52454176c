"""Write the files generated from the registry, the errors, the settings, the tests and a story of calls.

``generate.py --check`` writes nothing and fails if a file is out of date.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

from client_code import client_files
from lookup_tables import command_table, operation_index

from weftline.app.registry import all_operations

ROOT = Path(__file__).resolve().parent.parent
_SHOWN_LINES = 20
_SHOWN_CHARACTERS = 160


def main(arguments: list[str]) -> int:
    checking = arguments == ["--check"]
    if arguments and not checking:
        print(f"usage: {Path(__file__).name} [--check]", file=sys.stderr)
        return 2
    stale = [
        *_update(_index(), checking=checking),
        *_update(_client(), checking=checking),
        *_update(_pages(), checking=checking),
    ]
    for path, difference in stale:
        print(f"{'out of date' if checking else 'written'}: {path}")
        if checking:
            print(difference)
        if path.startswith("tests/data/golden"):
            print("scripts/golden.py shows the texts that differ; scripts/generate.py accepts them")
    return 1 if checking and stale else 0


def _index() -> dict[str, str]:
    path = "src/weftline/app/operation_index.py"
    return {path: _formatted(path, operation_index(list(all_operations())))}


def _client() -> dict[str, str]:
    return {path: _formatted(path, text) for path, text in client_files(list(all_operations()), ROOT).items()}


def _pages() -> dict[str, str]:
    # Imported late: finding every error imports the whole product, which needs the client written above.
    from error_tree import error_index, errors_module  # noqa: PLC0415
    from golden import golden_file  # noqa: PLC0415
    from record_schemas import schema_files  # noqa: PLC0415
    from reference_pages import reference_pages  # noqa: PLC0415
    from requirements_page import requirements_page  # noqa: PLC0415

    commands = "src/weftline/transports/cli/command_table.py"
    return {
        commands: _formatted(commands, command_table(list(all_operations()))),
        **schema_files(),
        "src/weftline/errors.py": _formatted("src/weftline/errors.py", errors_module()),
        "src/weftline/client/_errors.py": _formatted("src/weftline/client/_errors.py", error_index()),
        **reference_pages(list(all_operations())),
        "docs/requirements.md": requirements_page(ROOT),
        **golden_file(),
    }


def _update(files: dict[str, str], *, checking: bool) -> list[tuple[str, str]]:
    """Return the outdated files with their differences; write them unless checking."""
    stale = []
    for path, text in files.items():
        place = ROOT / path
        present = place.read_text("utf-8") if place.exists() else ""
        if present != text:
            stale.append((path, _difference(present, text)))
            if not checking:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, "utf-8")
    return stale


def _difference(present: str, wanted: str) -> str:
    lines = list(difflib.unified_diff(present.splitlines(), wanted.splitlines(), "present", "wanted", n=0, lineterm=""))
    more = [f"... and {len(lines) - _SHOWN_LINES} lines more"] if len(lines) > _SHOWN_LINES else []
    return "\n".join([*(line[:_SHOWN_CHARACTERS] for line in lines[:_SHOWN_LINES]), *more])


def _formatted(path: str, source: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    sort = [*ruff, "check", "--select", "I", "--fix", "--quiet", "--stdin-filename", path, "-"]
    shape = [*ruff, "format", "--quiet", "--stdin-filename", path, "-"]
    for command in (sort, shape):
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return source


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
