"""Python programs and ``weftline`` commands, forked from one process that has already imported Weftline.

Importing Weftline takes longer than most of these programs run. ``folder()`` holds two small executables, ``python``
and ``weftline``: each sends its arguments, environment and standard streams to the fork server and exits with the
status of the forked process. Run as ``forked_python.py ADDRESS``, this file is the fork server.

The fork server ends when its standard input does, so also when the tests are killed; with it end all forked processes.
"""

from __future__ import annotations

import atexit
import gc
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.testing.server import ServerProcess

_PRELOADED = (
    "anyio._backends._asyncio",
    "httpx2",
    "uvicorn.lifespan.on",
    "uvloop",
    "weftline.app.app",
    "weftline.client._client",
    "weftline.providers.injection.local",
    "weftline.storage.sql.dialects.sqlite",
    "weftline.transports.cli.events",
    "weftline.transports.cli.generated",
    "weftline.transports.cli.main",
    "weftline.transports.cli.render",
    "weftline.transports.cli.target",
    "weftline.transports.server",
    "weftline.transports.stdio",
)
# The forked process is no child of this one: it sends its process id first, to which signals are forwarded.
# Only modules that are part of the interpreter are imported: importing json and socket takes longer than all the rest.
_SHIM = """#!{python} -IS
import _signal, _socket, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
request = marshal.dumps([sys.argv, os.getcwd(), dict(os.environ)])
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([len(request).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(request)
pid = int.from_bytes(server.recv(4, _socket.MSG_WAITALL), "big")
for number in (_signal.SIGTERM, _signal.SIGINT):
    _signal.signal(number, lambda number, frame: os.kill(pid, number))
sys.exit(int.from_bytes(server.recv(1) or bytes([1]), "big"))
"""


# What the fork server has loaded: a model is released when nothing refers to it.
_models: list[Any] = []


@cache
def folder() -> Path:
    """Return a folder with ``python`` and ``weftline``; the fork server lives as long as this process."""
    path = Path(tempfile.mkdtemp(prefix="weftline-forked-"))
    address = str(path / "socket")
    for name in ("python", "weftline"):
        shim = path / name
        shim.write_text(_SHIM.format(python=sys.executable, address=address))
        shim.chmod(0o755)
    # Threads of numpy do not survive a fork.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, __file__, address], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(_stop, server, path)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return path


def _stop(server: subprocess.Popen[bytes], path: Path) -> None:
    with server:
        server.kill()
    shutil.rmtree(path, ignore_errors=True)


def python() -> str:
    """Return the interpreter to start instead of ``sys.executable``: takes ``-c``, ``-m weftline`` or a script."""
    return str(folder() / "python")


def share_tls_context() -> None:
    """Read the certificate authorities once: each HTTP client would read them, also those that connect without TLS."""
    transports = import_module("httpx2._transports.default")
    transports.create_ssl_context = cache(transports.create_ssl_context)
    transports.create_ssl_context(verify=True, cert=None, trust_env=True)


@contextmanager
def server_process(data: Path, **settings: Any) -> Iterator[ServerProcess]:
    """Run a forked server on a data folder; keyword arguments are settings."""
    from weftline.testing import server  # noqa: PLC0415 - the fork server imports Weftline only once it may

    with server.server_process(data, python=python(), **settings) as running:
        yield running


def _serve(address: str) -> None:
    _warm_up()
    # No zombies: the shims wait for the forked processes, this process does not.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Forked processes get EOF on the read end when this process, the only holder of the write end, has ended.
    alive, held = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        os.write(1, b"ready\n")
        while _is_called(listener):
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                os.close(held)
                code = _run(client, alive)
                client.sendall(bytes([code]))
                os._exit(code)
            client.close()
    shutil.rmtree(Path(address).parent, ignore_errors=True)


def _is_called(listener: socket.socket) -> bool:
    """Wait for a call; return False when the tests have ended."""
    ready, _, _ = select.select([listener, sys.stdin], [], [])
    return sys.stdin not in ready


def _warm_up() -> None:
    """Import and load everything, and derive what each server would derive from the operations."""
    for name in _PRELOADED:
        import_module(name)
    share_tls_context()
    import_module("weftline.providers.injection.local").load_included().detect("text", data=True)
    _models.append(import_module("weftline.providers.embedders.minilm").load_installed())
    standalone = import_module("weftline.kernel.schema").standalone
    # The registry imports the operations only when it is read.
    for operation in import_module("weftline.app.registry").all_operations():
        standalone(operation.request)
        standalone(operation.response)
    gc.freeze()


def _run(client: socket.socket, alive: int) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(client, 4, 3)
    arguments, working_folder, environment = marshal.loads(client.recv(int.from_bytes(size), socket.MSG_WAITALL))
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(working_folder)
    os.environ.clear()
    os.environ.update(environment)
    client.sendall(os.getpid().to_bytes(4))
    threading.Thread(target=_die_with_caller, args=(client, alive), daemon=True).start()
    try:
        _start(*arguments)
    except SystemExit as exit_:
        if isinstance(exit_.code, str):
            sys.stderr.write(exit_.code + "\n")
        return exit_.code if isinstance(exit_.code, int) else bool(exit_.code)
    except BaseException:  # noqa: BLE001 - as an interpreter does it
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _die_with_caller(client: socket.socket, alive: int) -> None:
    """Kill this process when its shim is killed, or the fork server."""
    select.select([client, alive], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


def _start(command: str, *arguments: str) -> None:
    if Path(command).name == "weftline":
        arguments = ("-m", "weftline", *arguments)
    option, *rest = arguments
    if option == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        exec(rest[0], {"__name__": "__main__"})
    elif option == "-m":
        assert rest[0] == "weftline"
        sys.argv[:] = rest
        if "demo" in rest:
            # The demo starts a server and commands with this interpreter.
            sys.executable = str(Path(command).with_name("python"))
        import_module("weftline.transports.cli.main").main()
    else:
        sys.argv[:] = [option, *rest]
        sys.path.insert(0, str(Path(option).resolve().parent))
        runpy.run_path(option, run_name="__main__")


if __name__ == "__main__":
    # The folder of this file, tests/support, must not be searched for modules.
    sys.path.pop(0)
    _serve(sys.argv[1])
