"""Request fields and kinds of operations that several files of history share."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec

from weftline.kernel.fields import Name
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Audience, Effect, RateClass, SessionUse, operation

TOOL = "context_history"

_operation = partial(operation, tool=TOOL, rate=RateClass.BOARD, session=SessionUse.FINDS)
read_operation = partial(_operation, permission=Permission.READ, effect=Effect.READ)
own_transactions_read = partial(_operation, permission=Permission.READ, effect=Effect.OWN_TRANSACTIONS)
write_operation = partial(_operation, permission=Permission.WRITE, effect=Effect.WRITE)
audited_write = partial(write_operation, audience=Audience.NOT_SUBAGENTS, audited=True)

ContextId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=400,
        description="The context: board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or "
        "user:ID (each also with :MEMORY_TYPE), layer:tenant, layer:team:NAME; append @BRANCH for a branch.",
        extra_json_schema={"examples": ["board:session_a1b2c3d4e5f60718"]},
    ),
]
HistoryKey = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_:/-][A-Za-z0-9_.:/#-]{0,399}\Z",
        description="Only this key.",
    ),
]
BranchName = Annotated[Name, msgspec.Meta(description="Name of the branch, such as try_postgres.")]
PageSize = Annotated[int, msgspec.Meta(ge=1, le=1_000, description="Maximum number of results.")]
PageCursor = Annotated[Name | None, msgspec.Meta(description="next_cursor of the previous page.")]
