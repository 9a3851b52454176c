"""Where the model proxy forwards to: by the setting and the model, and through which other proxy."""

from __future__ import annotations

import pytest

from weftline.providers.model_upstreams import Upstreams, environment_proxy
from weftline.settings import InvalidSetting


def where(setting: str, name: str, model: str = "") -> str:
    upstream = Upstreams(setting).find(name, model)
    return f"{upstream.url.scheme.decode()}://{upstream.host.decode()}{upstream.path.decode()}"


def test_without_a_setting_requests_go_to_the_providers() -> None:
    assert where("", "anthropic") == "https://api.anthropic.com"
    assert where("", "openai", "gpt-5") == "https://api.openai.com"
    assert not Upstreams("").depends_on_model("openai")


def test_the_most_specific_name_of_a_model_decides() -> None:
    setting = "openai:llama*=http://127.0.0.1:1 openai=https://a.example/v1/ openai:llama-4=https://b.example/base/v1"
    assert Upstreams(setting).depends_on_model("openai")
    assert where(setting, "openai", "llama-4") == "https://b.example/base"
    assert where(setting, "openai", "llama-4-mini") == "http://127.0.0.1:1"
    assert where(setting, "openai", "gpt-5") == "https://a.example"
    assert where(setting, "anthropic", "llama-4") == "https://api.anthropic.com"


@pytest.mark.parametrize(
    "setting",
    [
        "google=https://a.example",
        "openai",
        "openai=",
        "openai:=https://a.example",
        "openai=ftp://a.example",
        "openai=https://",
        "openai=https://a.example:x",
        "openai=https://a.example?key=1",
        "openai=https://user:secret@a.example",
    ],
)
def test_other_settings_are_refused_without_their_secrets(setting: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Upstreams(setting)
    assert "WEFTLINE_PROXY_UPSTREAMS" in caught.value.message
    assert "secret" not in caught.value.message


def test_addresses_in_the_setting_may_be_called() -> None:
    upstreams = Upstreams("openai=http://10.0.0.7:8000 anthropic=http://localhost:1 openai:m=http://[::1]:2")
    assert upstreams.literal_hosts == {"10.0.0.7", "localhost", "::1"}


@pytest.mark.parametrize(
    ("scheme", "host", "proxy"),
    [
        ("https", "api.openai.com", "http://proxy.example:3128"),
        ("http", "api.openai.com", None),
        ("https", "127.0.0.1", None),
        ("https", "localhost", None),
        ("https", "internal.example", None),
    ],
)
def test_the_proxy_of_the_environment_is_that_of_the_scheme(
    scheme: str, host: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "internal.example")
    assert environment_proxy(scheme, host, {"https": "proxy.example:3128"}) == proxy
