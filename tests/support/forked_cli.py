"""The ``weft`` command, forked from a process that has already imported Weft.

Run as: forked_cli.py ADDRESS; it serves commands at this socket until it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from weft.transports.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What most commands import once they know what to do.
_IMPORTED_BY_COMMANDS = ("weft.app.app", "weft.client", "weft.storage.sql.dialects.sqlite")
# Hands what it was given, where it is and what it reads and writes to the process that imported Weft.
_COMMAND = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    given = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(given).to_bytes(4)], [0, 1, 2])
    server.sendall(given)
    sys.exit(int.from_bytes(server.recv(1) or bytes([1])))
"""


@contextmanager
def forked_cli(folder: Path) -> Iterator[Path]:
    """Yield a folder to be searched for commands first, with ``weft`` in it."""
    address, command = str(folder / "socket"), folder / "weft"
    command.write_text(_COMMAND.format(python=sys.executable, address=address))
    command.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        try:
            yield folder
        finally:
            server.kill()


def serve(address: str) -> None:
    for name in _IMPORTED_BY_COMMANDS:
        import_module(name)
    # Nobody waits for them but those who asked.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b"ready\n")
        while True:
            asking, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                code = _run(asking)
                asking.sendall(bytes([code]))
                os._exit(code)
            asking.close()


def _run(asking: socket.socket) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(asking, 4, 3)
    arguments, folder, environment = json.loads(asking.recv(int.from_bytes(size), socket.MSG_WAITALL))
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = arguments
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else bool(ended.code)
    except BaseException:  # noqa: BLE001 - as an interpreter does it
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
