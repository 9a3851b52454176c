"""How programs are led to the model proxy: by variables that most read, or by their own means."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weftline.providers.model_upstreams import OFF
from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.settings import Settings

# The variables by which programs find a provider, and what they expect behind the address of its route.
_VARIABLES = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL", "gemini": "GOOGLE_GEMINI_BASE_URL"}
_PATHS = {"anthropic": "", "openai": "/v1", "gemini": ""}
_THIS_MACHINE = "127.0.0.1,localhost"
# opencode names its providers differently, and adds no version to their addresses.
_OPENCODE = {"anthropic": "/anthropic/v1", "openai": "/openai/v1", "google": "/gemini/v1beta"}
_OPENCODE_CONFIG = "OPENCODE_CONFIG_CONTENT"


def proxy_variables(address: str) -> dict[str, str]:
    """Return the variables that lead programs to a proxy at an address."""
    return {name: f"{address}/{route}{_PATHS[route]}" for route, name in _VARIABLES.items()}


def wrapped_command(command: Sequence[str], address: str) -> list[str]:
    """Return the command with the options that lead it to the proxy, for programs that read no variable."""
    program, *arguments = command
    if PurePath(program).stem != "codex":
        return [*command]
    provider = {"name": "Weftline", "base_url": f"{address}/openai/v1", "env_key": "OPENAI_API_KEY"}
    provider |= {"wire_api": "responses"}
    options = {"model_provider": "weftline", **{f"model_providers.weftline.{key}": provider[key] for key in provider}}
    given = [part for key, value in options.items() for part in ("-c", f'{key}="{value}"')]
    return [program, *given, *arguments]


def wrapped_environment(program: str, address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a program finds the proxy, and reaches it without another proxy."""
    wrapped = {**environment, **proxy_variables(address)}
    for name in ("NO_PROXY", "no_proxy"):
        wrapped[name] = ",".join(filter(None, (environment.get(name), _THIS_MACHINE)))
    if PurePath(program).stem == "opencode":
        wrapped[_OPENCODE_CONFIG] = _opencode_config(environment.get(_OPENCODE_CONFIG, ""), address)
    return wrapped


def _opencode_config(given: str, address: str) -> str:
    """Return the configuration in the environment, with the addresses of providers."""
    config = json.loads(given) if given else {}
    providers = config.setdefault("provider", {})
    for name, path in _OPENCODE.items():
        providers.setdefault(name, {}).setdefault("options", {})["baseURL"] = address + path
    return json.dumps(config)


def behind_earlier(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Return settings that forward to where the program would have gone, if its environment says so."""
    entries = [entry for entry in settings.proxy_upstreams.split() if entry != OFF]
    hosts = settings.proxy_private_hosts.split()
    named = {entry.partition("=")[0] for entry in entries}
    for route, variable in _VARIABLES.items():
        url = environment.get(variable)
        if not url or route in named:
            continue
        parts = urlsplit(url)
        if parts.query:
            raise InvalidSetting(f"{variable}: the model proxy adds paths to it, and cannot keep the query in it.")
        entries.append(f"{route}={url}")
        # The person chose it: it may be on their own network.
        hosts.append(parts.hostname or "")
    return replace(settings, proxy_upstreams=" ".join(entries), proxy_private_hosts=" ".join(filter(None, hosts)))
