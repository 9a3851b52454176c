"""Target of a command: a server, or the data folder in this process."""

from __future__ import annotations

import asyncio
import os
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weftline.kernel.correlation import is_traceparent, make_correlation
from weftline.kernel.errors import NotFound
from weftline.kernel.guards import CallWarning, collected_warnings
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from weftline.app.app import App
    from weftline.app.authentication import Credential
    from weftline.client._client import Client
    from weftline.kernel.correlation import CorrelationIds
    from weftline.kernel.operation import Operation, Response
    from weftline.open import Weftline

# Operations that search: on a data folder without a server, searching is what keeps the index fresh.
_NEEDS_JOBS = frozenset(
    {"search.query", "search.get_context", "search.find_similar", "entity.list", "context.assemble"}
)
# A single command has to start the indexer first.
_INDEX_WAIT_MS = 5_000


class InstallationNotFound(NotFound):
    """The data folder or database that a command would read has no Weftline data."""

    code = "INSTALLATION_NOT_FOUND"
    hint = (
        "Nothing was created. Check --data-dir, --database-url and their variables. "
        "For a new installation, begin with `session.create`."
    )


async def create_default_tenant(app: App) -> None:
    """Create the default tenant in a database without any, and show the key of its admin."""
    created = await app.tenants.ensure_default()
    if created is not None:
        click.echo(f"Created the tenant '{created.tenant}'. API key of its admin, shown only once:", err=True)
        click.echo(created.admin_key, err=True)


def _only_reads(operation: Operation) -> bool:
    if operation.effect is Effect.OWN_TRANSACTIONS:
        return operation.permission in {None, Permission.READ}
    return operation.effect is not Effect.WRITE


@dataclass(frozen=True, slots=True)
class Target:
    """Values of the global options."""

    url: str | None
    key: str | None
    data_dir: str | None
    database_url: str | None
    tenant: str
    principal: str | None
    turn: str | None = None
    task: str | None = None
    traceparent: str | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str | None]) -> Target:
        return cls(
            url=options["url"] or None,
            key=options["key"] or None,
            data_dir=options["data_dir"],
            database_url=options["database_url"],
            tenant=options["tenant"] or "default",
            principal=options["principal"],
            turn=options["turn"],
            task=options["task"],
            traceparent=os.environ.get("TRACEPARENT"),
        )

    @property
    def place(self) -> str:
        """Name the server or the database that commands work on."""
        if self.url is not None:
            return f"the server {self.url}"
        settings = self.settings()
        if "://" in settings.database_url:
            # Not named: the URL may hold a password.
            return "the PostgreSQL database"
        return (
            f"the database {settings.database_url}" if settings.database_url else f"the data folder {settings.data_dir}"
        )

    def settings(self, **overrides: Any) -> Settings:  # noqa: ANN401 - settings are of several types
        """Return the settings of this process; overrides of the command take precedence."""
        given = {"data_dir": self.data_dir, "database_url": self.database_url}
        given |= {name: value for name, value in overrides.items() if value is not None}
        if overrides.get("data_dir") is not None and overrides.get("database_url") is None:
            given["database_url"] = ""
        return Settings.from_environment(**given)

    def call(self, operation: Operation, raw: dict[str, Any]) -> Response:
        """Call an operation on the target."""
        return asyncio.run(
            self._call_locally(operation, raw) if self.url is None else self._call_server(operation, raw)
        )

    @asynccontextmanager
    async def weftline(self, *, background: bool = False, reads: bool = False) -> AsyncIterator[Client | Weftline]:
        """Open a client of the server, or Weftline in this process, with its background jobs if ``background``.

        A command that only ``reads`` needs an installation that is there.
        """
        if self.url is not None:
            from weftline.client._client import Client  # noqa: PLC0415 - only a server needs an HTTP client

            async with Client(self.url, api_key=self.key).with_correlation(**self.ids()) as client:
                yield client
            return
        from weftline.open import Weftline  # noqa: PLC0415 - help and completion need no database

        async with self._opened(background=background, reads=reads) as app:
            yield Weftline(app, self.credential, make_correlation(self.ids()))

    async def _call_server(self, operation: Operation, raw: dict[str, Any]) -> Response:
        from weftline.client._client import Client  # noqa: PLC0415 - only a server needs an HTTP client

        async with Client(self.url, api_key=self.key).with_correlation(**self.ids()) as client:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                response: Response = await client._caller.call(operation.name, raw)  # noqa: SLF001
            _show_warnings(str(each.message) for each in found if each.category is CallWarning)
            return response

    async def _call_locally(self, operation: Operation, raw: dict[str, Any]) -> Response:
        from weftline.app.dispatch import CallContext  # noqa: PLC0415 - help and completion need no database

        needs_jobs = operation.name in _NEEDS_JOBS
        async with self._opened(background=needs_jobs, reads=_only_reads(operation)) as app:
            context = CallContext(self.credential, correlation=make_correlation(self.ids()))
            if needs_jobs:
                # Commands that wrote before it, as whichever principal, indexed nothing.
                await app.index_wait.until_all_indexed((await app.identify(context)).tenant)
            with collected_warnings() as found:
                answer = await app.call(operation, raw, context)
            _show_warnings(found)
            # Decoded like the answer of a server, so that both print alike.
            return msgspec.json.decode(msgspec.json.encode(answer), type=operation.response)

    @asynccontextmanager
    async def _opened(self, *, background: bool, reads: bool) -> AsyncIterator[App]:
        # Rate limits protect a server, and so does a short wait for the index; here the caller holds the database.
        settings = self.settings()
        if reads:
            self.check_installed()
        # Without jobs nothing would be indexed, however long it waited.
        wait = max(settings.search_wait_ms, _INDEX_WAIT_MS) if settings.search_wait_ms and background else 0
        async with opened(replace(settings, rate_limits="off", search_wait_ms=wait), background=background) as app:
            if reads and not await app.tenants.names():
                raise InstallationNotFound(f"There is no Weftline data in {self.place}.")
            await create_default_tenant(app)
            yield app

    def check_installed(self) -> None:
        """Raise InstallationNotFound if there is no database file; whether PostgreSQL has data shows later."""
        url = self.settings().storage_url
        if "://" not in url and not Path(url).expanduser().exists():
            raise InstallationNotFound(f"There is no Weftline data in {self.place}.")

    def ids(self) -> CorrelationIds:
        """Return the correlation ids; an invalid traceparent is ignored."""
        trace = self.traceparent if self.traceparent and is_traceparent(self.traceparent) else None
        return {"turn_id": self.turn or None, "task_id": self.task or None, "traceparent": trace}

    @property
    def credential(self) -> Credential:
        """Return the caller on the data folder: the named principal, else the owner of the key, else the admin."""
        from weftline.app.authentication import Local  # noqa: PLC0415 - help and completion need no database

        if self.principal is None and self.key:
            return self.key
        return Local(self.tenant, self.principal or "admin", by_owner=True)


def _show_warnings(texts: Iterable[str]) -> None:
    for text in texts:
        click.echo(f"Warning: {text}", err=True)


@asynccontextmanager
async def opened(settings: Settings, *, background: bool = False) -> AsyncIterator[App]:
    """Run Weftline in this process, without background jobs unless ``background``."""
    from weftline.app.app import App  # noqa: PLC0415 - help and completion need no database

    app = App(settings)
    try:
        await app.open(background=background)
        yield app
    finally:
        await app.close()
