"""The examples that call a model run against a scripted provider, which refuses requests as OpenAI and Anthropic do."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from support import forked_python
from support.scripted_provider import Answer, ScriptedProvider, scripted_provider
from weftline.models.language_models.content import ToolCall

ROOT = Path(__file__).parents[2]
LOOK = Answer(text="I look.", tool_calls=(ToolCall("call_1", "read_metric", '{"name": "hit_ratio"}'),))
SCRIPT = (LOOK, Answer(text="The price cache."), Answer(text="Tuesday's release shortened the price cache."))
KEY = "a-key-of-the-provider"


async def run_example(name: str, folder: Path, **environment: str) -> str:
    done = await asyncio.to_thread(start_example, name, folder, {**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def start_example(name: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [forked_python.python(), ROOT / "examples" / f"{name}.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "given", "missing"),
    [
        ("openai_chat", (), "OPENAI_API_KEY"),
        ("anthropic_messages", (), "ANTHROPIC_API_KEY"),
        ("mcp_agent", (), "WEFTLINE_URL"),
        ("mcp_agent", ("WEFTLINE_URL",), "WEFTLINE_API_KEY"),
        ("mcp_agent", ("WEFTLINE_URL", "WEFTLINE_API_KEY"), "OPENAI_API_KEY"),
    ],
)
def test_an_example_without_a_key_says_what_to_set(
    name: str, given: tuple[str, ...], missing: str, tmp_path: Path
) -> None:
    environment = {each: value for each, value in os.environ.items() if not each.endswith(("_API_KEY", "_URL"))}
    done = start_example(name, tmp_path, {**environment, **dict.fromkeys(given, "x")})
    assert done.returncode == 1
    assert done.stderr.startswith(f"Set {missing} to ")
    assert f"export {missing}=..." in done.stderr
    assert "Traceback" not in done.stderr


def contents(provider: ScriptedProvider) -> list[str]:
    """Return the text of each request."""
    return [str(call.body) for call in provider.calls]


@pytest.mark.req("CE-A")
async def test_the_openai_example_runs_a_tool_loop_and_reports_usage(tmp_path: Path) -> None:
    async with scripted_provider(*SCRIPT) as provider:
        output = await run_example("openai_chat", tmp_path, OPENAI_BASE_URL=f"{provider.url}/v1", OPENAI_API_KEY=KEY)
    assert [call.form for call in provider.calls] == ["openai_chat"] * 3
    assert {call.headers["authorization"] for call in provider.calls} == {f"Bearer {KEY}"}
    first, second, third = (call.body["messages"] for call in provider.calls)
    assert "Name the change that did it." in str(first)
    assert second[: len(first)] == first
    assert [each["role"] for each in second[len(first) :]] == ["assistant", "tool"]
    assert third[: len(second)] == second
    assert "The price cache." in output
    reported = sum(call.usage.input_tokens for call in provider.calls if call.usage is not None)
    assert f"3 calls, {reported} input tokens" in output


async def test_the_anthropic_example_sends_its_conversation_each_time(tmp_path: Path) -> None:
    async with scripted_provider(*SCRIPT) as provider:
        output = await run_example(
            "anthropic_messages", tmp_path, ANTHROPIC_BASE_URL=provider.url, ANTHROPIC_API_KEY=KEY
        )
    assert [call.form for call in provider.calls] == ["anthropic"] * 3
    assert {call.headers["x-api-key"] for call in provider.calls} == {KEY}
    assert all("You find out why a system became slow." in text for text in contents(provider))
    assert [block["type"] for block in provider.calls[1].body["messages"][-1]["content"]] == ["tool_result"]
    assert "Tuesday's release shortened the price cache." in output
    assert "prompts, newest first: extended" in output
    assert "first (" in output


@pytest.mark.req("CE-A")
async def test_the_mcp_example_needs_no_other_interface(tmp_path: Path) -> None:
    with forked_python.server_process(tmp_path) as server:
        async with scripted_provider(*SCRIPT[1:]) as provider:
            output = await run_example(
                "mcp_agent",
                tmp_path,
                WEFTLINE_URL=server.url,
                WEFTLINE_API_KEY=server.admin_key,
                OPENAI_BASE_URL=f"{provider.url}/v1",
                OPENAI_API_KEY=KEY,
            )
    assert [call.body["messages"][-1]["content"] for call in provider.calls] == [
        "Why are orders slow?",
        "Write the finding in one sentence.",
    ]
    assert "The price cache." in contents(provider)[1]
    reported = sum(call.usage.input_tokens for call in provider.calls if call.usage is not None)
    assert output.endswith(f"2 calls, {reported} input tokens reported\n")
