"""Messages and bodies in any wire form, so that a test walks the table of forms and names none."""

from __future__ import annotations

from typing import Any

from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.content import ConversationMessage, Prompt, PromptBlock, PromptForm
from weftline.models.language_models.wire_forms import FORMS, render

CATALOG = load_catalog()
# A model of each form, for which its provider marks caches if it has marks.
MODELS = {
    "openai_chat": "gpt-5.6-sol",
    "openai_responses": "gpt-6-sol",
    "anthropic": "claude-opus-5-5",
    "gemini": "gemini-2.5-pro",
}


def messages_field(form: PromptForm) -> str:
    return "messages" if form == "neutral" else FORMS[form].messages_field


def messages_in(form: PromptForm, body: dict[str, Any]) -> list[Any]:
    found: list[Any] = body[messages_field(form)]
    return found


def sent(form: PromptForm, *messages: ConversationMessage) -> list[Any]:
    """Return messages as a request has them; the first is of the user."""
    block = PromptBlock("b", "conversation", messages)
    return messages_in(form, render(form, Prompt(None, (), (block,), 100), CATALOG.find(MODELS.get(form))))


def turn(text: str, role: Any = "user") -> ConversationMessage:
    return ConversationMessage(role=role, content=text)


def system_fields(form: PromptForm, text: str) -> dict[str, Any]:
    """Return the field of a request that has a system text."""
    return {"system" if form == "neutral" else FORMS[form].system_field: text}
