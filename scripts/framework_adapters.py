"""Every adapter with its framework: conformance suites, tests and guides; prints a table: make adapters.

The frameworks of the dev extra are tested in the development environment. Each of the others has an environment of its
own in .frameworks/, with the development environment behind it, so that what it pins differs only there. A framework
that cannot be installed is skipped with a word about it. Arguments are names of adapters: ARGS="google_adk" tests one.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
import tomllib
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".frameworks"
REPORTS = ROOT / ".results" / "adapters"
SOURCE = ROOT / "src" / "weftline" / "adapters"
_GUIDE = "tests/docs/test_examples.py::test_the_examples_of_a_page_run_in_order[docs/guides/{}.md]"


class Adapter(NamedTuple):
    """A module or package of adapters, its framework, tests and guide, and the extra that an environment needs."""

    name: str
    package: str
    tests: tuple[str, ...]
    guide: str | None
    extra: str | None = None


# With an extra: too large for every set-up, or with pins that others do not share.
ADAPTERS = (
    Adapter("langgraph", "langgraph", ("langgraph_checkpoints", "langgraph_store"), "use-with-langgraph"),
    Adapter("langchain", "langchain", ("langchain",), "use-with-langchain"),
    Adapter("openai_agents", "openai-agents", ("openai_agents",), "use-with-openai-agents"),
    Adapter("anthropic_memory", "anthropic", ("anthropic_memory",), "use-claude-memory-tool"),
    Adapter("pydantic_ai", "pydantic-ai-slim", ("pydantic_ai",), "use-with-pydantic-ai"),
    Adapter("claude_agent_sdk", "claude-agent-sdk", ("claude_agent_sdk",), None, "claude-agent-sdk"),
    Adapter(
        "agent_framework", "agent-framework-core", ("agent_framework",), "use-with-agent-framework", "agent-framework"
    ),
    Adapter("deepagents", "deepagents", ("deepagents",), "use-with-deepagents", "deepagents"),
    Adapter("google_adk", "google-adk", ("google_adk",), "use-with-google-adk", "google-adk"),
    Adapter("autogen", "autogen-agentchat", ("autogen",), "use-with-autogen", "autogen"),
    Adapter("llama_index", "llama-index-core", ("llama_index",), "use-with-llamaindex", "llama-index"),
    Adapter("strands", "strands-agents", ("strands",), "use-with-strands", "strands"),
)


class Result(NamedTuple):
    """What pytest reports of one adapter."""

    version: str
    conformance: str
    passed: int
    failed: int
    seconds: float
    lines: int


def main(names: tuple[str, ...] = ()) -> int:
    """Print a row for each adapter; 1 if a test has failed."""
    if unknown := set(names) - {adapter.name for adapter in ADAPTERS}:
        sys.exit(f"There is no adapter {', '.join(sorted(unknown))}.")
    print("| adapter | framework | version | conformance | tests | seconds | lines |\n|---|---|---|---|---|---|---|")
    good = True
    for adapter in ADAPTERS:
        if names and adapter.name not in names:
            continue
        python = Path(sys.executable) if adapter.extra is None else environment(adapter.extra)
        if python is None:
            print(f"| {adapter.name} | {adapter.package} | cannot be installed here: not tested |", flush=True)
            continue
        result = test(adapter, python)
        good = good and not result.failed and result.passed > 0
        tests = f"{result.passed} passed" + (f", {result.failed} failed" if result.failed else "")
        row = adapter.name, adapter.package, result.version, result.conformance, tests
        print(f"| {' | '.join(row)} | {result.seconds:.0f} | {result.lines} |", flush=True)
    return 0 if good else 1


def environment(extra: str) -> Path | None:
    """Return the Python of an environment that has a framework, which is made unless it exists; None if it cannot."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    folder = ENVIRONMENTS / extra
    python, marker = folder / "bin" / "python", folder / "installed.txt"
    # What it needs of Weftline's other extras, the development environment has.
    packages = [line for line in extras[extra] if not line.startswith("weftline[")]
    wanted = "\n".join(packages)
    if marker.exists() and marker.read_text("utf-8") == wanted:
        return python
    print(f"Installing {wanted} into {folder.relative_to(ROOT)} ...", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    own = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    behind = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(own) / "development.pth").write_text(behind, "utf-8")
    options = ["--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    command = [sys.executable, "-m", "pip", "--python", str(python), *options, *packages]
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        return None
    marker.write_text(wanted, "utf-8")
    return python


def test(adapter: Adapter, python: Path) -> Result:
    """Run the tests and the guide of an adapter in one process, which imports the framework once."""
    report = REPORTS / f"{adapter.name}.xml"
    report.unlink(missing_ok=True)
    paths = [f"tests/adapters/test_{name}.py" for name in adapter.tests]
    if adapter.guide:
        paths.append(_GUIDE.format(adapter.guide))
    begun = time.monotonic()
    run = subprocess.run(
        [str(python), "-m", "pytest", f"--junitxml={report}", "--override-ini=junit_family=xunit1", *paths],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode:
        print(run.stdout, file=sys.stderr)
    passed, failed, conformance = read(report) if report.exists() else (0, 1, "")
    version = f"from importlib.metadata import version; print(version({adapter.package!r}))"
    found = subprocess.run([str(python), "-c", version], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return Result(found, conformance, passed, failed, time.monotonic() - begun, lines(adapter.name))


def read(report: Path) -> tuple[int, int, str]:
    """Return how many tests passed and failed, and what the suite of the framework counted."""
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    counted = [
        each.attrib["value"] for case in cases for each in case.iter("property") if each.attrib["name"] == "conformance"
    ]
    return len(cases) - failed - skipped, failed, ", ".join(counted)


def lines(name: str) -> int:
    """Return the length of an adapter, a module or the modules of a package."""
    package = SOURCE / name
    files = package.glob("*.py") if package.is_dir() else [SOURCE / f"{name}.py"]
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
