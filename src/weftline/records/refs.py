"""Parts that records share: references, selectors, and mappings to native ids in other systems."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any, ClassVar, TypeVar, Union

from msgspec import UNSET, Meta, Struct, UnsetType, field

from weftline.kernel.fields import MAX_INT
from weftline.kernel.operation import Wire
from weftline.records.vocabulary import Constraint, Ordered, RequiresAny

T = TypeVar("T")
# An optional field. It is absent or has a value; null is not allowed.
Maybe = Union[T, UnsetType]  # noqa: UP007 - a generic alias needs it
Id = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
Text = Annotated[str, Meta(max_length=100_000)]
Uri = Annotated[str, Meta(min_length=1, max_length=2_000, pattern=r"^[^\x00-\x20\x7f]+\Z")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
# Format of a time. The decoder accepts a few more, so times of foreign records are checked against this too.
TIME_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})\Z"
RecordTime = Annotated[datetime, Meta(tz=True, extra_json_schema={"pattern": TIME_PATTERN})]
Count = Annotated[int, Meta(ge=0, le=MAX_INT)]
NonNegative = Annotated[float, Meta(ge=0)]


def content_digest(content: bytes | str) -> str:
    """Return the SHA-256 digest of content as records write it; text is hashed as UTF-8."""
    raw = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


class RecordPart(Struct, metaclass=Wire, omit_defaults=True, forbid_unknown_fields=True):
    """Base of records and their parts. Unknown fields are rejected; extensions go into ``metadata``."""

    constraints: ClassVar[tuple[Constraint, ...]] = ()

    def __post_init__(self) -> None:
        for constraint in self.constraints:
            constraint.check(self)


class Link(RecordPart):
    """A reference with more than an id: kind, URI and digest."""

    constraints = (RequiresAny(("id", "uri")),)

    kind: Maybe[Id] = UNSET
    id: Maybe[Id] = UNSET
    uri: Maybe[Uri] = UNSET
    digest: Maybe[Digest] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


Ref = Id | Link
Refs = tuple[Ref, ...]


class TextQuote(RecordPart, tag_field="type", tag="text_quote"):
    """Selects a passage by its text; prefix and suffix disambiguate it."""

    exact: Annotated[str, Meta(min_length=1, max_length=100_000)]
    prefix: Text = ""
    suffix: Text = ""


class TextPosition(RecordPart, tag_field="type", tag="text_position"):
    """Selects a passage by character offsets; ``end`` is exclusive."""

    constraints = (Ordered("start", "end"),)

    start: Count
    end: Count


class ByteRange(RecordPart, tag_field="type", tag="byte_range"):
    """Selects a passage by byte offsets; ``end`` is exclusive."""

    constraints = (Ordered("start", "end"),)

    start: Count
    end: Count


class LineRange(RecordPart, tag_field="type", tag="line_range"):
    """Selects whole lines, counted from 1; ``end`` is inclusive."""

    constraints = (Ordered("start", "end"),)

    start: Annotated[int, Meta(ge=1, le=MAX_INT)]
    end: Annotated[int, Meta(ge=1, le=MAX_INT)]


class JsonPointer(RecordPart, tag_field="type", tag="json_pointer"):
    """Selects a value of a JSON document."""

    pointer: Annotated[str, Meta(max_length=2_000, pattern=r"^(/([^~/]|~[01])*)*\Z")]


class Css(RecordPart, tag_field="type", tag="css"):
    """Selects the first element that matches a CSS selector."""

    selector: Annotated[str, Meta(min_length=1, max_length=2_000)]


class XPath(RecordPart, tag_field="type", tag="xpath"):
    """Selects the first node that matches an XPath."""

    path: Annotated[str, Meta(min_length=1, max_length=2_000)]


class PageRegion(RecordPart, tag_field="type", tag="page_region"):
    """Selects a rectangle on a page, in points from its top left corner; pages are counted from 1."""

    page: Annotated[int, Meta(ge=1, le=MAX_INT)]
    x: NonNegative
    y: NonNegative
    width: NonNegative
    height: NonNegative


class MediaTimeRange(RecordPart, tag_field="type", tag="media_time_range"):
    """Selects a time range of audio or video."""

    constraints = (Ordered("start_seconds", "end_seconds"),)

    start_seconds: NonNegative
    end_seconds: NonNegative


class CustomSelector(RecordPart, tag_field="type", tag="custom"):
    """A selector that Weftline does not interpret."""

    name: Id
    value: Any


Selector = (
    TextQuote
    | TextPosition
    | ByteRange
    | LineRange
    | JsonPointer
    | Css
    | XPath
    | PageRegion
    | MediaTimeRange
    | CustomSelector
)


class McpMapping(RecordPart, tag_field="native", tag="mcp"):
    """Ids in the Model Context Protocol."""

    server_id: Maybe[Id] = UNSET
    mcp_session_id: Maybe[Id] = UNSET
    resource_uri: Maybe[Uri] = UNSET
    resource_template: Maybe[Text] = UNSET
    prompt_name: Maybe[Id] = UNSET
    root_uri: Maybe[Uri] = UNSET
    jsonrpc_request_id: Maybe[Id | int] = UNSET


class A2aMapping(RecordPart, tag_field="native", tag="a2a"):
    """Ids in Agent2Agent."""

    agent_card_url: Maybe[Uri] = UNSET
    task_id: Maybe[Id] = UNSET
    context_id: Maybe[Id] = UNSET
    message_id: Maybe[Id] = UNSET
    part_id: Maybe[Id] = UNSET
    artifact_id: Maybe[Id] = UNSET
    skill_id: Maybe[Id] = UNSET


class OpenTelemetryMapping(RecordPart, tag_field="native", tag="opentelemetry"):
    """Ids and attributes in OpenTelemetry traces."""

    trace_id: Maybe[Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]] = UNSET
    span_id: Maybe[Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]] = UNSET
    event_name: Maybe[Id] = UNSET
    conversation_id: Maybe[Id] = UNSET
    system: Maybe[Id] = UNSET
    operation_name: Maybe[Id] = UNSET
    token_usage: Maybe[dict[str, int]] = UNSET


class ModelApiMapping(RecordPart, tag_field="native", tag="model_api"):
    """Ids and token usage in a model API."""

    response_id: Maybe[Id] = UNSET
    message_id: Maybe[Id] = UNSET
    prompt_cache_key: Maybe[Id] = UNSET
    tool_call_id: Maybe[Id] = UNSET
    input_tokens: Maybe[Count] = UNSET
    cached_input_tokens: Maybe[Count] = UNSET


class WebAnnotationMapping(RecordPart, tag_field="native", tag="web_annotation"):
    """A target and selector in Web Annotation."""

    target: Maybe[Uri] = UNSET
    selector_type: Maybe[Id] = UNSET
    start: Maybe[Count] = UNSET
    end: Maybe[Count] = UNSET
    exact: Maybe[Text] = UNSET
    prefix: Maybe[Text] = UNSET
    suffix: Maybe[Text] = UNSET


class ProvMapping(RecordPart, tag_field="native", tag="prov"):
    """Ids and relations in a W3C PROV document."""

    entity: Maybe[Id] = UNSET
    activity: Maybe[Id] = UNSET
    agent: Maybe[Id] = UNSET
    was_derived_from: tuple[Id, ...] = field(default=(), name="wasDerivedFrom")
    was_attributed_to: tuple[Id, ...] = field(default=(), name="wasAttributedTo")
    was_generated_by: tuple[Id, ...] = field(default=(), name="wasGeneratedBy")


class CloudEventsMapping(RecordPart, tag_field="native", tag="cloudevents"):
    """Attributes of a CloudEvent."""

    id: Maybe[Id] = UNSET
    source: Maybe[Uri] = UNSET
    type: Maybe[Id] = UNSET
    subject: Maybe[Id] = UNSET
    time: Maybe[RecordTime] = UNSET
    datacontenttype: Maybe[Id] = UNSET


class JsonSchemaMapping(RecordPart, tag_field="native", tag="json_schema"):
    """The JSON Schema an object conforms to."""

    schema_id: Maybe[Uri] = field(default=UNSET, name="$id")
    dialect: Maybe[Uri] = field(default=UNSET, name="$schema")
    ref: Maybe[Uri] = field(default=UNSET, name="$ref")
    type: Maybe[Id | tuple[Id, ...]] = UNSET
    properties: Maybe[dict[str, Any]] = UNSET
    required: tuple[str, ...] = ()
    additional_properties: Maybe[bool | dict[str, Any]] = field(default=UNSET, name="additionalProperties")


class OtherMapping(RecordPart, tag_field="native", tag="custom"):
    """Ids in a system that Weftline does not know."""

    system: Id
    ids: dict[str, Any]


Mapping = (
    McpMapping
    | A2aMapping
    | OpenTelemetryMapping
    | ModelApiMapping
    | WebAnnotationMapping
    | ProvMapping
    | CloudEventsMapping
    | JsonSchemaMapping
    | OtherMapping
)
