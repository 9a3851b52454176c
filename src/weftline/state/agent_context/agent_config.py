"""Checks of a definition's ``config``: the parts that Weftline uses have a form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.kernel.errors import InvalidInput
from weftline.state.agent_context.alert_settings import AlertSettings
from weftline.state.agent_context.compaction_settings import STRATEGIES, CompactionSettings
from weftline.state.agent_context.proxy_settings import ProxySettings

if TYPE_CHECKING:
    from weftline.state.agent_context.inherited_settings import InheritedSettings

_PARTS: dict[str, type[InheritedSettings]] = {
    "compaction": CompactionSettings,
    "alerts": AlertSettings,
    "proxy": ProxySettings,
}


def check_config(config: dict[str, Any]) -> None:
    """Refuse a definition with settings that are not of their form: they would be ignored otherwise."""
    for name, kind in _PARTS.items():
        if name in config:
            _check(name, config[name], kind)


def _check(name: str, value: object, kind: type[InheritedSettings]) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        field = f"config.{name}" + where.strip("`").removeprefix("$")
        if field.endswith(".strategy"):
            what = f"there is no such strategy; use one of {', '.join(STRATEGIES)}"
        if "unknown field" in what:
            what += f"; use only {', '.join(kind.__struct_fields__)}"
        raise InvalidInput(f"{field}: {what[:300]}", field="config") from error
