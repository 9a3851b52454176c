"""``metadata.weftline``: what Weftline itself writes about a record, such as its author. Callers may not write it.

Readers of stored records never rely on its form: an older Weftline, or another one that exported the record, wrote it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weftline.records.model import ContextSourceRef
from weftline.records.refs import Digest, RecordPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.records.model import Record


ENGINE: Final = "weftline"


class PassageDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a source reference from Weftline carries. Callers cite with it, and resolution checks it."""

    passage_digest: Digest


def engine_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that Weftline wrote; none if there are none, or they do not have the form of fields."""
    native = metadata.get(ENGINE)
    return native if isinstance(native, dict) else {}


def claimed_paths(record: Record) -> Iterator[str]:
    """Yield the paths in a caller's record where it has metadata that only Weftline may write."""
    return _claimed(record, "")


def _claimed(value: object, path: str) -> Iterator[str]:
    if isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from _claimed(each, f"{path}[{place}]")
    elif isinstance(value, RecordPart):
        if _claims_engine_metadata(value):
            yield f"{path}.metadata.{ENGINE}"
        for name in value.__struct_fields__:
            yield from _claimed(getattr(value, name), f"{path}.{name}")


def _claims_engine_metadata(part: RecordPart) -> bool:
    metadata = getattr(part, "metadata", None)
    if not isinstance(metadata, dict) or ENGINE not in metadata:
        return False
    return not (isinstance(part, ContextSourceRef) and _is_passage_digest(metadata[ENGINE]))


def _is_passage_digest(native: object) -> bool:
    try:
        msgspec.convert(native, PassageDigest)
    except msgspec.ValidationError:
        return False
    return True


# The language of a text as a BCP 47 tag: by its script, and in Latin script by its function words.

# Undetermined, as BCP 47 writes it.
UNDETERMINED: Final = "und"
# The beginning of a text tells its language.
_MAX_CHARACTERS = 2_000
# One function word can be a name or a word of another language.
_MIN_WORDS = 2
_WORD = re.compile(r"[^\W\d_]+")
# By the first character class that most letters are of. Scripts of several languages are tagged as scripts.
_SCRIPTS = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u3400-\u9fff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "uk": re.compile(r"[іїєґІЇЄҐ]"),
    "und-Cyrl": re.compile(r"[\u0400-\u04ff]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "und-Arab": re.compile(r"[\u0600-\u06ff]"),
    "und-Deva": re.compile(r"[\u0900-\u097f]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
}
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_FUNCTION_WORDS = {
    "en": "the of and to in is that it for with was as on are this be at by not have from or we you they will has",
    "de": "der die das und zu den von mit ist nicht ein eine im auf für dem sich des auch es wir ich sie werden hat",
    "fr": "le la les et des est une un du dans que pour qui sur pas avec ce il nous vous sont au par plus ont",
    "es": "el la los las y de que en un una es por con para no se del al lo como más su está hay son fue",
    "it": "il la che di e un una per con non è del della sono gli nel dei si ma come più alla anche abbiamo",
    "pt": "o os as que de e um uma para com não é do da no na em por se mais foi como são está ao dos",
    "nl": "de het een en van is dat op te in niet met voor zijn er aan ook als bij wij worden naar heeft om",
    "sv": "och att det som en är på av för med den till inte har om ett vi jag men var sig från kan ska",
    "pl": "i w nie się na z do jest to że o jak ale po co tak za od przez dla są był może czy już",
}
_LANGUAGES: dict[str, list[str]] = {}
for _language, _words in _FUNCTION_WORDS.items():
    for _function_word in _words.split():
        _LANGUAGES.setdefault(_function_word, []).append(_language)


def language_of(text: str) -> str:
    """Return the language of a text; ``und`` if it is too short to tell."""
    text = text[:_MAX_CHARACTERS]
    script = _script_of(text)
    if script is not None:
        return script
    found = Counter(each for word in _WORD.findall(text.lower()) for each in _LANGUAGES.get(word, ()))
    best = found.most_common(2)
    is_clear = best and best[0][1] >= _MIN_WORDS and (len(best) == 1 or best[0][1] > best[1][1])
    return best[0][0] if is_clear else UNDETERMINED


def _script_of(text: str) -> str | None:
    """Return the language or script of a text that is not mostly in Latin letters."""
    latin = len(_LATIN.findall(text))
    counts = {name: len(letters.findall(text)) for name, letters in _SCRIPTS.items()}
    # Ukrainian has letters of its own among the Cyrillic ones, and Japanese writes Chinese ones besides its own.
    if counts["uk"] and counts["und-Cyrl"] > latin:
        return "uk"
    if counts["ja"] and counts["ja"] + counts["zh"] > latin:
        return "ja"
    name = max(counts, key=lambda each: counts[each])
    # A Chinese or Korean word has fewer letters than a Latin one.
    weight = 3 if name in {"zh", "ko"} else 1
    return name if counts[name] * weight > latin else None
