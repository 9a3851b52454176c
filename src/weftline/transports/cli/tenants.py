"""``weftline tenant``: create and list tenants, set their plans, and show what they use."""

from __future__ import annotations

import asyncio
from datetime import time
from functools import reduce
from typing import TYPE_CHECKING

import click

from weftline.access.plans import LIMITS, PLANS, AssignedPlan, limit_text, parse_limits
from weftline.app.tenants import default_plan
from weftline.insight.usage import UsageFigures, figures
from weftline.kernel.clock import parse_timestamp, to_micros
from weftline.kernel.operation import Response
from weftline.models.metering import UsageSums
from weftline.transports.cli.base import JSON, LIMIT, DataFolderGroup
from weftline.transports.cli.formatters.usage import render_tenants
from weftline.transports.cli.render import show
from weftline.transports.cli.target import opened

if TYPE_CHECKING:
    from weftline.access.plans import Plan
    from weftline.app.metrics_snapshot import TenantFigures
    from weftline.app.tenants import NewTenant
    from weftline.transports.cli.target import Target

_FEW_EVENTS = 1_000


class TenantCreated(Response):
    """New tenant and the API key of its admin."""

    tenant: str
    admin_key: str


class TenantPlan(Response, omit_defaults=False):
    """Plan of a tenant and all its limits. ``default``: the tenant has no plan of its own.

    ``custom``: the limits that were set for this tenant alone.
    """

    tenant: str
    plan: str
    default: bool
    limits: dict[str, str]
    custom: list[str]


class TenantSemanticSearch(Response, omit_defaults=False):
    """Whether the content of a tenant is embedded and searched by meaning.

    ``off_everywhere``: why it is off in this installation, whatever the tenant's setting; empty if it is not.
    """

    tenant: str
    semantic_search: bool
    off_everywhere: str


class TenantUsage(UsageFigures, kw_only=True, omit_defaults=False):
    """Model calls of a tenant, and its health.

    ``requests`` and ``failed_requests``: calls of Weftline in the last day. ``health`` is ok, or what needs attention.
    """

    tenant: str
    health: str
    requests: int
    failed_requests: int
    active_alerts: int
    failed_documents: int
    dead_deliveries: int
    unindexed_events: int


class TenantsUsage(Response, kw_only=True, omit_defaults=False):
    """Model calls of all tenants, most tokens first, and their sum."""

    tenants: list[TenantUsage]
    total: UsageFigures


class TenantNames(Response):
    """Names of all tenants."""

    tenants: list[str]


@click.group(cls=DataFolderGroup, no_args_is_help=True)
def tenant() -> None:
    """Create and list tenants, set their plans, and show what they use.

    Tenants are isolated from each other. These commands work on the data folder or database, not over a server.
    """


@tenant.command("create", params=[JSON])
@click.argument("name", help="Letters, digits, underscores and dashes.")
@click.pass_obj
def create(target: Target, name: str, *, as_json: bool) -> None:
    """Create a tenant with an admin. The admin's API key is shown only once."""

    async def make() -> NewTenant:
        async with opened(target.settings()) as app:
            return await app.tenants.create(name)

    created = asyncio.run(make())
    show(TenantCreated(tenant=created.tenant, admin_key=created.admin_key), as_json=as_json)


@tenant.command("list", params=[LIMIT, JSON])
@click.pass_obj
def list_tenants(target: Target, limit: int | None, *, as_json: bool) -> None:
    """List the tenants."""
    target.check_installed()

    async def names() -> list[str]:
        async with opened(target.settings()) as app:
            return (await app.tenants.names())[:limit]

    show(TenantNames(tenants=asyncio.run(names())), as_json=as_json)


@tenant.command("usage", params=[JSON])
@click.option("--since", help="Only model calls from this time on: 2025-01-15 or with a time.")
@click.pass_obj
def usage(target: Target, since: str | None, *, as_json: bool) -> None:
    """Show prompts, tokens, savings, cost and health of all tenants.

    Numbers only: no names of agents or sessions, no keys and no texts. Admins of a tenant see their own usage with
    weftline usage report.
    """
    start = 0 if since is None else to_micros(parse_timestamp("since", since, of_day=time.min))

    target.check_installed()

    async def read() -> list[TenantFigures]:
        async with opened(target.settings()) as app:
            return await app.tenants.figures(start)

    found = sorted(asyncio.run(read()), key=lambda each: (-each.usage.total_tokens, each.tenant))
    total = reduce(UsageSums.plus, (each.usage for each in found), UsageSums())
    show(
        TenantsUsage(tenants=[_tenant_usage(each) for each in found], total=UsageFigures(**figures(total))),  # type: ignore[arg-type]
        as_json=as_json,
        formatter=render_tenants,
    )


@tenant.command("plan", params=[JSON])
@click.argument("name", help="The tenant.")
@click.argument(
    "plan", type=click.Choice(PLANS), required=False, help="New plan; without it, the current plan is shown."
)
@click.option(
    "--set",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    help="A limit for this tenant alone, such as domains=20, bytes=100GiB, rollback=yes or results=unlimited.",
)
@click.pass_obj
def plan(target: Target, name: str, plan: Plan | None, limits: tuple[str, ...], *, as_json: bool) -> None:
    """Show or set a tenant's plan, which limits what the tenant may use.

    With a plan, the limits of --set are the only ones that differ from it; without one they are added to those set
    before. Tenants without a plan have the one in WEFTLINE_DEFAULT_PLAN.
    """
    target.check_installed()

    async def read_or_set() -> TenantPlan:
        async with opened(target.settings()) as app:
            assigned, default = await app.tenants.plan(name), default_plan(target.settings())
            if plan is not None:
                await app.tenants.set_plan(name, plan, **parse_limits(limits))
            elif limits:
                kept = AssignedPlan(default) if assigned is None else assigned
                await app.tenants.set_plan(name, kept.plan, **(kept.limits | parse_limits(limits)))
            return _tenant_plan(name, await app.tenants.plan(name), default)

    show(asyncio.run(read_or_set()), as_json=as_json)


@tenant.command("semantic-search", params=[JSON])
@click.argument("name", help="The tenant.")
@click.argument(
    "switch", type=click.Choice(("on", "off")), required=False, help="Without it, the current setting is shown."
)
@click.pass_obj
def semantic_search(target: Target, name: str, switch: str | None, *, as_json: bool) -> None:
    """Show whether a tenant is searched by meaning, or turn that on or off.

    While it is off nothing is embedded, and searches find by words only. What is missing is embedded when it is on
    again: messages, keys and memories at once, documents within a day.
    """
    target.check_installed()

    async def read_or_set() -> TenantSemanticSearch:
        async with opened(target.settings()) as app:
            if switch is not None:
                await app.tenants.set_semantic_search(name, on=switch == "on")
            is_on, off_everywhere = await app.tenants.semantic_search(name), app.embeddings.off_reason()
            return TenantSemanticSearch(tenant=name, semantic_search=is_on, off_everywhere=off_everywhere)

    show(asyncio.run(read_or_set()), as_json=as_json)


def _tenant_usage(found: TenantFigures) -> TenantUsage:
    problems = {**found.problems._asdict(), "unindexed_events": found.unindexed_events}
    # A running server is a few events behind at any time.
    needs = [name for name, count in problems.items() if count > (_FEW_EVENTS if name == "unindexed_events" else 0)]
    return TenantUsage(
        tenant=found.tenant,
        health=", ".join(f"{problems[name]:,} {name.replace('_', ' ')}" for name in needs) or "ok",
        requests=found.last_day.calls,
        failed_requests=found.last_day.errors,
        **problems,
        **figures(found.usage),  # type: ignore[arg-type]
    )


def _tenant_plan(tenant: str, assigned: AssignedPlan | None, default: Plan) -> TenantPlan:
    found = AssignedPlan(default) if assigned is None else assigned
    allowance = found.allowance
    return TenantPlan(
        tenant=tenant,
        plan=found.plan,
        default=assigned is None,
        limits={name: limit_text(name, getattr(allowance, name)) for name in LIMITS},
        custom=sorted(found.limits),
    )
