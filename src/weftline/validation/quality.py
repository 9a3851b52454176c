"""Quality: answers of the configured language model with assembled prompts and with the full context, for review."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from weftline.demo.project import STEPS, conversation, documents
from weftline.kernel.errors import InvalidInput
from weftline.models.language_models.chat_model import ChatCaller, ChatMessage, ChatRequest
from weftline.providers.chat_models.factory import NO_METER, configured_chat_model
from weftline.validation.review import AnswerPair
from weftline.validation.temporary_weftline import TENANT, prepare_project, prompts_of_steps, temporary_weftline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.demo.project import Step
    from weftline.models.language_models.chat_model import ChatModel
    from weftline.settings import Settings
    from weftline.validation.model import Figure

_SYSTEM = "Answer the last question from what you are given. Say so if it does not contain the answer."
_MAX_ANSWER_TOKENS = 800


async def measure(settings: Settings) -> Sequence[Figure]:
    """Return nothing: people have to judge the answers first."""
    del settings
    return []


async def answer_pairs(settings: Settings) -> list[AnswerPair]:
    """Ask the configured model the questions of the demo's project twice: with the assembled and the full context."""
    model = configured_chat_model(settings, NO_METER)
    if model is None:
        raise InvalidInput(
            "No language model is configured.",
            hint="Set WEFTLINE_CHAT_MODEL, or give answers that you have with --pairs FILE.",
        )
    try:
        async with temporary_weftline(settings) as admin:
            await prepare_project(admin)
            return [
                AnswerPair(
                    question=step.question,
                    with_weftline=await _ask(model, prompt["body"]["messages"]),
                    full_context=await _ask(model, _full_context(agent, step)),
                )
                async for agent, step, prompt in prompts_of_steps(admin)
            ]
    finally:
        await model.close()


def _full_context(agent: str, step: Step) -> list[dict[str, Any]]:
    """Return every document and the whole conversation of an agent: what it would send without Weftline."""
    whole = [{"role": "user", "content": f"{name}\n\n{text}"} for name, text in documents().items()]
    earlier = takewhile(lambda each: each is not step, STEPS[agent])
    answered = [
        {"role": role, "content": text}
        for each in earlier
        for role, text in (("user", each.question), ("assistant", each.answer))
    ]
    return [*whole, *conversation(agent), *answered, {"role": "user", "content": step.question}]


async def _ask(model: ChatModel, messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer to a prompt; both kinds are written in the same way, so that only their content differs."""
    text = "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages if message.get("content"))
    request = ChatRequest(_SYSTEM, (ChatMessage("user", text),), _MAX_ANSWER_TOKENS, ChatCaller(TENANT))
    return (await model.complete(request)).text
