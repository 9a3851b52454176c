"""Creates the configured injection detector."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.safety.injection import Detection, InjectionDetector
    from weftline.settings import Settings


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


def configured_detector(settings: Settings) -> InjectionDetector:
    """Return the included detector, or the classifier in the folder that WEFTLINE_INJECTION_MODEL names."""
    if not settings.injection_model:
        return LazyDetector(_included)
    folder = Path(settings.injection_model).expanduser()
    if not (folder / "model.onnx").is_file():
        raise InvalidSetting("WEFTLINE_INJECTION_MODEL must name a folder with a file model.onnx.")
    return LazyDetector(partial(_classifier, folder))


def _included() -> InjectionDetector:
    from weftline.providers.injection.local import load_included  # noqa: PLC0415 - slow to import

    return load_included()


def _classifier(folder: Path) -> InjectionDetector:
    from weftline.providers.injection.onnx_classifier import OnnxClassifier  # noqa: PLC0415 - slow to import

    return OnnxClassifier(folder, _included())
