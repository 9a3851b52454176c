"""Answers of models in the forms of providers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weftline.kernel.errors import InvalidInput
from weftline.models.language_models.answers import MAX_ANSWER, CalledTool, ModelAnswer, read_answer

TEXT = "Tomas owns it."
CALL = CalledTool("read_metric", '{"name":"hit_ratio"}')
ARGUMENTS = {"name": "hit_ratio"}
FORMS: dict[str, Any] = {
    "openai_chat": {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": TEXT,
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": CALL.name, "arguments": CALL.arguments}}
                    ],
                }
            },
            {"message": {"content": "another choice"}},
        ]
    },
    "openai_responses": {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": TEXT}]},
            {"type": "function_call", "call_id": "c", "name": CALL.name, "arguments": CALL.arguments},
        ]
    },
    "anthropic": {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": TEXT},
            {"type": "tool_use", "id": "c", "name": CALL.name, "input": ARGUMENTS},
        ],
    },
    "gemini": {
        "candidates": [
            {"content": {"parts": [{"text": TEXT}, {"functionCall": {"name": CALL.name, "args": ARGUMENTS}}]}}
        ]
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_the_whole_response_of_a_provider_is_read(form: str) -> None:
    assert read_answer(FORMS[form]) == ModelAnswer(TEXT, (CALL,))


def test_parts_of_a_response_are_read_alike() -> None:
    whole = ModelAnswer(TEXT, (CALL,))
    assert read_answer(FORMS["openai_chat"]["choices"][0]["message"]) == whole
    assert read_answer(FORMS["anthropic"]["content"]) == whole
    assert read_answer(FORMS["openai_responses"]["output"]) == whole
    assert read_answer(TEXT, [{"name": CALL.name, "arguments": ARGUMENTS}]) == whole
    assert read_answer(None, [{"function": {"name": CALL.name}}]).tool_calls == (CalledTool(CALL.name),)


@pytest.mark.parametrize("answer", [{"owner": "Tomas", "seconds": 300}, [1, 2], [{"owner": "Tomas"}]])
def test_structured_output_is_an_answer(answer: Any) -> None:
    assert json.loads(read_answer(answer).text) == answer


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        ("  ", None),
        ({}, None),
        ([], []),
        ({"choices": []}, None),
        ({"content": {"content": 7}}, None),
        ("a" * (MAX_ANSWER + 1), None),
        ({"content": [{"type": "text", "text": "a" * MAX_ANSWER}, {"type": "text", "text": "b"}]}, None),
        (TEXT, [{"arguments": "{}"}]),
        (TEXT, ["read_metric"]),
        ({"content": [{"type": "tool_use", "name": ["x"]}]}, None),
    ],
)
def test_what_is_no_answer_is_refused(answer: Any, calls: Any) -> None:
    with pytest.raises(InvalidInput):
        read_answer(answer, calls)
