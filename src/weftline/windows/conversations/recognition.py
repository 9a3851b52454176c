"""Which conversation a request belongs to, by the messages that it repeats.

A client sends the whole conversation with each call, and adds to the end. What it does otherwise is seen from which
messages it repeats: it may send a call again, go back and on from an earlier message, change or leave out some of them,
or replace them by a summary.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from weftline.models.language_models.conversation_requests import digest_of
from weftline.windows.conversations.model import Placement, Relation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.models.language_models.conversation_requests import ConversationRequest, Turn
    from weftline.windows.conversations.model import StoredThread, Thread

# First messages by which a conversation without an id is found; the first one may be changed.
_FIRST = 3
# A history is the same one, edited, if at least this part of what follows the first difference is repeated.
_REPEATED = 0.5
# A summary leaves at most this part of a conversation.
_SUMMARISED = 0.6


class _Match(NamedTuple):
    """How a request repeats the messages of a thread. ``later``: places of messages repeated after a difference."""

    stored: StoredThread
    prefix: int
    later: frozenset[int]

    @property
    def is_continued(self) -> bool:
        return self.prefix >= self.stored.thread.sent


def request_keys(previous: str, client: str, client_id: str, scope: str, turns: Iterable[Turn]) -> list[str]:
    """Return what leads to the conversation of a request; the first one names it."""
    if previous:
        return [answer_key(previous)]
    if client_id:
        return [digest_of("client", client, client_id)]
    first = islice((turn.digest for turn in turns if turn.role != "system"), _FIRST)
    return [digest_of("first", scope, digest) for digest in first]


def answer_key(answer_id: str) -> str:
    return digest_of("answer", answer_id)


def place_request(request: ConversationRequest, candidates: Sequence[StoredThread]) -> Placement:
    """Return where a request belongs; ``candidates`` are threads with its id, its answer or its first message."""
    turns = request.turns
    everything = tuple(range(len(turns)))
    if request.previous:
        return _after_answer(request, candidates, everything)
    matches = [_match(turns, each) for each in candidates]
    if not matches:
        return Placement(Relation.NEW, None, 0, everything)
    best = max(matches, key=lambda each: (each.is_continued, each.prefix, len(each.later)))
    if best.is_continued:
        thread = best.stored.thread
        added = _after_answers(turns, thread)
        return Placement(Relation.CONTINUED if added else Relation.RETRY, best.stored, thread.sent, added)
    if _is_edited(best, len(turns)):
        return _replaced(Relation.EDITED, best, everything)
    summarised = next((each for each in matches if _is_summarised(request, turns, each)), None)
    if summarised is not None:
        return _replaced(Relation.COMPACTED, summarised, everything)
    return _beside(request, best, everything)


def _replaced(relation: Relation, match: _Match, everything: tuple[int, ...]) -> Placement:
    """Place a request whose messages stand for others of the same conversation."""
    added = tuple(at for at in everything[match.prefix :] if at not in match.later)
    return Placement(relation, match.stored, match.prefix, added)


def _beside(request: ConversationRequest, best: _Match, everything: tuple[int, ...]) -> Placement:
    """Place a request that goes on beside a conversation, or has nothing to do with it."""
    if best.prefix == 0 and request.client_id:
        return Placement(Relation.SUBAGENT, best.stored, 0, everything)
    # Many conversations begin with the same words.
    begins_alike = best.prefix == len(everything) == 1 and not request.client_id
    if best.prefix == 0 or begins_alike:
        return Placement(Relation.NEW, None, 0, everything)
    return Placement(Relation.BRANCH, best.stored, best.prefix, everything[best.prefix :])


def _after_answer(
    request: ConversationRequest, candidates: Sequence[StoredThread], everything: tuple[int, ...]
) -> Placement:
    """Place a request that names the answer it follows, and holds new messages only."""
    for stored in candidates:
        reached = stored.thread.answers.get(request.previous)
        if reached == len(stored.thread.view):
            return Placement(Relation.CONTINUED, stored, reached, everything)
        if reached is not None:
            return Placement(Relation.BRANCH, stored, reached, everything)
    return Placement(Relation.NEW, None, 0, everything)


def _match(turns: Sequence[Turn], stored: StoredThread) -> _Match:
    view = stored.thread.view
    prefix = 0
    for turn, digest in zip(turns, view, strict=False):
        if turn.digest != digest:
            break
        prefix += 1
    left = Counter(view[prefix:])
    later = set()
    for at in range(prefix, len(turns)):
        if left[turns[at].digest] > 0:
            left[turns[at].digest] -= 1
            later.add(at)
    return _Match(stored, prefix, frozenset(later))


def _after_answers(turns: Sequence[Turn], thread: Thread) -> tuple[int, ...]:
    """Return the places of the messages that follow the recorded answer, which the client may write in its own way."""
    at, answered = thread.sent, len(thread.view) - thread.sent
    while answered and at < len(turns) and turns[at].role == "assistant":
        at += 1
        answered -= 1
    return tuple(range(at, len(turns)))


def _is_edited(match: _Match, length: int) -> bool:
    thread = match.stored.thread
    comparable = min(thread.sent, length) - match.prefix
    return bool(match.later) and len(match.later) >= _REPEATED * comparable


def _is_summarised(request: ConversationRequest, turns: Sequence[Turn], match: _Match) -> bool:
    """Tell whether a request goes on with a summary in place of most messages: the same agent with much less text."""
    thread = match.stored.thread
    if request.frame != thread.frame or thread.sent <= len(turns) // 2:
        return False
    if request.is_compacted:
        return True
    # Who goes back repeats all but the end of what is sent.
    goes_back = match.prefix == len(turns) or 1 < match.prefix >= len(turns) - 2
    return not goes_back and sum(turn.size for turn in turns) <= _SUMMARISED * thread.size
