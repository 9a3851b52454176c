"""Verify: recompute the hashes of a context, and check its values in object storage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import structs

from weftline.history.fields import ContextId, own_transactions_read
from weftline.history.line_kinds import is_composite
from weftline.history.model import BranchNotFound, Damage, LineNotFound, Version
from weftline.history.object_storage.model import ObjectDamaged, ObjectMissing, ObjectStorageUnavailable, Pointer
from weftline.history.object_storage.store import Staging
from weftline.history.service import History
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Request, Response
from weftline.kernel.ports import Transactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.line_backend import OpenLine

_POINTER_PAGE = 100
_MAX_CONCURRENT_FETCHES = 4
_OBJECT_PROBLEMS = {ObjectMissing: "missing", ObjectDamaged: "not what was stored"}


class VerifyContext(Request):
    """Context to verify."""

    context_id: ContextId
    deep: Annotated[
        bool,
        msgspec.Meta(description="Also verify the contexts it branched from, its parts, and values in object storage."),
    ] = False


class Verified(Response, kw_only=True, omit_defaults=True):
    """Whether every hash matches. ``problem`` names the damaged key to admins only."""

    context_id: str
    intact: bool
    commits: int
    contexts: int
    problem: str | None = None


@own_transactions_read(
    "history.verify",
    heavy=True,
    action="verify",
    http="POST /v1/history/{context_id}/verify",
    errors=(LineNotFound, BranchNotFound, ObjectStorageUnavailable),
)
async def verify_context(
    request: VerifyContext, actor: Actor, transactions: Transactions[History], staging: Staging
) -> Verified:
    """Recompute every hash of a context, to prove that nothing was altered since it was written."""
    verified = await transactions.read(actor, lambda history: _verify_hashes(request, history), heavy=True)
    if not (request.deep and verified.intact):
        return verified
    damage = await _ObjectCheck(request.context_id, actor, transactions, staging).damage()
    if damage is None:
        return verified
    return structs.replace(verified, intact=False, problem=_problem(damage, actor))


async def _verify_hashes(request: VerifyContext, history: History) -> Verified:
    line = await history.to_read(request.context_id)
    checked = await _related_lines(history, line) if request.deep else [line.head.line_id]
    commits = 0
    for line_id in checked:
        damage = await history.lines.verify(line_id)
        if damage is not None:
            where = "" if line_id == request.context_id else f"{line_id}: "
            return Verified(
                context_id=request.context_id,
                intact=False,
                commits=commits,
                contexts=len(checked),
                problem=where + _problem(damage, history.actor),
            )
        commits += await _own_commits(history, line_id)
    return Verified(context_id=request.context_id, intact=True, commits=commits, contexts=len(checked))


def _problem(damage: Damage, actor: Actor) -> str:
    return damage.detail if actor.is_admin else damage.kind


class _ObjectCheck:
    """Check of the values that a line and its related lines have in object storage, between transactions."""

    def __init__(self, context_id: str, actor: Actor, transactions: Transactions[History], staging: Staging) -> None:
        self._context_id = context_id
        self._actor = actor
        self._transactions = transactions
        self._staging = staging
        self._fetches = asyncio.Semaphore(_MAX_CONCURRENT_FETCHES)

    async def damage(self) -> Damage | None:
        """Return the first object that is missing or altered."""
        for line_id in await self._transactions.read(self._actor, self._lines, heavy=True):
            after = b""
            while pointers := await self._pointers(line_id, after):
                found = await asyncio.gather(*(self._check(text) for _, text in pointers))
                wrong = {pointer[0]: damage for pointer, damage in zip(pointers, found, strict=True) if damage}
                # Read the pointers again: retention may have removed a value meanwhile.
                still_there = {pointer[0] for pointer in await self._pointers(line_id, after)} if wrong else set()
                for blob_hash, damage in wrong.items():
                    if blob_hash in still_there:
                        return damage
                after = pointers[-1][0]
        return None

    async def _lines(self, history: History) -> list[str]:
        return await _related_lines(history, await history.to_read(self._context_id))

    async def _pointers(self, line_id: str, after: bytes) -> Sequence[tuple[bytes, str]]:
        return await self._transactions.read(
            self._actor, lambda history: history.lines.pointers(line_id, after, _POINTER_PAGE), heavy=True
        )

    async def _check(self, text: str) -> Damage | None:
        async with self._fetches:
            try:
                await self._staging.fetch(self._actor.tenant, Pointer.decode(text))
            except (ObjectMissing, ObjectDamaged) as error:
                kind = f"a value in object storage is {_OBJECT_PROBLEMS[type(error)]}"
                return Damage(f"{kind}: {_object_hash(text)}", kind)
        return None


def _object_hash(text: str) -> str:
    try:
        return Pointer.decode(text).sha256
    except ObjectDamaged:
        return "unreadable pointer"


async def _related_lines(history: History, line: OpenLine) -> list[str]:
    """Return a line, those it branched from, and the parts of a composite line."""
    ancestors = [commits.line_id for commits in await history.lines.past(line.head.line_id, line.head.seq)]
    parts: list[str] = []
    if is_composite(line.head.line_id):
        for version in await history.lines.state_at(line.head.line_id, line.head.seq):
            parts += _part_named_by(version)
    return list(dict.fromkeys([line.head.line_id, *ancestors, *parts]))


def _part_named_by(version: Version) -> list[str]:
    """Return the part that an entry of a root points at; none if the entry is damaged."""
    try:
        named: Any = msgspec.json.decode(version.value or "null")
    except msgspec.DecodeError:
        return []
    line_id = named.get("line") if isinstance(named, dict) and named.keys() == {"line", "seq", "hash"} else None
    return [line_id] if isinstance(line_id, str) else []


async def _own_commits(history: History, line_id: str) -> int:
    line = await history.lines.find(line_id)
    return line.head.seq - line.base_seq if line else 0
