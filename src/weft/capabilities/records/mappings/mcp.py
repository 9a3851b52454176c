"""The Model Context Protocol: resources, blocks of content and results of tools as items; requests as mappings.

Native objects are JSON as the protocol has it, such as ``model_dump(by_alias=True, mode="json")`` of the SDK's types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from weft.capabilities.records.mappings.natives import (
    Naming,
    Shape,
    fitting,
    item_from,
    native_from,
    object_of,
    text_of,
)
from weft.capabilities.records.model import ContextSourceRef
from weft.capabilities.records.refs import McpMapping
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

    from weft.capabilities.records.model import ContextItem

_SYSTEM = "mcp"
_NOWHERE = McpMapping()


def mapping_of_request(
    request: Object[str, Any], *, server_id: str | None = None, mcp_session_id: str | None = None
) -> McpMapping:
    """Return what a JSON-RPC request is about, by the ids it has: its own is kept as text or number, as it was."""
    params = object_of(request, "params")
    about = object_of(params, "ref")
    is_prompt = request.get("method") == "prompts/get"
    return fitting(
        McpMapping,
        server_id=server_id,
        mcp_session_id=mcp_session_id,
        resource_uri=text_of(params, "uri"),
        resource_template=text_of(about, "uri"),
        prompt_name=text_of(params, "name") if is_prompt else text_of(about, "name"),
        jsonrpc_request_id=request.get("id"),
    )


def mapping_of_root(root: Object[str, Any], *, server_id: str | None = None) -> McpMapping:
    """Return the mapping of a root that a client offers."""
    return fitting(McpMapping, server_id=server_id, root_uri=text_of(root, "uri"))


def item_of_contents(contents: Object[str, Any], naming: Naming, mapping: McpMapping = _NOWHERE) -> ContextItem:
    """Return what reading a resource gave, text or blob, as an embedded resource."""
    has_text = isinstance(contents.get("text"), str)
    shape = Shape(
        _SYSTEM,
        "resource",
        "embedded_resource",
        text_field="text" if has_text else None,
        mime_type=text_of(contents, "mimeType"),
        title=text_of(contents, "uri"),
    )
    return item_from(contents, shape, naming, _about(mapping, contents))


def item_of_block(block: Object[str, Any], naming: Naming, mapping: McpMapping = _NOWHERE) -> ContextItem:
    """Return a block of content, of whichever type, as an item."""
    match block.get("type"):
        case "text":
            return item_from(block, Shape(_SYSTEM, "text", "inline", text_field="text"), naming, mapping)
        case "resource_link":
            title = text_of(block, "title") or text_of(block, "name")
            media_type, uri = text_of(block, "mimeType"), text_of(block, "uri")
            shape = Shape(_SYSTEM, "resource_link", "resource_link", uri=uri, mime_type=media_type, title=title)
            return item_from(block, shape, naming, _about(mapping, block))
        case "resource":
            inner = object_of(block, "resource")
            shape = Shape(_SYSTEM, "resource", "embedded_resource", mime_type=text_of(inner, "mimeType"))
            return item_from(block, shape, naming, _about(mapping, inner))
        case str() as kind:
            shape = Shape(_SYSTEM, kind, "embedded_resource", mime_type=text_of(block, "mimeType"))
            return item_from(block, shape, naming, mapping)
        case _:
            raise InvalidInput("A block of content has a type.")


def item_of_tool_result(result: Object[str, Any], naming: Naming, mapping: McpMapping = _NOWHERE) -> ContextItem:
    """Return the whole result of a tool call as one item; its blocks can be items of their own."""
    return item_from(result, Shape(_SYSTEM, "tool_result", "inline"), naming, mapping)


def source_ref_of_resource(
    resource: Object[str, Any], source_id: str, *, server_id: str | None = None
) -> ContextSourceRef:
    """Return a resource that a server lists as a source."""
    own = {name: value for name, value in resource.items() if name not in {"uri", "name"}}
    return fitting(
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
    """Return the resource that a source was made from."""
    own = object_of(ref.metadata, _SYSTEM)
    named = {} if own.get("name") is None else {"name": own["name"]}
    return {"uri": ref.uri, **named, **object_of(own, "native")}


def native_of(item: ContextItem) -> dict[str, Any]:
    """Return the contents, block or result that an item was made from."""
    return native_from(item, _SYSTEM)


def _about(mapping: McpMapping, native: Object[str, Any]) -> McpMapping:
    named = fitting(McpMapping, resource_uri=text_of(native, "uri"))
    return structs.replace(mapping, resource_uri=named.resource_uri)


def _ids(server_id: str | None, resource: Object[str, Any]) -> dict[str, Any]:
    said = {"server_id": server_id, "resource_uri": resource.get("uri")}
    return {name: value for name, value in said.items() if value is not None}
