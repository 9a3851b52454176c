"""The operation `context.validate_prompt`: runtimes check the prompt that they are about to send."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from weftline.history.signed_lists import LayerViolation
from weftline.kernel.errors import Conflict, PermissionDenied
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.ports import Transactions
from weftline.models.language_models.catalog import Catalog
from weftline.models.language_models.content import PromptForm
from weftline.prompts.assembly.gather import layer_versions
from weftline.prompts.assembly.prompt_trust import PromptBlocked, Screening, fields_trust, turns_trust
from weftline.prompts.assembly.receipt_operations import ReceiptId
from weftline.prompts.assembly.receipts import ReceiptNotFound, ReceiptPruned
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.assembly.stored_prompts import PromptAltered, StoredPrompts, check_sent
from weftline.prompts.assembly.validation import system_refs, validate_prompt
from weftline.records.sql import RecordStore
from weftline.safety.trust.model import TrustPolicies, TrustPolicy
from weftline.safety.trust.scanner import ContentScanner
from weftline.state.layers.service import Layers
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from weftline.prompts.assembly.receipts import Receipt
    from weftline.prompts.assembly.stored_prompts import AddedParts, StoredPrompt
    from weftline.windows.model import WindowEvent


class PromptOutdated(Conflict):
    """The session has other layers or instructions by now than this prompt."""

    code = "PROMPT_OUTDATED"
    hint = "Assemble the prompt again with `context.assemble`."
    related = ("assemble_context",)


class ValidatePrompt(Request):
    """The body that is about to be sent, and the receipt of its prompt."""

    receipt_id: ReceiptId
    body: Annotated[dict[str, Any], msgspec.Meta(description="The body of the request to the model, in this form.")]
    form: Annotated[PromptForm, msgspec.Meta(description="The wire form of the body.")] = "neutral"


class PromptValidated(Response, kw_only=True, omit_defaults=False):
    """The prompt may be sent. ``added``: messages that you added at its end.

    ``suspicious``: the places of those that look like an attack and that the policy lets pass; ``suspicious_fields``:
    the names of such fields that you added.
    """

    receipt_id: str
    valid: bool
    prompt_hash: str
    added: int
    suspicious: list[int]
    suspicious_fields: list[str]


class PromptStores(msgspec.Struct, frozen=True):
    """What a prompt is compared with, for one caller in one transaction."""

    receipts: ReceiptStore
    windows: Windows
    records: RecordStore
    layers: Layers
    policies: TrustPolicies


class _Compared(NamedTuple):
    """A prompt that is the assembled one, and what was added to it."""

    receipt: Receipt
    parts: AddedParts
    policy: TrustPolicy


@operation(
    "context.validate_prompt",
    heavy=True,
    tool="receipts",
    action="validate",
    http="POST /v1/receipts/{receipt_id}/validate",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(
        ReceiptNotFound,
        ReceiptPruned,
        PermissionDenied,
        PromptOutdated,
        LayerViolation,
        PromptAltered,
        PromptBlocked,
    ),
    session=SessionUse.FINDS,
)
async def validate_sent_prompt(
    request: ValidatePrompt,
    actor: Actor,
    transactions: Transactions[PromptStores],
    catalog: Catalog,
    scanner: ContentScanner,
) -> PromptValidated:
    """Check a prompt right before you send it to the model: it must be the assembled one.

    Layers present, in order, unaltered and still those of the session; texts of others unchanged and marked; nothing
    in the system prompt but the layers and what those above the agent wrote; no other tools; no attack in turns and
    fields added. If not, the call fails and must not be sent.
    """
    found = await transactions.read(actor, partial(_compare, request, catalog), heavy=True)
    # Outside of the transaction: long texts are scanned in a thread.
    parts, screening = found.parts, Screening(found.policy)
    turns = await turns_trust(scanner, actor, parts.added)
    fields = await fields_trust(scanner, actor, parts.fields)
    return PromptValidated(
        receipt_id=found.receipt.receipt_id,
        valid=True,
        prompt_hash=found.receipt.prompt_hash,
        added=len(parts.added),
        suspicious=screening.check_turns(turns, parts.first),
        suspicious_fields=screening.check_fields(fields),
    )


async def _compare(request: ValidatePrompt, catalog: Catalog, stores: PromptStores) -> _Compared:
    prompts = StoredPrompts(stores.receipts, stores.windows, stores.records, catalog)
    found = await prompts.find(request.receipt_id)
    receipt = found.receipt
    pinned = await stores.layers.pinned(receipt.session_id, receipt.agent_id) or ()
    if found.layer_versions != layer_versions(pinned):
        raise PromptOutdated("The layers of the session have changed since this prompt was assembled.")
    validate_prompt(found.blocks, found.tools, pinned, await _instructions(found, stores.windows))
    compared = check_sent(request.form, request.body, found.body(request.form, catalog), pinned)
    return _Compared(receipt, compared, await stores.policies.current())


async def _instructions(found: StoredPrompt, windows: Windows) -> frozenset[str]:
    """Return the refs of the events in a prompt that those above its agent wrote; PromptOutdated if some are gone."""
    receipt, wanted = found.receipt, system_refs(found.blocks)
    read: dict[str, WindowEvent] = {}
    for line_id in {ref.partition("/")[0] for ref in wanted}:
        events = await windows.line_events(receipt.session_id, line_id, receipt.agent_id)
        read |= {f"{line_id}/{event.event_id}": event for event in events}
    if not wanted <= read.keys():
        raise PromptOutdated("The window no longer has all system events of this prompt.")
    return frozenset(ref for ref in wanted if read[ref].message.role == "system")
