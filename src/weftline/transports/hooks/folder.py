"""The folder of the hooks of one user: the socket of the resident process, and whether hooks are switched off."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER_VARIABLE = "WEFTLINE_HOOKS_DIR"
_PRIVATE_FOLDER, _PRIVATE_PROGRAM = 0o700, 0o700


@dataclass(frozen=True, slots=True)
class HooksFolder:
    """Files in it; the shell script of the plugin reads the same ones."""

    path: Path

    @classmethod
    def of_user(cls) -> HooksFolder:
        return cls(Path(os.environ.get(FOLDER_VARIABLE) or "~/.weftline/hooks").expanduser())

    @property
    def socket(self) -> Path:
        return self.path / "socket"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def off(self) -> Path:
        return self.path / "off"

    @property
    def told(self) -> Path:
        """Mark that the user was told what is recorded."""
        return self.path / "told"

    @property
    def program(self) -> Path:
        return self.path / "weftline"

    def create(self) -> None:
        """Create the folder for this user only."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(_PRIVATE_FOLDER)

    def write_program(self, variables: Mapping[str, str]) -> None:
        """Write how the script starts this Weftline, and on which data; variables of an agent's environment win.

        Agents often run without the environment in which Weftline is on the path.
        """
        self.create()
        lines = [f": ${{{name}:={shlex.quote(value)}}}; export {name}" for name, value in variables.items()]
        lines = ["#!/bin/sh", *lines, f'exec {shlex.quote(sys.executable)} -m weftline "$@"', ""]
        self.program.write_text("\n".join(lines), "utf-8")
        self.program.chmod(_PRIVATE_PROGRAM)
