"""Trust of the texts in a prompt: how a tenant's policy treats those of others.

Everything that was stored has passed the content gate, so its label is the verdict on it. What no gate has seen is
scanned here. Own turns of a conversation are not screened: without them there is nothing to answer.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from weftline.kernel.errors import Forbidden
from weftline.kernel.identity import HUMAN, SYSTEM_ID, principal_of
from weftline.kernel.operation import SubmittedText
from weftline.prompts.assembly.receipts import OmittedCandidate
from weftline.safety.redaction import DETECTORS, DetectorCategory, Scanner
from weftline.safety.trust.model import DEFAULT_POLICY, Source, Trust, TrustPolicy, default_trust, source_of
from weftline.safety.trust.scanner import masked
from weftline.state.layers.prefix import contents, texts_of, with_texts
from weftline.windows.model import EventDraft
from weftline.windows.window_writer import submitted_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.exchange.missing_context import Gap
    from weftline.kernel.identity import Actor
    from weftline.models.language_models.content import ConversationMessage, ToolDefinition
    from weftline.safety.trust.model import TrustLabel
    from weftline.safety.trust.scanner import ContentScanner, Verdicts


DataMarking = Literal["delimit", "words"]
_MAX_NAMED = 20
# The detail of omissions of suspicious items.
SUSPICIOUS = "suspicious"
_SHOWN: dict[DetectorCategory, str] = {"secrets": "a secret", "pii": "personal data"}


class PromptBlocked(Forbidden):
    """The prompt would contain what looks like an attack, and the tenant's policy blocks such calls."""

    code = "PROMPT_BLOCKED"
    hint = (
        "Do not call the model with it. A human removes or approves the items in 'items', or changes the policy of the "
        "tenant (prompt_injection) with `layer.define`."
    )
    severity = "critical"
    violation = "injection"


class ItemTrust(NamedTuple):
    """Source and trust of something that may go into a prompt.

    ``in_doubt``: it is suspicious only because its own wording reached the lower threshold, at which one of a hundred
    harmless texts is flagged. Humans and agents do give orders, so such a text is annotated instead of left out.
    """

    source: Source
    trust: Trust
    in_doubt: bool = False

    @property
    def is_suspicious(self) -> bool:
        return self.trust is Trust.SUSPICIOUS


TRUSTED = ItemTrust(Source.SYSTEM, Trust.TRUSTED)
_ORDER = (Trust.SUSPICIOUS, Trust.UNTRUSTED, Trust.TRUSTED)


def item_trust(label: TrustLabel | None, author: str, reader: str, source: Source | None = None) -> ItemTrust:
    """Return the trust of an item for an agent: by its label, else by its author.

    ``author`` is a participant name, ``reader`` the id of the agent, whose own texts it trusts. ``source`` is that of
    items that no participant wrote.
    """
    if label is not None:
        return ItemTrust(label.source, label.trust, in_doubt=label.is_in_doubt)
    if source is None:
        source = _source_of(author)
    own = bool(author) and source is Source.AGENT and principal_of(author) == reader
    return ItemTrust(source, Trust.TRUSTED if own else default_trust(source))


def least_trusted(items: Iterable[ItemTrust]) -> ItemTrust:
    """Return the item of the lowest trust, which decides for a block."""
    return min(items, key=lambda each: _ORDER.index(each.trust), default=TRUSTED)


class Screening(NamedTuple):
    """The rules for one prompt. ``marking`` words: every word of a text of others is marked as data."""

    policy: TrustPolicy = DEFAULT_POLICY
    marking: DataMarking = "delimit"
    omit_secrets: bool = False

    @property
    def mark_words(self) -> bool:
        return self.marking == "words"

    def omission(self, ref: str, text: str, trust: ItemTrust) -> OmittedCandidate | None:
        """Return why an item is left out; None if it may be in the prompt.

        With the policy block, suspicious items are not left out: the plan has to show whether one would be sent.
        """
        if self.drops(trust):
            return OmittedCandidate(ref, "policy_block", SUSPICIOUS)
        found = self.private(text)
        return OmittedCandidate(ref, "privacy_risk", f"seems to contain {found}") if found else None

    def drops(self, trust: ItemTrust) -> bool:
        return trust.is_suspicious and not trust.in_doubt and self.policy.prompt_injection in {"drop", "quarantine"}

    def refuses(self, trust: ItemTrust) -> bool:
        """Tell whether a text of this source that looks like an attack would be held if it were recorded."""
        return trust.is_suspicious and not trust.in_doubt and self.policy.injection.of(trust.source) != "annotate"

    def check_turns(self, found: Mapping[int, ItemTrust], first: int) -> list[int]:
        """Raise PromptBlocked for added turns that the policy keeps out of prompts; return the places of others."""
        held = [place for place, trust in found.items() if self.refuses(trust)]
        if held and self.policy.prompt_injection != "annotate":
            raise PromptBlocked(
                f"{len(held)} turns that were added to the prompt look like an attack on it.",
                hint="Do not call the model with it. Record the turns with `context.ingest` and assemble again.",
                items=[f"messages[{first + place}]" for place in held[:_MAX_NAMED]],
            )
        return [first + place for place in found]

    def check_fields(self, found: Mapping[str, ItemTrust]) -> list[str]:
        """Raise PromptBlocked for added fields that the policy keeps out of prompts; return the names of others."""
        held = [_field_name(name) for name, trust in found.items() if self.refuses(trust)]
        if held and self.policy.prompt_injection != "annotate":
            raise PromptBlocked(
                f"{len(held)} fields that were added to the prompt look like an attack on it.",
                hint="Do not call the model with it. Leave the fields out, or change their texts.",
                items=held[:_MAX_NAMED],
            )
        return [*map(_field_name, found)]

    def private(self, text: str) -> str | None:
        """Return for which secrets or personal data in it a text is left out."""
        excluded = self._doing("block")
        if self.omit_secrets and "secrets" not in excluded:
            excluded.append("secrets")
        return next((_SHOWN[category] for category in excluded if _scanner(category).spans(text)), None)

    def shown(self, text: str) -> str:
        """Return a text of others with secrets and personal data masked as the policy demands."""
        return _masked(text, self._doing("mask"))

    def shown_own(self, text: str) -> str:
        """Return a text of the agent's own conversation: secrets stay, because its tools may need them."""
        return _masked(text, [category for category in self._doing("mask") if category == "pii"])

    def check(self, suspicious: Iterable[str]) -> None:
        """Raise PromptBlocked if the policy is to block prompts with suspicious items, and there is one."""
        items = list(suspicious) if self.policy.prompt_injection == "block" else []
        if items:
            raise PromptBlocked(
                f"{len(items)} items of the prompt look like an attack on it.", items=items[:_MAX_NAMED]
            )

    def check_task(self, found: ItemTrust | None) -> None:
        """Raise PromptBlocked if the policy is to block such texts of the caller."""
        if found is not None and self.refuses(found) and self.policy.injection.of(found.source) == "block":
            raise PromptBlocked(
                "The task looks like an attack on the prompt.",
                hint="Do not call the model with it. Write the task without the instruction that it quotes.",
                items=["task"],
            )

    def _doing(self, action: Literal["mask", "block"]) -> list[DetectorCategory]:
        actions: dict[DetectorCategory, str] = {"secrets": self.policy.secrets.prompt, "pii": self.policy.pii.prompt}
        return [category for category, chosen in actions.items() if chosen == action]


def _field_name(name: str) -> str:
    """Return the name of a field to report: the name itself may be a text."""
    return name[:100] if name.isidentifier() else "?"


def _source_of(author: str) -> Source:
    if author.startswith(HUMAN):
        return Source.HUMAN
    return Source.SYSTEM if author == SYSTEM_ID else Source.AGENT


def _masked(text: str, categories: Sequence[DetectorCategory]) -> str:
    found = [category for category in categories if _scanner(category).spans(text)]
    return masked(text, found) if found else text


@cache
def _scanner(category: DetectorCategory) -> Scanner:
    return Scanner(DETECTORS[category])


# Trust of what a call brings along for its prompt and no gate has seen: task, tools, questions, added turns, fields.
#
# The task is of the caller, who may give it: what is found in it is recorded, and refused if the policy is to block.
# Definitions of tools come from others, but are written in the imperative: only the strict bar leaves one out.

_encode = msgspec.json.Encoder().encode


class RequestTrust(NamedTuple):
    """What looks like an attack: the task, tools by name, and open questions by id."""

    task: ItemTrust | None
    tools: Mapping[str, ItemTrust]
    gaps: Mapping[str, ItemTrust]


async def request_trust(
    scanner: ContentScanner, actor: Actor, task: str, tools: Sequence[ToolDefinition], gaps: Sequence[Gap]
) -> RequestTrust:
    """Scan the task, tools and open questions of a call."""
    own = SubmittedText(task)
    of_tools = {tool.name: SubmittedText(_encode(tool).decode(), data=True) for tool in tools}
    of_gaps = {gap.record.missing_id: SubmittedText(gap.record.question) for gap in gaps}
    verdicts = await scanner.prepare(actor, [own, *of_tools.values(), *of_gaps.values()])
    found = _trust(verdicts, own)
    return RequestTrust(
        None if found is None else found._replace(source=source_of(actor)),
        _suspicious(verdicts, of_tools),
        _suspicious(verdicts, of_gaps),
    )


def _suspicious(verdicts: Verdicts, texts: Mapping[str, SubmittedText]) -> dict[str, ItemTrust]:
    """Return which texts look like an attack, by their names."""
    judged = {name: _trust(verdicts, text, data_in_doubt=True) for name, text in texts.items()}
    return {name: trust for name, trust in judged.items() if trust is not None}


async def turns_trust(
    scanner: ContentScanner, actor: Actor, turns: Sequence[ConversationMessage]
) -> dict[int, ItemTrust]:
    """Return which turns that a runtime adds to its prompt look like an attack, by their place."""
    texts = [submitted_texts(EventDraft(event_id="added", message=_unwrapped(turn))) for turn in turns]
    verdicts = await scanner.prepare(actor, chain.from_iterable(texts))
    found = {
        place: [trust for text in each if (trust := _trust(verdicts, text)) is not None]
        for place, each in enumerate(texts)
    }
    of_caller = source_of(actor)
    return {
        place: worst if worst.source is Source.TOOL else worst._replace(source=of_caller)
        for place, each in found.items()
        if each and (worst := min(each, key=lambda trust: trust.in_doubt))
    }


async def fields_trust(scanner: ContentScanner, actor: Actor, fields: Mapping[str, Any]) -> dict[str, ItemTrust]:
    """Return which fields that a runtime adds to its prompt look like an attack, by name.

    Schemas and their descriptions are written in the imperative, as tools are: they are judged like those.
    """
    joined = {name: "\n".join(texts_of({name: value})) for name, value in fields.items()}
    texts = {name: SubmittedText(text, data=True) for name, text in joined.items() if " " in text}
    found = _suspicious(await scanner.prepare(actor, texts.values()), texts)
    return {name: trust._replace(source=source_of(actor)) for name, trust in found.items()}


def _unwrapped(turn: ConversationMessage) -> ConversationMessage:
    """Return a turn with the texts inside of its data elements: a result is scanned as it was returned."""
    return with_texts(turn, lambda text: "\n".join(contents(text) or [text]))


def _trust(verdicts: Verdicts, text: SubmittedText, *, data_in_doubt: bool = False) -> ItemTrust | None:
    detection = verdicts[text.text, text.data].detection
    if not detection.flagged:
        return None
    in_doubt = not detection.strict and (data_in_doubt or not text.data)
    return ItemTrust(Source.TOOL if text.data else Source.AGENT, Trust.SUSPICIOUS, in_doubt)
