"""Write the files generated from the registry, the errors, the settings, the tests and a story of calls.

``generate.py --check`` writes nothing and fails if a file is out of date.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

from client_code import command_file, error_files, index_files, stub_files

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
        *_update(index_files(list(all_operations())), checking=checking),
        *_update(_formatted(stub_files(list(all_operations()), ROOT)), checking=checking),
        # Finding every error and every command imports the whole product, which reads the files above.
        *_update(command_file(list(all_operations())), checking=checking),
        *_update(_formatted(error_files()), checking=checking),
        *_update(_pages(), checking=checking),
    ]
    for path, difference in stale:
        print(f"{'out of date' if checking else 'written'}: {path}")
        if checking:
            print(difference)
        if path.startswith("tests/data/golden"):
            print("scripts/golden.py shows the texts that differ; scripts/generate.py accepts them")
    return 1 if checking and stale else 0


def _pages() -> dict[str, str]:
    # Imported late: they read the index written above.
    from golden import golden_file  # noqa: PLC0415
    from record_schemas import schema_files  # noqa: PLC0415
    from reference_pages import reference_pages  # noqa: PLC0415
    from requirements_page import requirements_page  # noqa: PLC0415
    from typescript_client import typescript_files  # noqa: PLC0415

    return {
        **schema_files(),
        **reference_pages(list(all_operations())),
        "docs/requirements.md": requirements_page(ROOT),
        **typescript_files(),
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


def _formatted(files: dict[str, str]) -> dict[str, str]:
    return {path: text if path.endswith(".json") else _format(path, text) for path, text in files.items()}


def _format(path: str, source: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    sort = [*ruff, "check", "--select", "I", "--fix", "--quiet", "--stdin-filename", path, "-"]
    shape = [*ruff, "format", "--quiet", "--stdin-filename", path, "-"]
    for command in (sort, shape):
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return source


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
