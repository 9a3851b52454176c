"""The wire forms by name: reading what a caller sends, and rendering a prompt as the body of a request."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from weft.capabilities.language_models import anthropic, neutral, openai_chat, openai_responses
from weft.capabilities.language_models.catalog import ModelInfo
from weft.capabilities.language_models.model import Prompt
from weft.capabilities.language_models.rendering import DEFAULT_OPTIONS, Conversation, RenderOptions

PromptForm = Literal["neutral", "openai_chat", "openai_responses", "anthropic"]

_MODULES = {"openai_chat": openai_chat, "openai_responses": openai_responses, "anthropic": anthropic}
_encode = msgspec.json.Encoder().encode


def parse(form: PromptForm, messages: object, *, system: object = None, tools: object = None) -> Conversation:
    """Read a conversation as sent in a form; raises InvalidInput that names the field.

    ``messages`` is the ``input`` of Responses, ``system`` its ``instructions``.
    """
    if form == "neutral":
        return neutral.parse(messages, system=system, tools=tools)
    conversation: Conversation = _MODULES[form].parse(messages, system=system, tools=tools)
    return conversation


def render(
    form: PromptForm, prompt: Prompt, info: ModelInfo, options: RenderOptions = DEFAULT_OPTIONS
) -> dict[str, Any]:
    """Return the body of a request. The same prompt gives the same bytes when encoded by ``encode_body``."""
    return neutral.render(prompt) if form == "neutral" else _MODULES[form].render(prompt, info, options)


def encode_body(body: dict[str, Any]) -> bytes:
    """Return the JSON of a body; fields are in the order in which rendering writes them."""
    return _encode(body)
