"""A tenant's trust policy: what happens to content with instructions, secrets or personal data in it."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import msgspec

from weft.capabilities.trust.model import Source

InjectionAction = Literal["annotate", "quarantine", "block"]
PromptAction = Literal["annotate", "drop", "quarantine", "block"]
ContentAction = Literal["allow", "annotate", "mask", "block"]
ViolationAction = Literal["log", "end_session", "disable_agent"]
_DAY = 86_400


class InjectionActions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens when a detector flags a text that is written, by its source.

    Text of humans and agents is quarantined or blocked only at the strict threshold; below it, it is annotated.
    """

    human: InjectionAction = "annotate"
    agent: InjectionAction = "quarantine"
    tool: InjectionAction = "quarantine"
    document: InjectionAction = "quarantine"
    imported: InjectionAction = msgspec.field(name="import", default="quarantine")

    def of(self, source: Source) -> InjectionAction:
        if source is Source.IMPORT:
            return self.imported
        return "annotate" if source is Source.SYSTEM else getattr(self, source.value)


class ContentActions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to detected values when content is written, exported and put into a prompt."""

    write: ContentAction
    export: ContentAction
    prompt: ContentAction


class SecretActions(ContentActions, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to secrets."""

    write: ContentAction = "annotate"
    export: ContentAction = "mask"
    prompt: ContentAction = "mask"


class PiiActions(ContentActions, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to personal data."""

    write: ContentAction = "allow"
    export: ContentAction = "allow"
    prompt: ContentAction = "allow"


class TrustPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The trust policy of a tenant. Every default is safe."""

    injection: InjectionActions = InjectionActions()
    prompt_injection: PromptAction = "drop"
    secrets: SecretActions = SecretActions()
    pii: PiiActions = PiiActions()
    on_violation: ViolationAction = "log"
    approval_seconds: Annotated[int, msgspec.Meta(ge=60, le=30 * _DAY)] = _DAY
    approver_clearance: Annotated[int, msgspec.Meta(ge=1, le=5)] = 3


DEFAULT_POLICY = TrustPolicy()


class TrustPolicies(Protocol):
    """The trust policy of the caller's tenant, as of the caller's transaction."""

    async def current(self) -> TrustPolicy: ...


class DefaultPolicies:
    """Every tenant has the default policy."""

    async def current(self) -> TrustPolicy:
        return DEFAULT_POLICY
