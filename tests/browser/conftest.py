"""One server with content and one browser for all tests of a file."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from support.browsers import Console, system_browser
from support.console_content import plant
from support.http_server import served
from support.world import World
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


# Both end with the file: a browser that is only left open takes 6 % of a core from the tests after it.
@pytest.fixture(scope="module")
async def console(empty_file: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Console]:
    async with system_browser() as browser:
        folder = tmp_path_factory.mktemp("console")
        url = str(shutil.copy(empty_file, folder / "weftline.db"))
        settings = Settings(
            database_url=url,
            data_dir=str(folder),
            rate_limits="off",
            session_indexing="off",
            # The model takes longer to load than all else here, and pages show what words find as well.
            semantic_search="off",
            search_wait_ms=0,
            approval_wait_seconds=0,
        )
        world = World(url, FrozenClock(), settings)
        await world.open()
        try:
            planted = await plant(world)
            async with served(world.app) as server:
                yield Console(world, planted, server.url, browser)
        finally:
            await world.close()
