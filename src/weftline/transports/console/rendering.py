"""Templates, and how values are shown: stored text is inert, numbers are readable."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from weftline.transports.console.item_links import item_link, owner_of
from weftline.transports.console.side_by_side import rows_of
from weftline.transports.console.text_changes import as_text
from weftline.transports.unseen_characters import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Mapping

_INERT = re.compile(rf"[{UNSEEN}\u200c\u200d]")
_NOTHING = "\u2013"
_THOUSAND = 1_000


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("weftline.transports.console"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        inert=inert,
        value=shown_value,
        time=shown_time,
        number=shown_number,
        percent=shown_percent,
        money=shown_money,
        size=shown_bytes,
        side_by_side=rows_of,
        item_link=item_link,
        owner_of=owner_of,
    )
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(values)


def inert(text: object) -> Markup:
    """Return a stored text for a page: markup is text, and characters that would not be seen are named."""
    return Markup(_INERT.sub(_named, str(escape(str(text)))))  # noqa: S704 - escaped here


def _named(found: re.Match[str]) -> str:
    return f'<span class="control" title="control character">\\u{ord(found[0]):04x}</span>'


def shown_value(value: object) -> Markup:
    """Return a stored value: a text as it is, anything else as indented JSON."""
    return inert(as_text(value))


def shown_time(at: datetime | None) -> Markup | str:
    """Return a time; the page's script turns it into the reader's zone and keeps UTC as its title."""
    if at is None:
        return _NOTHING
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        utc.strftime("%Y-%m-%d %H:%M:%S UTC"),
        utc.strftime("%Y-%m-%d %H:%M:%S UTC"),
    )


def shown_number(number: float | None) -> str:
    if number is None:
        return _NOTHING
    return f"{number:,}" if isinstance(number, int) else f"{number:,.2f}"


def shown_percent(part: float | None) -> str:
    return _NOTHING if part is None else f"{part * 100:.1f} %"


def shown_money(cost: float | None) -> str:
    """Return an amount in US dollars; a model without a price has none."""
    if cost is None:
        return "no price"
    return f"${cost:,.2f}" if abs(cost) >= 1 or cost == 0 else f"${cost:.5f}"


def shown_bytes(size: int | None) -> str:
    if size is None:
        return _NOTHING
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < _THOUSAND or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _THOUSAND
    raise AssertionError(size)
