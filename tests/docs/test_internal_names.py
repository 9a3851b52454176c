"""No file has names of internal working documents, the name that the product had before, or marks of a merge."""

from __future__ import annotations

import os
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA, SAMPLE = ROOT / "evals/data", ROOT / "src/weftline/validation/statements.jsonl"
# Names of internal working documents; the lookbehinds permit KnowledgeRead and random seeds.
INTERNAL = re.compile(r"(?<!random[ _-])(?<!manual_)seed|(?<!know)ledger", re.IGNORECASE)
# Another product on PyPI has this name. A word piece of a vocabulary is no name, and this file has to spell it.
FORMER_NAME = re.compile(r"weft(?!line)", re.IGNORECASE)
CONFLICT = re.compile(r"^(?:<{7}|\|{7}|>{7})(?: |$)", re.MULTILINE)


def listed() -> set[Path]:
    """Return the files under version control or to be added; none without git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {path for name in names.split("\0") if name and (path := ROOT / name).is_file()}


def walked() -> set[Path]:
    """Return every file that .gitignore does not exclude."""
    ignored = [".git", *(ROOT / ".gitignore").read_text("utf-8").replace("/", "").split()]
    found: set[Path] = set()
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not any(fnmatch(name, pattern) for pattern in ignored)]
        found |= {Path(folder, name) for name in names}
    return found


def test_no_file_names_an_internal_document() -> None:
    matches = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((listed() or walked()) - {Path(__file__), SAMPLE})
        # Texts of others, about gardens and accounts as well; the bytes of a picture are no words.
        if DATA not in path.parents and path.suffix != ".png"
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if INTERNAL.search(line)
    ]
    assert matches == []


def test_no_file_has_the_former_name_of_the_product() -> None:
    texts = {
        path.relative_to(ROOT): path.read_text("utf-8", errors="replace")
        for path in (listed() or walked()) - {Path(__file__)}
        if path.suffix not in {".npz", ".xz"}
    }
    assert len(texts) > 1000
    assert [path for path, text in texts.items() if FORMER_NAME.search(f"{path}\n{text}")] == []


def test_the_walk_finds_every_file_that_git_lists() -> None:
    assert listed() <= walked()


def test_no_file_has_a_conflict_of_a_merge() -> None:
    texts = {path: path.read_text("utf-8", errors="replace") for path in (listed() or walked())}
    assert [path.relative_to(ROOT) for path, text in texts.items() if CONFLICT.search(text)] == []
    assert CONFLICT.search("a\n" + ">" * 7 + " other branch\n")
