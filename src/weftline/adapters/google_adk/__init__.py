"""Google ADK: prompts that Weftline assembles, sessions and memories that last, and summaries without a model."""

from weftline.adapters.google_adk.memory import WeftlineMemoryService
from weftline.adapters.google_adk.plugin import WeftlinePlugin
from weftline.adapters.google_adk.sessions import WeftlineSessionService
from weftline.adapters.google_adk.summarizer import WeftlineSummarizer

__all__ = ["WeftlineMemoryService", "WeftlinePlugin", "WeftlineSessionService", "WeftlineSummarizer"]
