"""All kinds of lines. To add one, list it here; see ``weftline.history.line_kinds``."""

from __future__ import annotations

from weftline.history.line_kinds import register
from weftline.state.agent_context.history_backend import (
    AGENT_DEFINITION,
    PERSISTENT_MEMORY,
    TEAM_MEMORY,
    USER_MEMORY,
)
from weftline.state.board.history_backend import BOARD
from weftline.state.layers.history_backend import LAYER
from weftline.state.memory.history_backend import PRIVATE_MEMORY
from weftline.windows.history_backend import WINDOW

LINE_KINDS = (BOARD, AGENT_DEFINITION, PERSISTENT_MEMORY, TEAM_MEMORY, USER_MEMORY, PRIVATE_MEMORY, WINDOW, LAYER)
register(LINE_KINDS)
