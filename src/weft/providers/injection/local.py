"""The injection detector included in Weft: its weights, and the thresholds they were calibrated to.

Slow to import (numpy): imported by the first use. docs/concepts/injection.md says what the weights were trained on.
"""

from __future__ import annotations

import hashlib
import io
from functools import cache
from importlib import resources

import numpy as np

from weft.capabilities.injection.detector import NetworkDetector, Thresholds
from weft.capabilities.injection.model import DetectorUnavailable
from weft.capabilities.injection.network import Network
from weft.providers.embedders.wordpiece import WordPieceTokenizer

_SHA256 = "d7a5a946fda0dbd13fb2b73890742aaaaefee75ec5e818351fd2eda43d348540"
_TALK = Thresholds(flagged=1.3, strict=2.8)
_DATA = Thresholds(flagged=5.7, strict=7.8)
# Of 4,735 harmless documents and results of tools it flags one more, of 350 attacks that are a whole text 107 more.
_TALK_IN_DATA = Thresholds(flagged=4.0, strict=5.5)


@cache
def load_included() -> NetworkDetector:
    """Return the included detector; it is loaded once per process."""
    packed = resources.files("weft.providers.injection").joinpath("weights.npz").read_bytes()
    return NetworkDetector(
        read_network(packed), WordPieceTokenizer().numbers, talk=_TALK, data=_DATA, talk_in_data=_TALK_IN_DATA
    )


def read_network(packed: bytes, sha256: str = _SHA256) -> Network:
    """Return the networks of a file of weights after checking its hash."""
    if hashlib.sha256(packed).hexdigest() != sha256:
        raise DetectorUnavailable("The weights of the injection detector have an unexpected checksum.")
    with np.load(io.BytesIO(packed)) as weights:
        return Network(dict(weights))
