"""Proof that a caller may change a line that binds agents: a layer, or the definition of an agent."""

from __future__ import annotations

import msgspec


class EditProof(msgspec.Struct, frozen=True):
    """Made where an edit is checked against the tree and the clearance; stores demand it and check the edit again."""

    line_id: str
    editor_id: str
