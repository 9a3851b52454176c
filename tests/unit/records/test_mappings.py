"""Mappings of native objects: round trips that keep the ids."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import mcp.types
import msgspec
import prov.model
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as ForeignEvent
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, structs
from opentelemetry.trace import SpanContext, TraceFlags, format_span_id, format_trace_id
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from support.record_strategies import JSON, records
from support.world import refused
from weftline.records.mappings import (
    a2a,
    cloudevents,
    json_schema,
    model_api,
    opentelemetry,
    web_annotation,
)
from weftline.records.mappings import mcp as native_mcp
from weftline.records.mappings import prov as native_prov
from weftline.records.mappings.natives import ItemNaming, build_part
from weftline.records.model import ContextEvent, ContextItem, Record
from weftline.records.refs import (
    A2aMapping,
    ByteRange,
    CloudEventsMapping,
    Css,
    CustomSelector,
    JsonPointer,
    LineRange,
    McpMapping,
    MediaTimeRange,
    ModelApiMapping,
    OpenTelemetryMapping,
    PageRegion,
    ProvMapping,
    Selector,
    TextPosition,
    TextQuote,
    WebAnnotationMapping,
    XPath,
)
from weftline.records.validation import check_record
from weftline.records.vocabulary import EVENT_CLASSES

pytestmark = pytest.mark.req("AC-12")

HERE = ItemNaming("item-1")
NOW = datetime(2026, 5, 8, 12, 30, tzinfo=UTC)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
IDS = st.from_regex(r"[A-Za-z0-9._:/-]{1,40}", fullmatch=True)
# Further fields with unknown names.
OBJECTS = st.dictionaries(TEXT.map(lambda name: f"x-{name}"), JSON, max_size=4)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,19}", fullmatch=True)


def objects_with(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with some of these fields and further unknown ones."""
    return st.builds(lambda more, own: {**more, **own}, OBJECTS, st.fixed_dictionaries({}, optional=fields))


def checked(record: Record) -> Any:
    """Return a record after a JSON round trip; it must be valid."""
    found = check_record(msgspec.json.encode(record), record.type)
    assert found == record
    return found


URIS = IDS.map(lambda name: f"file:///{name}")
TEXT_CONTENTS = st.builds(lambda rest, uri, text: {**rest, "uri": uri, "text": text}, OBJECTS, URIS, TEXT)
BLOB_CONTENTS = st.builds(lambda uri: {"uri": uri, "blob": "AAEC", "mimeType": "image/png"}, URIS)
BLOCKS = st.one_of(
    TEXT.map(lambda text: {"type": "text", "text": text, "annotations": {"priority": 0.5}}),
    st.just({"type": "image", "data": "AAEC", "mimeType": "image/png"}),
    st.just({"type": "audio", "data": "AAEC", "mimeType": "audio/wav", "_meta": {"a": 1}}),
    st.one_of(TEXT_CONTENTS, BLOB_CONTENTS).map(lambda inner: {"type": "resource", "resource": inner}),
    URIS.map(lambda uri: {"type": "resource_link", "uri": uri, "name": "plan", "size": 3}),
)


@given(st.one_of(TEXT_CONTENTS, BLOB_CONTENTS))
def test_mcp_contents_round_trip(contents: dict[str, Any]) -> None:
    contents.pop("mimeType", None)
    item = checked(native_mcp.item_of_contents(contents, HERE))
    assert native_mcp.native_of(item) == contents
    assert item.content_mode == "embedded_resource"
    assert item.external_mappings == (McpMapping(resource_uri=contents["uri"]),)


@given(BLOCKS)
def test_mcp_blocks_round_trip(block: dict[str, Any]) -> None:
    item = checked(native_mcp.item_of_block(block, HERE, McpMapping(server_id="files")))
    assert native_mcp.native_of(item) == block
    assert item.external_mappings[0].server_id == "files"


@given(st.lists(BLOCKS, max_size=3), st.booleans(), OBJECTS)
def test_mcp_results_round_trip(
    blocks: list[dict[str, Any]],
    failed: bool,  # noqa: FBT001 - drawn
    structured: dict[str, Any],
) -> None:
    result = {"content": blocks, "isError": failed, "structuredContent": structured}
    request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "read"}}
    mapping = native_mcp.mapping_of_request(request, server_id="files", mcp_session_id="abc")
    item = checked(native_mcp.item_of_tool_result(result, HERE, mapping))
    assert native_mcp.native_of(item) == result
    assert item.external_mappings == (McpMapping(server_id="files", mcp_session_id="abc", jsonrpc_request_id=7),)


def test_objects_of_the_mcp_library_round_trip() -> None:
    result = mcp.types.CallToolResult(
        content=[
            mcp.types.TextContent(type="text", text="Ship"),
            mcp.types.EmbeddedResource(
                type="resource",
                resource=mcp.types.TextResourceContents(uri="file:///plan", text="p", mimeType="text/plain"),
            ),
            mcp.types.ResourceLink(type="resource_link", uri="file:///plan", name="plan"),
            mcp.types.ImageContent(type="image", data="AAEC", mimeType="image/png"),
        ]
    )
    wire = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    item = checked(native_mcp.item_of_tool_result(wire, HERE))
    assert mcp.types.CallToolResult.model_validate(native_mcp.native_of(item)) == result
    items = [
        checked(native_mcp.item_of_block(block, ItemNaming(f"item-{n}"))) for n, block in enumerate(wire["content"])
    ]
    assert [item.content_mode for item in items] == [
        "inline",
        "embedded_resource",
        "resource_link",
        "embedded_resource",
    ]
    again = mcp.types.CallToolResult(content=[native_mcp.native_of(item) for item in items])
    assert again == result
    assert items[2].content_ref.uri == "file:///plan"


@pytest.mark.parametrize(
    ("request_", "mapping"),
    [
        (
            mcp.types.ReadResourceRequest(params=mcp.types.ReadResourceRequestParams(uri="file:///plan")),
            McpMapping(jsonrpc_request_id="r-1", resource_uri="file:///plan"),
        ),
        (
            mcp.types.GetPromptRequest(params=mcp.types.GetPromptRequestParams(name="greet")),
            McpMapping(jsonrpc_request_id="r-1", prompt_name="greet"),
        ),
        (
            mcp.types.CompleteRequest(
                params=mcp.types.CompleteRequestParams(
                    ref=mcp.types.ResourceTemplateReference(type="ref/resource", uri="file:///{path}"),
                    argument=mcp.types.CompletionArgument(name="path", value="p"),
                )
            ),
            McpMapping(jsonrpc_request_id="r-1", resource_template="file:///{path}"),
        ),
    ],
)
def test_mcp_requests_map_to_their_subject(request_: Any, mapping: McpMapping) -> None:
    wire = {"jsonrpc": "2.0", "id": "r-1", **request_.model_dump(by_alias=True, mode="json", exclude_none=True)}
    assert native_mcp.mapping_of_request(wire) == mapping


def test_mcp_resources_are_sources() -> None:
    resource = mcp.types.Resource(uri="file:///plan", name="plan", mimeType="text/plain", size=3)
    wire = resource.model_dump(by_alias=True, mode="json", exclude_none=True)
    ref = checked(native_mcp.source_ref_of_resource(wire, "source-1", server_id="files"))
    assert (ref.uri, ref.authority) == ("file:///plan", "files")
    assert ref.external_mappings == (McpMapping(server_id="files", resource_uri="file:///plan"),)
    assert mcp.types.Resource.model_validate(native_mcp.resource_of_source_ref(ref)) == resource
    assert native_mcp.mapping_of_root({"uri": "file:///home"}).root_uri == "file:///home"


A2A_PARTS = st.one_of(
    TEXT.map(lambda text: {"text": text}),
    TEXT.map(lambda text: {"kind": "text", "text": text, "metadata": {"a": 1}}),
    st.just({"url": "https://example.com/f.png", "filename": "f.png", "mediaType": "image/png"}),
    st.just({"raw": "AAEC", "filename": "f.png", "mediaType": "image/png"}),
    st.just({"kind": "file", "file": {"uri": "https://example.com/f.png", "mimeType": "image/png", "name": "f"}}),
    st.just({"kind": "file", "file": {"bytes": "AAEC"}}),
    JSON.map(lambda value: {"data": value}),
)
A2A_MESSAGES = st.builds(
    lambda more, parts, ids: {**more, "role": "ROLE_AGENT", "parts": parts, **ids},
    OBJECTS,
    st.lists(A2A_PARTS, max_size=3),
    st.fixed_dictionaries({"messageId": IDS}, optional={"taskId": IDS, "contextId": IDS}),
)


@given(A2A_MESSAGES)
def test_a2a_messages_and_parts_round_trip(message: dict[str, Any]) -> None:
    card = A2aMapping(agent_card_url="https://example.com/card", skill_id="plan")
    item = checked(a2a.item_of_message(message, HERE, card))
    (mapping,) = item.external_mappings
    assert a2a.native_of(item) == message
    assert mapping.message_id == message["messageId"]
    assert mapping.task_id == message.get("taskId", UNSET)
    assert mapping.context_id == message.get("contextId", UNSET)
    assert (mapping.agent_card_url, mapping.skill_id) == ("https://example.com/card", "plan")
    for place, part in enumerate(message["parts"]):
        part_item = checked(a2a.item_of_part(part, place, HERE, mapping))
        assert a2a.native_of(part_item) == part
        assert part_item.external_mappings == (structs.replace(mapping, part_id=str(place)),)


@given(st.lists(A2A_PARTS, max_size=2), IDS, IDS)
def test_a2a_tasks_and_artifacts_round_trip(parts: list[Any], task_id: str, artifact_id: str) -> None:
    artifact = {"artifactId": artifact_id, "name": "report", "parts": parts}
    task = {"id": task_id, "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}, "artifacts": [artifact]}
    item = checked(a2a.item_of_task(task, HERE))
    assert a2a.native_of(item) == task
    mapping = a2a.mapping_of_task(task)
    assert item.external_mappings == (A2aMapping(task_id=task_id, context_id="c-1"),) == (mapping,)
    artifact_item = checked(a2a.item_of_artifact(artifact, HERE, mapping))
    assert a2a.native_of(artifact_item) == artifact
    assert artifact_item.external_mappings == (A2aMapping(task_id=task_id, context_id="c-1", artifact_id=artifact_id),)


USAGE = st.dictionaries(
    st.sampled_from(["input_tokens", "output_tokens", "cache_read.input_tokens"]), st.integers(0, 2**40)
)
SPANS = st.builds(
    lambda trace, span, ids, usage: OpenTelemetryMapping(
        trace_id=f"{trace:032x}", span_id=f"{span:016x}", token_usage=usage or UNSET, **ids
    ),
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.fixed_dictionaries({}, optional={"conversation_id": IDS, "system": IDS, "operation_name": IDS}),
    USAGE,
)


@given(SPANS)
def test_spans_round_trip(mapping: OpenTelemetryMapping) -> None:
    trace_id, span_id = str(mapping.trace_id), str(mapping.span_id)
    attributes = {**opentelemetry.attributes_of(mapping), "http.method": "GET", "gen_ai.usage.odd": "text"}
    assert opentelemetry.mapping_of_span(trace_id, span_id, attributes) == mapping
    assert opentelemetry.mapping_of_span(int(trace_id, 16), int(span_id, 16), attributes) == mapping
    ids = OpenTelemetryMapping(trace_id=trace_id, span_id=span_id)
    assert opentelemetry.mapping_of_telemetry_refs(opentelemetry.telemetry_refs_of(mapping)) == ids
    assert opentelemetry.mapping_of_traceparent(str(opentelemetry.traceparent_of(mapping))) == ids


def test_spans_match_the_opentelemetry_library() -> None:
    span = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    attributes = {
        "gen_ai.system": "openai",
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "conv-1",
        "gen_ai.usage.prompt_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
    }
    mapping = opentelemetry.mapping_of_span(span.trace_id, span.span_id, attributes, "gen_ai.choice")
    assert (mapping.trace_id, mapping.span_id) == (format_trace_id(0xABC), format_span_id(0xDEF))
    assert (mapping.system, mapping.operation_name, mapping.event_name) == ("openai", "chat", "gen_ai.choice")
    assert mapping.token_usage == {"input_tokens": 12, "output_tokens": 3}
    context = TraceContextTextMapPropagator().extract({"traceparent": str(opentelemetry.traceparent_of(mapping))})
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 - used only here

    assert get_current_span(context).get_span_context().span_id == span.span_id
    assert opentelemetry.traceparent_of(OpenTelemetryMapping()) is None
    with refused("INVALID_INPUT_FORMAT"):
        opentelemetry.mapping_of_traceparent("00-nothing")


def test_an_openai_chat_completion_keeps_ids_and_cached_tokens() -> None:
    completion = {
        "id": "chatcmpl-9",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "tool_calls": [{"id": "call_a", "type": "function"}, {"id": "call_b", "type": "function"}],
                },
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 100}},
    }
    response, *calls = model_api.mappings_of_openai_chat(completion, prompt_cache_key="team-7")
    assert response == ModelApiMapping(
        response_id="chatcmpl-9", prompt_cache_key="team-7", input_tokens=120, cached_input_tokens=100
    )
    assert [call.tool_call_id for call in calls] == ["call_a", "call_b"]
    assert {call.response_id for call in calls} == {"chatcmpl-9"}


def test_an_openai_response_keeps_ids_and_cached_tokens() -> None:
    response = {
        "id": "resp_1",
        "output": [
            {"type": "reasoning", "id": "rs_1"},
            {"type": "message", "id": "msg_1", "role": "assistant", "content": []},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read"},
        ],
        "prompt_cache_key": "team-7",
        "usage": {"input_tokens": 75, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 9},
    }
    assert model_api.mappings_of_openai_response(response) == (
        ModelApiMapping(
            response_id="resp_1", message_id="msg_1", prompt_cache_key="team-7", input_tokens=75, cached_input_tokens=64
        ),
        ModelApiMapping(response_id="resp_1", tool_call_id="call_1"),
    )


def test_an_anthropic_message_counts_cached_input_tokens() -> None:
    message = {
        "id": "msg_01",
        "type": "message",
        "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}],
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 5,
            "output_tokens": 4,
        },
    }
    assert model_api.mappings_of_anthropic_message(message) == (
        ModelApiMapping(response_id="msg_01", message_id="msg_01", input_tokens=105, cached_input_tokens=90),
        ModelApiMapping(response_id="msg_01", tool_call_id="toolu_1"),
    )
    bare = model_api.mappings_of_anthropic_message({"id": "msg_02"})
    assert bare == (ModelApiMapping(response_id="msg_02", message_id="msg_02"),)


@pytest.mark.parametrize(
    "read",
    [model_api.mappings_of_openai_chat, model_api.mappings_of_openai_response, model_api.mappings_of_anthropic_message],
)
@given(native=objects_with(id=JSON, choices=JSON, usage=JSON, output=JSON, content=JSON, prompt_cache_key=JSON))
def test_any_json_is_parsed_as_a_response_or_refused(read: Any, native: dict[str, Any]) -> None:
    from weftline.kernel.errors import InvalidInput  # noqa: PLC0415 - used only here

    try:
        mapping, *_ = read(native)
    except InvalidInput:
        return
    assert mapping.response_id == native["id"]
    assert msgspec.convert(msgspec.to_builtins(mapping), ModelApiMapping) == mapping


def test_an_object_that_cannot_be_mapped_is_refused_without_names_of_classes() -> None:
    with refused("INVALID_INPUT_FORMAT") as refusal:
        build_part(ContextItem, item_id=7)
    assert refusal.value.message.startswith("The object cannot be mapped to a record: Expected `str`")


POINTERS = st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=3).map(
    lambda tokens: "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)
)
COORDINATES = st.floats(0, 1e12, allow_nan=False)
PAIRS = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)).map(sorted)
SELECTORS: st.SearchStrategy[Selector] = st.one_of(
    st.builds(TextQuote, exact=TEXT.filter(bool), prefix=TEXT, suffix=TEXT),
    PAIRS.map(lambda pair: TextPosition(start=pair[0], end=pair[1])),
    PAIRS.map(lambda pair: ByteRange(start=pair[0], end=pair[1])),
    PAIRS.map(lambda pair: LineRange(start=pair[0] + 1, end=pair[1] + 1)),
    st.builds(JsonPointer, pointer=POINTERS),
    st.builds(Css, selector=TEXT.filter(bool)),
    st.builds(XPath, path=TEXT.filter(bool)),
    st.builds(
        PageRegion, page=st.integers(1, 10**6), x=COORDINATES, y=COORDINATES, width=COORDINATES, height=COORDINATES
    ),
    st.tuples(COORDINATES, COORDINATES).map(sorted).map(lambda p: MediaTimeRange(start_seconds=p[0], end_seconds=p[1])),
    st.builds(CustomSelector, name=IDS, value=JSON),
)
W3C_SELECTORS = st.one_of(
    SELECTORS.map(web_annotation.w3c_selector),
    objects_with(type=IDS, value=JSON, conformsTo=TEXT, refinedBy=OBJECTS).filter(lambda native: "type" in native),
    st.just({"type": "TextQuoteSelector", "exact": "a", "refinedBy": {"type": "TextPositionSelector"}}),
    st.just({"type": "TextPositionSelector", "start": 5, "end": 1}),
    st.just({"type": "TextQuoteSelector", "exact": "a", "prefix": None}),
    st.just({"type": "FragmentSelector", "conformsTo": "http://tools.ietf.org/rfc/rfc6901", "value": "/%ff"}),
    st.just({"type": "FragmentSelector", "conformsTo": "http://tools.ietf.org/rfc/rfc3236", "value": "namedSection"}),
    st.just({"type": "SvgSelector", "value": "<svg/>"}),
)


@given(SELECTORS)
def test_selectors_round_trip_through_web_annotation(selector: Selector) -> None:
    assert web_annotation.selector_of(web_annotation.w3c_selector(selector)) == selector


@given(W3C_SELECTORS)
def test_web_annotation_selectors_round_trip(native: dict[str, Any]) -> None:
    assert web_annotation.w3c_selector(web_annotation.selector_of(native)) == native


def test_selectors_match_the_web_annotation_recommendation() -> None:
    expected = {
        TextQuote(exact="plan", prefix="the "): {"type": "TextQuoteSelector", "exact": "plan", "prefix": "the "},
        TextPosition(start=4, end=8): {"type": "TextPositionSelector", "start": 4, "end": 8},
        ByteRange(start=4, end=8): {"type": "DataPositionSelector", "start": 4, "end": 8},
        Css(selector="h1"): {"type": "CssSelector", "value": "h1"},
        XPath(path="//h1"): {"type": "XPathSelector", "value": "//h1"},
        LineRange(start=11, end=20): _fragment("http://tools.ietf.org/rfc/rfc5147", "line=10,20"),
        JsonPointer(pointer="/a b/ü"): _fragment("http://tools.ietf.org/rfc/rfc6901", "/a%20b/%C3%BC"),
        MediaTimeRange(start_seconds=10, end_seconds=20.5): _fragment("http://www.w3.org/TR/media-frags/", "t=10,20.5"),
        PageRegion(page=3, x=1, y=2, width=3, height=4): _fragment(
            "http://tools.ietf.org/rfc/rfc8118", "page=3&viewrect=1,2,3,4"
        ),
    }
    for selector, native in expected.items():
        assert web_annotation.w3c_selector(selector) == native
        assert web_annotation.selector_of(native) == selector


def _fragment(conforms_to: str, value: str) -> dict[str, str]:
    return {"type": "FragmentSelector", "conformsTo": conforms_to, "value": value}


@given(URIS, st.lists(SELECTORS, max_size=3))
def test_targets_round_trip_through_web_annotation(uri: str, selectors: list[Selector]) -> None:
    natives = [web_annotation.w3c_selector(selector) for selector in selectors]
    target: dict[str, Any] = {"type": "SpecificResource", "source": uri}
    if natives:
        target["selector"] = natives[0] if len(natives) == 1 else natives
    ref = checked(web_annotation.source_ref_of(target, "source-1"))
    assert web_annotation.target_of(ref) == target
    assert [mapping.target for mapping in ref.external_mappings] == [uri] * len(selectors)


def test_a_target_may_be_a_bare_uri() -> None:
    ref = checked(web_annotation.source_ref_of("https://example.com/plan", "source-1"))
    assert (ref.uri, ref.selector) == ("https://example.com/plan", UNSET)
    quoted = web_annotation.mapping_of("https://example.com", TextQuote(exact="a", suffix="b"))
    assert quoted == WebAnnotationMapping(
        target="https://example.com", selector_type="TextQuoteSelector", exact="a", suffix="b"
    )
    with refused("INVALID_INPUT_FORMAT"):
        web_annotation.selector_of({"value": "no type"})


QUALIFIED = NAMES.map(lambda name: f"ex:{name}")
MANY = st.lists(QUALIFIED, unique=True, max_size=3).map(tuple)
PROV_THINGS = st.one_of(
    st.builds(
        ProvMapping,
        entity=QUALIFIED.map(lambda name: f"{name}-e"),
        was_derived_from=MANY,
        was_attributed_to=MANY,
        was_generated_by=MANY,
    ),
    st.builds(ProvMapping, activity=QUALIFIED.map(lambda name: f"{name}-a")),
    st.builds(ProvMapping, agent=QUALIFIED.map(lambda name: f"{name}-g")),
)


def _identity(mapping: ProvMapping) -> Any:
    return next(each for each in (mapping.entity, mapping.activity, mapping.agent) if each is not UNSET)


@given(st.lists(PROV_THINGS, unique_by=_identity, max_size=4))
def test_records_round_trip_through_prov(things: list[ProvMapping]) -> None:
    document = native_prov.document_of(things, {"ex": "https://example.com/"})
    assert native_prov.mappings_in(document) == {_identity(thing): thing for thing in things}
    read = prov.model.ProvDocument.deserialize(content=msgspec.json.encode(document).decode(), format="json")
    again = msgspec.json.decode(read.serialize(format="json"))
    found = native_prov.mappings_in(again)
    for thing in things:
        other = found[_identity(thing)]
        assert set(other.was_derived_from) == set(thing.was_derived_from)
        assert set(other.was_generated_by) == set(thing.was_generated_by)


EXTENSIONS = st.dictionaries(
    NAMES.map(lambda name: f"x{name}"), st.one_of(TEXT, st.booleans(), st.integers(-(2**31), 2**31 - 1)), max_size=3
)
PAYLOADS = st.one_of(
    st.just({}),
    JSON.filter(lambda value: value is not None).map(lambda value: {"data": value}),
    st.just({"data_base64": "AAEC"}),
)
FOREIGN_EVENTS = st.builds(
    lambda own, extensions, optional, payload: {"specversion": "1.0", **extensions, **own, **optional, **payload},
    st.fixed_dictionaries({"id": IDS, "source": URIS, "type": IDS, "time": st.just("2026-05-08T12:30:00Z")}),
    EXTENSIONS,
    st.fixed_dictionaries(
        {},
        optional={
            "subject": IDS,
            "datacontenttype": st.just("application/json"),
            "dataschema": URIS,
            "sessionid": IDS,
            "turnid": IDS,
            "traceparent": st.just(f"00-{1:032x}-{2:016x}-01"),
            "time": st.sampled_from(
                ["2026-05-08T12:30:00+02:00", "2026-05-08T12:30:00.5Z", "2026-05-08T12:30:00.000Z"]
            ),
        },
    ),
    PAYLOADS,
)


@given(FOREIGN_EVENTS)
def test_foreign_cloudevents_round_trip(event: dict[str, Any]) -> None:
    record = checked(cloudevents.context_event_of(event, event_class="context.item.added"))
    assert cloudevents.cloud_event_of(record) == event
    mapping = record.external_mappings[0]
    assert (mapping.id, mapping.source, mapping.type) == (event["id"], event["source"], event["type"])
    assert record.session_id == event.get("sessionid", UNSET)
    assert bool(record.telemetry_refs) == ("traceparent" in event)


@given(records("context_event"))
def test_events_round_trip_through_cloudevents(record: ContextEvent) -> None:
    own = structs.replace(
        record,
        external_mappings=tuple(m for m in record.external_mappings if not isinstance(m, CloudEventsMapping)),
    )
    event = msgspec.json.decode(msgspec.json.encode(cloudevents.cloud_event_of(own)))
    assert cloudevents.context_event_of(event) == own


@given(FOREIGN_EVENTS, st.sampled_from(sorted(EVENT_CLASSES)))
def test_events_round_trip_through_the_cloudevents_library(event: dict[str, Any], kind: str) -> None:
    wire = JSONFormat().write(JSONFormat().read(None, msgspec.json.encode({**event, "type": kind})))
    record = cloudevents.context_event_of(msgspec.json.decode(wire))
    assert record.event_type == kind
    read = JSONFormat().read(None, msgspec.json.encode(cloudevents.cloud_event_of(record)))
    assert isinstance(read, ForeignEvent)
    assert (read.get_id(), read.get_source(), read.get_type()) == (event["id"], event["source"], kind)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"specversion": "0.3", "id": "1", "source": "x:y", "type": "t"}, "specversion"),
        ({"specversion": "1.0", "source": "x:y", "type": "t"}, "id"),
        ({"specversion": "1.0", "id": "1", "source": "x:y", "type": "com.example.made"}, "type"),
        ({"specversion": "1.0", "id": "1", "source": "x:y", "type": "context.exported"}, "time"),
        (
            {
                "specversion": "1.0",
                "id": "1",
                "source": "x:y",
                "type": "context.exported",
                "dataschema": "urn:weftline:agent-context:0.1.0:context_event",
                "data": {"event_id": None},
            },
            "data",
        ),
    ],
)
def test_an_unmappable_cloudevent_is_refused_with_the_field(event: dict[str, Any], field: str) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        cloudevents.context_event_of(event)
    assert caught.value.context["field"] == field


def test_a_cloudevent_without_a_time_gets_the_receive_time() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "x:y", "type": "context.exported"}
    record = checked(cloudevents.context_event_of(event, received_at=NOW))
    assert record.time == NOW
    assert cloudevents.cloud_event_of(record) == event


SCHEMAS = st.fixed_dictionaries(
    {},
    optional={
        "$id": URIS,
        "$schema": st.just("https://json-schema.org/draft/2020-12/schema"),
        "$ref": st.just("#/$defs/a"),
        "type": st.one_of(st.just("object"), st.just(["object", "null"])),
        "properties": OBJECTS,
        "required": st.lists(TEXT, min_size=1, max_size=3),
        "additionalProperties": st.one_of(st.booleans(), OBJECTS),
    },
)


@given(SCHEMAS)
def test_stored_schema_fields_round_trip(schema: dict[str, Any]) -> None:
    mapping = json_schema.mapping_of({**schema, "title": "not kept"})
    assert json_schema.schema_of(mapping) == schema
    assert json_schema.schema_of(msgspec.convert(msgspec.to_builtins(mapping), type(mapping))) == schema


def test_invalid_ids_are_refused_and_never_rewritten() -> None:
    with refused("INVALID_INPUT_FORMAT"):
        native_mcp.mapping_of_request({"id": "a\nb"})
    with refused("INVALID_INPUT_FORMAT"):
        a2a.mapping_of_message({"messageId": "x" * 501})
    with refused("INVALID_INPUT_FORMAT"):
        native_mcp.item_of_block({"text": "no type"}, HERE)


def test_an_item_without_a_native_mapping_cannot_be_mapped_back() -> None:
    item = ContextItem(
        schema_version="0.1.0", item_id="i", context_kind="note", content_mode="inline", visibility=(), content="x"
    )
    with refused("INVALID_INPUT_FORMAT"):
        native_mcp.native_of(item)
    item = a2a.item_of_task({"id": "t"}, HERE)
    with refused("INVALID_INPUT_FORMAT"):
        a2a.native_of(structs.replace(item, content=UNSET, content_mode="opaque"))
