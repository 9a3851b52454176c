"""The resident process of hooks in a test, and the script that an agent runs for each hook."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftline import Weftline
from weftline.transports.hooks.folder import HooksFolder
from weftline.transports.hooks.hook_input import plugin_folder
from weftline.transports.hooks.resident import Resident, ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from weftline.transports.hooks.recorder import Open

SCRIPT = plugin_folder("claude-code") / "hooks" / "weftline-hook"
INPUTS = Path(__file__).parents[1] / "data" / "hook_inputs"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Runs the script of the hooks against a folder of hooks."""

    folder: HooksFolder
    data: Path

    async def send(self, client: str = "claude-code", path: str = "", **given: Any) -> dict[str, Any]:
        """Run a hook as the agent does; return what it prints. It ends with 0, whatever happens."""
        return await self.send_text(json.dumps(given), client, path)

    async def send_text(self, text: str, client: str = "claude-code", path: str = "") -> dict[str, Any]:
        pipe = asyncio.subprocess.PIPE
        script = await asyncio.create_subprocess_exec(
            "sh", str(SCRIPT), client, stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment(path)
        )
        out, err = await script.communicate(text.encode())
        assert (script.returncode, err) == (0, b"")
        shown: dict[str, Any] = json.loads(out) if out else {}
        return shown

    def environment(self, path: str = "") -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WEFTLINE_")}
        return {
            **kept,
            "PATH": f"{path}:{kept['PATH']}" if path else kept["PATH"],
            "HOME": str(self.folder.path),
            "WEFTLINE_HOOKS_DIR": str(self.folder.path),
            "WEFTLINE_DATA_DIR": str(self.data),
            # Timings depend on what else the machine does.
            "WEFTLINE_HOOKS_SECONDS": "60",
        }

    async def figures(self) -> dict[str, int]:
        answer = await ask(self.folder, "status", seconds=30)
        assert answer is not None
        found: dict[str, int] = json.loads(answer)
        return found

    async def recorded(self, count: int) -> None:
        """Wait until so many hooks are recorded, or could not be."""

        async def is_recorded() -> bool:
            figures = await self.figures()
            return figures["recorded"] + figures["failed"] + figures["dropped"] >= count

        await until(is_recorded)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something of another process is so, which tells nobody."""
    async with asyncio.timeout(60):
        while not await is_so():  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.02)


@asynccontextmanager
async def short_folder() -> AsyncIterator[Path]:
    """Yield a folder with a short path: that of a unix socket has at most 104 bytes."""
    path = Path(tempfile.mkdtemp(prefix="wl"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@asynccontextmanager
async def resident(data: Path, weftline: Open | None = None, **options: Any) -> AsyncIterator[Hooks]:
    """Serve hooks in this process."""
    async with short_folder() as path:
        hooks = Hooks(HooksFolder(path), data)
        async with serving(hooks, weftline, **options):
            yield hooks


@asynccontextmanager
async def serving(hooks: Hooks, weftline: Open | None = None, **options: Any) -> AsyncIterator[Resident]:
    opening = partial(Weftline.open, hooks.data) if weftline is None else weftline
    served = Resident(hooks.folder, opening, "the data folder of a test", **{"answer_seconds": 60, **options})
    running = asyncio.create_task(served.serve())
    listening = asyncio.create_task(served.listening.wait())
    try:
        # One that finds another process ends at once.
        await asyncio.wait([running, listening], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        yield served
    finally:
        listening.cancel()
        served.stop()
        with suppress(asyncio.CancelledError):
            await running


def recorded_inputs(client: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each recorded input of a client, and the input as if it happened in a folder."""
    for line in (INPUTS / f"{client}.jsonl").read_text("utf-8").splitlines():
        given = json.loads(line.replace("/home/user/shop", str(folder)))
        yield given["hook_event_name"], json.dumps(given)


def make_repository(folder: Path, branch: str = "main") -> Path:
    """Make the files of a repository that say its branch, without starting git."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    return folder


def add_worktree(repository: Path, folder: Path, branch: str) -> Path:
    """Add a worktree as git does."""
    linked = repository / ".git" / "worktrees" / folder.name
    linked.mkdir(parents=True)
    (linked / "commondir").write_text("../..\n")
    (linked / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    folder.mkdir(parents=True)
    (folder / ".git").write_text(f"gitdir: {linked}\n")
    return folder
