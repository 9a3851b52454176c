"""Catalog of language models: limits, wire form, tokenizer and prompt cache of each, read from a data file.

The file ``models.json`` of the package can be extended or corrected by the file in the setting ``models_file``, which
has the same format. An entry there needs only the fields that differ; an unknown model starts from ``default``.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import msgspec

from weftline.models.language_models.answer_usage import Usage
from weftline.models.language_models.content import WireForm
from weftline.settings import InvalidSetting

CacheMode = Literal["none", "automatic", "marked", "marked_or_automatic"]
Modality = Literal["text", "image", "audio", "file"]
Tokenizer = Literal["o200k_base", "cl100k_base"]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Multiplier = Annotated[float, msgspec.Meta(ge=0, le=100)]

_INCLUDED = Path(__file__).with_name("models.json")
_MAX_FOUND = 1_000
_MAX_NAME = 200


class CacheRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the prompt cache of a model works.

    ``marked`` caches end where the request marks them; ``automatic`` caches match the longest prefix. ``increment``
    is the granularity of automatic matches, ``lookback_blocks`` how far before a mark an earlier entry is found (0: any
    distance). The multipliers of the input price apply only where the price table has no price.
    """

    mode: CacheMode = "none"
    min_tokens: Natural = 0
    increment: Positive = 1
    ttl_seconds: dict[str, Positive] = {}
    max_breakpoints: Natural = 0
    lookback_blocks: Natural = 0
    write_multipliers: dict[str, Multiplier] = {}
    read_multiplier: Multiplier = 1.0
    keyed: bool = False

    @property
    def takes_marks(self) -> bool:
        return self.mode in {"marked", "marked_or_automatic"}

    @property
    def default_ttl(self) -> str | None:
        """Return the name of the shortest lifetime."""
        return min(self.ttl_seconds, key=self.ttl_seconds.__getitem__, default=None)


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model. ``known`` is false for a model without an entry: its limits are conservative guesses.

    ``estimate_factor`` corrects the token estimate of a model without a public tokenizer until usage was reported.
    ``message_tokens`` and ``tools_tokens`` are what a provider adds to each message and to a request with tools.
    """

    model: str
    provider: str
    form: WireForm
    context_window: int
    max_output_tokens: int
    tokenizer: Tokenizer | None
    cache: CacheRules
    input: tuple[Modality, ...]
    estimate_factor: float
    message_tokens: int
    tools_tokens: int
    image_tokens: int
    known: bool


class ModelLabel(NamedTuple):
    """A model and its provider for metrics: nothing that a caller has sent, and no more names than entries."""

    model: str
    provider: str


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields of the models that match a name, or a prefix followed by ``*``. Absent fields come from the next entry."""

    match: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ()
    known: bool = True
    provider: str | msgspec.UnsetType = msgspec.UNSET
    form: WireForm | msgspec.UnsetType = msgspec.UNSET
    context_window: Positive | msgspec.UnsetType = msgspec.UNSET
    max_output_tokens: Positive | msgspec.UnsetType = msgspec.UNSET
    tokenizer: Tokenizer | msgspec.UnsetType | None = msgspec.UNSET
    cache: str | msgspec.UnsetType = msgspec.UNSET
    input: tuple[Modality, ...] | msgspec.UnsetType = msgspec.UNSET
    estimate_factor: Annotated[float, msgspec.Meta(ge=0.5, le=2)] | msgspec.UnsetType = msgspec.UNSET
    message_tokens: Natural | msgspec.UnsetType = msgspec.UNSET
    tools_tokens: Natural | msgspec.UnsetType = msgspec.UNSET
    image_tokens: Natural | msgspec.UnsetType = msgspec.UNSET


class ModelsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The content of a models file."""

    format: Literal[1]
    updated: str = ""
    caches: dict[str, CacheRules] = {}
    default: ModelEntry | None = None
    models: tuple[ModelEntry, ...] = ()


# Label of models without an entry.
OTHER_MODEL = "other"
_INFERRED = {"model", "cache", "known"}
_FIELDS = tuple(name for name in ModelInfo.__struct_fields__ if name not in _INFERRED)


class Catalog:
    """Finds what is known of a model: the most specific entry, from the operator's file before the included one."""

    def __init__(self, files: tuple[ModelsFile, ...]) -> None:
        self._files = files
        self._caches = {name: rules for file in reversed(files) for name, rules in file.caches.items()}
        self._found: dict[str, ModelInfo] = {}
        self._labels: dict[str, ModelLabel] = {}

    def find(self, model: str | None) -> ModelInfo:
        """Return what is known of a model; conservative defaults with ``known=False`` if there is no entry."""
        name = (model or "")[:_MAX_NAME]
        found = self._found.get(name)
        if found is None:
            if len(self._found) >= _MAX_FOUND:
                self._found.clear()
            found = self._found[name] = self._look_up(name)
        return found

    def label(self, model: str) -> ModelLabel:
        """Return the pattern that a model matches best, and its provider."""
        name = model[:_MAX_NAME]
        found = self._labels.get(name)
        if found is None:
            if len(self._labels) >= _MAX_FOUND:
                self._labels.clear()
            found = self._labels[name] = ModelLabel(self._best_pattern(name), self.find(name).provider)
        return found

    def _best_pattern(self, model: str) -> str:
        names = _spellings(model)
        patterns = (pattern for file in self._files for entry in file.models for pattern in entry.match)
        ranked = [(_specificity(pattern.lower(), names), pattern) for pattern in patterns]
        specific, best = max(ranked, default=(-1, ""))
        return best if specific >= 0 else OTHER_MODEL

    @property
    def families(self) -> tuple[str, ...]:
        """Return the names of models, and of families without their version, that have an entry."""
        return tuple(dict.fromkeys(name.rstrip("*") for file in self._files for e in file.models for name in e.match))

    def _look_up(self, model: str) -> ModelInfo:
        matching = [entry for file in self._files if (entry := _best_match(file.models, _spellings(model))) is not None]
        defaults = [file.default for file in self._files if file.default is not None]
        entries = [*matching, *defaults]
        fields = {name: _first(entries, name) for name in _FIELDS}
        rules = self._caches[_first(entries, "cache")]
        known = bool(matching) and matching[0].known
        return ModelInfo(model=model, cache=rules, known=known, **fields)


def load_catalog(models_file: str = "") -> Catalog:
    """Return the catalog, with the operator's file before the included one; raises InvalidSetting if it is invalid."""
    included = _included()
    if not models_file:
        return Catalog((included,))
    try:
        content = Path(models_file).expanduser().read_bytes()
        own = msgspec.json.decode(content, type=ModelsFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSetting(f"WEFTLINE_MODELS_FILE: {models_file}: {reason}") from error
    _check_caches(own, included)
    return Catalog((own, included))


@cache
def _included() -> ModelsFile:
    return msgspec.json.decode(_INCLUDED.read_bytes(), type=ModelsFile)


def _check_caches(own: ModelsFile, included: ModelsFile) -> None:
    names = own.caches.keys() | included.caches.keys()
    for entry in (*own.models, *([own.default] if own.default else [])):
        if entry.cache is not msgspec.UNSET and entry.cache not in names:
            raise InvalidSetting(f"WEFTLINE_MODELS_FILE: there is no cache named '{entry.cache}' in caches.")


def _spellings(model: str) -> tuple[str, ...]:
    """Return a name as given and without what gateways put before it: ``openai/``, ``us.anthropic.``, ``models/``."""
    name = model.lower()
    bare = name.rsplit("/", 1)[-1]
    start = bare.find("claude-")
    if start >= 0:
        # Gateways write claude-opus-4.5 for claude-opus-4-5.
        bare = bare[start:].replace(".", "-")
    return (name, bare) if bare != name else (name,)


def _best_match(entries: tuple[ModelEntry, ...], names: tuple[str, ...]) -> ModelEntry | None:
    """Return the entry with the longest pattern that matches; an exact name wins over any prefix."""
    best: ModelEntry | None = None
    length = -1
    for entry in entries:
        for pattern in entry.match:
            specific = _specificity(pattern.lower(), names)
            if specific > length:
                best, length = entry, specific
    return best


def _specificity(pattern: str, names: tuple[str, ...]) -> int:
    if pattern.endswith("*"):
        return len(pattern) - 1 if any(name.startswith(pattern[:-1]) for name in names) else -1
    return _MAX_NAME + len(pattern) if pattern in names else -1


def _first(entries: list[ModelEntry], field: str) -> Any:  # noqa: ANN401 - fields of several types
    return next(value for entry in entries if (value := getattr(entry, field)) is not msgspec.UNSET)


# Prices of model calls.

_PER = Decimal(1_000_000)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens of a model, at one time and size of request."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """Return the price of a call in US dollars."""
        short_lived = usage.cache_write_tokens - usage.cache_write_1h_tokens
        total = (
            self.input * usage.uncached_tokens
            + self.cache_read * usage.cache_read_tokens
            + self.cache_write * short_lived
            + self.cache_write_1h * usage.cache_write_1h_tokens
            + self.output * usage.output_tokens
        )
        return total / _PER


class Prices(Protocol):
    """The price table."""

    async def load(self) -> None:
        """Read the table if that was not done yet, without blocking other calls."""
        ...

    def rates(self, info: ModelInfo, at: datetime, input_tokens: int = 0) -> Rates | None:
        """Return the rates of a model for a request of this size; None if the table has no price for it."""
        ...


def cost_of(prices: Prices, info: ModelInfo, usage: Usage, at: datetime) -> Decimal | None:
    """Return the price of a call in US dollars, None (never zero) if the model has no price."""
    rates = prices.rates(info, at, usage.input_tokens)
    return None if rates is None else rates.cost(usage)
