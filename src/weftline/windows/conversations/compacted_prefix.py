"""The compacted beginning of a conversation: one message in the place of the earliest ones, in every later call."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.ports import approximate_tokens
from weftline.windows.compaction.digest import facts_text, summary_text
from weftline.windows.compaction.trigger import costs_of
from weftline.windows.conversations.edits import Edit, Splice
from weftline.windows.conversations.model import event_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.models.language_models.catalog import CacheRules
    from weftline.models.language_models.content import WireForm
    from weftline.models.language_models.conversation_requests import Turn
    from weftline.models.language_models.request_spans import SpannedMessage, SpannedRequest
    from weftline.windows.compaction.model import CompactedView

# The anchors of the compactions of a conversation, one after the other.
COMPACTED = tuple(f"compacted{number}" for number in range(1, 9))
# Smaller requests are not compacted.
MIN_COMPACTED_BYTES = 80_000
# Fewer messages are not worth a summary.
_MIN_MESSAGES = 6
_BYTES_PER_TOKEN = 4
_encode = msgspec.json.Encoder().encode


class CompactedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for the first messages of a conversation. ``digest``: of these messages, ``length`` of them.

    ``source``: the compaction whose view it is.
    """

    digest: str
    length: int
    text: str
    source: str


def compact_prefix(
    request: SpannedRequest,
    turns: Sequence[Sequence[Turn]],
    view: CompactedView,
    source: str,
    cache: CacheRules,
    saved: Mapping[int, int],
) -> Edit | None:
    """Return the edit that puts a view in the place of the messages it covers; None if that does not pay.

    What is lost is the cache of all that follows; ``turns`` are those of the messages. ``saved``: tokens by which
    messages are shorter already, by other edits: a summary has to be worth more than these.
    """
    first = _first(request)
    covered, uncovered = _covered(request, turns, view, first)
    end = _paired(request, covered, first)
    if end - first < _MIN_MESSAGES:
        return None
    said = [_user_text(request.messages[at]) for at in uncovered if at < end]
    summaries = (summary_text(each, ()) for each in view.summaries)
    requests = "\n\n".join(("The user said, in full and in this order:", *filter(None, said))) if said else ""
    text = "\n\n".join(filter(None, (requests, *summaries, facts_text(view.facts))))
    text = f"[Weftline: a summary of the earlier part of this conversation]\n{text}\n[End of the summary]"
    old, new = _tokens(request, first, end), approximate_tokens(text)
    before = max(old - sum(tokens for at, tokens in saved.items() if at < end), 0)
    following = _tokens(request, end, len(request.messages)) - sum(each for at, each in saved.items() if at >= end)
    following = max(following, 0)
    if new >= before or not costs_of(0, before + following, new + following, cache).is_worth_it:
        return None
    prefix = CompactedPrefix(digest=_digest(turns[first:end]), length=end - first, text=text, source=source)
    rewritten = _tokens(request, end, max(request.first_new, end))
    return Edit(prefix=_encode(prefix).decode(), saved=old - new, rewritten=rewritten)


def prefix_of(edit: Edit) -> CompactedPrefix:
    return msgspec.json.decode(edit.prefix, type=CompactedPrefix)


def matching_end(request: SpannedRequest, turns: Sequence[Sequence[Turn]], prefix: CompactedPrefix) -> int:
    """Return the place after the messages that a prefix stands for; 0 if the request does not begin with them."""
    first = _first(request)
    end = first + prefix.length
    return end if end < len(turns) and _digest(turns[first:end]) == prefix.digest else 0


def prefix_splice(request: SpannedRequest, prefix: CompactedPrefix, end: int) -> Splice:
    first = request.span(request.messages[end - prefix.length].raw).start
    return Splice(
        slice(first, request.span(request.messages[end - 1].raw).stop), _encode(_message(request.form, prefix.text))
    )


def _message(form: WireForm, text: str) -> object:
    match form:
        case "gemini":
            return {"role": "user", "parts": [{"text": text}]}
        case "openai_responses":
            return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        case _:
            return {"role": "user", "content": text}


def _first(request: SpannedRequest) -> int:
    """Return the place of the first message that is no system text."""
    return next((at for at, each in enumerate(request.messages) if each.role != "system"), len(request.messages))


def _covered(
    request: SpannedRequest, turns: Sequence[Sequence[Turn]], view: CompactedView, first: int
) -> tuple[int, list[int]]:
    """Return the place after the first messages that the summaries of a view cover, before the last answer.

    An answer may be recorded as the provider wrote it and not as the client repeats it: it goes with what follows it.
    What the user asked for is in no summary, as compactions keep it: the places of such messages are returned too.
    """
    covered = {each for summary in view.summaries for each in summary.sources}
    counts: Counter[str] = Counter()
    end = first
    said: list[int] = []
    with_results = {result.message for result in request.results}
    for at, own in enumerate(turns[first:], first):
        known = True
        for turn in own:
            counts[turn.digest] += 1
            is_covered = turn.role == "assistant" or event_id(turn, counts[turn.digest]) in covered
            known = known and is_covered
        if not known and (at in with_results or _user_text(request.messages[at]) is None):
            break
        if not known:
            said.append(at)
        elif any(turn.role != "assistant" for turn in own):
            end = at + 1
    return end, said


def _user_text(message: SpannedMessage) -> str | None:
    """Return what the user said in a message; None if others said it, or it is not only text."""
    if message.role != "user" or message.content is None:
        return None
    content = msgspec.json.decode(message.content)
    blocks = content if isinstance(content, list) else [{"text": content}]
    texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
    return "\n".join(map(str, texts)) if all(isinstance(each, str) for each in texts) else None


def _paired(request: SpannedRequest, end: int, first: int) -> int:
    """Return the last place not after ``end`` that parts no call from its result, and no answer in two."""
    with_results = {result.message for result in request.results}
    end = min(end, request.first_new - 1)
    while end > first:
        is_result = end in with_results or request.messages[end].role == "tool"
        is_within = request.messages[end].role == request.messages[end - 1].role == "assistant"
        if not is_result and not is_within:
            break
        end -= 1
    return end


def _tokens(request: SpannedRequest, first: int, end: int) -> int:
    return sum(len(memoryview(each.raw)) for each in request.messages[first:end]) // _BYTES_PER_TOKEN


def _digest(turns: Iterable[Sequence[Turn]]) -> str:
    state = hashlib.blake2b(digest_size=12)
    for own in turns:
        for turn in own:
            state.update(turn.digest.encode())
        state.update(b";")
    return state.hexdigest()
