"""Sources and trust labels of stored content."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import msgspec
from msgspec import structs

from weftline.kernel.identity import SYSTEM_ID, PrincipalKind
from weftline.kernel.operation import Response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.kernel.identity import Actor


# Beginnings of references to what is not stored in Weftline: the result of a tool, a page.
TOOL_REFERENCE = "tool:"
URL_REFERENCE = "url:"
# Reasons of a label besides the patterns of the detector.
INJECTION, SECRET, PII = "injection", "secret", "pii"
# The reason of an item that is suspicious because of what it was derived from, with its name.
DERIVED = "derived"


class Source(StrEnum):
    """Where a text came from."""

    HUMAN = "human"
    AGENT = "agent"
    TOOL = "tool"
    DOCUMENT = "document"
    IMPORT = "import"
    SYSTEM = "system"

    @property
    def is_data(self) -> bool:
        """Whether a text of this source is data, in which an instruction is out of place."""
        return self in _DATA


_DATA = frozenset({Source.TOOL, Source.DOCUMENT, Source.IMPORT})


class Trust(StrEnum):
    """How far a text is trusted: ``suspicious`` if a check found an attack in it or in what it was derived from."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    SUSPICIOUS = "suspicious"


_ORDER = {Trust.SUSPICIOUS: 0, Trust.UNTRUSTED: 1, Trust.TRUSTED: 2}
_BY_SOURCE = {Source.HUMAN: Trust.TRUSTED, Source.SYSTEM: Trust.TRUSTED}


class TrustLabel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Source and trust of an item, stored with it. An item without a label has the trust of its author.

    ``reasons``: patterns of an attack, and the kinds of secrets and personal data found, such as ``secret: password``.
    ``derived_from``: items, ``tool:NAME`` or ``url:...`` that the text was made of.
    ``approved_by``: the principal that released it from quarantine; its score no longer counts.
    ``held``: recorded although the policy refuses such a text elsewhere; no prompt contains it until it is released.
    """

    source: Source
    trust: Trust
    score: float | None = None
    reasons: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    approved_by: str | None = None
    held: bool = False

    @property
    def is_in_doubt(self) -> bool:
        """Tell whether nothing but the wording of a human or agent speaks against an item, and not strongly."""
        inherited = any(reason.startswith(DERIVED) for reason in self.reasons)
        return not self.source.is_data and self.score is not None and not inherited and not self.held

    def released(self, approved_by: str) -> TrustLabel:
        """Return the label of a held item that somebody released."""
        return structs.replace(self, trust=default_trust(self.source), approved_by=approved_by, held=False)


_label_decoder = msgspec.json.Decoder(TrustLabel)
_label_encoder = msgspec.json.Encoder()


def source_of(actor: Actor) -> Source:
    """Return the source of what a caller writes itself."""
    if actor.principal_id == SYSTEM_ID:
        return Source.SYSTEM
    return Source.HUMAN if actor.kind is PrincipalKind.HUMAN else Source.AGENT


def default_trust(source: Source) -> Trust:
    """Return the trust of an unlabelled text: humans are trusted, everything else is not."""
    return _BY_SOURCE.get(source, Trust.UNTRUSTED)


def lowest_trust(trusts: Iterable[Trust], default: Trust) -> Trust:
    """Return the lowest of several; an item has the lowest trust of what it was derived from."""
    return min((default, *trusts), key=_ORDER.__getitem__)


def joined_label(labels: Iterable[TrustLabel | None]) -> TrustLabel | None:
    """Return the one label of an item with several texts: the lowest trust, and every reason."""
    given = [label for label in labels if label is not None]
    if len(given) < 2:  # noqa: PLR2004 - nothing to join
        return given[0] if given else None
    lowest = min(given, key=lambda label: _ORDER[label.trust])
    scores = [label.score for label in given if label.score is not None]
    return TrustLabel(
        source=lowest.source,
        trust=lowest.trust,
        score=max(scores, default=None),
        reasons=tuple(dict.fromkeys(reason for label in given for reason in label.reasons)),
        derived_from=tuple(dict.fromkeys(item for label in given for item in label.derived_from)),
        approved_by=next((label.approved_by for label in given if label.approved_by), None),
        held=any(label.held for label in given),
    )


def data_source(references: Iterable[str]) -> Source | None:
    """Return the source that a text names with ``tool:NAME`` or ``url:...``; None if it names only Weftline's items."""
    for reference in references:
        if reference.startswith(TOOL_REFERENCE):
            return Source.TOOL
        if reference.startswith(URL_REFERENCE):
            return Source.DOCUMENT
    return None


def encode_label(label: TrustLabel | None) -> str | None:
    """Return the text of the column ``trust``."""
    return None if label is None else _label_encoder.encode(label).decode()


def decode_label(text: str | None) -> TrustLabel | None:
    return None if text is None else _label_decoder.decode(text)


# Trust labels as requests give and views show them.

_Reference = Annotated[str, msgspec.Meta(min_length=1, max_length=400, pattern=r"^[^\x00-\x20\x7f]+\Z")]
DerivedFrom = Annotated[
    tuple[_Reference, ...],
    msgspec.Meta(
        max_length=50,
        description="What the text was made of: ids of items, tool:NAME or url:ADDRESS. It gets the lowest trust of "
        "them.",
    ),
]


class TrustInfo(Response):
    """Source and trust of an item, shown where they are not those of its author."""

    trust: Trust
    source: Source
    reasons: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    approved_by: str | None = None
    held: bool = False


def trust_info(label: TrustLabel | None) -> TrustInfo | None:
    """Return a label as readers see it; the score and the patterns are for reviewers, not for those who try."""
    if label is None:
        return None
    return TrustInfo(
        trust=label.trust,
        source=label.source,
        reasons=tuple(dict.fromkeys(_kind_only(reason) for reason in label.reasons)),
        derived_from=label.derived_from,
        approved_by=label.approved_by,
        held=label.held,
    )


def _kind_only(reason: str) -> str:
    return INJECTION if reason.startswith(INJECTION) else reason


# A tenant's trust policy: what happens to content with instructions, secrets or personal data in it.

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
            "answers whose tool calls guardrails cannot be applied to, and withholds results of tools that look like "
            "an attack. False: it passes them on."
        ),
    ] = False


DEFAULT_POLICY = TrustPolicy()


class TrustPolicies(Protocol):
    """The trust policy of the caller's tenant, as of the caller's transaction."""

    async def current(self) -> TrustPolicy: ...
