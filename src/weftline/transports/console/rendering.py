"""Templates, and how values are shown: stored text is inert, numbers are readable."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from weftline.transports.console.item_links import item_link, owner_of, subject_link
from weftline.transports.console.side_by_side import as_text, rows_of
from weftline.transports.unseen_characters import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_INERT = re.compile(rf"[{UNSEEN}\u200c\u200d]")
_NOTHING = "\u2013"
_THOUSAND = 1_000
# Of an amount of money, behind the point.
_MOST_DIGITS = 5


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
        duration=shown_ms,
        text=as_text,
        editable=is_editable,
        short=shortened,
        size=shown_bytes,
        side_by_side=rows_of,
        item_link=item_link,
        subject_link=subject_link,
        owner_of=owner_of,
    )
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(values)


def inert(text: object) -> Markup:
    """Return a stored text for a page: markup is text, and characters that would not be seen are named."""
    return Markup(_INERT.sub(_named, str(escape(str(text)))))  # noqa: S704 - escaped here


def is_editable(text: str) -> bool:
    """Tell whether a form can show a text as it is: a field cannot name characters that would not be seen."""
    return _INERT.search(text) is None


def _named(found: re.Match[str]) -> str:
    return f'<span class="control" title="control character">\\u{ord(found[0]):04x}</span>'


def shown_value(value: object) -> Markup:
    """Return a stored value: a text as it is, anything else as indented JSON."""
    return inert(as_text(value))


def shown_time(at: datetime | None, *, exact: bool = False) -> Markup | str:
    """Return a time in UTC, which stays its title.

    The page's script turns it into the reader's zone: how long ago it was, or to the second if it is ``exact``.
    """
    if at is None:
        return _NOTHING
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}"{} title="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        Markup(" data-exact") if exact else "",
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
    """Return an amount in US dollars: cents, or the first two digits of less; a model without a price has none."""
    if cost is None:
        return "no price"
    if cost == 0:
        return "$0"
    digits = 2 if abs(cost) >= 1 else min(1 - math.floor(math.log10(abs(cost))), _MOST_DIGITS)
    shown = f"{abs(cost):,.{digits}f}"
    if not float(shown.replace(",", "")):
        return f"less than $0.{'0' * (_MOST_DIGITS - 1)}1"
    return f"{'-' if cost < 0 else ''}${shown}"


def shown_ms(duration: float | None) -> str:
    """Return a duration: milliseconds, seconds, minutes or hours."""
    if duration is None:
        return _NOTHING
    if duration < _THOUSAND:
        return f"{duration:.0f} ms"
    seconds = duration / _THOUSAND
    if seconds < 100:  # noqa: PLR2004 - two digits of seconds
        return f"{seconds:.1f} s"
    minutes, hours = seconds / 60, seconds / 3_600
    return f"{minutes:.0f} min" if minutes < 100 else f"{hours:.1f} h"  # noqa: PLR2004 - two digits of minutes


def shortened(text: str, characters: int = 120) -> Markup:
    """Return a stored text as a title: its first characters, on one line."""
    line = " ".join(text.split())
    return inert(line if len(line) <= characters else f"{line[: characters - 1].rstrip()}\u2026")


def shown_bytes(size: int | None) -> str:
    if size is None:
        return _NOTHING
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < _THOUSAND or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _THOUSAND
    raise AssertionError(size)


# Bars that are made on the server: parts of a whole as rectangles of an SVG, 1,000 units wide.

WIDTH = 1_000


class Rectangle(NamedTuple):
    """A part of a bar: its class in the style sheet, where it is, and what it is."""

    kind: str
    x: float
    width: float
    label: str
    is_marked: bool = False


class Part(NamedTuple):
    """A part of a whole to draw; a marked one has a line at its end."""

    kind: str
    amount: float
    label: str
    is_marked: bool = False


def segments(parts: Iterable[Part], whole: float | None = None) -> list[Rectangle]:
    """Return parts next to each other, in their proportion to the whole; by default that is their sum."""
    given = list(parts)
    total = whole or sum(part.amount for part in given)
    drawn, at = [], 0.0
    for part in given:
        width = min(WIDTH - at, part.amount / total * WIDTH) if total else 0.0
        drawn.append(Rectangle(part.kind, round(at, 2), round(width, 2), part.label, part.is_marked))
        at += width
    return drawn
