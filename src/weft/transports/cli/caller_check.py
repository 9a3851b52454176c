"""Check of the credential that commands on a data folder would use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.app.authentication import Authenticator
from weft.app.diagnostics import CheckStatus, Finding
from weft.app.tenants import Tenants
from weft.kernel.errors import WeftError, render_hint
from weft.providers.jwt import JwtCodec
from weft.storage.sql.database import connect
from weft.transports.cli.errors import as_command

if TYPE_CHECKING:
    from weft.app.authentication import Credential
    from weft.kernel.clock import Clock
    from weft.settings import Settings


async def check_caller(settings: Settings, credential: Credential, clock: Clock) -> Finding:
    """Check that a credential of the data folder is accepted, and say whose it is."""
    database = connect(settings.storage_url)
    try:
        await database.open()
        if not await Tenants(database, clock).names():
            return Finding("Caller", CheckStatus.OK, "there is no tenant yet; the first command makes one")
        actor = await Authenticator(database, JwtCodec(), clock).identify(credential)
    except WeftError as error:
        return Finding("Caller", CheckStatus.PROBLEM, error.message, render_hint(error.hint_template, as_command))
    finally:
        await database.close()
    return Finding("Caller", CheckStatus.OK, f"{actor.principal_id}, in the tenant {actor.tenant}")
