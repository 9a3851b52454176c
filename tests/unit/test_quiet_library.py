"""What Weft logs inside somebody else's process."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_is_printed_unless_the_process_asks_for_it() -> None:
    program = "import logging, weft.app.app; {}; logging.getLogger('weft.audit').warning('denied')"
    said = [
        subprocess.run([sys.executable, "-c", program.format(first)], capture_output=True, text=True, check=True).stderr
        for first in ("pass", "logging.basicConfig()")
    ]
    assert said == ["", "WARNING:weft.audit:denied\n"]
