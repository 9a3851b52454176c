"""The product speaks of itself in its own words."""

from __future__ import annotations

import os
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Names of our own working papers, which mean nothing to anyone who uses the product.
# An address of knowledge that is read or removed is none of them.
FOREIGN = re.compile(r"seed|(?<!know)ledger", re.IGNORECASE)


def listed() -> set[Path]:
    """Return the files that are or will be under version control; none where there is no git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {path for name in names.split("\0") if name and (path := ROOT / name).is_file()}


def walked() -> set[Path]:
    """Return every file but what git is told to ignore."""
    ignored = [".git", *(ROOT / ".gitignore").read_text("utf-8").replace("/", "").split()]
    found: set[Path] = set()
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not any(fnmatch(name, pattern) for pattern in ignored)]
        found |= {Path(folder, name) for name in names}
    return found


def test_no_file_speaks_of_our_working_papers() -> None:
    spoken = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((listed() or walked()) - {Path(__file__)})
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert spoken == []


def test_without_git_no_file_is_overlooked() -> None:
    assert listed() <= walked()
