"""Usage as CSV or as JSON lines."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weftline.kernel.clock import from_micros
from weftline.kernel.csv_cells import harmless_cell
from weftline.models.metering.model import SUM_NAMES, dollars

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.models.metering.queries import UsageDetail

ExportForm = Literal["csv", "json"]
_NANOS = "_nanos"
_NAMES = ("start", "kind", "agent", "session", "step", "model", "teams")
# Money in US dollars, everything else as it is summed up.
COLUMNS = (*_NAMES, *(name.removesuffix(_NANOS) for name in SUM_NAMES))
_encode = msgspec.json.Encoder().encode


def write_rows(details: Iterable[UsageDetail], form: ExportForm, *, header: bool) -> str:
    """Return details as text, one line each; CSV begins with its header on the first page."""
    if form == "json":
        return "".join(f"{_encode(dict(zip(COLUMNS, _cells(each), strict=True))).decode()}\n" for each in details)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows([harmless_cell(cell) for cell in _cells(each)] for each in details)
    return text.getvalue()


def _cells(detail: UsageDetail) -> list[Any]:
    key = detail.key
    names = [key.kind, key.agent_id, key.session_id, key.step, key.model, " ".join(key.teams)]
    sums = zip(SUM_NAMES, detail.sums.values, strict=True)
    figures = [dollars(value) if name.endswith(_NANOS) else value for name, value in sums]
    return [from_micros(detail.start).strftime("%Y-%m-%dT%H:%M:%SZ"), *names, *figures]
