"""What commands that need weftline[server] say without it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from weftline.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


class ServerNotInstalled(Unavailable):
    """The packages of weftline[server] are not installed, or in versions that it cannot use."""

    code = "SERVER_NOT_INSTALLED"
    hint = (
        "Run pip install 'weftline[server]'. Where another package needs an older mcp, install it into an environment "
        "of its own: programs reach the server with weftline alone."
    )


@contextmanager
def server_packages(command: str) -> Iterator[None]:
    """Import modules that need weftline[server]; without its packages, raise an error that names the command."""
    try:
        yield
    except ImportError as error:
        raise ServerNotInstalled(f"{command} needs weftline[server]: {error}.") from error
