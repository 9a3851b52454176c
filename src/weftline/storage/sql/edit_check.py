"""The last check of an edit to a layer or a definition: by the stored tree and clearances, in its own transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.access.model import actor_for
from weftline.access.sql import AccessStore
from weftline.history.line_kinds import is_signed
from weftline.kernel.errors import InvalidInput, SelfModification
from weftline.state.agent_context.model import ContextLine
from weftline.state.agent_context.permissions import check_may_define, find_agent
from weftline.state.layers.history_backend import check_may_change
from weftline.state.layers.model import LayerViolation, is_layer_line, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.history.edit_proof import EditProof
    from weftline.kernel.transaction import Transaction


async def check_edit(transaction: Transaction, line_id: str, author_id: str, proof: EditProof | None) -> None:
    """Raise unless the edit is proven, and its author may change the line by what is stored now."""
    if proof is None or (proof.line_id, proof.editor_id) != (line_id, author_id):
        raise unproven(line_id)
    access = AccessStore(transaction)
    editor = await access.principal(author_id)
    if editor is None or editor.disabled_at is not None:
        raise unproven(line_id)
    memberships = await access.memberships(editor)
    actor = actor_for(transaction.tenant, editor, memberships, permissions=editor.permissions, epoch=0)
    if is_layer_line(line_id):
        check_may_change(actor, name_of(line_id))
    else:
        await check_may_define(actor, await find_agent(ContextLine.parse(line_id).owner, access), access)


def check_not_signed(line_id: str) -> None:
    """Refuse to add commits to a layer or definition that another installation made."""
    if is_signed(line_id):
        raise unproven(line_id)


def check_may_branch(line_id: str) -> None:
    """Refuse branches of layers and definitions: a change applies everywhere."""
    if is_signed(line_id):
        raise InvalidInput("context_id: a layer or definition cannot be branched", field="context_id")


def tampered_base(line_id: str, seq: int, kept: Iterable[str]) -> LayerViolation:
    error = LayerViolation(
        f"Version {seq} of '{line_id}' has no valid signature, and this edit would keep parts of it.",
        hint=f"Set all of these at once: {', '.join(sorted(kept))}; or restore a backup.",
        problem="unsigned",
        context_id=line_id,
    )
    error.violation = "tampering"
    return error


def unproven(line_id: str) -> SelfModification:
    return SelfModification(
        f"'{line_id}' binds agents: it is changed only with the proof of an edit that its rules allow.",
        hint="Change it with `agent.define` or `layer.define`.",
        context_id=line_id,
    )
