"""Operations on documents that are held for review: release or discard them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

import msgspec
from msgspec import structs

from weftline.access.authentication import identify_local
from weftline.access.grants import check_clearance
from weftline.access.sql import AccessStore
from weftline.kernel.errors import AuthenticationError, Forbidden, PermissionDenied
from weftline.kernel.fields import Ordinal
from weftline.kernel.identity import Actor, HoldReason, PrincipalKind
from weftline.kernel.operation import Request, Response, shared_fields
from weftline.knowledge.document_operations import DocumentPut
from weftline.knowledge.documents import Documents, document_event, no_document
from weftline.knowledge.model import (
    Document,
    DocumentId,
    DocumentNotFound,
    DocumentNotQuarantined,
    Domain,
    DomainName,
    DomainNotFound,
    Quarantine,
    check_may_write,
    write_operation,
)
from weftline.safety.approvals.model import ApprovalClosed, ApprovalState, TooManyApprovals
from weftline.safety.approvals.service import Approvals, CallToHold
from weftline.safety.trust.model import TrustPolicies

_DISCARDED = "Discarded after review by {}: it looks like an attempt to give agents instructions."


class ReviewDocument(Request):
    """A version of a document that is held for review."""

    domain: DomainName
    document_id: DocumentId
    version: Annotated[Ordinal, msgspec.Meta(description="The version that was added; a later one is checked again.")]


class DocumentDiscarded(Response):
    """The discarded version; ``indexed_version`` is the earlier one that searches still find, 0 if there is none."""

    domain: str
    document_id: str
    version: int
    indexed_version: int


class DocumentHeld(Forbidden):
    """The document looks like an attempt to give agents instructions; a human must release it."""

    code = "DOCUMENT_QUARANTINED"
    hint = "A human who may write to the domain, with the clearance for approvals, releases or discards it."
    related = ("knowledge",)
    hold = "quarantine"


class DocumentHolds(msgspec.Struct, frozen=True):
    """Asks humans to release documents that ingestion holds, on behalf of who added them."""

    approvals: Approvals
    access: AccessStore

    async def open(self, document: Document, reason: HoldReason) -> str | None:
        """Hold the call that releases a document; return the id of the approval.

        None if the principal that added it is gone, or too many of its calls are held: then a human releases it itself.
        """
        try:
            caller = await identify_local(document.added_by, self.access)
            request = ReviewDocument(
                domain=document.domain, document_id=document.document_id, version=document.content_version
            )
            call = CallToHold(release_document, request, "quarantine", reason)
            held = await structs.replace(self.approvals, actor=caller).hold(call)
        except (AuthenticationError, TooManyApprovals):
            return None
        return held.approval_id

    async def close(self, approval_id: str | None, decided_by: str) -> None:
        """Close the approval of a document that was released or discarded directly."""
        held = None if approval_id is None else await self.approvals.store.find(approval_id)
        if held is not None and held.state is ApprovalState.PENDING:
            with suppress(ApprovalClosed):
                await self.approvals.decide(held, "rejected", decided_by, "The document was decided about directly.")


class DocumentReviews(msgspec.Struct, frozen=True):
    """Releases and discards documents, for one caller."""

    actor: Actor
    documents: Documents
    policies: TrustPolicies
    holds: DocumentHolds

    async def release(self, request: ReviewDocument) -> Document:
        """Queue a held version for indexing. Later versions are checked again."""
        domain, document = await self._held(request)
        await self._check_release(domain, document)
        approval = self.actor.approval
        released_by = self.actor.participant if approval is None else approval.approved_by
        await self.documents.documents.release(document, released_by, self.documents.domains.now)
        if approval is None:
            await self._close_approval(document)
        await self._publish("document.released", domain, document)
        return structs.replace(document, state="pending")

    async def discard(self, request: ReviewDocument) -> Document:
        """Discard a held version: searches keep finding the earlier one; without one, the document is deleted."""
        domain, document = await self._held(request)
        await self._close_approval(document)
        if not document.indexed_version:
            return await self.documents.remove(domain.domain, document.document_id)
        reason = _DISCARDED.format(self.actor.participant)
        await self.documents.documents.fail(domain.domain, document.document_id, reason)
        await self.documents.documents.delete_content(domain.domain, document.document_id, document.content_version)
        await self._publish("document.failed", domain, document)
        return document

    async def _held(self, request: ReviewDocument) -> tuple[Domain, Document]:
        domain = await self.documents.domains.lock(request.domain)
        check_may_write(domain, self.actor)
        document = await self.documents.documents.find_locked(domain.domain, request.document_id)
        if document is None:
            raise no_document(domain, request.document_id)
        if document.state != "quarantined" or document.content_version != request.version:
            raise DocumentNotQuarantined(
                f"Version {request.version} of '{document.document_id}' is not in quarantine.",
                state=document.state,
                version=document.content_version,
            )
        return domain, document

    async def _close_approval(self, document: Document) -> None:
        if document.quarantine is not None:
            await self.holds.close(document.quarantine.approval_id, self.actor.participant)

    async def _check_release(self, domain: Domain, document: Document) -> None:
        """Raise DocumentHeld, which asks a human, unless a human with the clearance releases it or approved that."""
        reason = hold_reason(document, document.quarantine)
        if self.actor.approval is not None and self.actor.approval.covers(reason.check):
            return
        if self.actor.kind is not PrincipalKind.HUMAN:
            held = DocumentHeld(reason.text, domain=domain.domain, document_id=document.document_id)
            held.hold_reason = reason
            raise held
        if not self.actor.is_admin:
            policy = await self.policies.current()
            check_clearance(self.actor, policy.approver_clearance, "Releasing a document from quarantine")

    async def _publish(
        self, event: Literal["document.released", "document.failed"], domain: Domain, document: Document
    ) -> None:
        await self.documents.domains.publish(document_event(event, domain, document, self.actor.participant))


def hold_reason(document: Document, quarantine: Quarantine | None) -> HoldReason:
    """Return why a document is held. An approval covers exactly this content and these attributes."""
    name = f"{document.domain}/{document.document_id}"
    return HoldReason(
        check=f"document {name} {document.fingerprint}",
        text=f"The document '{name}' looks like an attempt to give agents instructions.",
        details={} if quarantine is None else {"passages": msgspec.to_builtins(quarantine.passages)},
    )


@write_operation(
    "knowledge.release_document",
    action="release_document",
    http="POST /v1/domains/{domain}/document/release",
    errors=(DomainNotFound, DocumentNotFound, DocumentNotQuarantined, DocumentHeld, PermissionDenied),
)
async def release_document(request: ReviewDocument, reviews: DocumentReviews) -> DocumentPut:
    """Release a document from quarantine, after you have read the passages for which it is held.

    It is indexed as it is. Called by an agent, it asks a human.
    """
    document = await reviews.release(request)
    return DocumentPut(**shared_fields(document, DocumentPut), unchanged=False)


@write_operation(
    "knowledge.discard_document",
    action="discard_document",
    http="POST /v1/domains/{domain}/document/discard",
    destructive=True,
    errors=(DomainNotFound, DocumentNotFound, DocumentNotQuarantined),
)
async def discard_document(request: ReviewDocument, reviews: DocumentReviews) -> DocumentDiscarded:
    """Discard a document that is in quarantine: that version only, if searches find an earlier one."""
    document = await reviews.discard(request)
    return DocumentDiscarded(**shared_fields(document, DocumentDiscarded) | {"version": document.content_version})
