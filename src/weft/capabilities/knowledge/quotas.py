"""Quotas of a tenant's knowledge, by plan."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from weft.kernel.errors import QuotaExceeded

Plan = Literal["free", "pro", "enterprise"]
PLANS: tuple[Plan, ...] = get_args(Plan)

_GIBIBYTE = 2**30


class Allowance(msgspec.Struct, frozen=True):
    """Limits of a plan; None is unlimited."""

    domains: int | None = None
    bytes: int | None = None
    results: int | None = None


_ALLOWANCES: dict[Plan, Allowance] = {
    "free": Allowance(domains=1, bytes=_GIBIBYTE, results=5),
    "pro": Allowance(domains=10, bytes=50 * _GIBIBYTE, results=20),
    "enterprise": Allowance(),
}


class KnowledgeLimits(msgspec.Struct, frozen=True):
    """Defaults for tenants without a plan of their own."""

    default_plan: Plan = "enterprise"


def max_results(plan: Plan) -> int | None:
    """Return the maximum number of search results; None is unlimited."""
    return _ALLOWANCES[plan].results


def check_domains(plan: Plan, domains: int) -> None:
    """Raise QuotaExceeded if there are more domains than the plan allows."""
    allowed = _ALLOWANCES[plan].domains
    if allowed is not None and domains > allowed:
        raise QuotaExceeded(
            f"The plan '{plan}' allows {allowed} {'domain' if allowed == 1 else 'domains'}.",
            hint="Delete a domain, or ask the operator for a larger plan.",
            plan=plan,
            limit_domains=allowed,
        )


def check_bytes(plan: Plan, size: int) -> None:
    """Raise QuotaExceeded if there are more bytes of documents than the plan allows."""
    allowed = _ALLOWANCES[plan].bytes
    if allowed is not None and size > allowed:
        raise QuotaExceeded(
            # Without the current size, which includes domains that the caller cannot see.
            f"The plan '{plan}' allows {allowed // _GIBIBYTE} GiB of documents; this would exceed it.",
            hint="Delete documents, or ask the operator for a larger plan.",
            plan=plan,
            limit_bytes=allowed,
        )
