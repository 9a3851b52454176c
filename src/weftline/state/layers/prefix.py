"""The prompt prefix that layers make, and its check.

Order contract: inputs are sanitised before a prompt is assembled (``sanitise``), and its layers are checked afterwards,
before it is sent (``check_prefix``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.state.layers.model import PLATFORM, Layer, LayerViolation, text_hash
from weftline.state.layers.tags import EXACT, NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAG = f"{NAMESPACE}layer"
_SECTION = re.compile(rf'<{_TAG} level="([0-9]+)" name="([^"]*)">\n(.*?)\n</{_TAG}>', re.DOTALL)


def render_layers(layers: Sequence[Layer]) -> str:
    """Return the prefix of a prompt: the same bytes for the same layers; without that of the platform, no tags."""
    if not has_platform(layers):
        return "\n\n".join(layer.text for layer in layers)
    return "\n".join(f'<{_TAG} level="{layer.level}" name="{layer.name}">\n{layer.text}\n</{_TAG}>' for layer in layers)


def has_platform(layers: Sequence[Layer]) -> bool:
    """Tell whether layers begin with that of the platform, which the tenant's policy may switch off."""
    return bool(layers) and layers[0].level == PLATFORM


def check_prefix(prompt_text: str, layers: Sequence[Layer]) -> None:
    """Raise LayerViolation unless a system prompt is these layers, in order and unaltered, and nothing else."""
    _check_layers(layers)
    prefix = render_layers(layers)
    if not prompt_text.startswith(prefix):
        raise _difference(prompt_text, layers)
    if EXACT.search(prompt_text, len(prefix)):
        raise imitated_tag()
    if len(prompt_text) > len(prefix):
        raise LayerViolation("Something was added to the layers of the prompt.", problem="added")


def sections_of(prompt_text: str) -> list[Layer]:
    """Return the layers that a prompt contains, in their order, without their versions."""
    return [Layer.of(int(level), name, text, 0) for level, name, text in _SECTION.findall(prompt_text)]


def check_sections(prompt_text: str) -> None:
    """Raise LayerViolation unless a system prompt is well-formed layers, in order: those of an earlier version."""
    sections = sections_of(prompt_text)
    if not has_platform(sections):
        raise _disorder(sections)
    check_prefix(prompt_text, sections)


def imitated_tag() -> LayerViolation:
    return LayerViolation("The prompt has a tag of Weftline in a text of others.", problem="imitated")


def _check_layers(layers: Sequence[Layer]) -> None:
    """Raise LayerViolation if the layers to compare with are not well-formed themselves."""
    levels = [layer.level for layer in layers]
    if levels != sorted(set(levels)):
        raise _disorder(layers)
    for layer in layers:
        if text_hash(layer.text) != layer.hash or EXACT.search(layer.text):
            raise _violation(layer, "altered")


def _disorder(layers: Sequence[Layer]) -> LayerViolation:
    levels = [layer.level for layer in layers]
    return LayerViolation("The layers are not complete and in order.", problem="order", levels=levels)


def _difference(prompt_text: str, layers: Sequence[Layer]) -> LayerViolation:
    """Return the error that names the first layer that is missing, misplaced or altered."""
    if not has_platform(layers):
        return LayerViolation("The prompt does not begin with its layers.", problem="altered")
    found = [(int(level), name, text_hash(text)) for level, name, text in _SECTION.findall(prompt_text)]
    for place, layer in enumerate(layers):
        expected = (layer.level, layer.name, layer.hash)
        if found[place : place + 1] == [expected]:
            continue
        same_name = [each for each in found if each[:2] == expected[:2]]
        problem = "missing" if not same_name else "order" if expected in same_name else "altered"
        return _violation(layer, problem)
    return LayerViolation("The prompt does not begin with its layers.", problem="order")


def _violation(layer: Layer, problem: str) -> LayerViolation:
    words = {"missing": "is missing", "order": "is not in its place", "altered": "was altered"}
    return LayerViolation(
        f"The layer {layer.name} (level {layer.level}) {words[problem]}.",
        problem=problem,
        level=layer.level,
        layer=layer.name,
    )
