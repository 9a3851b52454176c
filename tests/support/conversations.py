"""Events of a window made of short descriptions: who says what, which tools are called and what they answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.content import ConversationMessage, Role, ToolCall
from weftline.safety.trust.model import TrustLabel
from weftline.windows.model import Category, WindowEvent

_CATEGORIES = {
    "system": Category.SYSTEM,
    "user": Category.DIALOG,
    "assistant": Category.DIALOG,
    "tool": Category.SYSTEM_OUTPUT,
}
_SECOND = 1_000_000
_STARTED = 1_760_000_000 * _SECOND


@dataclass
class Conversation:
    """A window that grows by one event a minute."""

    events: list[WindowEvent] = field(default_factory=list)
    _calls: int = 0

    def user(self, content: str, name: str | None = None) -> WindowEvent:
        return self._add("user", content, name=name)

    def agent(self, content: str, name: str | None = None) -> WindowEvent:
        return self._add("assistant", content, name=name)

    def system(self, content: str) -> WindowEvent:
        return self._add("system", content)

    def call(self, tool: str, arguments: str, result: str | None, said: str = "") -> WindowEvent:
        """Add a call of a tool and its result; without a result the call is pending."""
        self._calls += 1
        call = ToolCall(f"call-{self._calls}", tool, arguments)
        made = self._add("assistant", said, calls=(call,))
        return made if result is None else self._add("tool", result, call_id=call.call_id)

    def _add(
        self,
        role: Role,
        content: str,
        *,
        name: str | None = None,
        calls: tuple[ToolCall, ...] = (),
        call_id: str | None = None,
        trust: TrustLabel | None = None,
    ) -> WindowEvent:
        number = len(self.events) + 1
        event = WindowEvent(
            event_id=f"e{number}",
            number=number,
            category=_CATEGORIES[role],
            message=ConversationMessage(role=role, content=content, name=name, tool_calls=calls, tool_call_id=call_id),
            kind="tool_output" if role == "tool" else "message",
            at=_STARTED + number * 60 * _SECOND,
            author="human:ada" if role == "user" else "agent:planner",
            agent_id="planner",
            tokens=approximate_tokens(content + "".join(call.arguments for call in calls)) + 4,
            trust=trust,
        )
        self.events.append(event)
        return event
