"""Wire forms of language models: round trips, and valid bodies in every form."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_provider import invalid
from support.wire_forms import CATALOG, MODELS, messages_in
from weftline.kernel.errors import InvalidInput
from weftline.models.language_models import content, wire_forms
from weftline.models.language_models.content import (
    ConversationMessage,
    Prompt,
    PromptBlock,
    ToolCall,
    ToolDefinition,
)
from weftline.models.language_models.rendering import RenderOptions
from weftline.models.language_models.wire_forms import placed_messages

FORMS = tuple(wire_forms.FORMS)

TEXT = st.text(min_size=1, max_size=30).filter(lambda text: text.strip() and "<weftline:system>" not in text)
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
ARGUMENTS = st.dictionaries(NAMES, st.integers(-9, 9) | TEXT, max_size=3).map(
    lambda arguments: msgspec.json.encode(arguments).decode()
)


def messages_of(role: Any) -> st.SearchStrategy[list[ConversationMessage]]:
    return TEXT.map(lambda text: [ConversationMessage(role=role, content=text)])


@st.composite
def step(draw: st.DrawFn) -> list[ConversationMessage]:
    """An assistant that calls tools, and the results."""
    numbers = draw(st.lists(st.integers(0, 10**9), min_size=1, max_size=3, unique=True))
    calls = tuple(ToolCall(f"call_{number}", draw(NAMES), draw(ARGUMENTS)) for number in numbers)
    results = [ConversationMessage(role="tool", content=draw(TEXT), tool_call_id=call.call_id) for call in calls]
    return [ConversationMessage(role="assistant", content=draw(st.just("") | TEXT), tool_calls=calls), *results]


@st.composite
def conversations(draw: st.DrawFn) -> list[ConversationMessage]:
    system = draw(st.lists(messages_of("system"), max_size=2))
    turns = draw(st.lists(messages_of("user") | messages_of("assistant") | step(), max_size=6))
    messages = [message for each in [*system, draw(messages_of("user")), *turns] for message in each]
    # Ids are unique in a conversation.
    ids = [call.call_id for message in messages for call in message.tool_calls]
    return messages if len(ids) == len(set(ids)) else draw(messages_of("user"))


TOOLS = st.lists(
    st.builds(
        ToolDefinition,
        name=NAMES,
        description=st.just("") | TEXT,
        input_schema=st.just({"type": "object", "properties": {"q": {"type": "string"}}}),
    ),
    max_size=3,
    unique_by=lambda tool: tool.name,
)


def prompt_of(messages: list[ConversationMessage], tools: Any = (), model: str = "gpt-4o", **block: Any) -> Prompt:
    return Prompt(model, tuple(tools), (PromptBlock("b", "conversation", tuple(messages), **block),), 100)


def read(form: Any, body: dict[str, Any]) -> wire_forms.Conversation:
    return wire_forms.parse_body(form, body)


def shape(messages: list[ConversationMessage]) -> list[tuple[Any, ...]]:
    """Roles, texts, calls and ids in order; consecutive messages of one role are one, as some forms join them."""
    found: list[tuple[Any, ...]] = []
    for message in messages:
        calls = [(call.call_id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
        texts = [message.content] if message.content else []
        if found and found[-1][0] == message.role != "tool":
            found[-1] = (message.role, [*found[-1][1], *texts], [*found[-1][2], *calls], None)
        else:
            found.append((message.role, texts, calls, message.tool_call_id))
    return [(role, "\n".join(texts), calls, result) for role, texts, calls, result in found]


def test_the_forms_are_those_of_the_table() -> None:
    assert get_args(content.WireForm) == tuple(wire_forms.FORMS) == tuple(MODELS)
    assert get_args(content.PromptForm) == content.PROMPT_FORMS == ("neutral", *wire_forms.FORMS)


@pytest.mark.parametrize("form", FORMS)
@given(messages=conversations(), tools=TOOLS)
def test_a_rendered_conversation_parses_to_the_same_conversation(
    form: Any, messages: list[ConversationMessage], tools: list[ToolDefinition]
) -> None:
    body = wire_forms.render(form, prompt_of(messages, tools), CATALOG.find(MODELS[form]))
    found = read(form, body)
    assert shape(found.messages) == shape(messages)
    assert found.tools == sorted(tools, key=lambda tool: tool.name)


@given(messages=conversations(), tools=TOOLS)
def test_the_neutral_form_round_trips(messages: list[ConversationMessage], tools: list[ToolDefinition]) -> None:
    body = wire_forms.render("neutral", prompt_of(messages, tools), CATALOG.find(None))
    found = wire_forms.parse("neutral", json.loads(wire_forms.encode_body(body))["messages"], tools=body["tools"])
    assert found.messages == messages
    assert found.tools == sorted(tools, key=lambda tool: tool.name)


@pytest.mark.req("CE-F53", part="rendering is byte-identical and append-only")
@pytest.mark.parametrize("form", FORMS)
@given(messages=conversations(), tools=TOOLS)
def test_rendering_twice_gives_the_same_bytes(
    form: Any, messages: list[ConversationMessage], tools: list[ToolDefinition]
) -> None:
    info = CATALOG.find(MODELS[form])
    one = wire_forms.encode_body(wire_forms.render(form, prompt_of(messages, tools), info))
    other = wire_forms.encode_body(wire_forms.render(form, prompt_of(messages, tools[::-1]), info))
    assert one == other


def contents(form: str, body: dict[str, Any]) -> list[Any]:
    return [*body.get("tools", ()), *((each.role, each.content) for each in wire_forms.FORMS[form].segments(body))]


@pytest.mark.req("CE-F53", part="rendering is byte-identical and append-only")
@pytest.mark.parametrize("form", FORMS)
@given(messages=conversations(), more=conversations(), tools=TOOLS)
def test_appended_messages_do_not_change_the_rendered_prefix(
    form: Any, messages: list[ConversationMessage], more: list[ConversationMessage], tools: list[ToolDefinition]
) -> None:
    info = CATALOG.find(MODELS[form])
    later = [message for message in more if message.role in {"user", "assistant"} and not message.tool_calls]
    before = contents(form, wire_forms.render(form, prompt_of(messages, tools), info))
    after = contents(form, wire_forms.render(form, prompt_of([*messages, *later], tools), info))
    assert after[: len(before)] == before


@pytest.mark.parametrize("form", FORMS)
@given(messages=st.lists(conversations(), max_size=3), order=st.randoms(use_true_random=False))
def test_every_order_of_messages_becomes_a_valid_body(form: Any, messages: Any, order: Any) -> None:
    """Calls without results, results without calls, notes in between: each call is followed by its one result."""
    shuffled = [message for each in messages for message in each]
    order.shuffle(shuffled)
    shuffled.append(ConversationMessage(role="user", content="go on"))
    info = CATALOG.find(MODELS[form])
    body = wire_forms.render(form, prompt_of(shuffled, model="x"), info)
    assert invalid(form, body) is None


NATIVE: dict[str, list[Any]] = {
    "openai_chat": [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            ],
        },
        {"role": "assistant", "content": "A cat.", "reasoning_content": "whiskers", "annotations": [{"a": 1}]},
        {"role": "user", "content": "and", "name": "ann", "x_unknown": {"deep": [1, 2]}},
    ],
    "openai_responses": [
        {"type": "message", "role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "look",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "seen"}]},
        {"type": "compaction", "encrypted_content": "zzz"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}], "x": 1},
    ],
    "anthropic": [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "text", "text": "What is this?"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "I will look."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"b": 1, "a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "failed", "is_error": True},
                {"type": "text", "text": "Try again."},
            ],
        },
        {"role": "assistant", "content": [{"type": "compaction", "content": "summary"}]},
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
    ],
    "gemini": [
        {
            "role": "user",
            "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, {"text": "What is this?"}],
        },
        {
            "role": "model",
            "parts": [
                {"text": "Whiskers.", "thought": True},
                {"text": "I will look."},
                {"functionCall": {"name": "look", "args": {"b": 1}}, "thoughtSignature": "AAAA"},
                {"functionCall": {"name": "look", "args": {"b": 2}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": {"error": "failed"}}},
                {"functionResponse": {"name": "look", "response": {"seen": ["a cat"], "legs": 4}}},
                {"text": "And?"},
            ],
        },
        {"role": "model", "parts": [{"executableCode": {"language": "PYTHON", "code": "1 + 1"}}]},
        {"role": "user", "parts": [{"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.example/b"}}]},
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_native_messages_are_rendered_unchanged(form: Any) -> None:
    found = wire_forms.parse(form, NATIVE[form])
    body = wire_forms.render(form, prompt_of(found.messages), CATALOG.find(MODELS[form]))
    assert messages_in(form, body) == NATIVE[form]


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("target", FORMS)
def test_native_messages_are_rendered_in_other_forms(source: Any, target: Any) -> None:
    found = wire_forms.parse(source, NATIVE[source])
    body = wire_forms.render(target, prompt_of(found.messages), CATALOG.find(MODELS[target]))
    assert wire_forms.encode_body(body)
    assert read(target, body).messages


TOOLS_AS_GIVEN: dict[str, list[Any]] = {
    "openai_chat": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}],
    "openai_responses": [{"type": "function", "name": "f", "parameters": {}, "strict": True}, {"type": "web_search"}],
    "anthropic": [
        {"name": "f", "input_schema": {"type": "object"}, "eager_input_streaming": True},
        {"type": "web_search_20260209", "name": "web_search"},
    ],
    "gemini": [
        {"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}, "behavior": "BLOCKING"}]},
        {"googleSearch": {}},
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_tools_are_rendered_as_given(form: Any) -> None:
    tools = wire_forms.parse(form, "hi" if form == "openai_responses" else [], tools=TOOLS_AS_GIVEN[form]).tools
    messages = [ConversationMessage(role="user", content="hi")]
    body = wire_forms.render(form, prompt_of(messages, tools), CATALOG.find(MODELS[form]))
    assert body["tools"] == TOOLS_AS_GIVEN[form]


def test_tools_that_only_their_provider_runs_are_left_out_elsewhere() -> None:
    tools = wire_forms.parse("anthropic", [], tools=TOOLS_AS_GIVEN["anthropic"]).tools
    messages = [ConversationMessage(role="user", content="hi")]
    body = wire_forms.render("openai_chat", prompt_of(messages, tools), CATALOG.find("gpt-4o"))
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f"]


def test_an_image_travels_between_forms() -> None:
    url = "data:image/png;base64,AAAA"
    given = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    messages = wire_forms.parse("openai_chat", given).messages
    anthropic = wire_forms.render("anthropic", prompt_of(messages), CATALOG.find("claude-opus-5"))
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert anthropic["messages"][0]["content"] == [{"type": "image", "source": source}]
    responses = wire_forms.render("openai_responses", prompt_of(messages), CATALOG.find("gpt-6-sol"))
    assert responses["input"][0]["content"] == [{"type": "input_image", "image_url": url}]


def test_an_image_that_cannot_be_sent_leaves_a_note() -> None:
    given = [
        {"role": "user", "content": [{"type": "input_image", "file_id": "f"}, {"type": "input_text", "text": "?"}]}
    ]
    messages = wire_forms.parse("openai_responses", given).messages
    body = wire_forms.render("openai_chat", prompt_of(messages), CATALOG.find("gpt-4o"))
    assert body["messages"][0]["content"][0] == {"type": "text", "text": "[image not included]"}
    text_only = wire_forms.parse("openai_chat", NATIVE["openai_chat"]).messages
    body = wire_forms.render("anthropic", prompt_of(text_only), CATALOG.find("claude-opus-5"))
    assert {"type": "text", "text": "[audio not included]"} in body["messages"][0]["content"]


def test_a_summary_by_the_provider_travels_as_text() -> None:
    given = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "compaction", "content": "so far"}]},
    ]
    messages = wire_forms.parse("anthropic", given).messages
    body = wire_forms.render("openai_chat", prompt_of(messages), CATALOG.find("gpt-4o"))
    assert body["messages"][1] == {"role": "assistant", "content": "so far"}


def test_system_notes_in_the_middle_become_text_of_the_user() -> None:
    messages = [
        ConversationMessage(role="system", content="first"),
        ConversationMessage(role="user", content="hi"),
        ConversationMessage(role="system", content="note"),
    ]
    body = wire_forms.render("anthropic", prompt_of(messages), CATALOG.find("claude-opus-5"))
    assert body["system"] == [{"type": "text", "text": "first"}]
    assert body["messages"][0]["content"][1]["text"] == "<weftline:system>\nnote\n</weftline:system>"
    body = wire_forms.render("openai_chat", prompt_of(messages), CATALOG.find("llama-3.3-70b"))
    assert body["messages"] == [
        {"role": "system", "content": "first"},
        {"role": "user", "content": "hi\n\n<weftline:system>\nnote\n</weftline:system>"},
    ]
    body = wire_forms.render("openai_chat", prompt_of(messages), CATALOG.find("gpt-4o"))
    assert [message["role"] for message in body["messages"]] == ["system", "user", "system"]


def test_parallel_calls_of_responses_become_one_message_of_chat() -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
    ]
    messages = wire_forms.parse("openai_responses", items).messages
    body = wire_forms.render("openai_chat", prompt_of(messages), CATALOG.find("gpt-4o"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in body["messages"][1]["tool_calls"]] == ["a", "b"]


def test_arguments_that_are_no_object_are_wrapped_for_anthropic() -> None:
    calls = (ToolCall("a b", "f", "{broken"),)
    messages = [
        ConversationMessage(role="user", content="hi"),
        ConversationMessage(role="assistant", tool_calls=calls),
        ConversationMessage(role="tool", content="1", tool_call_id="a b"),
    ]
    body = wire_forms.render("anthropic", prompt_of(messages), CATALOG.find("claude-opus-5"))
    use, result = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert use["input"] == {"arguments": "{broken"}
    assert use["id"] == result["tool_use_id"] != "a b"


def test_cache_marks_of_the_caller_are_dropped() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    given = [{"role": "user", "content": [{"type": "text", "text": "hi", **mark}]}]
    found = wire_forms.parse("anthropic", given, system=[{"type": "text", "text": "s", **mark}])
    assert b"cache_control" not in msgspec.json.encode(found)
    # But not from the arguments of a tool.
    use = {"type": "tool_use", "id": "t", "name": "f", "input": mark}
    found = wire_forms.parse("anthropic", [{"role": "assistant", "content": [use]}])
    assert json.loads(found.messages[0].tool_calls[0].arguments) == mark


@pytest.mark.parametrize(
    ("form", "messages", "more", "field"),
    [
        ("openai_chat", {}, {}, "messages"),
        ("openai_chat", ["hi"], {}, "messages[0]"),
        ("openai_chat", [{"role": "king", "content": ""}], {}, "messages[0].role"),
        ("openai_chat", [{"role": "user", "content": 5}], {}, "messages[0].content"),
        ("openai_chat", [{"role": "user", "content": [{"text": "x"}]}], {}, "messages[0].content[0].type"),
        ("openai_chat", [{"role": "tool", "content": "x"}], {}, "messages[0].tool_call_id"),
        (
            "openai_chat",
            [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {}}]}],
            {},
            "messages[0].tool_calls[0].function.name",
        ),
        ("openai_chat", [], {"tools": [{"type": "function"}]}, "tools[0].function"),
        ("openai_responses", [{"content": "x"}], {}, "input[0].type"),
        ("openai_responses", [{"type": "function_call", "name": "f"}], {}, "input[0].call_id"),
        ("openai_responses", 7, {}, "input"),
        ("openai_responses", [], {"system": 7}, "instructions"),
        ("anthropic", [{"role": "user"}], {}, "messages[0].content"),
        ("anthropic", [{"role": "tool", "content": "x"}], {}, "messages[0].role"),
        (
            "anthropic",
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}],
            {},
            "messages[0].content[0].input",
        ),
        (
            "anthropic",
            [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "tool_result"}]}],
            {},
            "messages[0].content[1].tool_use_id",
        ),
        ("anthropic", [], {"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ("neutral", [{"role": "king"}], {}, "messages[0].role"),
        ("neutral", [{"content": "x"}], {}, "messages[0]"),
    ],
)
def test_bad_input_names_its_field(form: Any, messages: Any, more: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        wire_forms.parse(form, messages, **more)
    assert refused.value.context["field"] == field
    assert refused.value.message.startswith(field + ":")


@pytest.mark.parametrize("form", FORMS)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["role", "content", "type", "text", "tool_calls", "id", "name", "call_id", "output", "input"]
                )
                | st.text(max_size=4),
                inner | st.sampled_from(["user", "assistant", "tool", "text", "message", "function_call", "tool_use"]),
                max_size=5,
            )
        ),
        max_leaves=25,
    )
)
def test_any_input_is_parsed_or_refused(form: Any, value: Any) -> None:
    try:
        found = wire_forms.parse(form, value, tools=value)
    except InvalidInput:
        return
    messages = [*found.messages, ConversationMessage(role="user", content="hi")]
    for target in FORMS:
        wire_forms.encode_body(
            wire_forms.render(target, prompt_of(messages, found.tools), CATALOG.find(MODELS[target]))
        )  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [5, True, {"a": 1}, ["text", 7], [{"type": "text", "text": 5}]])
def test_opaque_items_may_hold_anything(content: Any) -> None:
    [message] = wire_forms.parse("openai_responses", [{"type": "reasoning", "content": content}]).messages
    for target in FORMS:
        said = [ConversationMessage(role="user", content="hi"), message]
        body = wire_forms.render(target, prompt_of(said), CATALOG.find(MODELS[target]))  # type: ignore[arg-type]
        assert wire_forms.encode_body(body)


def test_tools_named_twice_are_refused() -> None:
    tool = {"name": "f", "input_schema": {}}
    with pytest.raises(InvalidInput, match="twice"):
        wire_forms.parse("anthropic", [], tools=[tool, tool])


def test_a_conversation_that_begins_with_the_assistant_gets_a_first_message() -> None:
    messages = [ConversationMessage(role="assistant", content="hello")]
    body = wire_forms.render("anthropic", prompt_of(messages), CATALOG.find("claude-opus-5"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]


def test_a_prompt_of_system_messages_alone_is_refused_by_anthropic() -> None:
    with pytest.raises(InvalidInput, match="blocks"):
        wire_forms.render(
            "anthropic", prompt_of([ConversationMessage(role="system", content="x")]), CATALOG.find("claude-opus-5")
        )


def test_an_unknown_lifetime_is_refused() -> None:
    messages = [ConversationMessage(role="user", content="x")]
    with pytest.raises(InvalidInput, match="cache_ttl: must be one of 5m, 1h"):
        wire_forms.render("anthropic", prompt_of(messages), CATALOG.find("claude-opus-5"), RenderOptions(ttl="2h"))


def test_results_of_equal_call_ids_go_to_the_calls_in_order() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "tool_calls": [call]}
    sent = [asked, {"role": "user", "content": "wait"}, asked]
    sent += [{"role": "tool", "tool_call_id": "c", "content": text} for text in ("one", "two", "three")]
    block = PromptBlock("all", "conversation", tuple(wire_forms.parse("openai_chat", sent).messages))
    placed = placed_messages(Prompt(model=None, tools=(), blocks=(block,), max_output_tokens=1))
    found = [(each.message.role, each.message.content) for each in placed]
    assert found == [
        ("assistant", ""),
        ("tool", "one"),
        ("user", "wait"),
        ("assistant", ""),
        ("tool", "two"),
        ("user", "[Result of an earlier tool call]\nthree"),
    ]


def test_calls_of_gemini_without_ids_are_matched_by_name_and_order() -> None:
    messages = wire_forms.parse("gemini", NATIVE["gemini"]).messages
    calls = [call.call_id for message in messages for call in message.tool_calls]
    results = [message for message in messages if message.role == "tool"]
    assert calls == [message.tool_call_id for message in results] == ["look", "look-2"]
    assert [message.content for message in results] == ["failed", '{"seen":["a cat"],"legs":4}']
    # By itself, a message keeps the ids that it was given with the others.
    assert [wire_forms.check_native(message, "native") for message in messages] == messages


def test_what_gemini_reads_in_two_spellings_is_read_once() -> None:
    call = {"function_call": {"name": "look", "args": {}}, "thought_signature": "AAAA"}
    (message,) = wire_forms.parse("gemini", [{"role": "model", "parts": [call]}]).messages
    part = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "AAAA"}
    assert message.native == {"role": "model", "parts": [part]}
    for problem in ({"parts": [{**call, **part}]}, {"parts": [{"text": "hi"}], "content": "Obey."}):
        with pytest.raises(InvalidInput):
            wire_forms.parse("gemini", [problem])


def test_types_of_geminis_schemas_are_json_schema_elsewhere() -> None:
    given = {"type": "OBJECT", "properties": {"type": {"type": "STRING", "enum": ["A"]}}}
    tools = wire_forms.parse(
        "gemini", [], tools=[{"function_declarations": [{"name": "f", "parameters": given}]}]
    ).tools
    messages = [ConversationMessage(role="user", content="hi")]
    body = wire_forms.render("anthropic", prompt_of(messages, tools), CATALOG.find("claude-opus-5"))
    properties = {"type": {"type": "string", "enum": ["A"]}}
    assert body["tools"][0]["input_schema"] == {"type": "object", "properties": properties}
    native = {"functionDeclarations": [{"name": "f"}, {"name": "g"}]}
    with pytest.raises(InvalidInput):
        wire_forms.parse("neutral", [], tools=[{"name": "f", "form": "gemini", "native": native}])
