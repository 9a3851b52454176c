"""Prompts and conversations in neutral form, independent of the wire form of a provider."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

WireForm = Literal["openai_chat", "openai_responses", "anthropic"]
Role = Literal["system", "user", "assistant", "tool"]
BlockKind = Literal["layer", "pins", "summary", "conversation", "retrieved", "board", "missing", "task"]


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool by a model. ``arguments`` is JSON text, as the model wrote it."""

    call_id: str
    name: str
    arguments: str


class ToolDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that a model may call. ``native`` is the definition as given in ``form``, if it has other fields."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = msgspec.field(default_factory=dict)
    form: WireForm | None = None
    native: Any = None


class ConversationMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. A tool result has the role tool and the ``tool_call_id`` that it answers.

    ``native`` is the message as given in ``form``, kept only if the other fields cannot express it: images, reasoning,
    unknown fields. Rendering into the same form emits it unchanged.
    """

    role: Role
    content: str = ""
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    form: WireForm | None = None
    native: Any = None


class PromptBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive messages of a prompt from one kind of source. ``cache_point``: a prompt cache may end after it."""

    block_id: str
    kind: BlockKind
    messages: tuple[ConversationMessage, ...]
    cache_point: bool = False


class Prompt(msgspec.Struct, frozen=True):
    """A prompt for one model call: tools, then blocks in order, most stable first."""

    model: str | None
    tools: tuple[ToolDefinition, ...]
    blocks: tuple[PromptBlock, ...]
    max_output_tokens: int
