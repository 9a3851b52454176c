"""What the engine keeps anyway, as the records it is: versions of keys and messages are items, a session is a surface.

Nothing is stored twice for this. An item is one version, which never changes, so its id and digest say all there is to
say; ``metadata.weft`` carries what it takes to make the same version again elsewhere.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import UNSET, structs

from weft.capabilities.history.model import Act, Version, branch_of
from weft.capabilities.records.item_names import MessageName, VersionName
from weft.capabilities.records.model import ContextItem, ContextSurface, Freshness, Producer
from weft.capabilities.records.refs import Link
from weft.capabilities.records.words import SCHEMA_VERSION
from weft.capabilities.sessions.model import session_of
from weft.kernel.clock import from_micros
from weft.kernel.given_json import passed_on
from weft.kernel.identity import ANYONE, EVERYONE, PRINCIPAL
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from weft.capabilities.messages.model import Message
    from weft.capabilities.sessions.model import Session

Sensitivity = Literal["internal", "restricted", "private"]
# What is larger is named by its digest, and stands in a line of its own where it is carried along.
INLINE_BYTES = 2_048
_KINDS = {
    "board": "board_entry",
    "memory": "memory_entry",
    "context": "persistent_memory",
    "agent": "agent_definition",
}


class Item(NamedTuple):
    """An item, and what it says where that may be carried along."""

    record: ContextItem
    text: str | None


def digest_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def version_item(line_id: str, version: Version) -> Item:
    """Return one version of a key as an item. What was removed, pruned, or is private says nothing but that it was."""
    change, meta = version.change, version.change.meta
    sort = line_id.partition(":")[0]
    removed = change.act is not Act.WRITE
    readers = meta.readable_by or ANYONE
    name = VersionName(line_id, change.key, change.life, change.version, removed)
    sensitivity = sensitivity_of(readers) if sort == "board" else "private"
    item = ContextItem(
        schema_version=SCHEMA_VERSION,
        item_id=str(name),
        context_kind=_KINDS[sort],
        content_mode="opaque",
        visibility=readers,
        title=change.key,
        mime_type=meta.media_type or ("text/plain" if sort == "board" else "application/json"),
        source_refs=(_source(line_id, change.key),),
        token_estimate=meta.tokens or UNSET,
        byte_size=meta.size or UNSET,
        freshness=UNSET if meta.expires_at is None else Freshness(expires_at=from_micros(meta.expires_at)),
        trust_level=trust_of(version.author),
        sensitivity=sensitivity,
        redaction_state="none",
        created_at=from_micros(version.committed_at),
        metadata={"weft": _native(line_id, version)},
    )
    if removed or version.value is None or meta.outside:
        return Item(_named(item, change.blob_hash), None)
    return _saying(item, version.value)


def message_item(session_id: str, message: Message) -> Item:
    """Return a message as an item."""
    item = ContextItem(
        schema_version=SCHEMA_VERSION,
        item_id=str(MessageName(session_id, message.message_id)),
        context_kind="message",
        content_mode="opaque",
        visibility=(message.audience,),
        title=f"message {message.message_id} of {message.sender}",
        mime_type="text/plain",
        source_refs=(f"session://{session_id}#message-{message.message_id}",),
        token_estimate=approximate_tokens(message.content),
        trust_level="agent",
        sensitivity=sensitivity_of((message.audience,)),
        redaction_state="none",
        created_at=from_micros(message.sent_at),
        metadata={
            "weft": {
                "message_id": message.message_id,
                "audience": message.audience,
                "visibility": message.visibility,
                "sender": message.sender,
                "sender_type": message.sender_type,
                "recipient_id": message.recipient_id,
                "message_type": message.message_type,
                "category": message.category,
                "parent_message_id": message.parent_id,
                "sent_at": message.sent_at,
                "metadata": passed_on(message.metadata),
            }
        },
    )
    return _saying(item, message.content)


def session_surface(session: Session) -> ContextSurface:
    """Return a session as what it is to those who work in it: all the context they can choose from."""
    return ContextSurface(
        schema_version=SCHEMA_VERSION,
        surface_id=f"session:{session.session_id}",
        scope="session",
        surface_kind="session",
        producer=Producer(id="weft"),
        available_source_refs=(f"board://{session.session_id}", f"session://{session.session_id}"),
        visibility=session.audience,
        created_at=from_micros(session.created_at),
        metadata={"weft": {"purpose": session.purpose, "archived_at": session.archived_at}},
    )


def by_reference(item: ContextItem, text: str) -> ContextItem:
    """Return an item that names what it says instead of saying it."""
    return structs.replace(
        item,
        content_mode="ref",
        content=UNSET,
        content_ref=Link(kind="content", id=item.item_id, digest=digest_of(text)),
    )


def trust_of(participant: str) -> str:
    """Return how far what somebody says is to be trusted: as what a person, an agent or the system itself says."""
    return {"human": "human", "system": "system"}.get(participant.partition(":")[0], "agent")


def _saying(item: ContextItem, text: str) -> Item:
    size = len(text.encode())
    sized = structs.replace(item, byte_size=size)
    if size > INLINE_BYTES or item.sensitivity != "internal":
        return Item(by_reference(sized, text), text)
    return Item(structs.replace(sized, content_mode="inline", content=text), text)


def _named(item: ContextItem, blob_hash: bytes | None) -> ContextItem:
    """Return an item whose words are not here with their digest, if it is known."""
    if blob_hash is None:
        return item
    return structs.replace(item, content_ref=Link(kind="content", id=item.item_id, digest=f"sha256:{blob_hash.hex()}"))


def _native(line_id: str, version: Version) -> dict[str, Any]:
    """Return what it takes to make the same version again."""
    change, meta = version.change, version.change.meta
    told: dict[str, Any] = {
        "line": line_id,
        "key": change.key,
        "life": change.life,
        "version": change.version,
        "act": str(change.act),
        "seq": version.seq,
        "author": version.author,
        "principal_id": version.principal_id,
        "committed_at": version.committed_at,
        "reason": version.reason,
        "step": version.step,
        "tokens": meta.tokens,
        "expires_at": meta.expires_at,
        "readable_by": meta.readable_by,
        "writable_by": meta.writable_by,
    }
    return {name: value for name, value in told.items() if value is not None}


def _source(line_id: str, key: str) -> str:
    sort, _, owner = line_id.partition(":")
    if sort == "board":
        branch = branch_of(line_id)
        return f"board://{session_of(line_id)}/{key}" + (f"?branch={branch}" if branch else "")
    return f"agent://{owner.partition(':')[0].partition('@')[0]}/{sort}/{key}"


def sensitivity_of(readers: tuple[str, ...]) -> Sensitivity:
    if EVERYONE in readers:
        return "internal"
    return "private" if all(reader.startswith(PRINCIPAL) for reader in readers) else "restricted"
