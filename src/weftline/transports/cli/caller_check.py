"""Check of the credential that commands on a data folder would use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.app.authentication import Authenticator
from weftline.app.diagnostics import CheckStatus, Finding
from weftline.app.tenants import Tenants
from weftline.kernel.errors import WeftlineError, render_hint
from weftline.providers.jwt import JwtCodec
from weftline.storage.sql.database import connect
from weftline.transports.cli.errors import as_command

if TYPE_CHECKING:
    from weftline.app.authentication import Credential
    from weftline.kernel.clock import Clock
    from weftline.settings import Settings


async def check_caller(settings: Settings, credential: Credential, clock: Clock) -> Finding:
    """Check that a credential of the data folder is accepted, and say whose it is."""
    database = connect(settings.storage_url)
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
