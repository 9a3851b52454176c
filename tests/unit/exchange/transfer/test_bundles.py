"""The bundle format: round trips, and detection of every change with its line."""

from __future__ import annotations

import base64
import hashlib
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.exchange.transfer import bundle_format as bundles
from weftline.exchange.transfer.bundle_format import (
    BundleContent,
    BundleDamaged,
    BundleHeader,
    BundleReader,
    BundleRecord,
    BundleSeal,
    BundleSession,
    BundleSnapshot,
    BundleWriter,
    StoredInfo,
    is_bundle,
)
from weftline.kernel.errors import ContentTooLarge
from weftline.records.model import ContextEnvelope, ContextItem, MissingContext, Producer
from weftline.records.refs import Link
from weftline.sessions.model import SessionConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.req("AC-14")

AT = datetime(2026, 5, 4, 3, 2, 1, 98765, tzinfo=UTC)
FORMS = ("ndjson", "json")
TEXT = "Ship on Friday. ✓ 🚢"
each_form = pytest.mark.parametrize("form", FORMS)


def header(**options: Any) -> BundleHeader:
    fields = {
        "format": "weftline-bundle",
        "version": 1,
        "bundle_id": "b1",
        "scope": "session",
        "schema_version": "0.1.0",
        "created_at": AT,
        "producer": Producer(id="weftline", version="1"),
        "source": "urn:weftline:1",
        "session_id": "s1",
    }
    return BundleHeader(**{**fields, **options})


def session() -> BundleSession:
    return BundleSession(
        session_id="s1",
        purpose="a test",
        metadata={"a": [1, None]},
        config=SessionConfig(),
        created_by="planner",
        created_at=AT,
        updated_at=AT,
    )


def envelope(context_id: str = "b1") -> BundleRecord:
    record = ContextEnvelope(
        schema_version="0.1.0", context_id=context_id, scope="session", lifecycle="available", created_at=AT
    )
    return BundleRecord(type="context_envelope", record=msgspec.Raw(msgspec.json.encode(record)))


def item(text: str | None = TEXT) -> BundleRecord:
    ref = Link(kind="content", id="i", digest=digest(text or ""))
    record = ContextItem(
        schema_version="0.1.0", item_id="i", context_kind="x", content_mode="ref", visibility=("*",), content_ref=ref
    )
    return BundleRecord(type="context_item", record=msgspec.Raw(msgspec.json.encode(record)))


def missing() -> BundleRecord:
    record = MissingContext(
        schema_version="0.1.0",
        missing_id="m1",
        scope="task",
        question="Why?",
        severity="low",
        status="detected",
        created_at=AT,
    )
    stored = StoredInfo("orchestrator", AT, AT)
    body = msgspec.Raw(msgspec.json.encode(record))
    return BundleRecord(type="missing_context", record=body, readable_by=("human:*",), stored=stored)


def snapshot() -> BundleSnapshot:
    return BundleSnapshot(label="mark", seq=3, created_by="orchestrator", created_at=AT)


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def full_bundle() -> list[Any]:
    return [header(), session(), envelope(), item(), BundleContent.of(TEXT.encode()), missing(), snapshot()]


def written(entries: list[Any], form: Any = "ndjson") -> bytes:
    file = io.BytesIO()
    writer = BundleWriter(file.write, form)
    for entry in entries:
        writer.add(entry)
    writer.seal()
    assert writer.bytes == len(file.getvalue())
    return file.getvalue()


def read(content: bytes) -> list[Any]:
    return [line.entry for line in BundleReader(io.BytesIO(content))]


def read_error(content: bytes) -> BundleDamaged:
    with pytest.raises(BundleDamaged) as caught:
        read(content)
    return caught.value


def chained_lines(bodies: list[bytes]) -> bytes:
    """Return lines with valid digests for any bodies."""
    last, lines = "0" * 64, []
    for body in bodies:
        last = hashlib.sha256(last.encode() + body).hexdigest()
        lines.append(b'{"digest":"sha256:%s","entry":%s}\n' % (last.encode(), body))
    return b"".join(lines)


def sealed(bodies: list[bytes], **options: Any) -> bytes:
    last = "0" * 64
    for body in bodies:
        last = hashlib.sha256(last.encode() + body).hexdigest()
    seal = {"kind": "seal", "entries": len(bodies), "digest": f"sha256:{last}", **options}
    return chained_lines([*bodies, msgspec.json.encode(seal)])


@each_form
def test_bundles_round_trip(form: str) -> None:
    content = written(full_bundle(), form)
    reader = BundleReader(io.BytesIO(content))
    lines = list(reader)
    assert [line.entry for line in lines] == full_bundle()
    assert [type(line.record).__name__ for line in lines if line.record] == [
        "ContextEnvelope",
        "ContextItem",
        "MissingContext",
    ]
    assert reader.entries == len(full_bundle())
    assert reader.records == 3
    assert is_bundle(content)


def test_the_json_form_equals_the_json_lines_form() -> None:
    lines = [msgspec.json.decode(line) for line in written(full_bundle()).splitlines()]
    assert msgspec.json.decode(written(full_bundle(), "json")) == lines
    assert lines[-1]["entry"]["kind"] == "seal"


def test_both_forms_have_one_digest() -> None:
    digests = set()
    for form in FORMS:
        reader = BundleReader(io.BytesIO(written(full_bundle(), form)))
        list(reader)
        digests.add(reader.digest)
    assert len(digests) == 1
    assert None not in digests


def flips(byte: int) -> Iterator[int]:
    for flipped in (byte ^ 1, byte ^ 0x80, 0x0A):
        if flipped != byte:
            yield flipped


@each_form
def test_a_flipped_byte_is_detected_with_its_line(form: str) -> None:
    content = written(full_bundle(), form)
    line = 1
    for position, byte in enumerate(content):
        for flipped in flips(byte):
            altered = content[:position] + bytes([flipped]) + content[position + 1 :]
            error = read_error(altered)
            hit_newline = 0x0A in {byte, flipped}
            allowed = {line, line - 1} if hit_newline else {line}
            assert error.context["line"] in allowed, (position, flipped, error.message)
        line += byte == 0x0A


@each_form
def test_a_truncated_bundle_is_refused(form: str) -> None:
    content = written(full_bundle(), form)
    for length in range(len(content)):
        assert read_error(content[:length]).code == "BUNDLE_DAMAGED"


@each_form
def test_a_missing_repeated_or_moved_line_is_detected(form: str) -> None:
    lines = written(full_bundle(), form).splitlines(keepends=True)
    for position in range(len(lines)):
        assert read_error(b"".join(lines[:position] + lines[position + 1 :]))
        assert read_error(b"".join([*lines[: position + 1], *lines[position:]]))
    for position in range(len(lines) - 1):
        swapped = [*lines[:position], lines[position + 1], lines[position], *lines[position + 2 :]]
        assert read_error(b"".join(swapped)).context["line"] <= position + 2


@each_form
def test_trailing_data_is_detected(form: str) -> None:
    content = written(full_bundle(), form)
    error = read_error(content + b"x")
    assert error.context["line"] == content.count(b"\n") + 1
    assert error.context["offset"] == len(content)
    assert "after the end" in error.message


def bodies(*entries: Any) -> list[bytes]:
    return [msgspec.json.encode(entry) for entry in entries]


INVALID_BUNDLES: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "nothing": (lambda: b"", 1, "ends before"),
    "not a bundle": (lambda: b'{"a": 1}\n', 1, "form"),
    "no header": (lambda: sealed(bodies(envelope())), 1, "a record entry is not allowed here"),
    "two headers": (lambda: sealed(bodies(header(), header())), 2, "a header entry is not allowed here"),
    "no session": (lambda: sealed(bodies(header(), envelope())), 2, "a record entry is not allowed here"),
    "two sessions": (lambda: sealed(bodies(header(), session(), session())), 3, "a session entry is not allowed here"),
    "a session of a turn": (
        lambda: sealed(bodies(header(scope="turn"), session())),
        2,
        "a session entry is not allowed",
    ),
    "no record": (lambda: sealed(bodies(header(), session())), 3, "a seal entry is not allowed here"),
    "another envelope": (lambda: sealed(bodies(header(), session(), envelope("b2"))), 3, "own envelope"),
    "no envelope": (lambda: sealed(bodies(header(), session(), missing())), 3, "own envelope"),
    "a record after a snapshot": (
        lambda: sealed(bodies(header(), session(), envelope(), snapshot(), missing())),
        5,
        "a record entry is not allowed here",
    ),
    "unknown kind": (lambda: sealed([*bodies(header()), b'{"kind":"secret"}']), 2, "$.kind: Invalid value 'secret'"),
    "no kind": (lambda: sealed([*bodies(header()), b"{}"]), 2, "missing required field `kind`"),
    "not json": (lambda: sealed([*bodies(header()), b"{nope}"]), 2, "not JSON"),
    "too deep": (lambda: sealed([*bodies(header()), b"[" * 100_000 + b"]" * 100_000]), 2, "$: Expected `object`"),
    "deep inside": (
        lambda: sealed([*bodies(header()), b'{"kind":"session","metadata":{"a":' + b"[" * 50_000 + b"]" * 50_000]),
        2,
        "not JSON",
    ),
    "unknown field": (lambda: sealed([b'{"kind":"header","odd":1}']), 1, "unknown field `odd`"),
    "a future version": (
        lambda: sealed([msgspec.json.encode(header()).replace(b'"version":1', b'"version":2', 1)]),
        1,
        "$.version",
    ),
    "an invalid record": (
        lambda: sealed([*bodies(header(), session(), envelope()), _altered(missing(), b'"low"', b'"dire"')]),
        4,
        "record: $.severity: Invalid enum value 'dire'",
    ),
    "a record of another type": (
        lambda: sealed([*bodies(header(), session(), envelope()), _altered(missing(), b"missing_context", b"unknown")]),
        4,
        "$.type",
    ),
    "a broken constraint": (
        lambda: sealed([*bodies(header(), session(), envelope()), _altered(missing(), b"detected", b"resolved")]),
        4,
        "`resolution_refs` is required",
    ),
    "content without an item": (
        lambda: sealed(bodies(header(), session(), envelope(), BundleContent.of(b"x"))),
        4,
        "not the one that the previous item",
    ),
    "content of another item": (
        lambda: sealed(bodies(header(), session(), envelope(), item(), BundleContent.of(b"x"))),
        5,
        "not the one that the previous item",
    ),
    "content twice": (
        lambda: sealed(bodies(header(), session(), envelope(), item(), *[BundleContent.of(TEXT.encode())] * 2)),
        6,
        "not the one that the previous item",
    ),
    "content with another digest": (
        lambda: sealed(bodies(header(), session(), envelope(), item(), BundleContent(digest=digest(TEXT), text="x"))),
        5,
        "does not match its digest",
    ),
    "content that is not base64": (
        lambda: sealed(bodies(header(), session(), envelope(), item(), BundleContent(digest=digest(TEXT), base64="*"))),
        5,
        "cannot be decoded",
    ),
    "content without text and base64": (
        lambda: sealed(bodies(header(), session(), envelope(), item(), BundleContent(digest=digest(TEXT)))),
        5,
        "text or base64",
    ),
    "fewer entries than sealed": (
        lambda: sealed(bodies(header(), session(), envelope()), entries=9),
        4,
        "for 9 entries",
    ),
    "another seal": (
        lambda: sealed(bodies(header(), session(), envelope()), digest=digest("")),
        4,
        "belongs to another bundle",
    ),
    "a line too long": (lambda: b"x" * (bundles.MAX_LINE_BYTES + 2), 1, "too long"),
}


def _altered(entry: BundleRecord, old: bytes, new: bytes) -> bytes:
    body = msgspec.json.encode(entry)
    assert old in body
    return body.replace(old, new, 1)


@pytest.mark.parametrize("name", INVALID_BUNDLES)
def test_an_invalid_bundle_with_valid_digests_is_refused_with_its_line(name: str) -> None:
    make, line, message = INVALID_BUNDLES[name]
    error = read_error(make())
    assert (error.context["line"], message in error.message) == (line, True), error.message


def test_binary_content_is_base64() -> None:
    content = BundleContent.of(b"\xff\x00")
    assert content.base64 == base64.b64encode(b"\xff\x00").decode()
    assert content.bytes() == b"\xff\x00"


def test_an_oversized_entry_is_refused_by_the_writer() -> None:
    writer = BundleWriter(lambda _: None)
    with pytest.raises(ContentTooLarge):
        writer.add(BundleContent.of(b"x" * bundles.MAX_LINE_BYTES))


@pytest.mark.parametrize("form", FORMS)
@given(texts=st.lists(st.text(max_size=50), max_size=5), flip=st.tuples(st.integers(0), st.integers(1, 255)))
def test_any_flipped_byte_in_any_bundle_is_detected(form: str, texts: list[str], flip: tuple[int, int]) -> None:
    contents = [part for text in texts for part in (item(text), BundleContent.of(text.encode()))]
    content = written([header(), session(), envelope(), *contents], form)
    assert len(read(content)) == 3 + len(contents)
    position = flip[0] % len(content)
    altered = content[:position] + bytes([content[position] ^ flip[1]]) + content[position + 1 :]
    assert read_error(altered).context["line"] <= content[:position].count(b"\n") + 1


def test_the_last_entry_is_the_seal_with_the_entry_count() -> None:
    entry = msgspec.json.decode(written(full_bundle()).splitlines()[-1])["entry"]
    assert msgspec.convert(entry, BundleSeal).entries == len(full_bundle())
