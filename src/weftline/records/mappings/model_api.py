"""Model APIs: ids and token usage of a provider's response.

``input_tokens`` is everything the model read. Anthropic does not count cache reads and writes in its number, so they
are added here. ``cached_input_tokens`` is what was read from the cache, for every provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.kernel.errors import InvalidInput
from weftline.records.mappings.natives import build_part, number_of, object_of
from weftline.records.refs import ModelApiMapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Mapping as Object


def mappings_of_openai_chat(
    completion: Object[str, Any], *, prompt_cache_key: str | None = None
) -> tuple[ModelApiMapping, ...]:
    """Map a chat completion and each of its tool calls. The prompt cache key is only in the request."""
    usage = object_of(completion, "usage")
    return _mappings(
        response_id=completion.get("id"),
        prompt_cache_key=prompt_cache_key,
        input_tokens=number_of(usage, "prompt_tokens"),
        cached_input_tokens=number_of(object_of(usage, "prompt_tokens_details"), "cached_tokens"),
        tool_calls=[
            call.get("id")
            for choice in _objects(completion, "choices")
            for call in _objects(object_of(choice, "message"), "tool_calls")
        ],
    )


def mappings_of_openai_response(response: Object[str, Any]) -> tuple[ModelApiMapping, ...]:
    """Map a response of the Responses API and each of its tool calls."""
    usage, output = object_of(response, "usage"), list(_objects(response, "output"))
    return _mappings(
        response_id=response.get("id"),
        message_id=next((part.get("id") for part in output if part.get("type") == "message"), None),
        prompt_cache_key=response.get("prompt_cache_key"),
        input_tokens=number_of(usage, "input_tokens"),
        cached_input_tokens=number_of(object_of(usage, "input_tokens_details"), "cached_tokens"),
        tool_calls=[part["call_id"] for part in output if isinstance(part.get("call_id"), str)],
    )


def mappings_of_anthropic_message(message: Object[str, Any]) -> tuple[ModelApiMapping, ...]:
    """Map a message of the Messages API and each of its tool uses."""
    usage = object_of(message, "usage")
    read = number_of(usage, "cache_read_input_tokens")
    counted = (number_of(usage, "input_tokens"), read, number_of(usage, "cache_creation_input_tokens"))
    known = [count for count in counted if count is not None]
    return _mappings(
        response_id=message.get("id"),
        message_id=message.get("id"),
        input_tokens=sum(known) if known else None,
        cached_input_tokens=read,
        tool_calls=[
            block.get("id") for block in _objects(message, "content") if str(block.get("type")).endswith("tool_use")
        ],
    )


def _mappings(tool_calls: Iterable[Any], response_id: Any, **fields: Any) -> tuple[ModelApiMapping, ...]:  # noqa: ANN401 - whatever a native object holds
    if not isinstance(response_id, str):
        raise InvalidInput("id: required for a response of a model API", field="id")
    whole = build_part(ModelApiMapping, response_id=response_id, **fields)
    calls = (build_part(ModelApiMapping, response_id=response_id, tool_call_id=call) for call in tool_calls)
    return (whole, *calls)


def _objects(native: Object[str, Any], name: str) -> Iterator[dict[str, Any]]:
    values = native.get(name)
    yield from (value for value in values if isinstance(value, dict)) if isinstance(values, list) else ()
