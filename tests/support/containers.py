"""Reads the Dockerfile and performs its build steps without a container, in folders of a test.

Steps that fetch packages are replaced: what they would install is linked from this Python environment.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.installation import ROOT

DOCKERFILE, IGNORED = ROOT / "Dockerfile", ROOT / ".dockerignore"
# Compiling all modules takes seconds, and tests import few of them.
_NO_BYTECODE = {"PIP_NO_COMPILE": "1"}
_MOUNT = re.compile(r"--mount=\S+\s+")


class Step(NamedTuple):
    """An instruction of the Dockerfile, and the stage that it belongs to."""

    stage: str
    instruction: str
    value: str

    def command(self) -> str:
        """Return the shell command of a RUN step."""
        return _MOUNT.sub("", self.value)

    def arguments(self) -> list[str]:
        """Return the command in exec form."""
        command: list[str] = json.loads(self.value[self.value.index("[") :])
        return command


def steps() -> list[Step]:
    """Return the instructions in order; the last stage has an empty name."""
    text = "\n".join(line for line in DOCKERFILE.read_text("utf-8").splitlines() if not line.startswith("#"))
    found, stage = [], ""
    for line in filter(None, re.sub(r"\s*\\\n\s*", " ", text).splitlines()):
        instruction, _, value = line.partition(" ")
        if instruction == "FROM":
            stage = value.partition(" AS ")[2]
        found.append(Step(stage, instruction, value.strip()))
    return found


def in_stage(stage: str, instruction: str) -> list[Step]:
    return [step for step in steps() if (step.stage, step.instruction) == (stage, instruction)]


def context_files() -> Iterator[str]:
    """Yield the files of the repository that are sent to the builder."""
    *patterns, no_bytecode = IGNORED.read_text("utf-8").split()
    assert (patterns[0], no_bytecode) == ("*", "**/__pycache__")
    kept = [pattern.removeprefix("!") for pattern in patterns[1:]]
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().splitlines():
        if any(fnmatch.fnmatch(name, pattern) or name.startswith(f"{pattern}/") for pattern in kept):
            yield name


class Builder:
    """Performs steps in a folder that stands for the root of the image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = folder / "context"
        for name in context_files():
            (self.context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, self.context / name)

    def copy(self, step: Step) -> None:
        """Copy files of the context, as COPY does into the working folder of a stage."""
        *sources, target = step.value.split()
        for source in sources:
            origin, destination = self.context / source, self.working_folder(step.stage) / target
            if origin.is_dir():
                shutil.copytree(origin, destination)
            else:
                shutil.copyfile(origin, destination / origin.name)

    def run(self, command: str, stage: str, **variables: str) -> None:
        """Run the command of a RUN step, its paths below the folder."""
        below = re.sub(r"(?<![\w.])/(opt|dist)\b", rf"{self.folder}/\1", command)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        folder = self.working_folder(stage)
        subprocess.run(
            ["/bin/sh", "-ec", below], cwd=folder, check=True, env={"PATH": path, **_NO_BYTECODE, **variables}
        )

    def working_folder(self, stage: str) -> Path:
        folder = self.folder / f"stage-{stage}"
        folder.mkdir(exist_ok=True)
        return folder
