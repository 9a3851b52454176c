"""Trust labels as requests give and views show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.kernel.operation import Response
from weftline.safety.trust.model import INJECTION, Source, Trust

if TYPE_CHECKING:
    from weftline.safety.trust.model import TrustLabel

_Reference = Annotated[str, msgspec.Meta(min_length=1, max_length=400, pattern=r"^[^\x00-\x20\x7f]+\Z")]
DerivedFrom = Annotated[
    tuple[_Reference, ...],
    msgspec.Meta(
        max_length=50,
        description="What the text was made of: ids of items, tool:NAME or url:ADDRESS. It gets the lowest trust of "
        "them.",
    ),
]


class TrustInfo(Response):
    """Source and trust of an item, shown where they are not those of its author."""

    trust: Trust
    source: Source
    reasons: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    approved_by: str | None = None
    held: bool = False


def trust_info(label: TrustLabel | None) -> TrustInfo | None:
    """Return a label as readers see it; the score and the patterns are for reviewers, not for those who try."""
    if label is None:
        return None
    return TrustInfo(
        trust=label.trust,
        source=label.source,
        reasons=tuple(dict.fromkeys(_kind_only(reason) for reason in label.reasons)),
        derived_from=label.derived_from,
        approved_by=label.approved_by,
        held=label.held,
    )


def _kind_only(reason: str) -> str:
    return INJECTION if reason.startswith(INJECTION) else reason
