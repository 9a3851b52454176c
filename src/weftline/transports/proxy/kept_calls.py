"""What is kept of calls until their conversations are recorded: bounded in all, and for each caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.models.language_models.conversation_requests import conversation_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.models.language_models.content import WireForm

MAX_KEPT_BYTES = 64 * 2**20
# One caller leaves room for others.
_CALLER_PART = 4
_MAX_ANSWER_BYTES = 4 * 2**20


class KeptBytes:
    """Bytes that are kept, in all and by caller."""

    def __init__(self, limit: int = MAX_KEPT_BYTES) -> None:
        self.used = 0
        self._limit = limit
        self._of_callers: dict[object, int] = {}

    def take(self, caller: object, size: int) -> bool:
        """Reserve bytes for a caller; false if there is no room for them."""
        own = self._of_callers.get(caller, 0) + size
        if own > self._limit // _CALLER_PART or self.used + size > self._limit:
            return False
        self._of_callers[caller] = own
        self.used += size
        return True

    def give_back(self, caller: object, size: int) -> None:
        self.used -= size
        left = self._of_callers.get(caller, 0) - size
        if left > 0:
            self._of_callers[caller] = left
        else:
            self._of_callers.pop(caller, None)


class KeptCall:
    """Request and answer of one call. Without room for them nothing is kept: a later call repeats the messages."""

    def __init__(
        self, budget: KeptBytes, caller: object, form: WireForm, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        self.form: WireForm = form
        self.headers = conversation_headers(headers)
        self.is_stream = False
        self._budget = budget
        self._caller = caller
        self._request: list[bytes] = []
        self._answer: list[bytes] = []
        self._answered = 0
        self._taken = 0

    @property
    def request(self) -> bytes:
        return b"".join(self._request)

    @property
    def answer(self) -> bytes:
        return b"".join(self._answer)

    def keep_request(self, parts: Sequence[bytes]) -> None:
        if self._take(sum(map(len, parts))):
            self._request = [*parts]

    def keep_answer(self, data: bytes) -> None:
        """Keep a part of the answer, decompressed; of one that is too large, nothing."""
        if not self._request or self._answered < 0:
            return
        self._answered += len(data)
        if self._answered > _MAX_ANSWER_BYTES or not self._take(len(data)):
            self._answered = -1
            self._answer.clear()
            return
        self._answer.append(data)

    def release(self) -> None:
        """Give back what is kept."""
        self._budget.give_back(self._caller, self._taken)
        self._taken = 0
        self._request, self._answer = [], []

    def _take(self, size: int) -> bool:
        if not self._budget.take(self._caller, size):
            return False
        self._taken += size
        return True
