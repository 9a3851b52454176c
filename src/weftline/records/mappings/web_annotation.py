"""W3C Web Annotation: selectors in its JSON-LD form, and its targets as source refs.

Line ranges, JSON Pointers, page regions and media time ranges become fragment selectors (RFC 5147, RFC 6901, RFC 8118
and Media Fragments). Selectors that have no equivalent here are stored unchanged, as custom selectors.
"""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, structs

from weftline.kernel.errors import InvalidInput
from weftline.records.mappings.natives import build_part, number_of, text_of
from weftline.records.model import ContextSourceRef
from weftline.records.refs import (
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
from weftline.records.selectors import selectors_of
from weftline.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

_LINES = "http://tools.ietf.org/rfc/rfc5147"
_POINTER = "http://tools.ietf.org/rfc/rfc6901"
_PDF = "http://tools.ietf.org/rfc/rfc8118"
_MEDIA = "http://www.w3.org/TR/media-frags/"
_OWN = "weftline:CustomSelector"
_SAME_FIELDS: dict[type[TextQuote | TextPosition | ByteRange], str] = {
    TextQuote: "TextQuoteSelector",
    TextPosition: "TextPositionSelector",
    ByteRange: "DataPositionSelector",
}
_VALUES: dict[type[Css | XPath], tuple[str, str]] = {
    Css: ("CssSelector", "selector"),
    XPath: ("XPathSelector", "path"),
}
# Long enough for the largest and the smallest float.
_NUMBER = r"([0-9]{1,400}(?:\.[0-9]{1,400})?)"
_LINE_FRAGMENT = re.compile(r"line=([0-9]{1,15}),([0-9]{1,15})\Z")
_PAGE_FRAGMENT = re.compile(rf"page=([0-9]{{1,15}})&viewrect={_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}\Z")
_TIME_FRAGMENT = re.compile(rf"t=(?:npt:)?{_NUMBER},{_NUMBER}\Z")


def w3c_selector(selector: Selector) -> dict[str, Any]:
    """Convert a selector to Web Annotation."""
    fields: dict[str, Any] = msgspec.to_builtins(selector)
    if isinstance(selector, CustomSelector):
        kept = isinstance(selector.value, dict) and selector.value.get("type") == selector.name
        return selector.value if kept else {"type": _OWN, "name": selector.name, "value": selector.value}
    if isinstance(selector, TextQuote | TextPosition | ByteRange):
        return {**fields, "type": _SAME_FIELDS[type(selector)]}
    if isinstance(selector, Css | XPath):
        native, field = _VALUES[type(selector)]
        return {"type": native, "value": fields[field]}
    conforms_to, fragment = _fragment(selector)
    return {"type": "FragmentSelector", "conformsTo": conforms_to, "value": fragment}


def selector_of(native: Object[str, Any]) -> Selector:
    """Convert a selector from Web Annotation; to a custom selector if there is no equivalent."""
    kind = native.get("type")
    if not isinstance(kind, str):
        raise InvalidInput("type: required for a selector", field="type")
    if native.keys() == {"type", "name", "value"} and kind == _OWN:
        return _custom(native["name"], native["value"])
    known = None
    with contextlib.suppress(InvalidInput, UnicodeDecodeError):
        known = _known(kind, {name: value for name, value in native.items() if name != "type"})
    return known or _custom(kind, dict(native))


def target_of(ref: ContextSourceRef) -> dict[str, Any]:
    """Convert a source ref to the target of an annotation."""
    selectors = [w3c_selector(selector) for selector in selectors_of(ref)]
    if not selectors:
        return {"type": "SpecificResource", "source": ref.uri}
    one_or_all = selectors[0] if len(selectors) == 1 else selectors
    return {"type": "SpecificResource", "source": ref.uri, "selector": one_or_all}


def source_ref_of(target: str | Object[str, Any], source_id: str) -> ContextSourceRef:
    """Convert the target of an annotation to a source ref, with all its selectors."""
    if isinstance(target, str):
        target = {"source": target}
    native = target.get("selector")
    selectors = tuple(
        selector_of(each) for each in (native if isinstance(native, list) else [native]) if each is not None
    )
    ref = build_part(
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
    """Return the mapping of a target and one of its selectors."""
    native = w3c_selector(selector)
    return build_part(
        WebAnnotationMapping,
        target=target,
        selector_type=text_of(native, "type"),
        **{name: number_of(native, name) for name in ("start", "end")},
        **{name: text_of(native, name) for name in ("exact", "prefix", "suffix")},
    )


def _known(kind: str, fields: dict[str, Any]) -> Selector | None:
    """Return the equivalent selector, if it has all the fields."""
    if None in fields.values():
        return None
    if kind == "FragmentSelector" and fields.keys() == {"conformsTo", "value"}:
        return _of_fragment(fields["conformsTo"], str(fields["value"]))
    for ours, native in _SAME_FIELDS.items():
        if native == kind:
            return build_part(ours, **fields)
    for valued, (native, field) in _VALUES.items():
        if native == kind and fields.keys() == {"value"}:
            return build_part(valued, **{field: fields["value"]})
    return None


def _custom(name: Any, value: Any) -> CustomSelector:  # noqa: ANN401 - any JSON
    return structs.replace(build_part(CustomSelector, name=name, value=0), value=value)


def _fragment(selector: Selector) -> tuple[str, str]:
    match selector:
        case LineRange():
            # Here lines are counted from 1; RFC 5147 counts the positions between lines from 0.
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
        return build_part(LineRange, start=int(lines[1]) + 1, end=int(lines[2]))
    if conforms_to == _POINTER:
        return build_part(JsonPointer, pointer=unquote(fragment, errors="strict"))
    if conforms_to == _PDF and (page := _PAGE_FRAGMENT.match(fragment)):
        x, y, width, height = map(float, page.groups()[1:])
        return build_part(PageRegion, page=int(page[1]), x=x, y=y, width=width, height=height)
    if conforms_to == _MEDIA and (time := _TIME_FRAGMENT.match(fragment)):
        return build_part(MediaTimeRange, start_seconds=float(time[1]), end_seconds=float(time[2]))
    return None


def _plain(number: float) -> str:
    """Format a number without an exponent."""
    return format(Decimal(repr(abs(number))), "f")
