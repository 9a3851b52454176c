"""Adapters for frameworks that are too large for every set-up: install them beside it, and run their tests.

A framework that cannot be installed is skipped with a word about it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / ".frameworks"
# By test, what it needs besides the development environment, which has the dependencies of both.
FRAMEWORKS = {"test_claude_agent_sdk.py": "claude-agent-sdk>=0.2.182,<0.3"}


def main() -> int:
    """Return the exit status of the tests; 0 where nothing could be installed."""
    tests = [test for test, package in FRAMEWORKS.items() if install(package)]
    if not tests:
        return 0
    command = [sys.executable, "-m", "pytest", *(f"tests/adapters/{test}" for test in tests)]
    search_path = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": search_path}, check=False).returncode


def install(package: str) -> bool:
    """Install a framework unless it is there; say so if that is not possible."""
    marker = PACKAGES / f"{package}.installed"
    if marker.exists():
        return True
    print(f"Installing {package} into {PACKAGES.name} ...", flush=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", str(PACKAGES)]
    done = subprocess.run([sys.executable, "-m", "pip", "install", *options, package], check=False)
    if done.returncode:
        print(f"{package} cannot be installed here: its adapter is not tested.")
        return False
    marker.touch()
    return True


if __name__ == "__main__":
    sys.exit(main())
