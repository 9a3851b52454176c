"""The first searches of a process, which load the code that ranks."""

from __future__ import annotations

import asyncio
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from weftline.app.search import service

if TYPE_CHECKING:
    import pytest


async def test_searches_wait_until_ranking_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "weftline.search.ranking"

    def load(_: str) -> ModuleType:
        # As an import does: the module is listed first, and filled then.
        module: Any = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        time.sleep(0.05)
        module.rank = lambda *_: asyncio.sleep(0, "ranked")
        return module

    monkeypatch.setattr(service, "_loaded", {})
    monkeypatch.setattr(service, "import_module", load)
    first = asyncio.create_task(_rank())
    await asyncio.sleep(0.02)
    assert [await _rank(), await first] == ["ranked", "ranked"]


async def _rank() -> Any:
    return await service.rank(None, [], None)  # type: ignore[arg-type]
