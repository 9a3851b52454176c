"""Making and listing tenants, and what each may have: for whoever holds the data folder or the database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from weft.capabilities.knowledge.quotas import PLANS
from weft.kernel.operation import Response
from weft.transports.cli.base import JSON, OrderedGroup
from weft.transports.cli.render import show
from weft.transports.cli.target import opened

if TYPE_CHECKING:
    from weft.app.tenants import NewTenant
    from weft.capabilities.knowledge.quotas import Plan
    from weft.transports.cli.target import Target


class TenantMade(Response):
    """A new tenant with its admin's API key."""

    tenant: str
    admin_key: str


class TenantPlan(Response, omit_defaults=False):
    """The plan a tenant is on; none if it has what the installation gives everyone."""

    tenant: str
    plan: str | None


class TenantNames(Response):
    """The tenants there are."""

    tenants: list[str]


@click.group(cls=OrderedGroup, no_args_is_help=True)
def tenant() -> None:
    """Make and list tenants, and say what each may have.

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


@tenant.command("plan", params=[JSON])
@click.argument("name", help="The tenant.")
@click.argument("plan", type=click.Choice(PLANS), required=False, help="The plan to put it on; shown if left out.")
@click.pass_obj
def plan(target: Target, name: str, plan: Plan | None, *, as_json: bool) -> None:
    """Show a tenant's plan, or put it on another: what it may have of knowledge, and how many results a search.

    Tenants of which nothing was agreed are on the plan that WEFT_DEFAULT_PLAN names.
    """

    async def agree() -> Plan | None:
        async with opened(target.settings()) as app:
            if plan is not None:
                await app.tenants.set_plan(name, plan)
            return await app.tenants.plan(name)

    show(TenantPlan(tenant=name, plan=asyncio.run(agree())), as_json=as_json)
