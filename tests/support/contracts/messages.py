"""The contract of MessageStore."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from support.contracts.sessions import session
from support.contracts.stores import ContractStores
from weftline.safety.trust.model import Source, Trust, TrustLabel
from weftline.sessions.messages.model import LAST, Excerpt, Message, TranscriptRange, audience_for

_AUDIENCES = ("*", "principal:ada", "type:claude", "permission:admin")


def message(number: int, audience: str = "*", **changed: Any) -> Message:
    plain = Message(
        message_id=number,
        audience=audience,
        visibility="public",
        sender="ada",
        sender_type="claude",
        recipient_id=None,
        message_type="message",
        category="DIALOG",
        parent_id=None,
        sent_at=number * 10,
        content=f"  text {number}\x00\n",
        metadata='{"nested":[1,1.0,null,"é"]}',
    )
    return msgspec.structs.replace(plain, **changed)


def _direct(sender: str, recipient: str) -> str:
    return audience_for("private", sender, "claude", recipient)


async def fill(stores: ContractStores, *messages: Message) -> None:
    await stores.sessions.add(session("s1"))
    for each in messages:
        await stores.messages.add("s1", each)


class MessageStoreContract:
    """Messages are stored unchanged and read by audience, in order of their ids."""

    async def test_a_message_is_returned_unchanged(self, stores: ContractStores) -> None:
        sent = message(1, parent_id=None, recipient_id="bob", message_type="request", category="CONTEXT")
        await fill(stores, sent)
        assert await stores.messages.find("s1", 1) == sent
        assert await stores.messages.find("s1", 2) is None
        found = await stores.sessions.find("s1")
        assert found is not None
        assert (found.message_count, found.last_message_at) == (1, 10)

    async def test_a_batch_is_added_and_numbering_continues_after_it(self, stores: ContractStores) -> None:
        some = [message(2), message(3, "principal:ada"), message(5)]
        await fill(stores)
        await stores.messages.add_all("s1", some)
        await stores.messages.add_all("s1", [])
        await stores.messages.set_last_message("s1", 7, 50)
        assert await stores.messages.read_any("s1", TranscriptRange(limit=9)) == some
        tallies = await stores.messages.audience_counts("s1", ["*", "principal:ada"])
        assert [(tally.audience, tally.messages) for tally in tallies] == [("*", 2), ("principal:ada", 1)]
        found = await stores.sessions.find("s1")
        assert found is not None
        assert (found.message_count, found.last_message_at) == (7, 50)

    async def test_an_excerpt_has_only_its_audiences(self, stores: ContractStores) -> None:
        await fill(stores, *(message(n, _AUDIENCES[n % 4]) for n in range(1, 13)))
        read = await stores.messages.read("s1", Excerpt(("*", "type:claude"), TranscriptRange(limit=100)))
        assert [m.message_id for m in read] == [2, 4, 6, 8, 10, 12]
        assert await stores.messages.read("s1", Excerpt(("principal:eve",), TranscriptRange(limit=100))) == []

    async def test_an_excerpt_has_an_order_an_offset_and_ends(self, stores: ContractStores) -> None:
        await fill(stores, *(message(n, _AUDIENCES[n % 2]) for n in range(1, 11)))
        both = _AUDIENCES[:2]

        async def numbers(**which: Any) -> list[int]:
            part = TranscriptRange(**which)
            some = [m.message_id for m in await stores.messages.read("s1", Excerpt(both, part))]
            assert some == [m.message_id for m in await stores.messages.read_any("s1", part)]
            return some

        assert await numbers(limit=3) == [1, 2, 3]
        assert await numbers(limit=3, offset=2) == [3, 4, 5]
        assert await numbers(limit=3, after=7) == [8, 9, 10]
        assert await numbers(limit=9, after=2, until=4) == [3, 4]
        assert await numbers(limit=3, newest_first=True, until=10) == [10, 9, 8]
        assert await numbers(limit=3, newest_first=True, until=10, offset=8) == [2, 1]

    async def test_an_excerpt_is_filtered_by_sender(self, stores: ContractStores) -> None:
        await fill(stores, *(message(n, sender=("ada", "bob")[n % 2]) for n in range(1, 8)))
        read = await stores.messages.read(
            "s1", Excerpt(("*",), TranscriptRange(sender="bob", limit=2, newest_first=True))
        )
        assert [m.message_id for m in read] == [7, 5]

    async def test_direct_messages_are_read_by_either_side(self, stores: ContractStores) -> None:
        pairs = [("ada", "bob"), ("bob", "ada"), ("eve", "bob"), ("ada", "eve")]
        sent = [message(n, _direct(a, b), sender=a, recipient_id=b) for n, (a, b) in enumerate(pairs, 1)]
        await fill(stores, *sent, message(5, sender="ada"), message(6, "principal:ada"))

        async def read(audiences: tuple[str, ...], **part: Any) -> list[int]:
            some = await stores.messages.read("s1", Excerpt(audiences, TranscriptRange(limit=9, **part)))
            return [each.message_id for each in some]

        assert await read(("*", "direct:ada")) == [1, 2, 4, 5]
        assert await read(("direct:bob",), newest_first=True) == [3, 2, 1]
        assert await read(("direct:eve",)) == [3, 4]
        assert await read(("*", "direct:bob"), sender="ada") == [1, 5]
        assert await read(("direct:bob",), sender="bob") == [2]
        assert await read(("*", "direct:mallory")) == [5]
        assert await read(("*", "direct:mallory"), sender="ada") == [5]
        assert await read(("direct:ada",), after=1, offset=1) == [4]
        assert await stores.messages.count_senders("s1", ("direct:bob",)) == 3
        assert await stores.messages.count_senders("s1", ("direct:eve",)) == 2
        assert await stores.messages.count_senders("s1", ("*", "direct:mallory")) == 1

    async def test_direct_messages_are_counted_for_each_side(self, stores: ContractStores) -> None:
        await fill(stores, message(1, _direct("ada", "bob"), sender="ada", recipient_id="bob"))
        await stores.messages.add_all("s1", [message(2, _direct("ada", "eve"), sender="eve", recipient_id="ada")])

        async def counts() -> dict[str, int]:
            names = ("*", "direct:", "direct:ada", "direct:bob", "direct:eve")
            return {each.audience: each.messages for each in await stores.messages.audience_counts("s1", names)}

        assert await counts() == {"direct:": 2, "direct:ada": 2, "direct:bob": 1, "direct:eve": 1}
        found = await stores.messages.find("s1", 1)
        assert found is not None
        await stores.messages.change_audience("s1", found, "public", "*")
        assert await counts() == {"*": 1, "direct:": 1, "direct:ada": 1, "direct:bob": 0, "direct:eve": 1}

    async def test_several_messages_are_found_in_one_call(self, stores: ContractStores) -> None:
        await fill(stores, *(message(n) for n in range(1, 30)))
        found = await stores.messages.find_several("s1", [*range(3, 26), 77])
        assert sorted(m.message_id for m in found) == list(range(3, 26))

    async def test_any_number_of_audiences_can_be_read(self, stores: ContractStores) -> None:
        await fill(stores, *(message(number, f"team:{number}") for number in range(1, 30)))
        for count in (1, 4, 5, 13, 24):
            audiences = tuple(f"team:{number}" for number in range(1, count + 1))
            part = TranscriptRange(limit=100, newest_first=True)
            read = await stores.messages.read("s1", Excerpt(audiences, part))
            assert [each.message_id for each in read] == [*range(count, 0, -1)]
            of_sender = msgspec.structs.replace(part, sender="ada")
            assert await stores.messages.read("s1", Excerpt(audiences, of_sender)) == read
            assert len(await stores.messages.audience_counts("s1", audiences)) == count
            assert await stores.messages.count_senders("s1", audiences) == 1

    async def test_each_audience_is_counted(self, stores: ContractStores) -> None:
        await fill(stores, message(1), message(2), message(3, "principal:ada"))
        tallies = {t.audience: t for t in await stores.messages.audience_counts("s1", _AUDIENCES)}
        assert {name: t.messages for name, t in tallies.items()} == {"*": 2, "principal:ada": 1}
        assert tallies["*"].stamp != tallies["principal:ada"].stamp
        assert await stores.messages.audience_counts("s1", ()) == []

    async def test_a_stamp_changes_with_the_audience_but_not_with_new_messages(self, stores: ContractStores) -> None:
        await fill(stores, message(1), message(2))
        (before,) = await stores.messages.audience_counts("s1", ("*",))
        await stores.messages.add("s1", message(3))
        (grown,) = await stores.messages.audience_counts("s1", ("*",))
        assert grown.stamp == before.stamp
        await stores.messages.change_audience("s1", message(2), "admin_only", "permission:admin")
        left, joined = await stores.messages.audience_counts("s1", ("*", "permission:admin"))
        assert (left.messages, joined.messages) == (2, 1)
        assert left.stamp != before.stamp
        moved = await stores.messages.find("s1", 2)
        assert moved is not None
        assert (moved.visibility, moved.audience) == ("admin_only", "permission:admin")

    async def test_a_rewritten_message_invalidates_cached_pages(self, stores: ContractStores) -> None:
        await fill(stores, message(1), message(2))
        (before,) = await stores.messages.audience_counts("s1", ("*",))
        label = TrustLabel(Source.AGENT, Trust.SUSPICIOUS)
        changed = structs.replace(message(2), content="[removed]", metadata="{}", trust=label)
        await stores.messages.rewrite("s1", changed)
        assert await stores.messages.find("s1", 2) == changed
        (after,) = await stores.messages.audience_counts("s1", ("*",))
        assert (after.messages, after.stamp == before.stamp) == (2, False)

    async def test_a_time_range_is_resolved_to_its_first_and_last_message(self, stores: ContractStores) -> None:
        await fill(stores, *(message(n) for n in range(1, 6)), message(6, sent_at=50))
        assert await stores.messages.between("s1", 20, 50) == (2, 6)
        assert await stores.messages.between("s1", 21, 29) == (3, 2)
        assert await stores.messages.between("s1", 51, 99) == (LAST, 6)
        assert await stores.messages.between("s1", 0, 9) == (1, 0)

    async def test_senders_are_counted_by_audience(self, stores: ContractStores) -> None:
        await fill(stores, message(1), message(2), message(3, sender="bob"), message(4, "type:x", sender="eve"))
        assert await stores.messages.count_senders("s1", ("*",)) == 2
        assert await stores.messages.count_senders("s1", ("*", "type:x")) == 3
        assert await stores.messages.count_senders("s2", ("*",)) == 0

    async def test_messages_are_deleted_with_their_session(self, stores: ContractStores) -> None:
        await fill(stores, message(1))
        await stores.sessions.erase("s1")
        assert await stores.messages.find("s1", 1) is None
        assert await stores.messages.audience_counts("s1", ("*",)) == []

    async def test_tenants_have_their_own_messages(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await fill(stores, message(1))
        assert await elsewhere.messages.find("s1", 1) is None
        assert await elsewhere.messages.read("s1", Excerpt(("*",), TranscriptRange(limit=9))) == []
        assert await elsewhere.messages.audience_counts("s1", ("*",)) == []
