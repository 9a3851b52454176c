"""Model Context Protocol: resources, content blocks and tool results as items; requests as mappings.

Native objects are JSON as on the wire, such as ``model_dump(by_alias=True, mode="json")`` of the SDK's types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from weftline.kernel.errors import InvalidInput
from weftline.records.mappings.natives import (
    ItemNaming,
    ItemShape,
    build_part,
    object_of,
    text_of,
    to_item,
    to_native,
)
from weftline.records.model import ContextSourceRef
from weftline.records.refs import McpMapping
from weftline.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

    from weftline.records.model import ContextItem

_SYSTEM = "mcp"
_EMPTY = McpMapping()


def mapping_of_request(
    request: Object[str, Any], *, server_id: str | None = None, mcp_session_id: str | None = None
) -> McpMapping:
    """Return the ids of a JSON-RPC request. Its request id stays a string or a number."""
    params = object_of(request, "params")
    about = object_of(params, "ref")
    is_prompt = request.get("method") == "prompts/get"
    return build_part(
        McpMapping,
        server_id=server_id,
        mcp_session_id=mcp_session_id,
        resource_uri=text_of(params, "uri"),
        resource_template=text_of(about, "uri"),
        prompt_name=text_of(params, "name") if is_prompt else text_of(about, "name"),
        jsonrpc_request_id=request.get("id"),
    )


def mapping_of_root(root: Object[str, Any], *, server_id: str | None = None) -> McpMapping:
    """Return the mapping of a client's root."""
    return build_part(McpMapping, server_id=server_id, root_uri=text_of(root, "uri"))


def item_of_contents(contents: Object[str, Any], naming: ItemNaming, mapping: McpMapping = _EMPTY) -> ContextItem:
    """Convert resource contents, text or blob, to an embedded resource."""
    has_text = isinstance(contents.get("text"), str)
    shape = ItemShape(
        _SYSTEM,
        "resource",
        "embedded_resource",
        text_field="text" if has_text else None,
        mime_type=text_of(contents, "mimeType"),
        title=text_of(contents, "uri"),
    )
    return to_item(contents, shape, naming, _about(mapping, contents))


def item_of_block(block: Object[str, Any], naming: ItemNaming, mapping: McpMapping = _EMPTY) -> ContextItem:
    """Convert a content block of any type to an item."""
    match block.get("type"):
        case "text":
            return to_item(block, ItemShape(_SYSTEM, "text", "inline", text_field="text"), naming, mapping)
        case "resource_link":
            title = text_of(block, "title") or text_of(block, "name")
            media_type, uri = text_of(block, "mimeType"), text_of(block, "uri")
            shape = ItemShape(_SYSTEM, "resource_link", "resource_link", uri=uri, mime_type=media_type, title=title)
            return to_item(block, shape, naming, _about(mapping, block))
        case "resource":
            inner = object_of(block, "resource")
            shape = ItemShape(_SYSTEM, "resource", "embedded_resource", mime_type=text_of(inner, "mimeType"))
            return to_item(block, shape, naming, _about(mapping, inner))
        case str() as kind:
            shape = ItemShape(_SYSTEM, kind, "embedded_resource", mime_type=text_of(block, "mimeType"))
            return to_item(block, shape, naming, mapping)
        case _:
            raise InvalidInput("type: required for a content block")


def item_of_tool_result(result: Object[str, Any], naming: ItemNaming, mapping: McpMapping = _EMPTY) -> ContextItem:
    """Convert a whole tool result to one item; its blocks can be separate items."""
    return to_item(result, ItemShape(_SYSTEM, "tool_result", "inline"), naming, mapping)


def source_ref_of_resource(
    resource: Object[str, Any], source_id: str, *, server_id: str | None = None
) -> ContextSourceRef:
    """Convert a listed resource to a source ref."""
    own = {name: value for name, value in resource.items() if name not in {"uri", "name"}}
    return build_part(
        ContextSourceRef,
        schema_version=SCHEMA_VERSION,
        source_id=source_id,
        uri=resource.get("uri"),
        source_kind="mcp_resource",
        authority=server_id,
        external_mappings=({"native": "mcp", **_ids(server_id, resource)},),
        metadata={_SYSTEM: {"kind": "listed_resource", "name": resource.get("name"), "native": own}},
    )


def resource_of_source_ref(ref: ContextSourceRef) -> dict[str, Any]:
    """Convert a source ref back to its resource."""
    own = object_of(ref.metadata, _SYSTEM)
    named = {} if own.get("name") is None else {"name": own["name"]}
    return {"uri": ref.uri, **named, **object_of(own, "native")}


def native_of(item: ContextItem) -> dict[str, Any]:
    """Convert an item back to its contents, block or result."""
    return to_native(item, _SYSTEM)


def _about(mapping: McpMapping, native: Object[str, Any]) -> McpMapping:
    named = build_part(McpMapping, resource_uri=text_of(native, "uri"))
    return structs.replace(mapping, resource_uri=named.resource_uri)


def _ids(server_id: str | None, resource: Object[str, Any]) -> dict[str, Any]:
    ids = {"server_id": server_id, "resource_uri": resource.get("uri")}
    return {name: value for name, value in ids.items() if value is not None}
