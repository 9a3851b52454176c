"""Operations of the engine around a model call: assemble its prompt before, report its usage after."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET

from weftline.access.model import AgentId, AgentNotFound
from weftline.history.model import BranchNotFound
from weftline.history.signed_lists import LayerViolation
from weftline.kernel.correlation import NativeId
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied, QuotaExceeded, SelfModification
from weftline.kernel.fields import Fraction
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Effect, RateClass, Request, Response, Success, operation
from weftline.knowledge.model import DomainName, DomainNotFound
from weftline.models.budgets import BudgetExceeded, BudgetName
from weftline.models.language_models.answers import MAX_ANSWER, MAX_TOOL_CALLS, read_answer
from weftline.models.language_models.content import PromptForm
from weftline.models.language_models.wire_forms import parse
from weftline.prompts.assembly.prompt_trust import DataMarking, PromptBlocked
from weftline.prompts.assembly.receipt_operations import ReceiptId
from weftline.prompts.assembly.receipts import (
    Confidence,
    ContextOverBudget,
    PlanMode,
    ReceiptNotFound,
    Savings,
    ToolSavings,
)
from weftline.prompts.assembly.service import Assembled, Assembler, AssemblyRequest
from weftline.prompts.assembly.usage_report import CallReports, MetricsEmitted, UsageConflict, UsageReport
from weftline.safety.trust.gate import ContentBlocked
from weftline.safety.trust.model import TrustInfo, trust_info
from weftline.search.results import PendingItems, ResolvedReference, resolved_references
from weftline.sessions.messages.model import ProtectedCategory
from weftline.sessions.model import NotMember, SessionArchived, SessionId, SessionNotFound
from weftline.windows.model import EventExists, WindowChanged, WindowTooSmall

if TYPE_CHECKING:
    from weftline.prompts.assembly.receipts import Receipt

_MAX_TASK = 200_000
_MAX_MESSAGES = 5_000
_MAX_TOKENS = 10_000_000
ModelName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[ -~]+\Z",
        description="Model that will get the prompt; decides limit, token counts, cache and price.",
    ),
]


class AssembleContext(Request):
    """The session, the task at hand, and the token budget of the prompt."""

    session_id: SessionId
    task_description: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=_MAX_TASK,
            description="What the model is to do next. Decides what is relevant, and ends the prompt.",
        ),
    ]
    token_budget: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=_MAX_TOKENS)] | None,
        msgspec.Meta(description="Maximum tokens of the prompt, tools included; default: the model's limit."),
    ] = None
    agent_id: Annotated[AgentId | None, msgspec.Meta(description="Agent to assemble for; default: you.")] = None
    model: ModelName | None = None
    form: Annotated[
        PromptForm, msgspec.Meta(description="Wire form of the answer's body, and of messages, system and tools.")
    ] = "neutral"
    messages: Annotated[
        Annotated[list[Any], msgspec.Meta(max_length=_MAX_MESSAGES)] | None,
        msgspec.Meta(
            description="The whole conversation, in this form, instead of ingested events; new messages are stored."
        ),
    ] = None
    system: Annotated[
        Any,
        msgspec.Meta(
            description="System prompt that goes with messages: as your definition has it, registered by those above."
        ),
    ] = None
    tools: Annotated[
        Annotated[list[Any], msgspec.Meta(max_length=1_000)] | Literal["auto"] | None,
        msgspec.Meta(
            description="Tool definitions for the model, in this form; auto: the registered tools that fit the task."
        ),
    ] = None
    domains: Annotated[
        Annotated[list[DomainName], msgspec.Meta(max_length=100)] | None,
        msgspec.Meta(description="Knowledge only from these domains; an empty list: none."),
    ] = None
    min_score: Annotated[
        Fraction | None, msgspec.Meta(description="Minimum score of passages, besides being evidence for the task.")
    ] = None
    cache_ttl: Annotated[
        Annotated[str, msgspec.Meta(max_length=20)] | None,
        msgspec.Meta(description="Lifetime of the prompt cache, such as 5m or 1h, if the model has a choice."),
    ] = None
    omit_secrets: Annotated[bool, msgspec.Meta(description="Leave out passages that seem to contain a secret.")] = False
    data_marking: Annotated[
        DataMarking,
        msgspec.Meta(description="words: also mark every word of texts of others as data; costs many more tokens."),
    ] = "delimit"
    fresh: Annotated[
        bool, msgspec.Meta(description="Choose again from everything instead of appending to the previous prompt.")
    ] = False


class BlockSummary(Response, kw_only=True, omit_defaults=False):
    """Blocks of one kind: their number, tokens and items; those of summaries are the events that they stand for."""

    kind: str
    blocks: int
    tokens: int
    items: int


class SuspiciousItem(Response, kw_only=True, omit_defaults=False):
    """A text that looks like an attack: an event_id, ``task`` or ``tool:NAME``; ``withheld`` from the prompt or not."""

    ref: str
    trust: TrustInfo
    withheld: bool


class PromptAssembled(Success, kw_only=True):
    """The prompt, ready to send, within the limit. ``body``: the request body in the chosen form.

    ``mode``: first, extended (appended to the previous prompt, so that the provider's cache hits) or rebuilt.
    ``omitted``: candidates that are not in the prompt, by reason; `receipt.show` lists them. ``confidence``: likelihood
    that the passages answer the task; ``widened``: some are doubtful. ``fallback``: nothing was evidence, so that the
    newest turns of the conversation have the room. ``compaction_due``: the
    window has reached its threshold. ``critical_update``: pull your context, it was changed with urgency.
    ``resolved``: what phrases of the task such as "that file" were taken to mean. ``unknown_model``: the catalog does
    not have the named model, so that its limit is a cautious guess. ``tool_savings``: what choosing the tools saved.
    ``downgraded_by``: spent budgets because of which there are fewer passages. ``pending``: what was just
    written and could not be found yet. ``suspicious``: events of the conversation, the task or tools that look like an
    attack.
    """

    receipt_id: str
    body: dict[str, Any]
    tokens: int
    limit: int
    mode: PlanMode
    reason: str
    blocks: list[BlockSummary]
    omitted: dict[str, int]
    confidence: float | None
    widened: bool
    fallback: str | None
    savings: Savings
    prompt_hash: str
    compaction_due: bool | msgspec.UnsetType = UNSET
    critical_update: dict[str, Any] | msgspec.UnsetType = UNSET
    resolved: tuple[ResolvedReference, ...] = ()
    unknown_model: bool | msgspec.UnsetType = UNSET
    tool_savings: ToolSavings | msgspec.UnsetType = UNSET
    downgraded_by: tuple[BudgetName, ...] = ()
    suspicious: tuple[SuspiciousItem, ...] = ()
    pending: PendingItems | msgspec.UnsetType = msgspec.UNSET
    took_ms: float


class EmitMetrics(Request):
    """What the provider reported and the model answered for an assembled prompt."""

    session_id: SessionId
    receipt_id: ReceiptId
    usage: Annotated[
        dict[str, Any],
        msgspec.Meta(
            description="The usage object of the provider's answer: OpenAI Chat or Responses, Anthropic or Gemini."
        ),
    ]
    model: Annotated[ModelName | None, msgspec.Meta(description="Model that answered, if not the receipt's.")] = None
    latency_ms: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=86_400_000)] | None, msgspec.Meta(description="Duration of the call.")
    ] = None
    quality_score: Annotated[Fraction | None, msgspec.Meta(description="Your rating of the answer, 0 to 1.")] = None
    response_id: Annotated[
        NativeId | None, msgspec.Meta(description="The provider's id of the answer, to find the prompt by later.")
    ] = None
    answer: Annotated[
        Annotated[str, msgspec.Meta(max_length=MAX_ANSWER)] | dict[str, Any] | list[Any] | None,
        msgspec.Meta(
            description="The answer, as text or as the provider returns it: tells what of the prompt was used. Not kept"
        ),
    ] = None
    tool_calls: Annotated[
        Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_TOOL_CALLS)] | None,
        msgspec.Meta(description="Calls of tools in the answer, if 'answer' is text: name and arguments of each."),
    ] = None


def _has_answer(request: EmitMetrics) -> bool:
    """Tell whether there is something to compare with the prompt, which takes longer the longer both are."""
    return request.answer is not None or request.tool_calls is not None


@operation(
    "context.assemble",
    tool="assemble_context",
    http="POST /v1/sessions/{session_id}/assemble",
    permission=Permission.WRITE,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(
        SessionNotFound,
        SessionArchived,
        DomainNotFound,
        QuotaExceeded,
        BudgetExceeded,
        PermissionDenied,
        NotMember,
        ProtectedCategory,
        SelfModification,
        ContextOverBudget,
        WindowTooSmall,
        WindowChanged,
        EventExists,
        ContentTooLarge,
        AgentNotFound,
        BranchNotFound,
        LayerViolation,
        ContentBlocked,
        PromptBlocked,
    ),
)
async def assemble_context(request: AssembleContext, actor: Actor, assembler: Assembler) -> PromptAssembled:
    """Assemble the prompt for your next model call: the smallest that carries everything that matters for the task.

    Layers, pins, your conversation, relevant passages, the board and open questions, within the token budget, ordered
    so that provider caches hit. The receipt says what was left out and why, and can show the prompt again.
    """
    return _answer(await assembler.assemble(actor, _assembly_request(request)))


@operation(
    "context.emit_metrics",
    tool="emit_metrics",
    http="POST /v1/sessions/{session_id}/metrics",
    permission=Permission.WRITE,
    rate=RateClass.MESSAGE,
    effect=Effect.OWN_TRANSACTIONS,
    heavy=_has_answer,
    errors=(SessionNotFound, ReceiptNotFound, UsageConflict),
)
async def emit_metrics(request: EmitMetrics, actor: Actor, reports: CallReports) -> MetricsEmitted:
    """Report a model call: the provider's usage, and the answer, to learn how much of the prompt was used."""
    report = UsageReport(request.usage, request.model, request.latency_ms, request.quality_score, request.response_id)
    answer = read_answer(request.answer, request.tool_calls) if _has_answer(request) else None
    return await reports.add(actor, request.session_id, request.receipt_id, report, answer)


def _assembly_request(request: AssembleContext) -> AssemblyRequest:
    encode_json_field("task_description", request.task_description)
    if not request.task_description.strip():
        raise InvalidInput("task_description: is empty", field="task_description")
    if request.system is not None and request.messages is None:
        raise InvalidInput("system: goes with messages; your definition is in every prompt anyway", field="system")
    if request.cache_ttl is not None and request.model is None:
        raise InvalidInput("cache_ttl: needs model, which decides the lifetimes that there are", field="cache_ttl")
    given = None
    tools = None if request.tools == "auto" else request.tools
    if request.messages is not None or tools is not None:
        given = parse(request.form, request.messages or [], system=request.system, tools=tools)
    return AssemblyRequest(
        session_id=request.session_id,
        agent_id=request.agent_id,
        task=request.task_description,
        token_budget=request.token_budget,
        model=request.model,
        form=request.form,
        given=given,
        inline=request.messages is not None,
        domains=None if request.domains is None else tuple(request.domains),
        min_score=request.min_score,
        cache_ttl=request.cache_ttl,
        omit_secrets=request.omit_secrets,
        fresh=request.fresh,
        choose_tools=request.tools == "auto",
        data_marking=request.data_marking,
    )


def _pending(found: Confidence) -> PendingItems | msgspec.UnsetType:
    pending = PendingItems(
        documents=found.pending_documents, events=found.pending_events, by_words=found.pending_by_words
    )
    return msgspec.UNSET if pending == PendingItems() else pending


def _answer(assembled: Assembled) -> PromptAssembled:
    receipt, update = assembled.receipt, assembled.critical_update
    return PromptAssembled(
        receipt_id=receipt.receipt_id,
        body=assembled.body,
        tokens=receipt.tokens,
        limit=receipt.limits.limit,
        mode=receipt.mode,
        reason=receipt.reason,
        blocks=_summaries(receipt),
        omitted=dict(Counter(each.reason for each in receipt.omitted)),
        confidence=receipt.confidence.confidence,
        widened=receipt.confidence.widened,
        fallback=receipt.confidence.fallback,
        pending=_pending(receipt.confidence),
        savings=receipt.savings,
        prompt_hash=receipt.prompt_hash,
        compaction_due=assembled.compaction_due or UNSET,
        critical_update=UNSET if update is None else msgspec.to_builtins(update),
        resolved=resolved_references(assembled.references),
        unknown_model=(receipt.model is not None and not assembled.model_known) or UNSET,
        tool_savings=receipt.tool_savings or UNSET,
        downgraded_by=receipt.downgraded_by,
        suspicious=_suspicious(assembled),
        took_ms=assembled.took_ms,
    )


def _suspicious(assembled: Assembled) -> tuple[SuspiciousItem, ...]:
    labelled = ((each, trust_info(each.label)) for each in assembled.suspicious)
    return tuple(
        SuspiciousItem(ref=each.ref, trust=trust, withheld=each.withheld)
        for each, trust in labelled
        if trust is not None
    )


def _summaries(receipt: Receipt) -> list[BlockSummary]:
    kinds = dict.fromkeys(block.kind for block in receipt.blocks)
    groups = {kind: [block for block in receipt.blocks if block.kind == kind] for kind in kinds}
    return [
        BlockSummary(
            kind=kind,
            blocks=len(blocks),
            tokens=sum(block.tokens for block in blocks),
            items=len({ref for block in blocks for ref in (block.covers if kind == "summary" else block.sources)}),
        )
        for kind, blocks in groups.items()
    ]
