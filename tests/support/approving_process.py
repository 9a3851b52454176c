"""Approves a held call and is killed at a chosen point: DATABASE CREDENTIAL APPROVAL_ID POINT OPERATION DATA_DIR."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from weftline.app.app import App
from weftline.app.approved_calls import ApprovedCalls
from weftline.app.dispatch import CallContext
from weftline.safety.approvals.service import Approvals
from weftline.safety.approvals.sql import ApprovalStore
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.approvals import Asking


async def killed(*_: Any) -> None:
    os.write(1, b"reached")
    os.kill(os.getpid(), signal.SIGKILL)


POINTS = {
    "decided": (ApprovedCalls, "perform"),
    "before_commit": (ApprovalStore, "keep"),
    "committed": (Approvals, "finish"),
}


async def main(url: str, credential: str, approval_id: str, point: str, operation: str, data_dir: str) -> None:
    place, method = POINTS[point]
    setattr(place, method, killed)
    settings = Settings(database_url=url, data_dir=data_dir, rate_limits="off", session_indexing="off")
    app = App(settings, clock=FrozenClock())
    app.guards.install(Asking(operation))
    await app.open(background=False)
    await app.call(app.registry["approval.approve"], {"approval_id": approval_id}, CallContext(credential))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
