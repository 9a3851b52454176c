"""Weftline as a library logs nothing unless the process configures logging."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_is_logged_unless_the_process_configures_logging() -> None:
    program = "import logging, weftline.app.app; {}; logging.getLogger('weftline.audit').warning('denied')"
    outputs = [
        subprocess.run([sys.executable, "-c", program.format(setup)], capture_output=True, text=True, check=True).stderr
        for setup in ("pass", "logging.basicConfig()")
    ]
    assert outputs == ["", "WARNING:weftline.audit:denied\n"]
