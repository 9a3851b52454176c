"""Content of messages in any wire form: texts, media and opaque parts, and checks of what callers send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from weftline.kernel.errors import InvalidInput

MediaKind = Literal["image", "audio", "file"]

# The field of the text. A summary by the provider's compaction is text if the provider shows it.
TEXT_FIELDS = {
    "compaction": "content",
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "summary_text": "text",
}
# What a message is worth only to the provider that wrote it.
_OPAQUE_TYPES = {"thinking", "redacted_thinking", "reasoning", "encrypted_content"}
# Blocks that have blocks of their own.
_NESTING = frozenset({"tool_result", "search_result"})
CACHE_MARKS = ("cache_control", "prompt_cache_breakpoint")


class Media(NamedTuple):
    """An image, audio or file. ``url`` or ``data`` (base64) is given; neither if only the provider can read it."""

    kind: MediaKind
    url: str | None = None
    data: str | None = None
    media_type: str = ""
    name: str = ""

    @property
    def note(self) -> str:
        """Return the placeholder text where it cannot be sent."""
        return f"[{self.kind} not included{': ' + self.name if self.name else ''}]"


Part = str | Media
# The wire forms by name, in the order of the table in wire_forms.py; neutral is Weftline's own.
WireForm = Literal["openai_chat", "openai_responses", "anthropic", "gemini"]
PromptForm = Literal["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"]
PROMPT_FORMS = get_args(PromptForm)
_FORM_HINT = (
    f"Give messages, system and tools in the wire form of the call: {', '.join(PROMPT_FORMS[:-1])} "
    f"or {PROMPT_FORMS[-1]}."
)


def _invalid(path: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{path}: {problem}", hint=_FORM_HINT, field=path)


def object_at(value: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - what a caller sent
    if not isinstance(value, dict):
        raise _invalid(path, "must be an object")
    return value


def list_at(value: Any, path: str) -> list[Any]:  # noqa: ANN401 - likewise
    if not isinstance(value, list | tuple):
        raise _invalid(path, "must be a list")
    return list(value)


def text_at(value: Any, path: str, *, required: bool = True) -> str:  # noqa: ANN401 - likewise
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise _invalid(path, f"must be {'text' if not required else 'a text that is not empty'}")
    return value


def choice_at(value: Any, allowed: tuple[str, ...], path: str) -> str:  # noqa: ANN401 - likewise
    if value not in allowed:
        raise _invalid(path, f"must be one of {', '.join(allowed)}")
    return str(value)


def content_at(value: Any, path: str) -> list[dict[str, Any]] | str | None:  # noqa: ANN401 - likewise
    """Return the content of a message: text, or a list of typed blocks without the caller's cache marks."""
    if value is None or isinstance(value, str):
        return value
    blocks = []
    for position, given in enumerate(list_at(value, path)):
        block = object_at(given, f"{path}[{position}]")
        kind = text_at(block.get("type"), f"{path}[{position}].type")
        if kind in TEXT_FIELDS:
            text_at(block.get(TEXT_FIELDS[kind], ""), f"{path}[{position}].{TEXT_FIELDS[kind]}", required=False)
        blocks.append(unmarked(block))
    return blocks


def unmarked(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without cache marks: they belong to one request, and the plan of each prompt places its own."""
    if not any(mark in block for mark in CACHE_MARKS):
        return block
    return {name: value for name, value in block.items() if name not in CACHE_MARKS}


def text_of(content: Any) -> str:  # noqa: ANN401 - content of any form
    """Return the texts of a content, joined by line breaks."""
    return "\n".join(part for part in parts(content) if isinstance(part, str))


def parts(content: Any) -> list[Part]:  # noqa: ANN401 - content of any form
    """Return the texts and media of a content in order; opaque parts are left out."""
    if isinstance(content, str):
        return [content] if content else []
    found: list[Part] = []
    for block in content if isinstance(content, list) else ():
        part = _part(block) if isinstance(block, dict) else None
        if part:
            found.append(part)
    return found


def change_texts(native: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON in a wire form
    """Return a message, item or result whose content is typed blocks, with its texts changed."""
    if not isinstance(native, dict):
        return native
    return {name: _changed(value, change) if name in {"content", "output"} else value for name, value in native.items()}


def _changed(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - likewise
    if isinstance(value, str):
        return change(value)
    return [_changed_block(each, change) for each in value] if isinstance(value, list) else value


def _changed_block(block: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - likewise
    if not isinstance(block, dict):
        return block
    field = TEXT_FIELDS.get(str(block.get("type", "")))
    if field is not None and isinstance(block.get(field), str):
        return {**block, field: change(block[field])}
    if block.get("type") in _NESTING:
        return change_texts(block, change)
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "text":
        return {**block, "source": {**source, "data": _changed(source.get("data"), change)}}
    return block


def _part(block: dict[str, Any]) -> Part | None:
    kind = str(block.get("type", ""))
    if kind in TEXT_FIELDS:
        return str(block.get(TEXT_FIELDS[kind]) or "")
    if kind in _OPAQUE_TYPES:
        return None
    read = _MEDIA.get(kind)
    return None if read is None else read(block)


def _chat_image(block: dict[str, Any]) -> Media:
    image = block.get("image_url")
    return _from_url("image", image.get("url") if isinstance(image, dict) else image)


def _responses_image(block: dict[str, Any]) -> Media:
    return _from_url("image", block.get("image_url"))


def _chat_audio(block: dict[str, Any]) -> Media:
    audio = _fields(block, "input_audio")
    return Media("audio", data=_text(audio, "data"), media_type=f"audio/{_text(audio, 'format') or 'wav'}")


def _chat_file(block: dict[str, Any]) -> Media:
    file = _fields(block, "file")
    return _from_url("file", file.get("file_data"), _text(file, "filename") or "")


def _responses_file(block: dict[str, Any]) -> Media:
    name = _text(block, "filename") or ""
    return _from_url("file", block.get("file_data") or block.get("file_url"), name)


def _anthropic_source(kind: MediaKind, block: dict[str, Any]) -> Media | str:
    source = _fields(block, "source")
    name = _text(block, "title") or ""
    match source.get("type"):
        case "base64":
            return Media(kind, data=_text(source, "data"), media_type=_text(source, "media_type") or "", name=name)
        case "url":
            return Media(kind, url=_text(source, "url"), name=name)
        case "text":
            return _text(source, "data") or ""
        case "content":
            return text_of(source.get("content"))
        case _:
            return Media(kind, name=name)


_MEDIA: dict[str, Any] = {
    "image_url": _chat_image,
    "input_image": _responses_image,
    "image": lambda block: _anthropic_source("image", block),
    "input_audio": _chat_audio,
    "file": _chat_file,
    "input_file": _responses_file,
    "document": lambda block: _anthropic_source("file", block),
}


def _from_url(kind: MediaKind, url: Any, name: str = "") -> Media:  # noqa: ANN401 - what a caller sent
    if not isinstance(url, str) or not url:
        return Media(kind, name=name)
    if url.startswith("data:") and ";base64," in url:
        head, data = url.split(";base64,", 1)
        return Media(kind, data=data, media_type=head[len("data:") :], name=name)
    return Media(kind, url=url, name=name)


def _fields(block: dict[str, Any], name: str) -> dict[str, Any]:
    found = block.get(name)
    return found if isinstance(found, dict) else {}


def _text(fields: dict[str, Any], name: str) -> str | None:
    found = fields.get(name)
    return found if isinstance(found, str) else None


def data_url(media: Media) -> str | None:
    """Return the address of a medium: its URL, or its data as a data URL."""
    if media.url is not None:
        return media.url
    return None if media.data is None else f"data:{media.media_type};base64,{media.data}"


# Prompts and conversations in neutral form, independent of the wire form of a provider.

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
