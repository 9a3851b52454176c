"""Where context comes from: references, selectors of a part of a source, and the ids it goes by elsewhere."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, TypeVar, Union

from msgspec import UNSET, Meta, Struct, UnsetType, field

from weft.capabilities.records.constraints import InOrder, Needs, Rule
from weft.kernel.fields import LARGEST
from weft.kernel.operation import Wire

T = TypeVar("T")
# What a record may leave out. Unlike null it cannot be said, so a record never carries an empty word.
Maybe = Union[T, UnsetType]  # noqa: UP007 - a generic alias needs it
Id = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
Text = Annotated[str, Meta(max_length=100_000)]
Uri = Annotated[str, Meta(min_length=1, max_length=2_000, pattern=r"^[^\x00-\x20\x7f]+\Z")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
# How a time is written. Reading takes a little more, so what comes from elsewhere is held against this as well.
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})\Z"
Moment = Annotated[datetime, Meta(tz=True, extra_json_schema={"pattern": MOMENT})]
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Place = Annotated[float, Meta(ge=0)]


class RecordPart(Struct, metaclass=Wire, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a record. What it does not name is refused; what others want to add belongs in ``metadata``."""

    rules: ClassVar[tuple[Rule, ...]] = ()

    def __post_init__(self) -> None:
        for rule in self.rules:
            rule.check(self)


class Link(RecordPart):
    """A reference that says more than an id: of what kind, where, and what exactly."""

    rules = (Needs(("id", "uri")),)

    kind: Maybe[Id] = UNSET
    id: Maybe[Id] = UNSET
    uri: Maybe[Uri] = UNSET
    digest: Maybe[Digest] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


Ref = Id | Link
Refs = tuple[Ref, ...]


class TextQuote(RecordPart, tag_field="type", tag="text_quote"):
    """A passage by its words, told apart from others like it by what stands around it."""

    exact: Annotated[str, Meta(min_length=1, max_length=100_000)]
    prefix: Text = ""
    suffix: Text = ""


class TextPosition(RecordPart, tag_field="type", tag="text_position"):
    """A passage by its place, counted in characters; ``end`` is behind it."""

    rules = (InOrder("start", "end"),)

    start: Count
    end: Count


class ByteRange(RecordPart, tag_field="type", tag="byte_range"):
    """A passage by its place, counted in bytes; ``end`` is behind it."""

    rules = (InOrder("start", "end"),)

    start: Count
    end: Count


class LineRange(RecordPart, tag_field="type", tag="line_range"):
    """Whole lines, counted from 1, ``end`` among them."""

    rules = (InOrder("start", "end"),)

    start: Annotated[int, Meta(ge=1, le=LARGEST)]
    end: Annotated[int, Meta(ge=1, le=LARGEST)]


class JsonPointer(RecordPart, tag_field="type", tag="json_pointer"):
    """A value inside a JSON document."""

    pointer: Annotated[str, Meta(max_length=2_000, pattern=r"^(/([^~/]|~[01])*)*\Z")]


class Css(RecordPart, tag_field="type", tag="css"):
    """The first element of a page that a CSS selector means."""

    selector: Annotated[str, Meta(min_length=1, max_length=2_000)]


class XPath(RecordPart, tag_field="type", tag="xpath"):
    """The first node of a document that an XPath means."""

    path: Annotated[str, Meta(min_length=1, max_length=2_000)]


class PageRegion(RecordPart, tag_field="type", tag="page_region"):
    """A rectangle on a page, counted from 1, in points from its top left corner."""

    page: Annotated[int, Meta(ge=1, le=LARGEST)]
    x: Place
    y: Place
    width: Place
    height: Place


class MediaTimeRange(RecordPart, tag_field="type", tag="media_time_range"):
    """A stretch of sound or film."""

    rules = (InOrder("start_seconds", "end_seconds"),)

    start_seconds: Place
    end_seconds: Place


class CustomSelector(RecordPart, tag_field="type", tag="custom"):
    """A selector of somebody's own, kept as it is."""

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
    """What something is called in the Model Context Protocol."""

    server_id: Maybe[Id] = UNSET
    mcp_session_id: Maybe[Id] = UNSET
    resource_uri: Maybe[Uri] = UNSET
    resource_template: Maybe[Text] = UNSET
    prompt_name: Maybe[Id] = UNSET
    root_uri: Maybe[Uri] = UNSET
    jsonrpc_request_id: Maybe[Id | int] = UNSET


class A2aMapping(RecordPart, tag_field="native", tag="a2a"):
    """What something is called in Agent2Agent."""

    agent_card_url: Maybe[Uri] = UNSET
    task_id: Maybe[Id] = UNSET
    context_id: Maybe[Id] = UNSET
    message_id: Maybe[Id] = UNSET
    part_id: Maybe[Id] = UNSET
    artifact_id: Maybe[Id] = UNSET
    skill_id: Maybe[Id] = UNSET


class OpenTelemetryMapping(RecordPart, tag_field="native", tag="opentelemetry"):
    """Where something is found in traces."""

    trace_id: Maybe[Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]] = UNSET
    span_id: Maybe[Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]] = UNSET
    event_name: Maybe[Id] = UNSET
    conversation_id: Maybe[Id] = UNSET
    system: Maybe[Id] = UNSET
    operation_name: Maybe[Id] = UNSET
    token_usage: Maybe[dict[str, int]] = UNSET


class ModelApiMapping(RecordPart, tag_field="native", tag="model_api"):
    """What a model's provider calls it."""

    response_id: Maybe[Id] = UNSET
    message_id: Maybe[Id] = UNSET
    prompt_cache_key: Maybe[Id] = UNSET
    tool_call_id: Maybe[Id] = UNSET
    input_tokens: Maybe[Count] = UNSET
    cached_input_tokens: Maybe[Count] = UNSET


class WebAnnotationMapping(RecordPart, tag_field="native", tag="web_annotation"):
    """A passage as Web Annotation tells of it."""

    target: Maybe[Uri] = UNSET
    selector_type: Maybe[Id] = UNSET
    start: Maybe[Count] = UNSET
    end: Maybe[Count] = UNSET
    exact: Maybe[Text] = UNSET
    prefix: Maybe[Text] = UNSET
    suffix: Maybe[Text] = UNSET


class ProvMapping(RecordPart, tag_field="native", tag="prov"):
    """What something is in a W3C PROV document."""

    entity: Maybe[Id] = UNSET
    activity: Maybe[Id] = UNSET
    agent: Maybe[Id] = UNSET
    was_derived_from: tuple[Id, ...] = field(default=(), name="wasDerivedFrom")
    was_attributed_to: tuple[Id, ...] = field(default=(), name="wasAttributedTo")
    was_generated_by: tuple[Id, ...] = field(default=(), name="wasGeneratedBy")


class CloudEventsMapping(RecordPart, tag_field="native", tag="cloudevents"):
    """The event that told of something."""

    id: Maybe[Id] = UNSET
    source: Maybe[Uri] = UNSET
    type: Maybe[Id] = UNSET
    subject: Maybe[Id] = UNSET
    time: Maybe[Moment] = UNSET
    datacontenttype: Maybe[Id] = UNSET


class JsonSchemaMapping(RecordPart, tag_field="native", tag="json_schema"):
    """The schema that something follows."""

    schema_id: Maybe[Uri] = field(default=UNSET, name="$id")
    dialect: Maybe[Uri] = field(default=UNSET, name="$schema")
    ref: Maybe[Uri] = field(default=UNSET, name="$ref")
    type: Maybe[Id | tuple[Id, ...]] = UNSET
    properties: Maybe[dict[str, Any]] = UNSET
    required: tuple[str, ...] = ()
    additional_properties: Maybe[bool | dict[str, Any]] = field(default=UNSET, name="additionalProperties")


class OtherMapping(RecordPart, tag_field="native", tag="custom"):
    """What something is called where Weft does not know the way of calling things."""

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
