"""What a call is part of, by the ids it has where it comes from: a turn, a task, a tool call, a trace."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weft.kernel.fields import LARGEST

NativeId = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x20\x7f-\x9f]+\Z")]


class Correlation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The ids that everything done by one call is found by later. Weft keeps them as they are given."""

    turn_id: NativeId | None = None
    task_id: NativeId | None = None
    tool_call_id: NativeId | None = None
    thread_id: NativeId | None = None
    run_id: NativeId | None = None
    attempt_id: NativeId | None = None
    step_id: NativeId | None = None
    action_id: NativeId | None = None
    evidence_id: NativeId | None = None
    runtime_id: NativeId | None = None
    trace_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")] | None = None
    span_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")] | None = None
    mcp_session_id: NativeId | None = None
    jsonrpc_request_id: NativeId | Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)] | None = None


UNRELATED = Correlation()
