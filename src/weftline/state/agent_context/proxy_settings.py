"""Settings of the model proxy for agents, teams and tenants: what it may change in their calls of models."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from weftline.state.agent_context.inherited_settings import InheritedSettings

# ``observe`` changes nothing, ``trim`` shortens new results of tools, ``full`` also adds layers and what a task needs.
ProxyMode = Literal["observe", "trim", "full"]
DEFAULT_MODE: ProxyMode = "trim"
# Below the size at which coding agents cut files and outputs off themselves.
DEFAULT_TRIM_TOKENS = 4_000
# A shorter result is not worth a handle.
MIN_TRIM_TOKENS = 1_000

_TrimTokens = Annotated[int, msgspec.Meta(ge=MIN_TRIM_TOKENS, le=1_000_000)]


class ProxySettings(InheritedSettings, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the model proxy may change; what is not set here is set for a parent, a team or the tenant."""

    mode: Annotated[
        ProxyMode | None,
        msgspec.Meta(
            description="observe: nothing; trim: shorten new results of tools, the default; full: also add layers and "
            "what the task needs, and compact."
        ),
    ] = None
    trim_tokens: Annotated[
        _TrimTokens | None,
        msgspec.Meta(description="Tokens from which a result of a tool is shortened; 4000 by default."),
    ] = None


class ResolvedProxy(NamedTuple):
    """The settings of the model proxy that hold for an agent."""

    mode: ProxyMode = DEFAULT_MODE
    trim_tokens: int = DEFAULT_TRIM_TOKENS

    @classmethod
    def of(cls, settings: ProxySettings) -> ResolvedProxy:
        """Return settings, completed by the defaults."""
        return cls(settings.mode or DEFAULT_MODE, settings.trim_tokens or DEFAULT_TRIM_TOKENS)
