"""All kinds of lines. To add one, list it here; see ``weft.capabilities.history.line_kinds``."""

from __future__ import annotations

from weft.capabilities.agent_context.history_backend import (
    AGENT_DEFINITION,
    PERSISTENT_MEMORY,
    TEAM_MEMORY,
    USER_MEMORY,
)
from weft.capabilities.board.history_backend import BOARD
from weft.capabilities.history.line_kinds import register
from weft.capabilities.layers.history_backend import LAYER
from weft.capabilities.memory.history_backend import PRIVATE_MEMORY
from weft.capabilities.windows.history_backend import WINDOW

LINE_KINDS = (BOARD, AGENT_DEFINITION, PERSISTENT_MEMORY, TEAM_MEMORY, USER_MEMORY, PRIVATE_MEMORY, WINDOW, LAYER)
register(LINE_KINDS)
