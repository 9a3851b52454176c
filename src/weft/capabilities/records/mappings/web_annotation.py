"""W3C Web Annotation: our selectors as its JSON-LD has them, and its targets as source refs.

Lines, JSON Pointers, page regions and stretches of media are fragments there, by the rules of their own formats
(RFC 5147, RFC 6901, RFC 8118 and Media Fragments). What we have no selector for, or only half of one, is kept whole.
"""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.records.mappings.natives import fitting, number_of, text_of
from weft.capabilities.records.model import ContextSourceRef
from weft.capabilities.records.refs import (
    ByteRange,
    Css,
    CustomSelector,
    JsonPointer,
    LineRange,
    MediaTimeRange,
    PageRegion,
    Selector,
    TextPosition,
    TextQuote,
    WebAnnotationMapping,
    XPath,
)
from weft.capabilities.records.selectors import selectors_of
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

_LINES = "http://tools.ietf.org/rfc/rfc5147"
_POINTER = "http://tools.ietf.org/rfc/rfc6901"
_PDF = "http://tools.ietf.org/rfc/rfc8118"
_MEDIA = "http://www.w3.org/TR/media-frags/"
_OWN = "weft:CustomSelector"
_SAME_FIELDS: dict[type[TextQuote | TextPosition | ByteRange], str] = {
    TextQuote: "TextQuoteSelector",
    TextPosition: "TextPositionSelector",
    ByteRange: "DataPositionSelector",
}
_VALUES: dict[type[Css | XPath], tuple[str, str]] = {
    Css: ("CssSelector", "selector"),
    XPath: ("XPathSelector", "path"),
}
# As long as the largest and the smallest number there is.
_NUMBER = r"([0-9]{1,400}(?:\.[0-9]{1,400})?)"
_LINE_FRAGMENT = re.compile(r"line=([0-9]{1,15}),([0-9]{1,15})\Z")
_PAGE_FRAGMENT = re.compile(rf"page=([0-9]{{1,15}})&viewrect={_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}\Z")
_TIME_FRAGMENT = re.compile(rf"t=(?:npt:)?{_NUMBER},{_NUMBER}\Z")


def w3c_selector(selector: Selector) -> dict[str, Any]:
    """Return a selector as Web Annotation has it."""
    told: dict[str, Any] = msgspec.to_builtins(selector)
    if isinstance(selector, CustomSelector):
        kept = isinstance(selector.value, dict) and selector.value.get("type") == selector.name
        return selector.value if kept else {"type": _OWN, "name": selector.name, "value": selector.value}
    if isinstance(selector, TextQuote | TextPosition | ByteRange):
        return {**told, "type": _SAME_FIELDS[type(selector)]}
    if isinstance(selector, Css | XPath):
        native, field = _VALUES[type(selector)]
        return {"type": native, "value": told[field]}
    conforms_to, fragment = _fragment(selector)
    return {"type": "FragmentSelector", "conformsTo": conforms_to, "value": fragment}


def selector_of(native: Object[str, Any]) -> Selector:
    """Return a selector of Web Annotation as ours; as a custom one, kept whole, if there is none that says the same."""
    kind = native.get("type")
    if not isinstance(kind, str):
        raise InvalidInput("A selector has a type.", field="type")
    if native.keys() == {"type", "name", "value"} and kind == _OWN:
        return _custom(native["name"], native["value"])
    known = None
    with contextlib.suppress(InvalidInput, UnicodeDecodeError):
        known = _known(kind, {name: value for name, value in native.items() if name != "type"})
    return known or _custom(kind, dict(native))


def target_of(ref: ContextSourceRef) -> dict[str, Any]:
    """Return what an annotation about a source ref's passage has as its target."""
    selectors = [w3c_selector(selector) for selector in selectors_of(ref)]
    if not selectors:
        return {"type": "SpecificResource", "source": ref.uri}
    one_or_all = selectors[0] if len(selectors) == 1 else selectors
    return {"type": "SpecificResource", "source": ref.uri, "selector": one_or_all}


def source_ref_of(target: str | Object[str, Any], source_id: str) -> ContextSourceRef:
    """Return the target of an annotation as a source ref; one selector or several that mean the same."""
    if isinstance(target, str):
        target = {"source": target}
    told = target.get("selector")
    selectors = tuple(selector_of(each) for each in (told if isinstance(told, list) else [told]) if each is not None)
    ref = fitting(
        ContextSourceRef,
        schema_version=SCHEMA_VERSION,
        source_id=source_id,
        uri=target.get("source") or target.get("id"),
        source_kind="web_annotation_target",
    )
    return ContextSourceRef(
        schema_version=SCHEMA_VERSION,
        source_id=ref.source_id,
        uri=ref.uri,
        source_kind=ref.source_kind,
        selector=UNSET if not selectors else selectors[0] if len(selectors) == 1 else selectors,
        external_mappings=tuple(mapping_of(ref.uri, selector) for selector in selectors),
    )


def mapping_of(target: str, selector: Selector) -> WebAnnotationMapping:
    """Return what Agent Context keeps of a target and one of its selectors."""
    native = w3c_selector(selector)
    return fitting(
        WebAnnotationMapping,
        target=target,
        selector_type=text_of(native, "type"),
        **{name: number_of(native, name) for name in ("start", "end")},
        **{name: text_of(native, name) for name in ("exact", "prefix", "suffix")},
    )


def _known(kind: str, told: dict[str, Any]) -> Selector | None:
    """Return our selector of the same meaning, if it can say everything that is told."""
    if None in told.values():
        return None
    if kind == "FragmentSelector" and told.keys() == {"conformsTo", "value"}:
        return _of_fragment(told["conformsTo"], str(told["value"]))
    for ours, native in _SAME_FIELDS.items():
        if native == kind:
            return fitting(ours, **told)
    for valued, (native, field) in _VALUES.items():
        if native == kind and told.keys() == {"value"}:
            return fitting(valued, **{field: told["value"]})
    return None


def _custom(name: Any, value: Any) -> CustomSelector:  # noqa: ANN401 - any JSON
    return structs.replace(fitting(CustomSelector, name=name, value=0), value=value)


def _fragment(selector: Selector) -> tuple[str, str]:
    match selector:
        case LineRange():
            # Lines are counted from 1 here, and what is between them from 0 there.
            return _LINES, f"line={selector.start - 1},{selector.end}"
        case JsonPointer():
            return _POINTER, quote(selector.pointer, safe="/~!$&'()*+,;=:@")
        case PageRegion():
            box = (selector.x, selector.y, selector.width, selector.height)
            return _PDF, f"page={selector.page}&viewrect={','.join(map(_plain, box))}"
        case MediaTimeRange():
            return _MEDIA, f"t={_plain(selector.start_seconds)},{_plain(selector.end_seconds)}"
        case _:
            raise InvalidInput(f"There is no fragment for a selector of type {type(selector).__name__}.")


def _of_fragment(conforms_to: object, fragment: str) -> Selector | None:
    if conforms_to == _LINES and (lines := _LINE_FRAGMENT.match(fragment)) and int(lines[1]) < int(lines[2]):
        return fitting(LineRange, start=int(lines[1]) + 1, end=int(lines[2]))
    if conforms_to == _POINTER:
        return fitting(JsonPointer, pointer=unquote(fragment, errors="strict"))
    if conforms_to == _PDF and (page := _PAGE_FRAGMENT.match(fragment)):
        x, y, width, height = map(float, page.groups()[1:])
        return fitting(PageRegion, page=int(page[1]), x=x, y=y, width=width, height=height)
    if conforms_to == _MEDIA and (time := _TIME_FRAGMENT.match(fragment)):
        return fitting(MediaTimeRange, start_seconds=float(time[1]), end_seconds=float(time[2]))
    return None


def _plain(number: float) -> str:
    """Return a number in full, without an exponent."""
    return format(Decimal(repr(abs(number))), "f")
