"""Why a call is held until somebody approves it, and what an approved call may pass.

A guard or a service holds a call by raising an error whose class has ``hold``. The dispatcher stores the call; when it
is approved, it is performed with an ``Approval`` on its actor, which lets it pass the checks it was held by.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class HoldReason(msgspec.Struct, frozen=True, kw_only=True):
    """The check that holds a call, and what its approver is shown.

    ``check`` identifies the rule or check; an approval covers this check only. Include what must not change between the
    hold and the approval, such as the version of a rule or the hash of a text. ``text`` is one line for the caller and
    the approver; ``details`` are for approvers only, and may quote the request. ``approver``: ``client`` lets the
    caller's own MCP client ask its user.
    """

    check: str
    text: str
    details: dict[str, Any] = {}
    approver: Literal["human", "client"] = "human"


class Approval(msgspec.Struct, frozen=True):
    """The approval under which a held call is performed: it passes ``checks``, and no others.

    ``performer`` identifies the process that performs it, so that no other one commits its changes as well.
    ``preparing``: what is committed now is not the call itself, and may be repeated.
    """

    approval_id: str
    checks: frozenset[str]
    approved_by: str
    performer: str
    preparing: bool = False

    def covers(self, check: str) -> bool:
        return check in self.checks
