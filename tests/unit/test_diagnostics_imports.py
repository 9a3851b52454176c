"""The doctor works in a process that has loaded nothing else."""

from __future__ import annotations

import subprocess
import sys


def test_the_checks_register_the_kinds_of_lines_themselves() -> None:
    code = "import weftline.app.diagnostics.checks; from weftline.history.line_kinds import line_kinds; line_kinds()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
