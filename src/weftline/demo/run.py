"""Runs the demo: a server process, agents with keys, and the next steps to try."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from weftline.access.model import DEFAULT_TENANT, AgentExists
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.app.tenants import ADMIN
from weftline.demo.project import CHUNKING, DOMAIN, FINDER, FIXER, ORCHESTRATOR, documents
from weftline.demo.proxied import play_proxied
from weftline.demo.story import Cast, Played, play
from weftline.demo.week import play_week
from weftline.kernel.errors import SystemUnavailable
from weftline.knowledge.model import DomainExists
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator


# Output of the demo: who does what, in colour on a terminal.

_COLOURS = {"bold": "1", "dim": "2", "planner": "36", "analysis": "33", "remediation": "35", "user": "32"}
_WIDTH = 96
_ARGUMENT = 58
_NUMERIC = frozenset("0123456789.,-$%")


class Narrator:
    """Prints the story."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def chapter(self, title: str) -> None:
        self._print(f"\n{self._paint('bold', title)}")

    def aside(self, text: str) -> None:
        self._print(*(self._paint("dim", line) for line in textwrap.wrap(text, _WIDTH)), sep="\n")

    def says(self, who: str, text: str) -> None:
        wrapped = textwrap.wrap(text, _WIDTH - 14)
        for place, line in enumerate(wrapped):
            name = who if place == 0 else ""
            self._print(f"{self._paint(who, name.rjust(12))}  {line}")

    def does(self, who: str, action: str, arguments: Mapping[str, Any], result: str) -> None:
        given = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items() if name != "session_id")
        self._print(f"{self._paint(who, who.rjust(12))}  {action}({given})")
        self.result(result)

    def result(self, text: str) -> None:
        self._print(f"{'':>12}  {self._paint('dim', '→ ' + text)}")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows below their headings; columns of numbers are right-aligned."""
        columns = list(zip(*rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        sides = [">" if _NUMERIC.issuperset("".join(column[1:])) else "<" for column in columns]
        for place, row in enumerate(rows):
            cells = [f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)]
            line = "  ".join(cells).rstrip()
            self._print(f"{'':>4}{self._paint('bold', line) if not place else line}")

    def commands(self, lines: Sequence[str]) -> None:
        self._print(*(f"    {line}" for line in lines), sep="\n")

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{_COLOURS.get(style, '0')}m{text}\x1b[0m" if self._colour else text

    def _print(self, *lines: str, sep: str = " ") -> None:
        print(*lines, sep=sep, flush=True)  # noqa: T201 - the demo's whole point


def _short(value: object) -> str:
    """Return an argument shortened to fit a line."""
    if isinstance(value, str):
        return f'"{textwrap.shorten(value, _ARGUMENT, placeholder="…")}"'
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_short, value))}]"
    return str(value)


_AGENTS = (ORCHESTRATOR, FINDER, FIXER)
_PATIENCE_SECONDS = 60.0
_DAY_SECONDS = 86_400


def run(settings: Settings, *, stay: bool) -> None:
    """Play the demo on its own server, in a temporary folder or with ``stay`` in the configured one."""
    if stay:
        _play(settings, stay=True)
    else:
        with tempfile.TemporaryDirectory(prefix="weftline-demo-") as folder:
            _play(Settings(data_dir=folder, host=settings.host, port=settings.port), stay=False)


def _play(settings: Settings, *, stay: bool) -> None:
    narrator = Narrator()
    narrator.chapter("Weftline: a board that agents share, and prompts made of what matters")
    narrator.aside(
        "A real server on your machine, three real MCP clients with keys of their own. No model, no network."
    )
    keys, are_new = asyncio.run(_cast_agents(settings))
    # It defines the agents; those that exist are used by others, or have had that week.
    if stay and are_new:
        narrator.aside("So that the console has something to show, the week before is played first.")
        asyncio.run(play_week(settings))
    with _serving(settings) as url:
        played = asyncio.run(play(Cast(url, keys), narrator))
        _show_receipt(narrator, url, keys[played.agent], played.receipt_id)
        asyncio.run(play_proxied(settings, narrator))
        _show_next_steps(narrator, settings, url, played, stay=stay)
        if stay:
            _show_console(narrator, url, keys[ADMIN])
            _wait_for_interrupt()


@contextlib.contextmanager
def _serving(settings: Settings) -> Iterator[str]:
    """Run ``weftline serve`` in a subprocess during the demo."""
    url = settings.address()
    server = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "weftline", "serve", "--host", settings.host, "--port", str(settings.port)],
        # Ctrl-C is for the demo, which then stops its server; the story should not be interrupted by log lines.
        start_new_session=True,
        env={
            **os.environ,
            "WEFTLINE_LOG_LEVEL": "ERROR",
            "WEFTLINE_DATA_DIR": settings.data_dir,
            "WEFTLINE_DATABASE_URL": settings.storage_url,
        },
    )
    try:
        _wait_until_ready(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=_PATIENCE_SECONDS)


def _wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    # One client: each reads the certificate authorities.
    with httpx2.Client(timeout=2) as http:
        while time.monotonic() < deadline and server.poll() is None:
            with contextlib.suppress(httpx2.HTTPError):
                if http.get(f"{url}/ready").is_success:
                    return
            time.sleep(0.05)
    raise SystemUnavailable(f"The demo's server did not start at {url}.")


def _show_receipt(narrator: Narrator, url: str, key: str, receipt_id: str) -> None:
    """Run ``weftline receipt show``."""
    narrator.chapter("10 · The receipt of a prompt: what it has, what was left out and why")
    narrator.commands([f"$ weftline receipt show {receipt_id}", ""])
    _run_weftline(url, key, "receipt", "show", receipt_id)


def _show_console(narrator: Narrator, url: str, key: str) -> None:
    """Run ``weftline console``."""
    narrator.chapter(f"The console is at {url}/console; every page has something of this week to show.")
    _run_weftline(url, key, "console", "--no-open")
    narrator.aside("Ctrl-C stops the server; the data stays.")


def _run_weftline(url: str, key: str, *command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFTLINE_")}
    subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-m", "weftline", *command],
        env={**environment, "WEFTLINE_URL": url, "WEFTLINE_API_KEY": key},
        check=True,
    )


async def _cast_agents(settings: Settings) -> tuple[dict[str, str], bool]:
    """Create agents and documents unless they exist, and API keys that expire after a day.

    Returns the keys by principal, and whether all agents are new.
    """
    app = App(settings)
    await app.open()
    try:
        admin = CallContext(Local(DEFAULT_TENANT, ADMIN))
        await app.tenants.ensure_default()
        created = 0
        for name, parent in ((ORCHESTRATOR, None), (FINDER, ORCHESTRATOR), (FIXER, ORCHESTRATOR)):
            with contextlib.suppress(AgentExists):
                await app.call(app.registry["agent.create"], {"agent_id": name, "parent_id": parent}, admin)
                created += 1
        with contextlib.suppress(DomainExists):
            domain = {"domain": DOMAIN, "chunking": CHUNKING}
            await app.call(app.registry["knowledge.create_domain"], domain, admin)
        for name, text in documents().items():
            document = {"domain": DOMAIN, "document_id": name, "text": text}
            await app.call(app.registry["knowledge.add_document"], document, admin)
        return {name: await _new_key(app, admin, name) for name in (*_AGENTS, ADMIN)}, created == len(_AGENTS)
    finally:
        await app.close()


async def _new_key(app: App, admin: CallContext, name: str) -> str:
    made = await app.call(app.registry["key.create"], {"agent_id": name, "expires_in": _DAY_SECONDS}, admin)
    return str(getattr(made, "api_key"))  # noqa: B009 - the response of key.create


def _show_next_steps(narrator: Narrator, settings: Settings, url: str, played: Played, *, stay: bool) -> None:
    if not stay:
        narrator.aside("Play it again with `weftline demo --stay` to keep the server and look around.")
        return
    narrator.chapter(f"Weftline is running at {url} and keeps this session. In another terminal:")
    weftline, session_id = _weftline(settings), played.session_id
    narrator.commands(
        [
            f"{weftline} session list",
            f"{weftline} board list-keys --session {session_id}",
            f"{weftline} message list --session {session_id}",
            f"{weftline} board read-history findings_summary --session {session_id}",
            f"{weftline} events read --session {session_id} --after 0",
            f"{weftline} receipt list --session {session_id}",
            f"{weftline} receipt replay {played.receipt_id}",
            f"{weftline} receipt savings --by agent",
            f"{weftline} audit list --outcome denied",
            f"{weftline} key create admin    # a key for REST and MCP",
            f"{weftline} console            # look around in the browser, signed in",
        ]
    )


def _command() -> str:
    """Return the command that runs this Weftline from any folder."""
    installed = shutil.which("weftline", path=Path(sys.executable).parent)
    return shlex.quote(installed) if installed else f"{shlex.quote(sys.executable)} -m weftline"


def _weftline(settings: Settings) -> str:
    """Return the command for the demo's database that works in any folder, without a password."""
    url = settings.database_url
    if not url:
        return f"{_command()} --data-dir {shlex.quote(str(Path(settings.data_dir).expanduser().absolute()))}"
    if urlsplit(url).password:
        return f'WEFTLINE_DATABASE_URL="${{WEFTLINE_DATABASE_URL:?}}" {_command()}'
    return f"{_command()} --database-url {shlex.quote(url if '://' in url else str(Path(url).absolute()))}"


def _wait_for_interrupt() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
