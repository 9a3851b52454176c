"""Creates the configured injection detector."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.capabilities.injection.model import Detection, InjectionDetector


class LazyDetector:
    """Loads a detector with the first text."""

    def __init__(self, load: Callable[[], InjectionDetector]) -> None:
        self._load = load
        self._loading = threading.Lock()
        self._loaded: InjectionDetector | None = None

    def detect(self, text: str, *, data: bool) -> Detection:
        return (self._loaded or self._load_once()).detect(text, data=data)

    def _load_once(self) -> InjectionDetector:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded


def configured_detector() -> InjectionDetector:
    """Return the included detector."""
    return LazyDetector(_included)


def _included() -> InjectionDetector:
    from weft.providers.injection.local import load_included  # noqa: PLC0415 - slow to import

    return load_included()
