"""Correlation ids of a call: the turn, task, tool call or trace it belongs to, as named by the caller."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weft.kernel.fields import MAX_INT

NativeId = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x20\x7f-\x9f]+\Z")]


class Correlation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Ids stored with everything that one call changes, unchanged, to find it by later."""

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
    jsonrpc_request_id: NativeId | Annotated[int, msgspec.Meta(ge=-MAX_INT, le=MAX_INT)] | None = None


NO_CORRELATION = Correlation()
