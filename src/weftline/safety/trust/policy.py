"""A tenant's trust policy: what happens to content with instructions, secrets or personal data in it."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import msgspec

from weftline.safety.trust.model import Source

InjectionAction = Literal["annotate", "quarantine", "block"]
PromptAction = Literal["annotate", "drop", "quarantine", "block"]
ContentAction = Literal["allow", "annotate", "mask", "block"]
ExportAction = Literal["allow", "mask", "block"]
ViolationAction = Literal["log", "end_session", "disable_agent"]
_DAY = 86_400
_ON_EXPORT = "With every export policy; allow: the export policy alone decides."


class InjectionActions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens when a detector flags a text that is written, by its source.

    Text of humans and agents is quarantined or blocked only at the strict threshold; below it, it is annotated.
    """

    human: Annotated[InjectionAction, msgspec.Meta(description="Text of humans.")] = "annotate"
    agent: Annotated[InjectionAction, msgspec.Meta(description="Text of agents.")] = "quarantine"
    tool: Annotated[InjectionAction, msgspec.Meta(description="Results of tools.")] = "quarantine"
    document: Annotated[InjectionAction, msgspec.Meta(description="Documents.")] = "quarantine"
    imported: Annotated[InjectionAction, msgspec.Meta(description="Imported bundles.")] = msgspec.field(
        name="import", default="quarantine"
    )

    def of(self, source: Source) -> InjectionAction:
        if source is Source.IMPORT:
            return self.imported
        return "annotate" if source is Source.SYSTEM else getattr(self, source.value)


class ContentActions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to detected values when content is written, exported and put into a prompt.

    On export, this is what every export policy must do at least.
    """

    write: ContentAction
    export: ExportAction
    prompt: ContentAction


class SecretActions(ContentActions, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to secrets."""

    write: Annotated[ContentAction, msgspec.Meta(description="When it is written.")] = "annotate"
    export: Annotated[ExportAction, msgspec.Meta(description=_ON_EXPORT)] = "allow"
    prompt: Annotated[ContentAction, msgspec.Meta(description="In a prompt.")] = "mask"


class PiiActions(ContentActions, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to personal data."""

    write: Annotated[ContentAction, msgspec.Meta(description="When it is written.")] = "allow"
    export: Annotated[ExportAction, msgspec.Meta(description=_ON_EXPORT)] = "allow"
    prompt: Annotated[ContentAction, msgspec.Meta(description="In a prompt.")] = "allow"


class TrustPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The trust policy of a tenant. Every default is safe."""

    injection: Annotated[
        InjectionActions, msgspec.Meta(description="What happens to injected instructions on write, by source.")
    ] = InjectionActions()
    prompt_injection: Annotated[
        PromptAction, msgspec.Meta(description="What happens to a flagged block of a prompt.")
    ] = "drop"
    secrets: Annotated[SecretActions, msgspec.Meta(description="What happens to secrets.")] = SecretActions()
    pii: Annotated[PiiActions, msgspec.Meta(description="What happens to personal data.")] = PiiActions()
    on_violation: Annotated[
        ViolationAction, msgspec.Meta(description="What happens to an agent that tries to change its own rules.")
    ] = "log"
    approval_seconds: Annotated[
        int, msgspec.Meta(ge=60, le=30 * _DAY, description="Seconds after which a held call expires.")
    ] = _DAY
    approver_clearance: Annotated[
        int, msgspec.Meta(ge=1, le=5, description="Clearance that a human needs to decide about held calls.")
    ] = 3
    rollback_by_tree: Annotated[
        bool,
        msgspec.Meta(
            description="Whether an agent may roll back the memory and definition of agents below it with any "
            "clearance that is not below theirs. False: it needs clearance 4 and 3, as everyone."
        ),
    ] = False
    platform_layer: Annotated[
        bool,
        msgspec.Meta(
            description="Whether prompts begin with the rules of Weftline and have its tags around layers. False: they "
            "begin with the tenant's own texts, and only texts of others keep a tag."
        ),
    ] = True
    proxy_fails_closed: Annotated[
        bool,
        msgspec.Meta(
            description="Whether the model proxy refuses calls of models while Weftline cannot find out who calls, and "
            "answers whose tool calls guardrails cannot be applied to. False: it passes them on."
        ),
    ] = False


DEFAULT_POLICY = TrustPolicy()


class TrustPolicies(Protocol):
    """The trust policy of the caller's tenant, as of the caller's transaction."""

    async def current(self) -> TrustPolicy: ...
