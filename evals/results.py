"""Result rows of evaluations, and their table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, with its baseline, target and interval."""

    name: str
    value: float
    unit: str
    baseline: float | None
    target: str | None
    met: bool | None
    # Of 95 %, by groups.
    interval: tuple[float, float] | None = None

    def as_json(self) -> dict[str, Any]:
        ratio = None if not self.baseline else round(self.value / self.baseline, 4)
        return {**asdict(self), "ratio": ratio}


def as_table(rows: list[Row]) -> str:
    cells = [["name", "value", "unit", "baseline", "target", "met", "interval"]]
    cells += [
        [
            row.name,
            f"{row.value:.3f}",
            row.unit,
            "-" if row.baseline is None else f"{row.baseline:.3f}",
            row.target or "-",
            {True: "yes", False: "no", None: "-"}[row.met],
            "{:.3f} to {:.3f}".format(*row.interval) if row.interval else "",
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )
