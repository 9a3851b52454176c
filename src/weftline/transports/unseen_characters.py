"""Characters of stored text that a reader does not see, or that change how the text around them is shown."""

from __future__ import annotations

# The inside of a character class: control characters but tabs and line ends, then those that change the direction of a
# text or are not seen: separators, fillers, annotations, variation selectors of a second kind and tags, by which a text
# for a model is hidden from its readers. Joiners are not among them: scripts and pictographs need them.
UNSEEN = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
