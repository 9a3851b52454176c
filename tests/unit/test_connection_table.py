"""The table of connections: whose they are, and how many files are left for everything else."""

from __future__ import annotations

import resource

import pytest

from weftline.kernel.errors import ServerBusy
from weftline.kernel.identity import Actor, PrincipalKind
from weftline.transports import server
from weftline.transports.http.connections import ByteBudget, ConnectionLimits, ConnectionTable, Holder


@pytest.mark.parametrize(("hard", "connections"), [(1_024, 384), (4_096, 1_920), (1_000_000, 20_000), (64, 16)])
def test_connections_leave_files_for_everything_else(
    monkeypatch: pytest.MonkeyPatch, hard: int, connections: int
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (min(256, hard), hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    assert server._connection_limits().open == connections
    assert raised == [(hard, hard)]


class FakeConnection:
    """A connection that is never closed by itself."""

    owner = None
    waits_for_turn = False

    def __init__(self, address: str) -> None:
        self.address = address
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def test_the_oldest_that_has_not_authenticated_makes_room() -> None:
    table = ConnectionTable(ConnectionLimits(open=16))
    first = [FakeConnection(f"10.0.0.{number}") for number in range(8)]
    assert all(table.add(each) for each in first)  # type: ignore[arg-type]
    assert table.add(FakeConnection("10.0.0.99"))  # type: ignore[arg-type]
    assert [each.evicted for each in first] == [True] + [False] * 7
    assert len(table) == table.anonymous == 8
    # Of an address that has its share, its own oldest.
    again = [FakeConnection("10.0.0.7") for _ in range(3)]
    assert all(table.add(each) for each in again)  # type: ignore[arg-type]
    assert first[7].evicted
    assert not first[2].evicted


def test_connections_whose_request_waits_for_its_turn_do_not_make_room() -> None:
    table = ConnectionTable(ConnectionLimits(open=16))
    first = [FakeConnection(f"10.0.0.{number}") for number in range(8)]
    assert all(table.add(each) for each in first)  # type: ignore[arg-type]
    for each in first[:7]:
        each.waits_for_turn = True
        table.ask(each)  # type: ignore[arg-type]
    newest = FakeConnection("10.0.0.99")
    assert table.add(newest)  # type: ignore[arg-type]
    assert [each.evicted for each in first] == [False] * 7 + [True], "the one that has sent nothing"
    newest.waits_for_turn = True
    table.ask(newest)  # type: ignore[arg-type]
    assert not table.add(FakeConnection("10.0.0.98"))  # type: ignore[arg-type]
    assert not any(each.evicted for each in first[:7])


def test_an_agent_with_all_agents_below_it_leaves_connections_to_others() -> None:
    table = ConnectionTable(ConnectionLimits(open=200))

    def connect(principal: str, *ancestors: str) -> None:
        connection = FakeConnection("")
        assert table.add(connection)  # type: ignore[arg-type]
        above = frozenset(ancestors)
        actor = Actor(
            "acme", principal, PrincipalKind.AGENT, principal, bool(above), frozenset(), 1, 0, ancestors=above
        )
        table.authenticate(connection, actor)  # type: ignore[arg-type]

    for number in range(table.limits.per_tree):
        connect(f"helper{number}", "mallory")
    with pytest.raises(ServerBusy):
        connect("another", "mallory")
    with pytest.raises(ServerBusy):
        connect("mallory")
    connect("victim")


def test_addresses_of_one_ipv6_network_count_together() -> None:
    table = ConnectionTable()
    assert table.address_of("2001:db8::1") == table.address_of("2001:db8::2:3")
    assert table.address_of("2001:db8::1") != table.address_of("2001:db8:0:1::1")
    assert table.address_of("::ffff:10.0.0.1") == table.address_of("10.0.0.1")


def test_kept_bytes_are_bounded_in_all_and_for_each_holder() -> None:
    budget = ByteBudget(1_000)
    agent = Holder(("acme", "agent"), 200)
    budget.take([agent], 150)
    with pytest.raises(ServerBusy):
        budget.take([agent], 51)
    others = [Holder(("acme", f"agent{number}"), 200) for number in range(5)]
    for other in others[:4]:
        budget.take([other], 200)
    with pytest.raises(ServerBusy):
        budget.take([others[4]], 200)
    budget.give_back([agent], 150)
    budget.take([others[4]], 200)
    for other in others:
        budget.give_back([other], 200)
    assert budget.used == 0
    # One answer may be larger than a share.
    budget.take([agent], 900)
