"""How programs are led to the model proxy."""

from __future__ import annotations

import json
import tomllib

import pytest

from weftline.settings import InvalidSetting, Settings
from weftline.transports.proxy.programs import behind_earlier, wrapped_command, wrapped_environment

ADDRESS = "http://127.0.0.1:8788"


def test_most_programs_are_led_by_variables() -> None:
    found = wrapped_environment("python", ADDRESS, {"PATH": "/bin", "NO_PROXY": "internal.example"})
    assert found == {
        "PATH": "/bin",
        "ANTHROPIC_BASE_URL": f"{ADDRESS}/anthropic",
        "OPENAI_BASE_URL": f"{ADDRESS}/openai/v1",
        "GOOGLE_GEMINI_BASE_URL": f"{ADDRESS}/gemini",
        "NO_PROXY": "internal.example,127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    assert wrapped_command(["python", "codex.py"], ADDRESS) == ["python", "codex.py"]


def test_codex_is_led_by_options_that_are_toml() -> None:
    program, *options, last = wrapped_command(["/usr/bin/codex", "exec"], ADDRESS)
    assert (program, last, set(options[::2])) == ("/usr/bin/codex", "exec", {"-c"})
    assert tomllib.loads("\n".join(options[1::2])) == {
        "model_provider": "weftline",
        "model_providers": {
            "weftline": {
                "name": "Weftline",
                "base_url": f"{ADDRESS}/openai/v1",
                "env_key": "OPENAI_API_KEY",
                "wire_api": "responses",
            }
        },
    }


def test_opencode_keeps_what_else_its_environment_configures() -> None:
    given = {"model": "m", "provider": {"openai": {"options": {"baseURL": "x", "timeout": 1}}}}
    found = wrapped_environment("opencode", ADDRESS, {"OPENCODE_CONFIG_CONTENT": json.dumps(given)})
    assert json.loads(found["OPENCODE_CONFIG_CONTENT"]) == {
        "model": "m",
        "provider": {
            "openai": {"options": {"baseURL": f"{ADDRESS}/openai/v1", "timeout": 1}},
            "anthropic": {"options": {"baseURL": f"{ADDRESS}/anthropic/v1"}},
            "google": {"options": {"baseURL": f"{ADDRESS}/gemini/v1beta"}},
        },
    }


def test_the_proxy_forwards_to_where_the_program_went_before() -> None:
    environment = {"ANTHROPIC_BASE_URL": "https://a.example", "OPENAI_BASE_URL": "https://b.example/v1"}
    settings = Settings(proxy_upstreams="openai=https://own.example")
    found = behind_earlier(settings, environment)
    assert found.proxy_upstreams == "openai=https://own.example anthropic=https://a.example"
    # The program went there before, whatever network it is on.
    assert found.proxy_private_hosts == "a.example"
    assert behind_earlier(Settings(proxy_upstreams="off"), environment).proxy_upstreams.startswith("anthropic=")


def test_an_earlier_address_with_a_query_is_named_by_its_variable() -> None:
    with pytest.raises(InvalidSetting, match=r"^OPENAI_BASE_URL: "):
        behind_earlier(Settings(), {"OPENAI_BASE_URL": "https://azure.example/openai/v1?api-version=preview"})
