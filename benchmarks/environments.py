"""Pinned packages in virtual environments of their own, installed on first use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_REQUIREMENTS = Path(__file__).with_name("baselines")
_INSTALL_SECONDS = 600


class NotInstallable(Exception):
    """The packages cannot be installed."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment in the folder ``.bench-{name}``."""

    name: str

    @property
    def _home(self) -> Path:
        return _ROOT / f".bench-{self.name}"

    def program(self, name: str) -> str:
        return str(self._home / "bin" / name)

    def install(self) -> None:
        """Install the pinned versions unless they are installed."""
        requirements = _REQUIREMENTS / f"{self.name}-requirements.txt"
        wanted = requirements.read_text(encoding="utf-8")
        # Written last, so that a partial installation is not mistaken for a complete one.
        installed = self._home / "installed.txt"
        if installed.exists() and installed.read_text(encoding="utf-8") == wanted:
            return
        shutil.rmtree(self._home, ignore_errors=True)
        pip = [self.program("python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        try:
            for command in (
                [sys.executable, "-m", "venv", str(self._home)],
                [*pip, "--requirement", str(requirements)],
            ):
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotInstallable(f"it cannot be installed: {_last_line(error)}") from error
        installed.write_text(wanted, encoding="utf-8")


def _last_line(error: Exception) -> str:
    output = str(getattr(error, "stderr", None) or error).strip()
    return output.splitlines()[-1]
