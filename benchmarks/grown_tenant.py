"""A large tenant: many sessions full of messages, and as many agents with memory.

One real message and one real memory entry are copied in SQL, identically in both databases, with all counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING

import apsw
import asyncpg

from benchmarks.servers import AGENT, TENANT, open_app, prepare
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext

if TYPE_CHECKING:
    from collections.abc import Sequence

READER = CallContext(Local(TENANT, AGENT))
_TEMPLATE = "template"
_PRIVATE_ONE_IN = 10
_PHRASES = 499
_WORDS_OF_A_PHRASE = 7
_VOCABULARY = 1_500
_FILLING_CACHE_KIBIBYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Size:
    """Number of sessions and messages each, and the same numbers of agents and memory entries each."""

    owners: int
    each: int
    private: bool = True
    memory: bool = True

    @property
    def messages(self) -> int:
        return self.owners * self.each

    @property
    def readable(self) -> int:
        """Return the number of a session's public messages."""
        return self.each - self.each // _PRIVATE_ONE_IN if self.private else self.each


@dataclass(frozen=True, slots=True)
class _Dialect:
    text_bytes: str
    hash: str


_SQLITE = _Dialect("CAST({} AS BLOB)", "CAST(printf('%032d', {}) AS BLOB)")
_POSTGRES = _Dialect("convert_to({}, 'UTF8')", "convert_to(lpad(({})::text, 32, '0'), 'UTF8')")

_NUMBERS = """
WITH RECURSIVE numbers(n) AS (
    SELECT CAST(0 AS BIGINT) WHERE {count} > 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {count})
"""
_EACH_OWNER = (
    """
    INSERT INTO principals
        (tenant, principal_id, kind, agent_type, parent_id, clearance, permissions, created_at, disabled_at)
    SELECT tenant, 'agent_' || n, kind, agent_type, parent_id, clearance, permissions, created_at, disabled_at
    FROM numbers, principals WHERE principal_id = 'benchmark'
    """,
    """
    INSERT INTO sessions (tenant, session_id, purpose, metadata, config, created_by, created_at, updated_at, audience,
                          message_count, last_message_at)
    SELECT tenant, 's_' || n, purpose, metadata, config, created_by, created_at + n, updated_at + n, audience,
           {each}, created_at + {each}
    FROM numbers, sessions WHERE session_id = 'template'
    """,
    """
    INSERT INTO lines (tenant, line_id, seq, head, weight)
    SELECT tenant, 'board:s_' || n, seq, head, weight FROM numbers, lines WHERE line_id = 'board:template'
    """,
    """
    INSERT INTO message_audiences (tenant, session_id, audience, messages, stamp)
    SELECT '{tenant}', 's_' || n, '*', {readable}, n FROM numbers
    """,
    """
    INSERT INTO message_audiences (tenant, session_id, audience, messages, stamp)
    SELECT '{tenant}', 's_' || n, 'principal:agent_' || n, {each} - {readable}, {owners} + n
    FROM numbers WHERE {readable} < {each}
    """,
)
# The text of an item: three phrases, and a number shared by ten items.
_ITEM = """
, items AS (
    SELECT n, n / {each} AS owner, n % {each} AS place, n % 10 = {private_digit} AS private,
           'ticket-' || (n / 10) || ' ' || a.text || ' ' || b.text || ' ' || c.text AS text
    FROM numbers JOIN phrases a ON a.place = n % 499 JOIN phrases b ON b.place = (n * 7 + 3) % 491
    JOIN phrases c ON c.place = n * 13 % 487)
"""
_EACH_MESSAGE = (
    """
    INSERT INTO messages (tenant, session_id, message_id, audience, visibility, sender, sender_type, recipient_id,
                          message_type, category, parent_id, sent_at, content, metadata)
    SELECT m.tenant, 's_' || i.owner, i.place + 1, CASE WHEN i.private THEN 'principal:agent_' || i.owner ELSE '*' END,
           CASE WHEN i.private THEN 'private' ELSE 'public' END, 'agent_' || i.owner, m.sender_type, m.recipient_id,
           m.message_type, m.category, m.parent_id, m.sent_at + i.place, {text_bytes}, m.metadata
    FROM items i, messages m WHERE m.session_id = 'template'
    """,
    """
    INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, participants, readable_by, data)
    SELECT e.tenant, t.event_seq + i.n + 1, 's_' || i.owner, e.type, CAST(i.place + 1 AS TEXT), e.actor, e.at,
           e.participants, CASE WHEN i.private THEN '["principal:agent_' || i.owner || '"]' END, e.data
    FROM items i, events e, tenants t
    WHERE t.tenant = e.tenant AND e.type = 'message.added' AND e.session_id = 'template'
    """,
    "UPDATE tenants SET event_seq = event_seq + {messages}",
)
_EACH_ENTRY = (
    "INSERT INTO blobs (tenant, hash, content) SELECT '{tenant}', {hash}, {value_bytes} FROM items i",
    """
    INSERT INTO memory_entries (tenant, principal_id, session_id, key, incarnation, version, blob_hash, size,
    weight, metadata,
                                created_at, updated_at, expires_at)
    SELECT m.tenant, 'agent_' || i.owner, '', {key_bytes}, 1, 1, {hash}, LENGTH({value}), LENGTH({value}) + 8,
           m.metadata, m.created_at, m.updated_at, m.expires_at
    FROM items i, memory_entries m WHERE m.principal_id = 'benchmark'
    """,
    """
    INSERT INTO commits (tenant, line_id, seq, hash, author, principal_id, committed_at, reason)
    SELECT k.tenant, 'memory:agent_' || i.owner, i.place + 1, k.hash, k.author, 'agent_' || i.owner,
           k.committed_at, k.reason
    FROM items i, commits k WHERE k.line_id = 'memory:benchmark'
    """,
    """
    INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, blob_hash, meta)
    SELECT k.tenant, 'memory:agent_' || i.owner, {key}, i.place + 1, 1, 1, k.act, {hash}, k.meta
    FROM items i, changes k WHERE k.line_id = 'memory:benchmark'
    """,
    """
    INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, participants, readable_by, data)
    SELECT e.tenant, t.event_seq + i.n + 1, e.session_id, e.type, {key}, e.actor, e.at, e.participants,
           '["principal:agent_' || i.owner || '"]', e.data
    FROM items i, events e, tenants t
    WHERE t.tenant = e.tenant AND e.type = 'memory.written' AND e.readable_by = '["principal:benchmark"]'
    """,
    "UPDATE tenants SET event_seq = event_seq + {messages}",
)
_EACH_MEMORY = (
    """
    INSERT INTO lines (tenant, line_id, seq, head, weight)
    SELECT l.tenant, 'memory:' || s.principal_id, s.entries, l.head, s.weight
    FROM lines l, (SELECT principal_id, COUNT(*) AS entries, SUM(weight) AS weight FROM memory_entries
                   WHERE tenant = '{tenant}' AND principal_id <> 'benchmark' GROUP BY principal_id) AS s
    WHERE l.line_id = 'memory:benchmark'
    """,
    """
    INSERT INTO memory_owners (tenant, principal_id, weight, expired)
    SELECT '{tenant}', principal_id, SUM(weight), 0 FROM memory_entries
    WHERE tenant = '{tenant}' AND principal_id <> 'benchmark' GROUP BY principal_id
    """,
)
_PHRASE_TABLE = "CREATE TABLE phrases (place BIGINT PRIMARY KEY, text TEXT NOT NULL)"


async def fill(url: str, size: Size) -> None:
    """Create a tenant of a given size in an empty database."""
    await prepare(url, [_TEMPLATE])
    app = await open_app(url)
    await app.call(app.registry["message.add"], {"session_id": _TEMPLATE, "content": "the first"}, READER)
    await app.call(app.registry["memory.set"], {"key": "key_0", "value": {"note": "the first"}}, READER)
    await app.close()
    if url.startswith("postgres"):
        await _fill_postgres(url, size)
    else:
        _fill_sqlite(url, size)


def query(turn: int) -> str:
    """Return a query: words of a phrase, and a number that makes it unique."""
    return " ".join([*phrases()[turn % _PHRASES].split()[:4], f"ticket-{turn}"])


@cache
def phrases() -> tuple[str, ...]:
    """Return deterministic phrases with a few frequent and many rare words."""
    draw = Random(1)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(2, 4))) for _ in range(_VOCABULARY)]
    weights = [1 / rank for rank in range(1, _VOCABULARY + 1)]
    return tuple(" ".join(draw.choices(words, weights, k=_WORDS_OF_A_PHRASE)) for _ in range(_PHRASES))


def _statements(size: Size, dialect: _Dialect) -> list[str]:
    value = """('{"note":"' || i.text || '"}')"""
    values = {
        "tenant": TENANT,
        "owners": size.owners,
        "each": size.each,
        "messages": size.messages,
        "readable": size.readable,
        "private_digit": _PRIVATE_ONE_IN - 1 if size.private else _PRIVATE_ONE_IN,
        "text_bytes": dialect.text_bytes.format("i.text"),
        # Odd multiples modulo a power of two: distinct and unordered, like hashes.
        "hash": dialect.hash.format("i.n * 2654435761 % 4294967296"),
        "value": value,
        "value_bytes": dialect.text_bytes.format(value),
        "key": "'key_' || i.place",
        "key_bytes": dialect.text_bytes.format("'key_' || i.place"),
    }
    owner_statements = [_NUMBERS.format(count=size.owners) + statement.format(**values) for statement in _EACH_OWNER]
    items = _NUMBERS.format(count=size.messages) + _ITEM.format(**values)
    of_items = (*_EACH_MESSAGE, *_EACH_ENTRY) if size.memory else _EACH_MESSAGE
    of_memories = _EACH_MEMORY if size.memory else ()
    return [
        *owner_statements,
        *((items if " items i" in statement else "") + statement.format(**values) for statement in of_items),
        *(statement.format(**values) for statement in of_memories),
    ]


def _numbered_phrases() -> Sequence[tuple[int, str]]:
    return list(enumerate(phrases()))


def _fill_sqlite(path: str, size: Size) -> None:
    connection = apsw.Connection(path)
    connection.pragma("synchronous", "OFF")
    connection.pragma("cache_size", -_FILLING_CACHE_KIBIBYTES)
    with connection:
        connection.execute(_PHRASE_TABLE)
        connection.executemany("INSERT INTO phrases VALUES ($1, $2)", _numbered_phrases())
        for statement in _statements(size, _SQLITE):
            connection.execute(statement)
        connection.execute("DROP TABLE phrases")
    connection.pragma("wal_checkpoint", "TRUNCATE")
    connection.close()


async def _fill_postgres(url: str, size: Size) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(_PHRASE_TABLE)
    await connection.executemany("INSERT INTO phrases VALUES ($1, $2)", _numbered_phrases())
    for statement in _statements(size, _POSTGRES):
        await connection.execute(statement, timeout=None)
    await connection.execute("DROP TABLE phrases")
    await connection.execute("VACUUM ANALYZE")
    await connection.close()
