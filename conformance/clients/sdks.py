"""The official Python SDKs of OpenAI and Anthropic: prints one JSON line for each scenario.

ANTHROPIC_BASE_URL and OPENAI_BASE_URL lead to the model proxy; the models are scripts of the provider behind it.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SCENARIOS = ("plain", "tools", "parallel", "image", "thinking", "retry", "timeout")
CALLS = {"tools": 1, "parallel": 2}


def messages(scenario: str, client: anthropic.Anthropic, *, streams: bool) -> list[str]:
    content: Any = "Say it."
    if scenario == "image":
        source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
        content = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    given: list[Any] = [{"role": "user", "content": content}]
    options: dict[str, Any] = {"model": f"scripted-{scenario}", "max_tokens": 2048}
    if scenario in CALLS:
        options["tools"] = [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}]
    if scenario == "thinking":
        options["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    seen: list[str] = []
    while True:
        if streams:
            with client.messages.stream(messages=given, **options) as stream:
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(messages=given, **options)
        seen += [block.type for block in answer.content]
        if answer.stop_reason != "tool_use":
            return [*seen, answer.content[-1].text, str(answer.usage.cache_read_input_tokens)]
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"sunny in {block.input['city']}"}
            for block in answer.content
            if block.type == "tool_use"
        ]
        given += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]


def chat(scenario: str, client: openai.OpenAI, *, streams: bool) -> list[str]:
    content: Any = "Say it."
    if scenario == "image":
        content = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
            {"type": "text", "text": "What?"},
        ]
    given: list[Any] = [{"role": "user", "content": content}]
    options: dict[str, Any] = {"model": f"scripted-{scenario}"}
    if scenario in CALLS:
        options["tools"] = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    seen: list[str] = []
    while True:
        if streams:
            with client.chat.completions.stream(
                messages=given, stream_options={"include_usage": True}, **options
            ) as stream:
                answer = stream.get_final_completion()
        else:
            answer = client.chat.completions.create(messages=given, **options)
        message = answer.choices[0].message
        if not message.tool_calls:
            return [*seen, message.content, str(answer.usage.prompt_tokens_details.cached_tokens)]
        given.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        for call in message.tool_calls:
            seen.append(call.function.name)
            city = json.loads(call.function.arguments)["city"]
            given.append({"role": "tool", "tool_call_id": call.id, "content": f"sunny in {city}"})


def responses(scenario: str, client: openai.OpenAI, *, streams: bool) -> list[str]:
    content: Any = "Say it."
    if scenario == "image":
        content = [
            {"type": "input_image", "image_url": f"data:image/png;base64,{IMAGE}"},
            {"type": "input_text", "text": "What?"},
        ]
    given: list[Any] = [{"role": "user", "content": content}]
    options: dict[str, Any] = {"model": f"scripted-{scenario}"}
    if scenario in CALLS:
        options["tools"] = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
    if scenario == "thinking":
        options["reasoning"] = {"effort": "low"}
    seen: list[str] = []
    while True:
        if streams:
            with client.responses.stream(input=given, **options) as stream:
                answer = stream.get_final_response()
        else:
            answer = client.responses.create(input=given, **options)
        seen += [item.type for item in answer.output]
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return [*seen, answer.output_text, str(answer.usage.input_tokens_details.cached_tokens)]
        given += [item.model_dump(include={"type", "call_id", "name", "arguments"}) for item in calls]
        for call in calls:
            city = json.loads(call.arguments)["city"]
            given.append({"type": "function_call_output", "call_id": call.call_id, "output": f"sunny in {city}"})


def expected(api: str, scenario: str) -> list[str]:
    names = {"messages": "tool_use", "chat": "get_weather", "responses": "function_call"}
    text = {"messages": ["text"], "chat": [], "responses": ["message"]}[api]
    thought = {"messages": ["thinking"], "chat": [], "responses": ["reasoning"]}[api] if scenario == "thinking" else []
    return [*[names[api]] * CALLS.get(scenario, 0), *thought, *text, "Done.", "1000"]


def main() -> None:
    for api, run, client_of in (
        ("messages", messages, anthropic.Anthropic),
        ("chat", chat, openai.OpenAI),
        ("responses", responses, openai.OpenAI),
    ):
        for scenario in SCENARIOS:
            for streams in (False, True):
                # The first try of this scenario is answered after five seconds.
                timeout = 1.0 if scenario == "timeout" else 60.0
                client = client_of(api_key="sk-test-key-of-the-provider", timeout=timeout, max_retries=2)
                try:
                    seen = run(scenario, client, streams=streams)
                    problem = "" if seen == expected(api, scenario) else f"saw {seen}"
                except Exception as error:  # noqa: BLE001 - any failure of a client is a result
                    problem = f"{type(error).__name__}: {error}"[:200]
                name = f"{api} {scenario}{' streamed' if streams else ''}"
                print(json.dumps({"scenario": name, "problem": problem}), flush=True)
    print(json.dumps({"versions": {"anthropic": anthropic.__version__, "openai": openai.__version__}}))


if __name__ == "__main__":
    main()
