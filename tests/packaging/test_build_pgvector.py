"""pgvector is built from source for a server whose included one does not run on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.pgvector import needs_pgvector  # noqa: F401 - puts scripts on the path

from build_pgvector import embedded_pg_config, find_source  # isort: skip

_SCRIPT = Path(__file__).parents[2] / "scripts" / "build_pgvector.py"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, _SCRIPT, *arguments], capture_output=True, text=True, check=False)


def test_a_missing_source_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    missing = tmp_path / "pgvector-9.9.9.tar.gz"
    done = _run("--source", str(missing))
    assert done.returncode == 1
    assert f"{missing} does not exist" in done.stderr
    assert "https://github.com/pgvector/pgvector/tags" in done.stderr


def test_the_included_server_can_be_built_for() -> None:
    pg_config = embedded_pg_config()
    assert pg_config is not None
    makefiles = subprocess.run([pg_config, "--pgxs"], capture_output=True, text=True, check=True).stdout.strip()
    assert Path(makefiles).exists()


@pytest.mark.skipif(
    "WEFTLINE_PGVECTOR_SOURCE" not in os.environ, reason="WEFTLINE_PGVECTOR_SOURCE names no source code"
)
def test_the_source_builds_for_the_included_server() -> None:
    assert find_source(None) is not None
    done = _run()
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip().rpartition(" ")[2]).name == "vector.so"
