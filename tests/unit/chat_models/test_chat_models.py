"""Chat models over HTTP: both wire forms, and every way in which an endpoint fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest

from support.scripted_provider import Answer, ScriptedProvider, scripted_provider
from weftline.models.language_models.answer_usage import Usage
from weftline.models.language_models.chat_model import (
    ChatAnswer,
    ChatCaller,
    ChatMessage,
    ChatModel,
    ChatModelError,
    ChatRequest,
    decode_answer,
)
from weftline.providers.chat_models.factory import configured_chat_model
from weftline.settings import InvalidSetting, Settings

KEY = "sk-not-for-any-log"
SECRET_TEXT = "the quarterly figures of the orchard"
SCHEMA = {"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}
Provider = Literal["openai", "anthropic"]


class Meter:
    """Keeps what was counted."""

    def __init__(self) -> None:
        self.calls: list[tuple[ChatCaller, str, Usage | None]] = []

    def count_chat_call(self, caller: ChatCaller, outcome: str, seconds: float, usage: Usage | None) -> None:
        assert seconds >= 0
        self.calls.append((caller, outcome, usage))

    @property
    def outcomes(self) -> list[str]:
        return [outcome for _, outcome, _ in self.calls]


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest) -> Provider:
    name: Provider = request.param
    return name


@pytest.fixture
async def service() -> AsyncIterator[ScriptedProvider]:
    async with scripted_provider() as service:
        yield service


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
async def make(service: ScriptedProvider, meter: Meter) -> AsyncIterator[Callable[..., ChatModel]]:
    opened: list[ChatModel] = []

    def build(provider: Provider = "openai", **settings: Any) -> ChatModel:
        settings = {"chat_url": f"{service.url}/v1", "chat_api_key": KEY, "chat_model": f"{provider}:small"} | settings
        model = configured_chat_model(Settings(**settings), meter)
        assert model is not None
        opened.append(model)
        return model

    yield build
    for model in opened:
        await model.close()


@pytest.fixture
def model(make: Callable[..., ChatModel], provider: Provider) -> ChatModel:
    return make(provider)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between attempts, which do not take place."""
    taken: list[float] = []

    async def pause(seconds: float) -> None:
        taken.append(seconds)

    defaults = {"now": time.monotonic, "pause": pause}
    monkeypatch.setattr("weftline.providers.chat_models.endpoint.ResilientChatModel.__init__.__kwdefaults__", defaults)
    return taken


def ask(tenant: str = "acme", **given: Any) -> ChatRequest:
    request = ChatRequest(
        system="Summarise.",
        messages=(ChatMessage("user", SECRET_TEXT),),
        max_output_tokens=100,
        caller=ChatCaller(tenant, "writer", "s1"),
        timeout=5.0,
    )
    return request._replace(**given)


async def failure(model: ChatModel, request: ChatRequest | None = None) -> ChatModelError:
    with pytest.raises(ChatModelError) as caught:
        await model.complete(request or ask())
    shown = f"{caught.value!r} {caught.value.message} {caught.value.hint} {caught.value.context}"
    assert KEY not in shown
    assert SECRET_TEXT not in shown
    assert caught.value.__cause__ is None
    return caught.value


async def test_the_openai_request_and_answer(
    service: ScriptedProvider, make: Callable[..., ChatModel], meter: Meter
) -> None:
    service.script = [Answer("short", output_tokens=7)]
    answer = await make("openai").complete(ask(json_schema=SCHEMA))
    (call,) = service.calls
    assert (call.form, call.headers["authorization"]) == ("openai_chat", f"Bearer {KEY}")
    assert call.body == {
        "model": "small",
        "messages": [{"role": "system", "content": "Summarise."}, {"role": "user", "content": SECRET_TEXT}],
        "max_tokens": 100,
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
        },
    }
    assert answer == ChatAnswer("short", "stop", call.usage)
    assert meter.calls == [(ChatCaller("acme", "writer", "s1"), "ok", call.usage)]


async def test_the_anthropic_request_and_answer(service: ScriptedProvider, make: Callable[..., ChatModel]) -> None:
    service.script = [Answer("short", output_tokens=7)]
    answer = await make("anthropic").complete(ask(json_schema=SCHEMA))
    (call,) = service.calls
    assert (call.form, call.headers["x-api-key"]) == ("anthropic", KEY)
    assert "authorization" not in call.headers
    assert call.headers["anthropic-version"]
    assert call.body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert (answer.text, answer.finish, answer.usage) == ("short", "stop", call.usage)


async def test_an_endpoint_without_keys_gets_none(service: ScriptedProvider, make: Callable[..., ChatModel]) -> None:
    await make("openai", chat_api_key="").complete(ask())
    assert "authorization" not in service.calls[0].headers


@pytest.mark.parametrize(
    ("error", "left_out"),
    [
        ("Unsupported value: 'temperature' does not support 0 with this model.", "temperature"),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("response_format json_schema is not supported", "response_format"),
        ("bad request", "response_format"),
    ],
)
async def test_an_option_that_the_endpoint_refuses_is_left_out_from_then_on(
    service: ScriptedProvider, make: Callable[..., ChatModel], error: str, left_out: str
) -> None:
    model = make("openai")
    service.script = [Answer(status=400, error=error)]
    for _ in range(2):
        assert (await model.complete(ask(json_schema=SCHEMA))).text == "Done."
    assert [left_out in call.body for call in service.calls] == [True, False, False]
    assert all({"max_tokens", "max_completion_tokens"} & call.body.keys() for call in service.calls)


async def test_a_request_that_is_refused_with_and_without_options_is_rejected_once(
    service: ScriptedProvider, model: ChatModel, meter: Meter
) -> None:
    service.usual = Answer(status=400, error=f"nothing of {SECRET_TEXT}")
    assert (await failure(model, ask(json_schema=SCHEMA))).kind == "rejected"
    assert meter.outcomes == ["rejected"]
    assert len(service.calls) == 2


async def test_an_endpoint_that_blames_an_option_each_time_is_not_asked_forever(
    service: ScriptedProvider, make: Callable[..., ChatModel]
) -> None:
    service.usual = Answer(status=400, error="max_tokens, max_completion_tokens or temperature is wrong")
    assert (await failure(make("openai"), ask(json_schema=SCHEMA))).kind == "rejected"
    assert len(service.calls) <= 4


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 529])
async def test_temporary_errors_are_retried_with_backoff(
    service: ScriptedProvider, pauses: list[float], make: Callable[..., ChatModel], provider: Provider, status: int
) -> None:
    service.script = [Answer(status=status), Answer(status=status)]
    assert (await make(provider).complete(ask())).text == "Done."
    assert len(pauses) == 2
    assert 0.5 <= pauses[0] < 1 <= pauses[1] < 2


@pytest.mark.parametrize("broken", ["disconnect", "reset", "malformed"])
async def test_broken_connections_and_answers_are_retried(
    service: ScriptedProvider,
    pauses: list[float],
    make: Callable[..., ChatModel],
    provider: Provider,
    broken: Literal["disconnect", "reset", "malformed"],
) -> None:
    service.script = [Answer(failure=broken)]
    assert (await make(provider).complete(ask())).text == "Done."
    assert len(pauses) == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(status=500), "unavailable"),
        (Answer(status=429), "rate_limited"),
        (Answer(failure="disconnect"), "unavailable"),
        (Answer(failure="reset"), "unavailable"),
        (Answer(failure="malformed"), "malformed"),
    ],
)
async def test_attempts_are_limited(
    service: ScriptedProvider,
    pauses: list[float],
    make: Callable[..., ChatModel],
    meter: Meter,
    provider: Provider,
    answer: Answer,
    kind: str,
) -> None:
    service.usual = replace(answer, error=SECRET_TEXT)
    assert (await failure(make(provider))).kind == kind
    assert len(pauses) == 2
    assert meter.outcomes == [kind]


async def test_retry_after_is_waited_for(
    service: ScriptedProvider, pauses: list[float], make: Callable[..., ChatModel], provider: Provider
) -> None:
    service.script = [
        Answer(status=429, headers={"retry-after": "3"}),
        Answer(status=503, headers={"retry-after": "x"}),
    ]
    assert (await make(provider).complete(ask(timeout=30.0))).text == "Done."
    assert pauses[0] == 3
    assert 1 <= pauses[1] < 2


@pytest.mark.parametrize("wait", ["3600", "Fri, 31 Dec 2100 23:59:59 GMT"])
async def test_a_retry_after_beyond_the_budget_ends_the_call_at_once(
    service: ScriptedProvider, pauses: list[float], make: Callable[..., ChatModel], provider: Provider, wait: str
) -> None:
    service.usual = Answer(status=429, headers={"retry-after": wait})
    error = await failure(make(provider))
    assert (error.kind, pauses, len(service.calls)) == ("rate_limited", [], 1)
    assert error.retry_after is not None
    assert error.retry_after > 3_000


@pytest.mark.parametrize("slow", ["timeout", "drip"])
async def test_a_slow_endpoint_times_out(
    service: ScriptedProvider, model: ChatModel, slow: Literal["timeout", "drip"], meter: Meter
) -> None:
    service.usual = Answer(failure=slow)
    started = time.monotonic()
    assert (await failure(model, ask(timeout=0.3))).kind == "timeout"
    assert time.monotonic() - started < 20, "not what it takes without a timeout"
    assert meter.outcomes == ["timeout"]


@pytest.mark.parametrize(
    ("status", "message", "kind", "setting"),
    [
        (401, "", "rejected", "WEFTLINE_CHAT_API_KEY"),
        (403, "", "rejected", "WEFTLINE_CHAT_API_KEY"),
        (404, "", "rejected", "WEFTLINE_CHAT_MODEL"),
        (307, "", "rejected", "WEFTLINE_CHAT_URL"),
        (400, "This model's maximum context length is 4096 tokens.", "too_long", ""),
        (400, "the request exceeds the available context size", "too_long", ""),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", "too_long", ""),
        (413, "", "too_long", ""),
        (500, "Context size has been exceeded.", "too_long", ""),
    ],
)
async def test_permanent_errors_are_not_retried(
    service: ScriptedProvider, model: ChatModel, status: int, message: str, kind: str, setting: str
) -> None:
    headers = {"location": "http://127.0.0.1:9/elsewhere"} if status == 307 else {}
    service.usual = Answer(status=status, error=message, headers=headers)
    error = await failure(model)
    assert error.kind == kind
    assert setting in error.hint
    assert len(service.calls) == 1


async def test_a_refusal_and_a_truncated_answer(service: ScriptedProvider, model: ChatModel) -> None:
    service.script = [
        Answer("I cannot help with that.", finish="refusal"),
        Answer('{"summary": "half', finish="length"),
    ]
    assert (await failure(model)).kind == "refused"
    answer = await model.complete(ask())
    assert answer.finish == "length"
    with pytest.raises(ChatModelError) as caught:
        decode_answer(answer, msgspec.json.Decoder(dict[str, str]))
    assert caught.value.kind == "malformed"


async def test_after_repeated_failures_the_endpoint_is_left_alone_for_a_while(
    service: ScriptedProvider,
    pauses: list[float],
    make: Callable[..., ChatModel],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    del pauses
    model = make("openai")
    now = time.monotonic()
    breaker: Any = vars(model)["_breaker"]
    monkeypatch.setattr(breaker, "_now", lambda: now)
    service.usual = Answer(status=500)
    with caplog.at_level(logging.INFO, "weftline.chat_models"):
        for _ in range(10):
            assert (await failure(model)).kind == "unavailable"
        assert len(service.calls) == 5
        now += 16
        await failure(model)
        assert len(service.calls) == 6
        now += 16
        await failure(model)
        assert len(service.calls) == 6, "each failed probe doubles the pause"
        now += 15
        service.usual = Answer()
        assert (await model.complete(ask())).text == "Done."
        assert (await model.complete(ask())).text == "Done."
    assert [record.message for record in caplog.records] == [
        "chat model is not called for now",
        "chat model works again",
    ]


async def test_retries_are_limited_over_all_calls(
    service: ScriptedProvider, pauses: list[float], make: Callable[..., ChatModel]
) -> None:
    model = make("openai")
    # Never five failures in a row, so the circuit stays closed.
    for _ in range(20):
        service.script = [Answer(failure="malformed")] * 3
        await failure(model)
    assert len(pauses) == 10
    assert len(service.calls) == 20 + 10


async def test_calls_are_bounded_and_one_tenant_cannot_take_all_slots(
    service: ScriptedProvider, make: Callable[..., ChatModel]
) -> None:
    model = make("openai", chat_concurrency=4)
    service.usual = Answer(failure="timeout")
    # Half of the slots are for one tenant, one less for one of its agents.
    callers = [ChatCaller("greedy", f"agent-{n % 5}", "s1") for n in range(50)]
    greedy = [asyncio.create_task(model.complete(ask(caller=caller, timeout=300))) for caller in callers]
    async with asyncio.timeout(60):
        while service.concurrent < 2:  # noqa: ASYNC110 - the server runs in this loop
            await asyncio.sleep(0.005)
    service.usual = Answer()
    assert (await asyncio.wait_for(model.complete(ask("other")), 60)).text == "Done."
    assert service.max_concurrent <= 4
    for task in greedy:
        task.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    answers = await asyncio.gather(*(model.complete(ask(f"tenant-{n % 3}")) for n in range(12)))
    assert len(answers) == 12


async def test_a_call_that_waits_for_a_slot_keeps_its_timeout(
    service: ScriptedProvider, make: Callable[..., ChatModel]
) -> None:
    model = make("openai", chat_concurrency=1)
    service.usual = Answer(failure="timeout")
    first = asyncio.create_task(model.complete(ask(timeout=300)))
    while not service.concurrent:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.005)
    assert (await failure(model, ask(timeout=0.1))).kind == "timeout"
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    service.usual = Answer()
    assert (await model.complete(ask())).text == "Done."


@pytest.mark.parametrize(
    "text",
    [
        '{"summary": "short"}',
        '```json\n{"summary": "short"}\n```',
        'Here it is:\n{"summary": "short"}\nDone.',
        '<think>{"summary": "no"}</think>{"summary": "short"}',
    ],
)
def test_json_in_text_is_found(text: str) -> None:
    decoded = decode_answer(ChatAnswer(text, "stop"), msgspec.json.Decoder(dict[str, str]))
    assert decoded == {"summary": "short"}


@pytest.mark.parametrize(
    "text", ["", "I cannot do that.", "{", '{"summary": 3}', '["summary"]', "{" * 5_000 + "}" * 5_000]
)
def test_other_answers_are_malformed(text: str) -> None:
    with pytest.raises(ChatModelError) as caught:
        decode_answer(ChatAnswer(text, "stop"), msgspec.json.Decoder(dict[str, str]))
    assert caught.value.kind == "malformed"


def test_without_settings_there_is_no_model() -> None:
    assert configured_chat_model(Settings(), Meter()) is None


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"chat_model": "gpt"}, "WEFTLINE_CHAT_MODEL"),
        ({"chat_model": "openai:"}, "WEFTLINE_CHAT_MODEL"),
        ({"chat_model": "gemini:x"}, "WEFTLINE_CHAT_MODEL"),
        ({"chat_model": "openai:x"}, "WEFTLINE_CHAT_API_KEY"),
        ({"chat_model": "anthropic:x"}, "WEFTLINE_CHAT_API_KEY"),
        ({"chat_model": "openai:x", "chat_api_key": "a\nb"}, "WEFTLINE_CHAT_API_KEY"),
        ({"chat_model": "openai:x", "chat_url": "file:///x"}, "WEFTLINE_CHAT_URL"),
        ({"chat_model": "openai:x", "chat_url": "http://"}, "WEFTLINE_CHAT_URL"),
        ({"chat_model": "openai:x", "chat_url": f"http://me:{KEY}@host/v1"}, "WEFTLINE_CHAT_URL"),
        ({"chat_model": "openai:x", "chat_url": f"http://host/v1?key={KEY}"}, "WEFTLINE_CHAT_URL"),
        (
            {"chat_model": "openai:x", "chat_url": "http://x", "chat_timeout_seconds": 0},
            "WEFTLINE_CHAT_TIMEOUT_SECONDS",
        ),
        ({"chat_model": "openai:x", "chat_url": "http://x", "chat_concurrency": 65}, "WEFTLINE_CHAT_CONCURRENCY"),
        ({"chat_url": "http://x"}, "WEFTLINE_CHAT_MODEL"),
        ({"chat_api_key": KEY}, "WEFTLINE_CHAT_MODEL"),
    ],
)
def test_invalid_settings_are_refused_by_name(settings: dict[str, Any], setting: str) -> None:
    with pytest.raises(InvalidSetting, match=setting) as caught:
        configured_chat_model(Settings(**settings), Meter())
    assert KEY not in str(caught.value)


def test_the_key_is_not_shown(make: Callable[..., ChatModel]) -> None:
    model = make("openai")
    assert KEY not in repr(model)
    assert KEY not in repr(vars(model)["_endpoint"])
    assert KEY not in repr(Settings(chat_model="openai:x", chat_api_key=KEY))
