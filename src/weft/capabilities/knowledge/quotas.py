"""How much a tenant may have of knowledge, by the plan it is on."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from weft.kernel.errors import Conflict

Plan = Literal["free", "pro", "enterprise"]
PLANS: tuple[Plan, ...] = get_args(Plan)

_GIBIBYTE = 2**30


class QuotaExceeded(Conflict):
    """The tenant has as much as its plan allows."""

    code = "QUOTA_EXCEEDED"
    hint = "Remove what is no longer needed, or have whoever runs Weft put the tenant on a larger plan."
    related = ("knowledge",)


class Allowance(msgspec.Struct, frozen=True):
    """What a plan allows; None where it sets no limit."""

    domains: int | None = None
    bytes: int | None = None
    results: int | None = None


_ALLOWANCES: dict[Plan, Allowance] = {
    "free": Allowance(domains=1, bytes=_GIBIBYTE, results=5),
    "pro": Allowance(domains=10, bytes=50 * _GIBIBYTE, results=20),
    "enterprise": Allowance(),
}


class KnowledgeLimits(msgspec.Struct, frozen=True):
    """What holds for every tenant of which nothing else was agreed."""

    default_plan: Plan = "enterprise"


def allowance_of(plan: Plan) -> Allowance:
    return _ALLOWANCES[plan]


def most_results(plan: Plan) -> int | None:
    """Return how many results a search may have; None if the plan sets no limit."""
    return _ALLOWANCES[plan].results


def check_domains(plan: Plan, domains: int) -> None:
    """Refuse more domains than the plan allows."""
    allowed = _ALLOWANCES[plan].domains
    if allowed is not None and domains > allowed:
        raise QuotaExceeded(
            f"The plan '{plan}' allows {allowed} {'domain' if allowed == 1 else 'domains'}.",
            hint="Delete a domain, or have whoever runs Weft put the tenant on a larger plan.",
            plan=plan,
            limit_domains=allowed,
        )


def check_bytes(plan: Plan, size: int) -> None:
    """Refuse more bytes of documents than the plan allows."""
    allowed = _ALLOWANCES[plan].bytes
    if allowed is not None and size > allowed:
        raise QuotaExceeded(
            # Not how many there are: in domains that the caller may not look into, too.
            f"The plan '{plan}' allows {allowed // _GIBIBYTE} GiB of documents; with this there would be more.",
            hint="Delete documents, or have whoever runs Weft put the tenant on a larger plan.",
            plan=plan,
            limit_bytes=allowed,
        )
