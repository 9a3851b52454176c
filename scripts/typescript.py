"""Builds the TypeScript client and tests it against a real server: make typescript, and a part of make conformance.

Needs node, see node_js.py, and the package registry for the first time. What ships is tested as users get it: packed,
unpacked into an empty project, type-checked there, and run with the examples of the guide. Bun and Deno, where they are
installed, run the tests of the client too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from node_js import Node, find_node

from weftline.kernel.operation import RateClass
from weftline.testing.server import server_process

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "clients" / "typescript"
GUIDE = ROOT / "docs" / "guides" / "use-typescript.md"
LIMITED = RateClass.AUTHENTICATION
_TSC = "node_modules/typescript/bin/tsc"
_EXAMPLE = re.compile(r"^```ts\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CLIENT_TESTS = "test/client.test.mjs"
_OTHERS = {
    "bun": ["bun", "test", "--timeout", "300000", f"./{_CLIENT_TESTS}"],
    "deno": ["deno", "test", "--no-check", "--allow-all", _CLIENT_TESTS],
}
# Strict, without a browser's types, and with the declaration files themselves checked.
_CONSUMER = {
    "compilerOptions": {
        "target": "es2022",
        "lib": ["es2023"],
        "module": "nodenext",
        "types": ["node"],
        "strict": True,
        "skipLibCheck": False,
    },
    "files": ["guide.ts"],
}


def main() -> int:
    node = find_node()
    if isinstance(node, str):
        print(f"The TypeScript client is skipped. {node}")
        return 0
    return 0 if test_client(node) else 1


def test_client(node: Node) -> bool:
    """Build the client, run its tests and the guide; print what was run, and return whether all of it passed."""
    install(node)
    shutil.rmtree(PACKAGE / "dist", ignore_errors=True)
    if not run([node.node, _TSC]):
        return False
    # The embedding model takes a minute to load, and words are enough for what the tests search.
    # One class of calls has a limit that a test exceeds.
    rates = " ".join(f"{name}={'2/second' if name == LIMITED else 'off'}" for name in RateClass)
    settings = {"rate_limits": rates, "semantic_search": "off", "log_level": "WARNING"}
    with tempfile.TemporaryDirectory() as folder, server_process(Path(folder), **settings) as server:
        environment = {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": server.admin_key}
        tests = sorted(str(path.relative_to(PACKAGE)) for path in (PACKAGE / "test").glob("*.test.mjs"))
        results = {"node": run([node.node, "--test", "--test-reporter=spec", *tests], environment)}
        results |= {
            name: run(command, environment) for name, command in _OTHERS.items() if shutil.which(name) is not None
        }
        project = Path(folder) / "project"
        consumer(node, project)
        checked = run([node.node, str(PACKAGE / _TSC), "--project", str(project)])
        results["guide"] = checked and run([node.node, str(project / "guide.js")], environment)
    print(sizes())
    for name in _OTHERS.keys() - results.keys():
        print(f"{name}: not installed, skipped")
    print(", ".join(f"{name}: {'passed' if good else 'FAILED'}" for name, good in results.items()))
    return all(results.values())


def install(node: Node) -> None:
    """Install the pinned packages unless they are present."""
    lock, installed = PACKAGE / "package-lock.json", PACKAGE / "node_modules" / "installed.json"
    if installed.exists() and installed.read_bytes() == lock.read_bytes():
        return
    print("Installing what builds and tests the TypeScript client ...", flush=True)
    done = subprocess.run([*node.npm, "ci"], cwd=PACKAGE, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"npm ci failed:\n{done.stdout}{done.stderr}")
    shutil.copy(lock, installed)


def consumer(node: Node, project: Path) -> None:
    """Make a project that has the packed client, and the examples of the guide as a program."""
    modules = project / "node_modules"
    modules.mkdir(parents=True)
    packed = subprocess.run(
        [*node.npm, "pack", "--json", "--pack-destination", str(project)],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        check=True,
    )
    (archive,) = project.glob("*.tgz")
    print(f"packed: {len(json.loads(packed.stdout)[0]['files'])} files, {archive.stat().st_size / 1024:.0f} KiB")
    with tarfile.open(archive) as content:
        content.extractall(project, filter="data")
    (project / "package").rename(modules / "weftline")
    for types in ("@types", "undici-types"):
        (modules / types).symlink_to(PACKAGE / "node_modules" / types)
    (project / "package.json").write_text(json.dumps({"type": "module"}))
    (project / "tsconfig.json").write_text(json.dumps(_CONSUMER))
    (project / "guide.ts").write_text("\n".join(_EXAMPLE.findall(GUIDE.read_text("utf-8"))), "utf-8")


def run(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Run a command of the package; its output is shown."""
    print(f"$ {' '.join(Path(word).name if word.startswith('/') else word for word in command)}", flush=True)
    return subprocess.run(command, cwd=PACKAGE, env={**os.environ, **(environment or {})}, check=False).returncode == 0


def sizes() -> str:
    """Say how large the modules are that a program loads, and how many lines are written by hand."""
    loaded = sum(
        (PACKAGE / "dist" / f"{name}.js").stat().st_size for name in ("index", "client", "errors", "http", "generated")
    )
    lines = {path.name: len(path.read_text("utf-8").splitlines()) for path in sorted((PACKAGE / "src").glob("*.ts"))}
    return (
        f"loaded: {loaded / 1024:.0f} KiB of JavaScript; lines: {', '.join(f'{name} {n}' for name, n in lines.items())}"
    )


if __name__ == "__main__":
    sys.exit(main())
