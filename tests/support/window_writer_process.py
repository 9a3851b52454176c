"""Adds events to one window and compacts it, again and again: DATABASE DATA_DIR CREDENTIAL SESSION NAME ROUNDS."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from weftline.app.app import App
from weftline.app.dispatch import CallContext
from weftline.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.compaction_runs import conversation


async def main(url: str, data: str, credential: str, session: str, name: str, rounds: str) -> None:
    app = App(Settings(database_url=url, data_dir=data, rate_limits="off", session_indexing="off"))
    await app.open()
    context = CallContext(credential)
    for number in range(int(rounds)):
        events = [{**event, "event_id": f"{name}-{event['event_id']}"} for event in conversation(10, first=number * 10)]
        await app.call(app.registry["context.ingest"], {"session_id": session, "events": events}, context)
        if number % 3 == 0:
            request = {"session_id": session, "wait_seconds": 0}
            await app.call(app.registry["context.compact"], request, context)
    await app.call(app.registry["context.compact"], {"session_id": session, "wait_seconds": 30}, context)
    await app.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
