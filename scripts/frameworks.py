"""Installs Weftline beside the agent frameworks in use and imports both; prints a table; part of make package.

Every framework is resolved in its newest version, with plain weftline and with weftline[all]. The light ones are also
installed and used in one process with Weftline; all of them with the argument --install-all.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple


class Framework(NamedTuple):
    """A framework, the modules to import, and whether it is small enough to install each time."""

    name: str
    package: str
    modules: str
    light: bool = False


FRAMEWORKS = (
    Framework("LangGraph", "langgraph", "langgraph.graph", light=True),
    Framework("LangChain", "langchain", "langchain.agents", light=True),
    Framework("LangChain MCP adapters", "langchain-mcp-adapters", "langchain_mcp_adapters.client", light=True),
    Framework("CrewAI", "crewai", "crewai"),
    Framework("OpenAI Agents SDK", "openai-agents", "agents", light=True),
    Framework("Claude Agent SDK", "claude-agent-sdk", "claude_agent_sdk"),
    Framework("Pydantic AI", "pydantic-ai", "pydantic_ai"),
    Framework("Google ADK", "google-adk", "google.adk.agents"),
    Framework("Microsoft Agent Framework", "agent-framework", "agent_framework"),
    Framework("LlamaIndex", "llama-index", "llama_index.core.agent"),
    Framework("Strands Agents", "strands-agents", "strands", light=True),
    Framework("AutoGen", "autogen-agentchat", "autogen_agentchat.agents", light=True),
    Framework("Semantic Kernel", "semantic-kernel", "semantic_kernel.agents"),
)
RECORDED = Path(__file__).parents[1] / "tests" / "data" / "frameworks"
_NO_SERVER = "search,tokenizers"
# Resolving waits for the registry most of the time.
_AT_ONCE = 4
_TOGETHER = """
import importlib, sys
importlib.import_module(sys.argv[1])
from weftline import Client, SyncClient, Weftline
with Weftline.open_sync(sys.argv[2]) as weftline:
    session = weftline.session.create("Beside a framework")
    weftline.board.write(session.session_id, "goal", "one process")
    assert weftline.board.read(session.session_id, "goal").value == "one process"
if sys.argv[3] == "all":
    import weftline.transports.server, weftline.transports.stdio
"""
# What a framework asks for that Weftline cannot have, in the words of uv and of pip.
_BLAME = re.compile(r"(\S+)(?: [\d.]+)? depends on (mcp|pydantic)([<>=!~][\w.,<>=!~*]*(?: and [<>=!~][\w.,*]+)?)")


class Resolved(NamedTuple):
    """What pip would install, or why it refuses."""

    packages: int
    refused: str

    def shown(self) -> str:
        return f"no: {self.refused}" if self.refused else f"yes, {self.packages} packages"


def main(wheel: Path, *, install_all: bool) -> None:
    """Print a row for each framework."""
    print(
        f"| framework (Python {sys.version_info[0]}.{sys.version_info[1]}) | version | `weftline` | `weftline[all]` |"
    )
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(_AT_ONCE) as pool:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "empty")], check=True)
        rows = [
            pool.submit(_row, wheel, framework, folder, install=framework.light or install_all)
            for framework in FRAMEWORKS
        ]
        for row in rows:
            print(row.result().text, flush=True)
    if broken := [framework.name for framework, row in zip(FRAMEWORKS, rows, strict=True) if not row.result().works]:
        sys.exit(f"cannot be installed and used beside weftline: {', '.join(broken)}")


def record(wheel: Path) -> None:
    """Write what pip chooses for each framework beside plain Weftline to RECORDED, which a test reads."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(_AT_ONCE) as pool:
        empty = Path(name) / "empty"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(empty)], check=True)
        for _ in pool.map(lambda framework: _record(empty, wheel, framework), FRAMEWORKS):
            pass


def _record(environment: Path, wheel: Path, framework: Framework) -> None:
    """Write the versions of the packages that a framework and Weftline are installed with; say if there are none."""
    options = ["--no-input", "install", "--quiet", "--dry-run", "--report", "-"]
    command = [sys.executable, "-m", "pip", "--python", str(environment), *options, str(wheel), framework.package]
    tried = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if tried.returncode:
        print(f"{framework.name}: not recorded")
        return
    chosen = (each["metadata"] for each in json.loads(tried.stdout)["install"])
    lines = sorted(f"{each['name'].lower()}=={each['version']}" for each in chosen)
    (RECORDED / f"{framework.package}.txt").write_text("\n".join(lines) + "\n")


class _Row(NamedTuple):
    text: str
    works: bool


def _row(wheel: Path, framework: Framework, folder: Path, *, install: bool) -> _Row:
    empty = folder / "empty"
    newest = f"{framework.package}=={_newest(empty, framework.package)}"
    plain, everything = (_resolve(empty, _asked(wheel, extras), newest) for extras in ("", "all"))
    cells = [plain.shown(), everything.shown()]
    works = not plain.refused
    if everything.refused:
        without_server = _resolve(empty, _asked(wheel, _NO_SERVER), newest)
        cells[1] += f"; `[{_NO_SERVER}]`: {'no' if without_server.refused else 'yes'}"
        works = works and not without_server.refused
    if works and install:
        extras = _NO_SERVER if everything.refused else "all"
        problem = _use(wheel, extras, framework, newest, folder / framework.package)
        cells[extras == "all"] += f", fails: {problem}" if problem else ", used together"
        works = not problem
    return _Row(f"| {framework.name} | {newest.partition('==')[2]} | {' | '.join(cells)} |", works)


def _asked(wheel: Path, extras: str) -> str:
    return f"{wheel}[{extras}]" if extras else str(wheel)


def _newest(environment: Path, package: str) -> str:
    found = _install(environment, "--dry-run", package).stdout
    versions: list[str] = re.findall(rf"(?<![\w-]){re.escape(package)}(?:==|-)(\d[\w.]*)", found)
    return versions[-1]


def _resolve(environment: Path, *asked: str) -> Resolved:
    tried = _install(environment, "--dry-run", *asked)
    if tried.returncode:
        text = " ".join(tried.stdout.split())
        causes = {f"{needed}{range_}" for who, needed, range_ in _BLAME.findall(text) if not who.startswith("weftline")}
        return Resolved(0, "needs " + ", ".join(sorted(causes)) if causes else text[-300:])
    # uv lists a package in each line, pip all of them in one.
    listed = re.findall(r"^ \+ |^Would install (.*)", tried.stdout, re.MULTILINE)
    return Resolved(sum(len(line.split()) or 1 for line in listed), "")


def _install(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    uv = shutil.which("uv")
    installer = [uv, "pip", "install", "--python", str(environment / "bin" / "python")]
    pip = [sys.executable, "-m", "pip", "--python", str(environment), "--no-input", "install"]
    command = [*(installer if uv else pip), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def _use(wheel: Path, extras: str, framework: Framework, newest: str, folder: Path) -> str:
    """Install both into an environment and use both in one process; return what went wrong."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    done = _install(folder, _asked(wheel, extras), newest)
    if not done.returncode:
        command = [folder / "bin" / "python", "-c", _TOGETHER, framework.modules, folder / "data", extras]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return "" if not done.returncode else (done.stdout.strip().splitlines() or ["no output"])[-1]


if __name__ == "__main__":
    if "--record" in sys.argv:
        record(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), install_all="--install-all" in sys.argv)
