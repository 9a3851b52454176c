"""Where a command does its work: a server reached by its address, or the data folder itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weft.kernel.trace_context import correlated, is_traceparent
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weft.app.app import App
    from weft.app.authentication import Credential
    from weft.client import Client
    from weft.kernel.operation import Operation, Response
    from weft.kernel.trace_context import Ids
    from weft.open import Weft


@dataclass(frozen=True, slots=True)
class Target:
    """What the global options say."""

    url: str | None
    key: str | None
    data_dir: str | None
    database_url: str | None
    tenant: str
    principal: str | None
    turn: str | None = None
    task: str | None = None
    traceparent: str | None = None

    def settings(self, **overrides: Any) -> Settings:  # noqa: ANN401 - settings are of several types
        """Return the settings of this process; what a command itself was told goes first."""
        given = {"data_dir": self.data_dir, "database_url": self.database_url}
        given |= {name: value for name, value in overrides.items() if value is not None}
        if overrides.get("data_dir") is not None and overrides.get("database_url") is None:
            given["database_url"] = ""
        return Settings.from_environment(**given)

    def call(self, operation: Operation, raw: dict[str, Any]) -> Response:
        """Perform an operation there."""
        return asyncio.run(
            self._call_locally(operation, raw) if self.url is None else self._call_server(operation, raw)
        )

    @asynccontextmanager
    async def weft(self) -> AsyncIterator[Client | Weft]:
        """Open all there is to call: a client of the server, or Weft in this process."""
        if self.url is not None:
            from weft.client import Client  # noqa: PLC0415 - only those who ask a server pay for an HTTP client

            async with Client(self.url, api_key=self.key).during(**self.ids()) as client:
                yield client
            return
        from weft.open import Weft  # noqa: PLC0415 - help and completion need no database

        async with self._opened() as app:
            yield Weft(app, self._credential(), correlated(self.ids()))

    async def _call_server(self, operation: Operation, raw: dict[str, Any]) -> Response:
        from weft.client import Client  # noqa: PLC0415 - only those who ask a server pay for an HTTP client

        async with Client(self.url, api_key=self.key).during(**self.ids()) as client:
            response: Response = await client._caller.call(operation.name, raw, operation.response)  # noqa: SLF001
            return response

    async def _call_locally(self, operation: Operation, raw: dict[str, Any]) -> Response:
        from weft.app.dispatch import CallContext  # noqa: PLC0415 - help and completion need no database

        async with self._opened() as app:
            answer = await app.call(operation, raw, CallContext(self._credential(), correlation=correlated(self.ids())))
            # As a server would answer: parts that are only passed on come apart here.
            return msgspec.json.decode(msgspec.json.encode(answer), type=operation.response)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[App]:
        async with opened(self.settings()) as app:
            made = await app.tenants.ensure_default()
            if made is not None:
                click.echo(f"Made the tenant '{made.tenant}'. Its admin's API key, shown this once:", err=True)
                click.echo(made.admin_key, err=True)
            yield app

    def ids(self) -> Ids:
        """Return what the work is part of; a trace that cannot be read is left out."""
        trace = self.traceparent if self.traceparent and is_traceparent(self.traceparent) else None
        return {"turn_id": self.turn or None, "task_id": self.task or None, "traceparent": trace}

    def _credential(self) -> Credential:
        """Return who acts on the data folder: whoever was named, else the owner of the key, else its admin."""
        from weft.app.authentication import Local  # noqa: PLC0415 - help and completion need no database

        if self.principal is None and self.key:
            return self.key
        return Local(self.tenant, self.principal or "admin")


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[App]:
    """Run Weft inside this process for as long as the block lasts."""
    from weft.app.app import App  # noqa: PLC0415 - help and completion need no database

    app = App(settings)
    try:
        await app.open()
        yield app
    finally:
        await app.close()
