"""Real clients of model APIs through the model proxy, with a provider on loopback: every byte is compared.

The official SDKs of OpenAI and Anthropic in Python and TypeScript, and Codex, opencode, Gemini CLI and Claude Code,
each headless over a task of twenty tool calls. What a client sent is compared with what the provider received, byte for
byte, and so are the answers. Packages are pinned in conformance/clients and installed into .node/; results are in
.results/clients.json. Part of make conformance, or make clients alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import h11
from model_upstream import ANSWER, TOOL_CALLS, Exchange, ModelUpstream, model_upstream, read_message
from node_js import find_node

from weftline.transports.proxy.programs import wrapped_command, wrapped_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from node_js import Node

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "conformance" / "clients"
PACKAGES = ROOT / ".node" / "clients"
PYTHON = ROOT / ".node" / "python-sdks"
RESULTS = ROOT / ".results" / "clients.json"
_Request = tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...], bytes]
KEY = "sk-test-key-of-the-provider"
TASK = "Run the twenty steps, one command after another, then say that they are done."
_AGENT_SECONDS, _INSTALL_SECONDS = 240, 900
_READ_BYTES = 65_536
# Headers of one connection, which no proxy forwards, and those that depend on the address.
_OWN = frozenset({b"host", b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"})
_CODINGS = b"accept-encoding"


@dataclass(frozen=True, slots=True)
class Result:
    """One client: ``equal`` of ``requests`` reached the provider, and came back, as they were sent."""

    client: str
    version: str
    scenarios: str
    requests: int
    equal: int
    problem: str = ""

    @property
    def good(self) -> bool:
        return not self.problem and self.equal == self.requests > 0


@dataclass(slots=True)
class Tap:
    """Passes bytes between a client and the proxy, and keeps both directions."""

    target: int
    port: int = 0
    streams: list[tuple[bytearray, bytearray]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent, answered = bytearray(), bytearray()
        self.streams.append((sent, answered))
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(_pass(reader, there_writer, sent), _pass(there_reader, writer, answered))

    async def exchanges(self) -> list[tuple[Exchange, bytes]]:
        """Return each request that was answered or broken off, and the body of its answer."""
        return [pair for sent, answered in self.streams for pair in await _pairs(bytes(sent), bytes(answered))]


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    with suppress(ConnectionError):
        while part := await reader.read(_READ_BYTES):
            kept += part
            writer.write(part)
            await writer.drain()
    writer.close()


async def _pairs(sent: bytes, answered: bytes) -> list[tuple[Exchange, bytes]]:
    server, reader = h11.Connection(h11.SERVER), asyncio.StreamReader()
    client = h11.Connection(h11.CLIENT)
    reader.feed_data(sent)
    reader.feed_eof()
    client.receive_data(answered)
    client.receive_data(b"")
    pairs = []
    with suppress(h11.ProtocolError):
        while (exchange := await read_message(server, reader)) is not None:
            client.send(h11.Request(method=exchange.method, target="/", headers=[("host", "x")]))
            client.send(h11.EndOfMessage())
            pairs.append((exchange, _answer_body(client)))
            server.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            server.send(h11.EndOfMessage())
            server.start_next_cycle()
            if client.our_state is h11.DONE and client.their_state is h11.DONE:
                client.start_next_cycle()
    return pairs


def _answer_body(client: h11.Connection) -> bytes:
    body = b""
    with suppress(h11.ProtocolError):
        while not isinstance(event := client.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if event is h11.NEED_DATA:
                break
            if isinstance(event, h11.Data):
                body += bytes(event.data)
    return body


@asynccontextmanager
async def tapped_proxy(folder: Path) -> AsyncIterator[tuple[ModelUpstream, Tap]]:
    """Run a provider, weftline proxy in front of it as users start it, and the tap in front of both."""
    async with model_upstream() as upstream:
        address = f"http://127.0.0.1:{upstream.port}"
        environment = {
            **os.environ,
            "WEFTLINE_DATA_DIR": str(folder / "data"),
            "WEFTLINE_PROXY_UPSTREAMS": f"anthropic={address} openai={address} gemini={address}",
        }
        command = [sys.executable, "-m", "weftline", "proxy", "--port", "0"]
        proxy = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.PIPE)
        assert proxy.stdout is not None
        first = (await proxy.stdout.readline()).decode()
        reading = asyncio.create_task(proxy.stdout.read())
        tap = Tap(int(first.rpartition(":")[2].partition("/")[0]))
        server = await asyncio.start_server(tap.serve, "127.0.0.1", 0)
        tap.port = server.sockets[0].getsockname()[1]
        try:
            yield upstream, tap
        finally:
            server.close()
            proxy.terminate()
            await proxy.wait()
            reading.cancel()


def compare(upstream: ModelUpstream, pairs: Sequence[tuple[Exchange, bytes]]) -> tuple[int, list[str]]:
    """Return how many requests are equal on both sides, and what differs in the others."""
    there = [(_forwarded(exchange), body) for exchange, body in zip(upstream.received, upstream.sent, strict=True)]
    equal, problems = 0, []
    for exchange, answer in pairs:
        sent = _forwarded(exchange)
        found = next((pair for pair in there if pair[0] == sent and pair[1].startswith(answer)), None)
        if found is None:
            problems.append(_difference(sent, answer, there))
        else:
            there.remove(found)
            equal += 1
    return equal, problems


def _difference(sent: _Request, answer: bytes, there: Sequence[tuple[_Request, bytes]]) -> str:
    """Say in what a request differs from the nearest one that the provider received."""
    where = f"{sent[0].decode()} {sent[1].decode()[:60]}"
    same = next((pair for pair in there if pair[0][:2] == sent[:2] and pair[0][3] == sent[3]), None)
    if same is None:
        return f"{where}: nothing with this body came"
    if same[0] != sent:
        return f"{where}: headers differ: {sorted({*same[0][2]} ^ {*sent[2]})}"
    return f"{where}: the answer differs, {len(answer)} of {len(same[1])} bytes"


def _forwarded(exchange: Exchange) -> _Request:
    """Return what must be the same on both sides."""
    target = exchange.target
    for prefix in (b"/anthropic", b"/openai", b"/gemini"):
        target = target.removeprefix(prefix)
    # The proxy leaves out the encodings that it cannot read; and it may frame a body by its length.
    # Names of headers have no case (RFC 9110, section 5.1): ASGI lowers them.
    headers = [
        (name.lower(), value)
        for name, value in exchange.headers
        if name.lower() not in {*_OWN, _CODINGS, b"content-length"}
    ]
    return exchange.method, target, tuple(headers), exchange.body


async def run_sdk(name: str, command: Sequence[str], environment: dict[str, str], folder: Path) -> list[Result]:
    async with tapped_proxy(folder) as (upstream, tap):
        address = f"http://127.0.0.1:{tap.port}"
        variables = {"ANTHROPIC_BASE_URL": f"{address}/anthropic", "OPENAI_BASE_URL": f"{address}/openai/v1"}
        out, err, _ = await _run(command, {**_clean(folder), **environment, **variables}, PACKAGES)
        pairs = await tap.exchanges()
        equal, problems = compare(upstream, pairs)
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    versions = next((line["versions"] for line in lines if "versions" in line), {})
    scenarios = [line for line in lines if "scenario" in line]
    problems += [f"{line['scenario']}: {line['problem']}" for line in scenarios if line["problem"]]
    if not versions:
        problems.append(err[-300:] or "no answer")
    good = sum(not line["problem"] for line in scenarios)
    version = ", ".join(f"{package} {number}" for package, number in versions.items()) or "-"
    return [Result(name, version, f"{good} of {len(scenarios)}", len(pairs), equal, "; ".join(problems[:5]))]


@dataclass(frozen=True, slots=True)
class Agent:
    """A coding agent: its program below node_modules, and how it is run headless with its permissions off."""

    name: str
    program: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    by_node: bool = False


def agents() -> list[Agent]:
    return [
        Agent(
            "codex",
            "@openai/codex/bin/codex.js",
            ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5", TASK),
            {"OPENAI_API_KEY": KEY},
            by_node=True,
        ),
        Agent(
            "gemini",
            "@google/gemini-cli/bundle/gemini.js",
            ("--yolo", "--skip-trust", "-m", "gemini-2.5-pro", "-p", TASK),
            {"GEMINI_API_KEY": KEY, "GEMINI_TELEMETRY_ENABLED": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
            by_node=True,
        ),
        Agent(
            "opencode",
            "opencode-*/bin/opencode",
            ("run", "-m", "anthropic/claude-sonnet-4-5", TASK),
            {"ANTHROPIC_API_KEY": KEY, "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_PERMISSION": '{"*":"allow"}'},
        ),
        Agent(
            "claude",
            "@anthropic-ai/claude-code-*/claude",
            ("-p", TASK, "--allowedTools", "Bash", "--model", "claude-sonnet-4-5"),
            {"ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
        ),
    ]


async def run_agent(agent: Agent, node: Node, folder: Path) -> Result:
    program = next(iter(sorted((PACKAGES / "node_modules").glob(agent.program))), None)
    if program is None:
        return Result(agent.name, "-", "-", 0, 0, "its program is not in the package for this machine")
    start = [node.node, str(program)] if agent.by_node else [str(program)]
    work, home = folder / "work", folder / "home"
    work.mkdir()
    home.mkdir()
    if agent.name == "gemini":
        (home / ".gemini").mkdir()
        (home / ".gemini" / "settings.json").write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    base = {**_clean(home), **agent.environment}
    said, _, _ = await _run([*start, "--version"], base, work)
    version = next((word for word in said.split() if word[:1].isdigit()), "-")
    async with tapped_proxy(folder) as (upstream, tap):
        address = f"http://127.0.0.1:{tap.port}"
        # As weftline wrap starts it.
        environment = wrapped_environment(agent.name, address, base)
        command = [*start, *wrapped_command([agent.name, *agent.arguments], address)[1:]]
        out, err, code = await _run(command, environment, work)
        pairs = await tap.exchanges()
        equal, problems = compare(upstream, pairs)
    done = sum(f"step-{TOOL_CALLS}".encode() in exchange.body for exchange, _ in pairs)
    if ANSWER not in out or code or not done:
        problems.append(f"ended with {code}: {(err or out)[-400:]}")
    return Result(
        agent.name,
        version,
        f"{TOOL_CALLS if done else 0} of {TOOL_CALLS} calls",
        len(pairs),
        equal,
        "; ".join(problems[:5]),
    )


async def _run(command: Sequence[str], environment: dict[str, str], folder: Path) -> tuple[str, str, int]:
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(_AGENT_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return "", f"not done after {_AGENT_SECONDS} s", -1
    return out.decode(errors="replace"), err.decode(errors="replace"), process.returncode or 0


def _clean(home: Path) -> dict[str, str]:
    """Return an environment without keys, proxies and settings of whoever runs this."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


def install(node: Node) -> str:
    """Install the pinned packages unless they are there; return why not, if they cannot be."""
    PACKAGES.mkdir(parents=True, exist_ok=True)
    for script in SOURCE.glob("sdks.*"):
        shutil.copy(script, PACKAGES)
    npm = [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    pip += ["--target", str(PYTHON), "--requirement", str(SOURCE / "requirements.txt")]
    for name, files, command in (
        ("npm", ("package.json", "package-lock.json"), npm),
        ("pip", ("requirements.txt",), pip),
    ):
        mark, wanted = PACKAGES / f"{name}.installed", b"".join((SOURCE / file).read_bytes() for file in files)
        if mark.exists() and mark.read_bytes() == wanted:
            continue
        print(f"Installing the clients with {name} (more than 1 GB with npm) ...", flush=True)
        for file in files:
            shutil.copy(SOURCE / file, PACKAGES)
        done = subprocess.run(
            command, cwd=PACKAGES, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
        if done.returncode:
            return f"{name} cannot install the clients: {(done.stderr or done.stdout)[-300:]}"
        mark.write_bytes(wanted)
    return ""


async def try_all(node: Node, only: Sequence[str]) -> list[Result]:
    results: list[Result] = []
    sdks = {
        "python-sdks": ([sys.executable, "sdks.py"], {"PYTHONPATH": str(PYTHON)}),
        "typescript-sdks": ([node.node, "sdks.mjs"], {}),
    }
    for name, (command, environment) in sdks.items():
        if not only or name in only:
            with tempfile.TemporaryDirectory() as folder:
                results += await run_sdk(name, command, environment, Path(folder))
    for agent in agents():
        if not only or agent.name in only:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                results.append(await run_agent(agent, node, Path(folder)))
    return results


def main(only: Sequence[str] = ()) -> int:
    """Run the clients, print a table, and return 1 if one of them saw anything else than without the proxy."""
    from conformance import table  # noqa: PLC0415 - which imports this module

    try:
        node = find_node()
        missing = install(node)
    except (SystemExit, OSError, subprocess.TimeoutExpired) as error:
        missing = str(error)
    if missing:
        print(f"The clients of model APIs are skipped: {missing}")
        return 0
    results = asyncio.run(try_all(node, only))
    print(
        table(
            "client scenarios requests equal version",
            [[r.client, r.scenarios, r.requests, r.equal, r.version] for r in results],
        )
    )
    for result in results:
        if result.problem:
            print(f"{result.client}: {result.problem}", file=sys.stderr)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    good = all(result.good for result in results)
    print("\nEvery byte is the same with the proxy." if good else "\nNot everything passed.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
