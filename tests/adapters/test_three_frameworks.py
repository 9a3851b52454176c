"""The example of three frameworks in one session, and the console over it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import httpx2
import pytest

from client.client_support import weftline_server

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_frameworks.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("three_frameworks", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_planner_a_researcher_and_a_writer_share_a_board_and_one_console_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with weftline_server(tmp_path) as server:
        await load().main(str(tmp_path))
        output = capsys.readouterr().out
        assert "the researcher sees what the others wrote" in output
        assert "the writer sees what the others wrote" in output
        assert "goal (orchestrator:planner): Announce release 4" in output
        assert "finding (subagent:researcher): Release 4 starts" in output
        assert "The windows: ['planner', 'researcher', 'writer']" in output
        assert "The prompts: ['planner', 'researcher', 'writer']" in output
        assert "needs Python 3.12" in output.splitlines()[-1]
        async with httpx2.AsyncClient(base_url=server.url, follow_redirects=True) as browser:
            await browser.post("/console/sign-in", data={"api_key": server.admin_key})
            page = (await browser.get("/console/sessions/launch")).text
        assert [agent for agent in ("planner", "researcher", "writer") if agent not in page] == []
        assert "announcement" in page
