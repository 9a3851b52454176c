"""Builds the wheel and installs it into environments that hold nothing but what its metadata asks for.

No network: the dependencies are links to those of this Python environment.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


class Wheel(NamedTuple):
    """A built wheel: its file, the names of its files, and what it requires."""

    path: Path
    names: frozenset[str]
    requirements: list[Requirement]

    def required(self, extras: Collection[str] = ()) -> set[str]:
        """Return the names of the distributions that it asks for with these extras."""
        return {canonicalize_name(each.name) for each in _applying(self.requirements, extras)}


class Installation(NamedTuple):
    """A virtual environment, and the distributions in it besides Weftline."""

    folder: Path
    distributions: frozenset[str]

    @property
    def site_packages(self) -> Path:
        return next((self.folder / "lib").glob("python*")) / "site-packages"

    def environment(self, data: Path, **variables: str) -> dict[str, str]:
        """Return the variables of a process that knows nothing of the source tree."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return {"PATH": path, "HOME": str(data), "WEFTLINE_DATA_DIR": str(data), **variables}

    def run(self, data: Path, *command: str) -> str:
        """Return the output of a command of the environment."""
        return subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            cwd=data,
            env=self.environment(data),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        ).stdout


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def read_wheel(folder: Path) -> Wheel:
    """Read the only wheel in a folder."""
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = frozenset(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    lines = metadata.partition("\n\n")[0].splitlines()
    required = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return Wheel(path, names, [Requirement(line) for line in required])


def link_required(environment: Path, requirements: Sequence[Requirement], extras: Collection[str]) -> Installation:
    """Link what is required, directly or not, into an environment."""
    needed = {canonicalize_name(each.name): each for each in _closure(requirements, extras)}
    installation = Installation(environment, frozenset(needed))
    for each in needed.values():
        _link(each, installation.site_packages)
    return installation


def install(wheel: Wheel, environment: Path, extras: Collection[str] = ()) -> Installation:
    """Install the wheel with pip, and what it asks for with these extras, into a new environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    installation = link_required(environment, wheel.requirements, extras)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(environment)]
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "install", *options, str(wheel.path)], check=True)
    return installation


def _closure(requirements: Sequence[Requirement], extras: Collection[str]) -> Iterator[Distribution]:
    """Yield the distributions that are required, directly or not; each may come more than once."""
    pending, seen = list(_applying(requirements, extras)), set()
    while pending:
        requirement = pending.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        found = distribution(requirement.name)
        assert requirement.specifier.contains(found.version, prereleases=True), requirement
        yield found
        pending += _applying([Requirement(line) for line in found.requires or ()], requirement.extras)


def _applying(requirements: Sequence[Requirement], extras: Collection[str]) -> list[Requirement]:
    """Return the requirements whose markers hold with these extras."""
    return [
        each
        for each in requirements
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def _link(installed: Distribution, site_packages: Path) -> None:
    """Link the files and folders of a distribution."""
    names = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
    for name in names:
        target = site_packages / name
        if not target.exists():
            target.symlink_to(Path(str(installed.locate_file(name))))
