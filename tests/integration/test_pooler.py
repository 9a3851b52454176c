"""PostgreSQL behind PgBouncer in transaction mode, where each transaction may be on another server connection."""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from support.databases import new_postgres_database
from weftline import Weftline

if TYPE_CHECKING:
    from collections.abc import Iterator

_PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")

pytestmark = pytest.mark.skipif(_PGBOUNCER is None, reason="PgBouncer is not installed (apt install pgbouncer)")


@contextmanager
def _pooler(url: str, folder: Path) -> Iterator[str]:
    """Start PgBouncer with two server connections, fewer than Weftline opens, and yield the address through it."""
    parts = urlsplit(url)
    name = parts.path.strip("/")
    host = parse_qs(parts.query).get("host", [parts.hostname or ""])[0]
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    server = f"host={host} port={parts.port or 5432} user={parts.username} pool_size=2"
    (folder / "users.txt").write_text(f'"{parts.username}" "{parts.password or ""}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"pool_mode = transaction\nauth_type = trust\nauth_file = {folder}/users.txt\nunix_socket_dir =\n"
        "max_client_conn = 100\nignore_startup_parameters = extra_float_digits\n"
    )
    as_user = []
    if os.geteuid() == 0:
        # PgBouncer does not run as root, and PostgreSQL's socket is its owner's.
        user = Path(host).stat().st_uid if host.startswith("/") else pwd.getpwnam("nobody").pw_uid
        for path in (folder, *folder.iterdir()):
            os.chown(path, user, -1)
        for path in folder.parents:
            if path.stat().st_uid == 0 and str(path) != "/tmp":
                path.chmod(path.stat().st_mode | 0o011)
        as_user = ["setpriv", f"--reuid={user}", "--clear-groups"]
    command = [*as_user, str(_PGBOUNCER), str(folder / "pgbouncer.ini")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            asyncio.run(asyncio.sleep(0.1))
        yield f"postgresql://{parts.username}@127.0.0.1:{port}/{name}"
    finally:
        process.terminate()
        process.wait()


def test_agents_work_through_a_pooler_in_transaction_mode(postgres: str, tmp_path: Path) -> None:
    direct = asyncio.run(new_postgres_database(postgres, f"pooled_{secrets.token_hex(3)}"))
    with _pooler(direct, tmp_path) as pooled:
        asyncio.run(_work(pooled, direct, tmp_path / "data"))


async def _work(pooled: str, direct: str, data: Path) -> None:
    async with Weftline.open(pooled, database_direct_url=direct, data_dir=str(data)) as weftline:
        await weftline.session.create("try it", session_id="s", members=["*"])

        async def write(number: int) -> None:
            await weftline.board.write("s", f"key_{number}", {"number": number})
            await weftline.message.add("s", f"the parcel {number} is late")
            await weftline.board.read("s", f"key_{number}")

        # More calls at a time than the pooler has connections.
        await asyncio.gather(*[write(number) for number in range(40)])
        found = await weftline.message.search("s", "parcel")
        assert found.results
        assert len((await weftline.board.list_keys("s")).keys) == 40
