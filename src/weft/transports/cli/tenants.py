"""Making and listing tenants: for whoever holds the data folder or the database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from weft.kernel.operation import Response
from weft.transports.cli.commands import JSON, Group
from weft.transports.cli.render import show
from weft.transports.cli.target import opened

if TYPE_CHECKING:
    from weft.app.tenants import NewTenant
    from weft.transports.cli.target import Target


class TenantMade(Response):
    """A new tenant with its admin's API key."""

    tenant: str
    admin_key: str


class TenantNames(Response):
    """The tenants there are."""

    tenants: list[str]


@click.group(cls=Group, no_args_is_help=True)
def tenant() -> None:
    """Make and list tenants.

    A tenant is a wall: nothing in it can be seen from another. These commands work on the data folder or database.
    """


@tenant.command("create", params=[JSON])
@click.argument("name", help="Letters, digits, underscores and dashes.")
@click.pass_obj
def create(target: Target, name: str, *, as_json: bool) -> None:
    """Make a tenant with an admin, whose API key is shown this once."""

    async def make() -> NewTenant:
        async with opened(target.settings()) as app:
            return await app.tenants.create(name)

    made = asyncio.run(make())
    show(TenantMade(tenant=made.tenant, admin_key=made.admin_key), as_json=as_json)


@tenant.command("list", params=[JSON])
@click.pass_obj
def list_tenants(target: Target, *, as_json: bool) -> None:
    """List the tenants there are."""

    async def names() -> list[str]:
        async with opened(target.settings()) as app:
            return await app.tenants.names()

    show(TenantNames(tenants=asyncio.run(names())), as_json=as_json)
