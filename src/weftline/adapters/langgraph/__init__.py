"""LangGraph: threads as lines of history, and long-term memory."""

from weftline.adapters.langgraph.checkpoints import WeftlineSaver
from weftline.adapters.langgraph.store import WeftlineStore

__all__ = ["WeftlineSaver", "WeftlineStore"]
