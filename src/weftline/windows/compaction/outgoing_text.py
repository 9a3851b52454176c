"""What may leave for the endpoint of a language model, by the tenant's policy for prompts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from weftline.safety.redaction.detector import Scanner
from weftline.safety.redaction.masker import DETECTORS, DetectorCategory, Masker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.safety.trust.policy import ContentAction, TrustPolicy


class OutgoingText:
    """Masks secrets and personal data before a text leaves, and puts them back into what returns.

    What returns is for the agent whose own conversation has these values in clear. One instance serves one run, so a
    value that was recognised once is masked from then on.
    """

    def __init__(self, policy: TrustPolicy) -> None:
        self._blocked = _categories(policy, "block")
        self._masker = Masker(_categories(policy, "mask"), reversible=True)

    def is_allowed(self, text: str) -> bool:
        """Tell whether a text may leave at all: the policy may block secrets or personal data."""
        return not any(_scanner(category).spans(text) for category in self._blocked)

    def masked(self, texts: Sequence[str]) -> list[str]:
        """Return texts with secrets and personal data masked, wherever one of them shows what a value is."""
        masked = [self._masker.text(text) for text in texts]
        return [self._masker.mask_known(text) for text in masked]

    def restored(self, text: str, original: str) -> str:
        """Return an answer with the masked values, unless the original imitates a placeholder."""
        if any(placeholder in original for placeholder in self._masker.placeholders):
            return text
        return self._masker.restore(text)


def _categories(policy: TrustPolicy, action: ContentAction) -> list[DetectorCategory]:
    actions: dict[DetectorCategory, ContentAction] = {"secrets": policy.secrets.prompt, "pii": policy.pii.prompt}
    return [category for category, chosen in actions.items() if chosen == action]


@cache
def _scanner(category: DetectorCategory) -> Scanner:
    return Scanner(DETECTORS[category])
