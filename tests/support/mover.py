"""A process of its own that does nothing but move tenants to other models, until it is killed.

Run as: mover.py DATABASE_URL DATA [SECONDS]; its clock is so many seconds ahead.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft.app.app
import weft.app.ingestion
import weft.app.moving
import weft.capabilities.models.moving
from support.courier import Ahead
from weft.settings import Settings
from weft.testing.embedder import WordEmbedder


class SlowEmbedder(WordEmbedder):
    """Takes a moment for each text, so that there is something to interrupt."""

    async def embed(self, texts: Any, purpose: Any) -> Any:
        await asyncio.sleep(0.005 * len(texts))
        return await super().embed(texts, purpose)


def embedders(_settings: Settings) -> list[WordEmbedder]:
    """Return two models that find the same, with vectors of different dimensions."""
    return [SlowEmbedder("old", 64), SlowEmbedder("new", 96)]


async def main(url: str, data: str, seconds: float) -> None:
    weft.app.moving._FIRST_LOOK_SECONDS = weft.app.moving._LOOK_EVERY_SECONDS = 0.02  # as if it had run for long
    weft.app.ingestion._FIRST_LOOK_SECONDS = 3_600.0
    weft.capabilities.models.moving._EMBEDDED_AT_ONCE = 4
    weft.capabilities.models.moving._DROPPED_AT_ONCE = 4
    weft.app.app.configured_embedders = embedders
    app = weft.app.app.App(Settings(database_url=url, data=data, index_sessions="off"), clock=Ahead(seconds))
    app.moves.rest = 0
    await app.open()
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 0.0))
