"""The journal of calls that are not metered yet: what a killed process leaves, the next one finds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from weftline.app.authentication import Local
from weftline.app.call_journal import CallJournal
from weftline.app.call_notes import CallNote
from weftline.app.proxied_conversations import ConversationCall
from weftline.app.proxied_edits import EditNote
from weftline.models.language_models.chat_model import ChatCaller
from weftline.models.metering import UsageSums

if TYPE_CHECKING:
    from pathlib import Path

AT = datetime(2026, 11, 16, 10, tzinfo=UTC)
SUMS = UsageSums(reported_calls=1, total_tokens=42)


def note(call_id: str) -> CallNote:
    return CallNote(
        call_id=call_id,
        at=AT,
        caller=ChatCaller("default", "planner"),
        model="claude-sonnet-4-5",
        sums=SUMS,
        seconds=1.5,
        key="weftline.default.key_1.secret",
        person=Local("default", "planner"),
        conversation=ConversationCall(
            "anthropic", b"a private text", {b"user-agent": b"a"}, b"answer", is_stream=False, at=AT
        ),
        edits=EditNote("trim", "c1", anchors=("r1.1",), whole=("r2.1",)),
    )


def left(journal: CallJournal) -> list[str]:
    return [each.call_id for calls in journal.left() for each in calls]


def test_calls_of_a_process_that_has_ended_are_found_once(tmp_path: Path) -> None:
    killed = CallJournal(tmp_path)
    for name in ("call_1", "call_2"):
        killed.add(note(name))
    after = CallJournal(tmp_path)
    # Its process holds the lock.
    assert left(after) == []
    # The open call keeps the file.
    killed.close()
    assert left(after) == ["call_1", "call_2"]
    assert left(after) == []
    assert not list(tmp_path.iterdir())


def test_metered_calls_leave_nothing(tmp_path: Path) -> None:
    journal = CallJournal(tmp_path)
    for name in ("call_1", "call_2"):
        journal.add(note(name))
    journal.done("call_1")
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size
    journal.done("call_2")
    assert not path.stat().st_size
    journal.close()
    assert not list(tmp_path.iterdir())


def test_a_line_holds_usage_and_neither_keys_nor_messages(tmp_path: Path) -> None:
    journal = CallJournal(tmp_path)
    journal.add(note("call_1"))
    journal.close()
    (path,) = tmp_path.iterdir()
    written = path.read_bytes()
    assert b"secret" not in written
    assert b"private" not in written
    # A process may be killed while it writes.
    path.write_bytes(written + written[:40])
    ((found,),) = CallJournal(tmp_path).left()
    assert found == note("call_1").as_usage()
    assert (found.sums, found.at, found.edits) == (SUMS, AT, EditNote("trim", "c1"))


def test_a_call_that_cannot_be_metered_stays(tmp_path: Path) -> None:
    killed = CallJournal(tmp_path)
    killed.add(note("call_1"))
    killed.close()
    for _ in CallJournal(tmp_path).left():
        break
    assert left(CallJournal(tmp_path)) == ["call_1"]


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    journal = CallJournal(tmp_path / "file")
    journal.add(note("call_1"))
    journal.done("call_1")
    assert left(journal) == []
    journal.close()


def test_a_note_is_the_same_in_another_process() -> None:
    sent = msgspec.msgpack.encode(note("call_1"))
    assert msgspec.msgpack.decode(sent, type=CallNote) == note("call_1")
