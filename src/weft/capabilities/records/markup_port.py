"""What resolving asks of whoever can read HTML and XML."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.records.refs import Css, XPath

# A larger document is not read.
LARGEST_MARKUP = 4 * 2**20


class Holder(NamedTuple):
    """The innermost element that holds certain words, by XPath; ``ties`` is how many elements do."""

    path: str
    ties: int


class MarkupReading(NamedTuple):
    """What each selector means in a document, None if nothing; who holds the words that were asked for.

    ``problem`` says why nothing could be read.
    """

    texts: tuple[str | None, ...] = ()
    holder: Holder | None = None
    problem: str | None = None


class MarkupReader(Protocol):
    """Reads documents that may be hostile: nothing is fetched for them, and none takes long."""

    def read(
        self, document: str, media_type: str | None, selectors: Sequence[Css | XPath], words: str | None
    ) -> MarkupReading: ...
