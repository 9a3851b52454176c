"""Microsoft Agent Framework: prompts that Weftline assembles, guardrails, history that lasts, and compaction."""

from weftline.adapters.agent_framework.compaction import WeftlineCompactionStrategy
from weftline.adapters.agent_framework.context import (
    WeftlineChatMiddleware,
    WeftlineContextProvider,
    WeftlineFunctionMiddleware,
)
from weftline.adapters.agent_framework.history import WeftlineHistoryProvider

__all__ = [
    "WeftlineChatMiddleware",
    "WeftlineCompactionStrategy",
    "WeftlineContextProvider",
    "WeftlineFunctionMiddleware",
    "WeftlineHistoryProvider",
]
