"""Cells of CSV files that people open in spreadsheet programs."""

from __future__ import annotations

from typing import Any

# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def harmless_cell(cell: Any) -> Any:  # noqa: ANN401 - a cell
    """Return a cell that no spreadsheet computes: text that looks like a formula gets an apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
