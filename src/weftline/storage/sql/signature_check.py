"""All layers and definitions of an installation: what was altered or is not signed, and signing (weftline db sign)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weftline.history.composite_lines import PartVersion
from weftline.history.line_damage import find_damage, unsigned_versions
from weftline.history.line_kinds import line_kinds
from weftline.history.line_signatures import LineSignatures
from weftline.history.lines import LineStore
from weftline.history.model import VersionPruned
from weftline.history.signed_lists import LayerViolation, SignedLists
from weftline.kernel.packed_text import ValueDamaged
from weftline.state.layers.service import verified_state
from weftline.state.layers.sql import LayerStore
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.tenants import tenant_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

_PAGE_SIZE = 500
WHOLE_LIST = "*"


class SignedLine(NamedTuple):
    """A line that binds agents, in its tenant."""

    tenant: str
    line_id: str


class TamperedLines(NamedTuple):
    """Layers and definitions that no prompt may use: altered, without a valid signature, or older than is listed."""

    altered: list[SignedLine]
    unsigned: list[SignedLine]
    removed: list[SignedLine]


async def tampered_heads(database: Database, secret: bytes) -> TamperedLines:
    """Return the layers and definitions whose current version prompts refuse."""
    found = TamperedLines([], [], await removed_lines(database, secret))
    async for line in _signed_lines(database):
        problem = await database.read(Scope(line.tenant), partial(_problem, line_id=line.line_id, secret=secret))
        if problem in {"altered", "unsigned"}:
            (found.unsigned if problem == "unsigned" else found.altered).append(line)
    return found


async def removed_lines(database: Database, secret: bytes) -> list[SignedLine]:
    """Return the layers and definitions that lack the version that the signed list of their tenant names.

    Where the list itself was removed or altered, the line is named ``*``.
    """
    removed: list[SignedLine] = []
    for tenant in await database.read(SYSTEM, tenant_names):
        lines = await database.read(Scope(tenant), partial(_removed, secret=secret))
        removed += (SignedLine(tenant, line_id) for line_id in lines)
    return removed


async def _removed(transaction: Transaction, secret: bytes) -> list[str]:
    try:
        listed = await SignedLists(transaction, secret).all()
    except LayerViolation:
        return [WHOLE_LIST]
    lines = LineStore(transaction, secret)
    heads = await lines.heads([*listed])
    return [each for each, newest in listed.items() if each not in heads or heads[each].seq < newest]


async def sign_unsigned(database: Database, secret: bytes, now: int) -> tuple[int, list[SignedLine]]:
    """Sign the versions that have no valid signature; return their number and the lines that are damaged.

    The list of what exists, and the versions that sessions have pinned, are sealed as they are stored.
    """
    signed, damaged = 0, []
    for tenant in await database.read(SYSTEM, tenant_names):
        await database.write(Scope(tenant), partial(_seal_stored, secret=secret))
    async for line in _signed_lines(database):
        sign = partial(_sign, line_id=line.line_id, secret=secret, now=now)
        new = await database.write(Scope(line.tenant), sign)
        if new is None:
            damaged.append(line)
        else:
            signed += new
    return signed, damaged


async def _problem(transaction: Transaction, line_id: str, secret: bytes) -> str | None:
    """Return why a prompt would refuse the current version of a line; None if it would not."""
    lines = LineStore(transaction, secret)
    head = (await lines.heads([line_id])).get(line_id)
    if head is None or head.seq == 0:
        return None
    try:
        await verified_state(lines, PartVersion(line_id, head.seq, head.hash.hex()))
    except LayerViolation as error:
        return str(error.context["problem"])
    except (ValueDamaged, VersionPruned, UnicodeDecodeError):
        return "altered"
    return None


async def _seal_stored(transaction: Transaction, secret: bytes) -> None:
    lines, after = LineStore(transaction, secret), ""
    versions: dict[str, int] = {}
    while page := await _page(transaction, after):
        after = page[-1]
        versions |= {line_id: head.seq for line_id, head in (await lines.heads(page)).items() if head.seq > 0}
    await SignedLists(transaction, secret).write_all(versions)
    await LayerStore(transaction, secret).seal_pins()


async def _sign(transaction: Transaction, line_id: str, secret: bytes, now: int) -> int | None:
    """Sign a line whose hashes are right; None if they are not."""
    if await find_damage(transaction, line_id, secret, signed=False) is not None:
        return None
    signatures = LineSignatures(transaction, secret)
    unsigned = [version async for version in unsigned_versions(transaction, line_id, secret)]
    for version in unsigned:
        await signatures.sign(line_id, version.seq, version.hash, version.state, now)
    return len(unsigned)


async def _signed_lines(database: Database) -> AsyncIterator[SignedLine]:
    for tenant in await database.read(SYSTEM, tenant_names):
        after = ""
        while page := await database.read(Scope(tenant), partial(_page, after=after)):
            after = page[-1]
            for line_id in page:
                yield SignedLine(tenant, line_id)


async def _page(transaction: Transaction, after: str) -> Sequence[str]:
    prefixes = sorted(kind.prefix for kind in line_kinds().values() if kind.signed)
    return await LineStore(transaction).roots(prefixes, after, _PAGE_SIZE, nested=prefixes)
