"""Finds the browser that tests drive; as a command, installs Debian's Chromium where there is none and it may.

It never fails: where no browser can be had, the tests that need one are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# Without a network, the first of these ends soon.
_QUIETLY = ("apt-get", "--quiet", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20")
_STEPS = ((("update",), 120), (("install", "--yes", "--no-install-recommends", "chromium"), 600))


def find_browser() -> str | None:
    """Return the path of an installed browser."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def main() -> None:
    if find_browser() or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print("Installing chromium for the tests of the console.")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step, seconds in _STEPS:
        try:
            subprocess.run([*_QUIETLY, *step], env=environment, capture_output=True, timeout=seconds, check=True)
        except (OSError, subprocess.SubprocessError):
            break
    if not find_browser():
        print("It could not be installed: the tests in a browser are skipped.")


if __name__ == "__main__":
    main()
