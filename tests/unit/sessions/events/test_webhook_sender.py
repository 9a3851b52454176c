"""The webhook sender: checked addresses, TLS certificates, invalid responses and signatures."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.webhook_receiver import receiver
from support.world import refused
from weftline.providers.webhook_sender import HttpSender, is_public
from weftline.sessions.events.webhooks import RETRY_AFTER_SECONDS, Attempt, backoff_seconds, signed_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.req("AC-13")
NOT_PUBLIC = [
    "0.0.0.0",
    "127.0.0.1",
    "127.255.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2001:0:7f00:1::",
    "192.0.0.8",
    "192.88.99.1",
    "3fff::1",
    "2001:4860::5efe:127.0.0.1",
    "2001:4860::200:5efe:10.0.0.1",
    "fe80::5efe:8.8.8.8",
]
PUBLIC = [
    "8.8.8.8",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::",
    "2001:4860::5efe:8.8.8.8",
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_loopback_link_local_private_and_multicast_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_global_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.fixture
async def sender() -> AsyncIterator[HttpSender]:
    sender = HttpSender(["127.0.0.1", "listed.test"])
    yield sender
    await sender.aclose()


class ScriptedResolver:
    """A resolver with scripted answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: tuple[str, ...]) -> None:
        self.resolved_hosts: list[str] = []
        self._answers = list(answers)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self, raising=False)

    async def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        self.resolved_hosts.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not answer:
            raise socket.gaierror("there is no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answer]


async def test_a_host_is_resolved_once_and_the_checked_address_is_used(
    sender: HttpSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiver() as target:
        resolver = ScriptedResolver(monkeypatch, ("127.0.0.1",), ("192.0.2.1",))
        url = target.url.replace("127.0.0.1", "listed.test")
        assert await sender.send(url, {}, b"{}") == Attempt(200)
        assert await sender.send(url, {}, b"{}") == Attempt(200)
        assert resolver.resolved_hosts == ["listed.test"]
        assert [call.headers["host"].partition(":")[0] for call in target.calls] == ["listed.test"] * 2
        assert target.connections == 1


async def test_dns_rebinding_is_refused(sender: HttpSender, monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver() as target:
        ScriptedResolver(monkeypatch, ("8.8.8.8",), ("127.0.0.1",))
        url = target.url.replace("127.0.0.1", "rebinding.test")
        await sender.check(url)
        assert await sender.send(url, {}, b"{}") == Attempt(error="address_refused")
        assert target.connections == 0


async def test_a_host_with_one_private_address_is_refused(sender: HttpSender, monkeypatch: pytest.MonkeyPatch) -> None:
    ScriptedResolver(monkeypatch, ("8.8.8.8", "10.0.0.1"))
    with refused("ADDRESS_REFUSED"):
        await sender.check("https://mixed.test/")
    assert await sender.send("https://mixed.test/", {}, b"{}") == Attempt(error="address_refused")


async def test_an_unresolvable_host_passes_the_check_and_fails_the_attempt(
    sender: HttpSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedResolver(monkeypatch, ())
    await sender.check("https://unknown.test/")
    assert await sender.send("https://unknown.test/", {}, b"{}") == Attempt(error="name_not_found")


async def test_the_next_address_of_a_host_is_tried(sender: HttpSender, monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver() as target:
        ScriptedResolver(monkeypatch, ("127.0.0.9", "127.0.0.1"))
        assert await sender.send(target.url.replace("127.0.0.1", "listed.test"), {}, b"{}") == Attempt(200)


def tls_contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Create a certificate for a name; return the TLS contexts of server and client."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server_context, ssl.create_default_context(cafile=str(folder / "cert.pem"))


async def test_the_certificate_must_match_the_host_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server_context, client_context = tls_contexts(tmp_path, "listed.test")
    sender = HttpSender(["listed.test", "other.test"], client_context)
    untrusting = HttpSender(["listed.test"])
    async with receiver(secured=server_context) as target:
        ScriptedResolver(monkeypatch, ("127.0.0.1",))
        url = target.url.replace("127.0.0.1", "listed.test")
        assert await sender.send(url, {}, b"{}") == Attempt(200)
        other = url.replace("listed", "other")
        assert await sender.send(other, {}, b"{}") == Attempt(error="certificate_refused")
        assert await untrusting.send(url, {}, b"{}") == Attempt(error="certificate_refused")
    await sender.aclose()
    await untrusting.aclose()


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", b"HTTP/1.1 \xff\r\n\r\n"],
)
async def test_any_invalid_response_is_a_failed_attempt(sender: HttpSender, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        attempt = await sender.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {}, b"{}")
    assert not attempt.accepted
    assert attempt.error in {"connection_lost", "not_http"}


async def test_an_endless_response_is_not_read(sender: HttpSender) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        attempt = await sender.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {}, b"{}")
    assert attempt == Attempt(200)


def test_the_signature_matches_standard_webhooks() -> None:
    # The example of the Standard Webhooks libraries.
    headers = signed_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_backoff_grows_with_jitter() -> None:
    for attempts, seconds in enumerate(RETRY_AFTER_SECONDS, 1):
        assert backoff_seconds(attempts, 0.5) == seconds
        assert backoff_seconds(attempts, 0.0) == pytest.approx(seconds * 0.8)
        assert backoff_seconds(attempts, 1.0) == pytest.approx(seconds * 1.2)
    assert backoff_seconds(len(RETRY_AFTER_SECONDS) + 1, 0.5) is None
