"""Table of open connections: how many there may be, from whom, and how long each may make the server wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TYPE_CHECKING, NamedTuple, Protocol

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from weftline.app.rate_limits import client_network
from weftline.kernel.fair_queue import server_busy
from weftline.kernel.packed_text import LoopTurns
from weftline.kernel.ports import decrement
from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from starlette.types import Scope

    from weftline.kernel.client_gone import WaitingClient
    from weftline.kernel.identity import Actor
    from weftline.settings import Settings

    Owner = tuple[str, str]


# Bytes that the server keeps for its clients: what they have half sent, and what they do not read.

_MEBIBYTE = 2**20
_RETRY_WHEN_FULL = 1.0


class Holder(NamedTuple):
    """An address, or a principal with its tenant; ``limit`` is how much may be kept for it."""

    name: tuple[str, ...]
    limit: int


class ByteBudget:
    """Counts the bytes kept in all, and for each holder."""

    def __init__(self, total: int = 256 * _MEBIBYTE) -> None:
        self.per_address = total // 2
        self.per_principal = total // 5
        self.used = 0
        self._total = total
        self._by_holder: Counter[tuple[str, ...]] = Counter()

    def take(self, holders: Sequence[Holder], size: int) -> None:
        """Count bytes for all their holders; raises ServerBusy if those of one are too many, or all together.

        What a holder keeps first is accepted whatever its size: an answer may be larger than its share.
        """
        over = any(self._by_holder[name] and self._by_holder[name] + size > limit for name, limit in holders)
        if over or self.used + size > self._total:
            raise server_busy(_RETRY_WHEN_FULL)
        self.used += size
        for name, _ in holders:
            self._by_holder[name] += size

    def give_back(self, holders: Sequence[Holder], size: int) -> None:
        self.used -= size
        for name, _ in holders:
            self._by_holder[name] -= size
            if not self._by_holder[name]:
                del self._by_holder[name]


# A sweep visits every connection once in this number of calls.
SWEEP_STEPS = 10
_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits on connections, in seconds, bytes and numbers.

    Connections that have not authenticated may be half of all, and those of one address a sixth: processes of one
    machine, or people behind one router, may open many at once.
    """

    open: int = 20_000
    # From the first byte of a request, or the connection, to the end of its headers.
    head_seconds: int = 10
    # Without a byte of an announced body, and in addition the time that a slow body may take.
    body_seconds: int = 10
    body_bytes_per_second: int = 2_048
    # Between two requests.
    idle_seconds: int = 75
    # In which at least unread_bytes of a waiting answer have to be read.
    unread_seconds: int = 30
    unread_bytes: int = 32_768
    # After an answer to a request that was not read to its end, and for a connection that is being closed.
    linger_seconds: int = 3

    @property
    def per_address(self) -> int:
        return max(1, self.open // 2)

    @property
    def per_tenant(self) -> int:
        return max(1, self.open // 2)

    @property
    def per_tree(self) -> int:
        """Return the maximum of an agent with all agents below it: those outside its tree have the rest."""
        return max(1, self.open // 4)

    @property
    def per_principal(self) -> int:
        return max(1, self.open // 10)

    @property
    def anonymous(self) -> int:
        return max(1, self.open // 2)

    @property
    def anonymous_per_address(self) -> int:
        return max(1, self.open // 6)


class Connection(Protocol):
    """A connection as the table sees it."""

    # Address or network of the peer; empty for a trusted proxy, whose clients share its connections.
    address: str
    owner: Owner | None
    waiting: WaitingClient
    # Its request has arrived and waits for its turn.
    waits_for_turn: bool

    def identified(self, actor: Actor) -> None:
        """Note the caller of a request; raises ServerBusy if it has too many connections."""
        ...

    def grow_older(self) -> None:
        """Count a second; close the connection if it has been waited for too long."""
        ...

    def evict(self) -> None:
        """Close the connection now."""
        ...

    def break_off(self) -> None:
        """Close the connection in the middle of an answer, behind what was written of it."""
        ...

    def omit_own_headers(self, scope: Scope) -> None:
        """Let the answer to a request have only the headers that the application sends."""
        ...

    def hold(self, size: int, scope: Scope) -> None:
        """Count bytes that are kept for a request; raises ServerBusy."""
        ...

    def refused_again(self) -> int:
        """Return how often requests of this connection were refused by a limit, one soon after the other."""
        ...


@dataclass(slots=True)
class ConnectionTable:
    """Open connections. One that has not authenticated makes room for a newer one."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    trusted_proxies: Container[str] = frozenset()
    kept: ByteBudget = field(default_factory=ByteBudget)
    turns: LoopTurns = field(default_factory=LoopTurns)
    _all: dict[Connection, None] = field(default_factory=dict)
    _anonymous: dict[Connection, None] = field(default_factory=dict)
    _anonymous_of: defaultdict[str, dict[Connection, None]] = field(default_factory=lambda: defaultdict(dict))
    _by_address: Counter[str] = field(default_factory=Counter)
    _by_tenant: Counter[str] = field(default_factory=Counter)
    _by_owner: Counter[Owner] = field(default_factory=Counter)
    _by_tree: Counter[Owner] = field(default_factory=Counter)
    _trees: dict[Connection, list[Owner]] = field(default_factory=dict)
    _sweep: list[Connection] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def anonymous(self) -> int:
        return len(self._anonymous)

    def address_of(self, peer: str) -> str:
        """Return what connections of a peer are counted by: nothing for a trusted proxy."""
        return "" if peer in self.trusted_proxies else str(client_network(peer) or peer)

    def add(self, connection: Connection) -> bool:
        """Add a new connection; return whether there is room for it."""
        if not self._make_room(connection.address):
            return False
        self._all[connection] = self._anonymous[connection] = None
        if connection.address:
            self._by_address[connection.address] += 1
            self._anonymous_of[connection.address][connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        if connection not in self._all:
            return
        del self._all[connection]
        self._forget_anonymous(connection)
        self._forget_owner(connection)
        decrement(self._by_address, connection.address)

    def authenticate(self, connection: Connection, actor: Actor) -> None:
        """Note whose connection it is; raises ServerBusy if its principal, tree or tenant has too many."""
        owner = (actor.tenant, actor.principal_id)
        tree = [(actor.tenant, agent) for agent in actor.trees]
        if self._is_full(owner, tree):
            raise server_busy(_RETRY_SECONDS)
        if connection not in self._all:
            return
        self._forget_anonymous(connection)
        self._forget_owner(connection)
        connection.owner = owner
        self._trees[connection] = tree
        self._by_owner[owner] += 1
        self._by_tenant[actor.tenant] += 1
        self._by_tree.update(tree)

    def _is_full(self, owner: Owner, tree: Sequence[Owner]) -> bool:
        limits = self.limits
        return (
            self._by_owner[owner] >= limits.per_principal
            or self._by_tenant[owner[0]] >= limits.per_tenant
            or any(self._by_tree[agent] >= limits.per_tree for agent in tree)
        )

    def ask(self, connection: Connection) -> None:
        """Note that a connection has sent a request: those that have sent none make room first."""
        for among in (self._anonymous, self._anonymous_of.get(connection.address, {})):
            if connection in among:
                del among[connection]
                among[connection] = None

    def sweep(self, step: int) -> None:
        """Let a part of the connections grow older by a second; called with every step in turn, within a second."""
        if step % SWEEP_STEPS == 0:
            self._sweep = list(self._all)
        for connection in self._sweep[step % SWEEP_STEPS :: SWEEP_STEPS]:
            connection.grow_older()

    def _make_room(self, address: str) -> bool:
        limits = self.limits
        full_address = self._by_address[address] >= limits.per_address
        if full_address or len(self._anonymous_of.get(address, ())) >= limits.anonymous_per_address:
            return self._evict_oldest(self._anonymous_of.get(address, {}))
        if len(self._all) >= limits.open or len(self._anonymous) >= limits.anonymous:
            return self._evict_oldest(self._anonymous)
        return True

    def _evict_oldest(self, among: Mapping[Connection, None]) -> bool:
        oldest = next(iter(among), None)
        # If the first waits for its turn, all do: closing them for others, which would wait too, would serve nobody.
        if oldest is None or oldest.waits_for_turn:
            return False
        self.remove(oldest)
        oldest.evict()
        return True

    def _forget_anonymous(self, connection: Connection) -> None:
        self._anonymous.pop(connection, None)
        of_address = self._anonymous_of.get(connection.address)
        if of_address is not None:
            of_address.pop(connection, None)
            if not of_address:
                del self._anonymous_of[connection.address]

    def _forget_owner(self, connection: Connection) -> None:
        if connection.owner is not None:
            decrement(self._by_owner, connection.owner)
            decrement(self._by_tenant, connection.owner[0])
            for agent in self._trees.pop(connection, ()):
                decrement(self._by_tree, agent)
            connection.owner = None


def trusted_proxies(settings: Settings) -> Container[str]:
    """Return the addresses of the trusted proxies, in the form in which uvicorn trusts them."""
    for given in settings.trusted_proxies.split():
        try:
            ip_network(given)
        except ValueError:
            raise InvalidSetting(
                f"WEFTLINE_TRUSTED_PROXIES: '{given}' is neither an address nor a network such as 10.0.0.0/8."
            ) from None
    return ProxyHeadersMiddleware(_no_app, settings.trusted_proxies.split()).trusted_hosts  # type: ignore[arg-type, return-value, unused-ignore]


async def _no_app(*_: object) -> None:
    """Stand in for the application that the middleware would call."""


def connection_of(scope: Scope) -> Connection | None:
    """Return the connection of a request; None if it came through none, as in tests."""
    connection: Connection | None = scope.get("state", {}).get("connection")
    return connection
