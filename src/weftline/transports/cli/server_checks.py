"""Checks of the server that commands would call: does it answer, with which version, and does it accept the key."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

from weftline.app.authentication import Authenticator
from weftline.app.diagnostics import CheckStatus, Finding
from weftline.app.tenants import Tenants
from weftline.client._client import Client
from weftline.client._wire import Address
from weftline.kernel.errors import AuthenticationError, WeftlineError, render_hint
from weftline.providers.jwt import JwtCodec
from weftline.storage.sql.database import connect
from weftline.transports.cli.errors import as_command

if TYPE_CHECKING:
    from weftline.app.authentication import Credential
    from weftline.kernel.clock import Clock
    from weftline.settings import Settings
    from weftline.transports.cli.target import Target


_TIMEOUT_SECONDS = 5.0
_POLL_SECONDS = 0.1
# Tokens are valid for minutes: a difference like this one matters.
_CLOCK_SECONDS = 60.0


async def wait_until_ready(target: Target, seconds: float) -> None:
    """Wait until the server accepts calls; return early if another program answers, or after this many seconds."""
    address = Address.resolve(target.url, target.key)
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(base_url=address.url, verify=address.secure, trust_env=not address.loopback) as http,
        ):
            while True:
                with suppress(httpx2.RequestError):
                    if (await http.get("/ready")).status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                        return
                await asyncio.sleep(_POLL_SECONDS)


async def examine_server(target: Target) -> list[Finding]:
    """Check the server, and if it answers, the clock and the key."""
    try:
        address = Address.resolve(target.url, target.key)
    except WeftlineError as error:
        return [Finding("Server", CheckStatus.PROBLEM, error.message, render_hint(error.hint_template, as_command))]
    async with httpx2.AsyncClient(
        base_url=address.url, timeout=_TIMEOUT_SECONDS, verify=address.secure, trust_env=not address.loopback
    ) as http:
        try:
            health, ready = await http.get("/health"), await http.get("/ready")
        except httpx2.RequestError as error:
            step = "Start it with weftline serve there, or correct --url or WEFTLINE_URL."
            detail = f"{address.url} cannot be reached{f' ({error})' if str(error) else ''}"
            return [Finding("Server", CheckStatus.PROBLEM, detail, step)]
    found = _check_version(address.url, health)
    if found.state is CheckStatus.PROBLEM:
        return [found]
    return [found, _check_ready(ready), *_check_clock(health), await _check_key(target)]


def _check_version(url: str, health: httpx2.Response) -> Finding:
    try:
        answer: Any = msgspec.json.decode(health.content)
    except msgspec.DecodeError:
        answer = None
    if not isinstance(answer, dict) or answer.get("status") != "ok":
        step = "Correct --url or WEFTLINE_URL: it is the address that weftline serve prints."
        return Finding("Server", CheckStatus.PROBLEM, f"another program answers at {url}", step)
    running = str(answer.get("version", ""))
    if running == version("weftline"):
        return Finding("Server", CheckStatus.OK, f"Weftline {running} answers at {url}")
    step = "Install the same version here and there."
    return Finding(
        "Server", CheckStatus.WARNING, f"Weftline {running} answers at {url}, not {version('weftline')}", step
    )


def _check_ready(ready: httpx2.Response) -> Finding:
    if ready.is_success:
        return Finding("Ready", CheckStatus.OK, "it accepts calls")
    step = "Run weftline doctor where the server runs: it checks the database."
    return Finding("Ready", CheckStatus.PROBLEM, "it does not accept calls now", step)


def _check_clock(health: httpx2.Response) -> list[Finding]:
    try:
        theirs = parsedate_to_datetime(health.headers.get("date", ""))
    except ValueError:
        return []
    seconds = abs((datetime.now(UTC) - theirs).total_seconds())
    if seconds <= _CLOCK_SECONDS:
        return [Finding("Clock", CheckStatus.OK, "agrees with the server")]
    step = "Set both clocks, best by NTP: times that you pass mean something else to the server."
    return [Finding("Clock", CheckStatus.WARNING, f"differs from the server by {seconds:.0f} seconds", step)]


async def _check_key(target: Target) -> Finding:
    step = "Set WEFTLINE_API_KEY to an API key or token of this server, or give a file with --key @FILE."
    if not target.key:
        return Finding("Key", CheckStatus.PROBLEM, "none is given", step)
    async with Client(target.url, api_key=target.key, timeout_seconds=_TIMEOUT_SECONDS, retries=0) as client:
        try:
            caller = await client.agent.capabilities()
        except AuthenticationError as error:
            return Finding("Key", CheckStatus.PROBLEM, error.message, step)
        except WeftlineError as error:
            return Finding("Key", CheckStatus.PROBLEM, error.message, render_hint(error.hint_template, as_command))
    return Finding("Key", CheckStatus.OK, f"of {caller.agent_id}: {', '.join(caller.permissions)}")


# Check of the credential that commands on a data folder would use.


async def check_caller(settings: Settings, credential: Credential, clock: Clock) -> Finding:
    """Check that a credential of the data folder is accepted, and say whose it is."""
    database = connect(settings.storage_url, settings.database_direct_url)
    try:
        await database.open()
        if not await Tenants(database, clock).names():
            return Finding("Caller", CheckStatus.OK, "there is no tenant yet; the first command makes one")
        actor = await Authenticator(database, JwtCodec(), clock).identify(credential)
    except WeftlineError as error:
        return Finding("Caller", CheckStatus.PROBLEM, error.message, render_hint(error.hint_template, as_command))
    finally:
        await database.close()
    return Finding("Caller", CheckStatus.OK, f"{actor.principal_id}, in the tenant {actor.tenant}")
