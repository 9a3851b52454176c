"""Checks of ``weftline doctor`` and their results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and how to fix it."""

    check: str
    state: CheckStatus
    detail: str
    next_step: str = ""
