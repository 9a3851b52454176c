"""Train the text classifier on texts by single authors; takes four minutes on an accelerator.

    python -m evals.classifier.examples ../shared/eval-data examples.jsonl && gzip examples.jsonl
    python -m evals.classifier.authors --examples examples.jsonl.gz --weights weights.npz --out new.npz

``--weights`` are those of ``last_layers``; ``--go-on new.npz`` trains what was written further. The weights that ship
are the mean of three such trainings, which differ in their random order: ``--epochs 6 --rate 7e-5 --dropped 0.24
--corpora 0.4 --random-states 4 5 6``. Then evals.classifier.statement_head fits the head for statements.

Needs JAX. Public corpora of attacks repeat few payloads in few carriers, and have hardly any ordinary talk: what was
trained on them alone caught half of the attacks by two authors whom nobody had seen, at 17 % false alarms. So all
layers, the two heads for instructions and the head for pairs learn from each of the authors in
evals/data as well, from the messages of the lists of statements as harmless talk, and from a sample
of the corpora. Kinds of statements are read from the states after the first half, so these are held near what they
were. Three authors are held out to choose thresholds.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weftline.encoder.bert import HEADS, WIDTH, outlier_factors, quantised
from weftline.encoder.classifier import read_weights
from weftline.encoder.onnx_files import installed_weights

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Array = np.ndarray[Any, Any]
Weights = dict[str, Any]
Batch = tuple[Array, ...]
Moments = tuple[Weights, Weights]

_HALF, _LAYERS = 3, 6
MATRICES = ("qkv", "out", "into", "back")
NORMS = ("attention_norm", "output_norm")
TRAINED_HEADS = ("early", "window", "pair")
LENGTHS = (32, 64, 96, 128, 160, 208)
ROWS = 32
MAX_WINDOWS = 8
_PAIRS = ("answer", "replacement")
_EPSILON = 1e-12


class Config(NamedTuple):
    epochs: int = 5
    rate: float = 1e-4
    head_rate: float = 7e-4
    dropped: float = 0.06
    random_state: int = 1
    # Texts of the corpora in each epoch, by whether they are attacks.
    attacks: int = 1_000
    harmless: int = 2_000
    messages: int = 400


class Text(NamedTuple):
    """A text with the tokens of its windows. ``labels``: see Example.

    Of a pair ``spans`` are the places of both sides, and ``pair`` is its number.
    """

    windows: list[list[int]]
    labels: tuple[int, int]
    weight: float = 1.0
    pair: int = -1
    spans: tuple[tuple[int, int], ...] = ()


def _unpacked(weights: Weights) -> Weights:
    """Return the trained part of weights as floats."""
    params: Weights = {}
    for number in range(_LAYERS):
        for place, name in enumerate(MATRICES):
            key = f"{number}.{name}"
            matrix = weights[f"{key}.matrix"].astype("f4") * weights[f"{key}.scale"]
            params[f"{key}.matrix"] = matrix / outlier_factors(4 * number + place, len(matrix))[:, None]
            params[f"{key}.bias"] = weights[f"{key}.bias"]
        for name in NORMS:
            for part in ("weight", "bias"):
                params[f"{number}.{name}.{part}"] = weights[f"{number}.{name}.{part}"]
    for name in TRAINED_HEADS:
        params |= {f"{name}.{part}": weights[f"{name}.{part}"] for part in ("weight", "bias")}
    return {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}


def packed(params: Weights, weights: Weights) -> Weights:
    """Return the weights with the trained part in place, matrices in int8."""
    found = dict(weights)
    for name, value in params.items():
        found[name] = np.asarray(value, np.float32)
    for number in range(_LAYERS):
        for place, name in enumerate(MATRICES):
            key = f"{number}.{name}"
            factors = outlier_factors(4 * number + place, len(found[f"{key}.matrix"]))
            found[f"{key}.matrix"], found[f"{key}.scale"] = quantised(found[f"{key}.matrix"] * factors[:, None])
    return found


def normalised(values: Array, params: Weights, name: str) -> Array:
    mean = values.mean(-1, keepdims=True)
    spread = ((values - mean) ** 2).mean(-1, keepdims=True)
    return (values - mean) / jnp.sqrt(spread + _EPSILON) * params[f"{name}.weight"] + params[f"{name}.bias"]


class Embeddings(NamedTuple):
    """The embeddings of tokens and places in the installed model, which are not trained."""

    words: Array
    places: Array
    norm: Weights

    @classmethod
    def installed(cls) -> Embeddings:
        weights, inner = installed_weights(), "inner.embeddings."
        words, places = (
            weights[f"{inner}{name}_embeddings.weight_q"] * weights[f"{inner}{name}_embeddings.weight_scale"]
            for name in ("word", "position")
        )
        norm = {f"embeddings.{part}": jnp.asarray(weights[f"{inner}LayerNorm.{part}"]) for part in ("weight", "bias")}
        return cls(jnp.asarray(words), jnp.asarray(places + weights[f"{inner}token_type_embeddings.weight"][0]), norm)

    def of(self, tokens: Array) -> Array:
        return normalised(self.words[tokens] + self.places[: tokens.shape[1]], self.norm, "embeddings")


def _layers(params: Weights, hidden: Array, mask: Array, numbers: range) -> Array:
    rows, tokens, _ = hidden.shape
    away = jnp.where(mask, 0.0, -1e9)[:, None, None, :]
    for number in numbers:
        qkv = hidden @ params[f"{number}.qkv.matrix"] + params[f"{number}.qkv.bias"]
        query, key, value = jnp.moveaxis(qkv.reshape(rows, tokens, 3, HEADS, WIDTH // HEADS), (2, 3), (0, 2))
        shares = jax.nn.softmax(query @ jnp.swapaxes(key, -1, -2) / (WIDTH // HEADS) ** 0.5 + away, -1)
        attended = jnp.swapaxes(shares @ value, 1, 2).reshape(rows, tokens, WIDTH)
        attended = attended @ params[f"{number}.out.matrix"] + params[f"{number}.out.bias"]
        hidden = normalised(hidden + attended, params, f"{number}.attention_norm")
        wide = jax.nn.gelu(hidden @ params[f"{number}.into.matrix"] + params[f"{number}.into.bias"], approximate=False)
        back = wide @ params[f"{number}.back.matrix"] + params[f"{number}.back.bias"]
        hidden = normalised(hidden + back, params, f"{number}.output_norm")
    return hidden


def pooled(states: Array, mask: Array) -> Array:
    chosen = mask[..., None]
    mean = (states * chosen).sum(1) / jnp.maximum(chosen.sum(1), 1)
    return jnp.concatenate([mean, jnp.where(chosen, states, -1e4).max(1)], 1)


def head(params: Weights, name: str, values: Array) -> Array:
    return values @ params[f"{name}.weight"].T + params[f"{name}.bias"]


class Model(NamedTuple):
    """What is computed from weights. ``start``: the weights before training, by which states are held."""

    embeddings: Embeddings
    start: Weights

    def states(self, params: Weights, tokens: Array, mask: Array) -> tuple[Array, Array]:
        """Return the states of tokens after the first half of the layers, and after all."""
        half = _layers(params, self.embeddings.of(tokens), mask, range(_HALF))
        return half, _layers(params, half, mask, range(_HALF, _LAYERS))

    def text_logits(self, params: Weights, tokens: Array, mask: Array, owner: Array) -> tuple[Array, Array]:
        """Return the logits of texts by mode, early and last: those of the best of their windows; and the states."""
        half, last = self.states(params, tokens, mask)
        logits = [head(params, "early", pooled(half, mask)), head(params, "window", pooled(last, mask))]
        of_windows = jnp.concatenate(logits, 1)
        return jax.ops.segment_max(of_windows, owner, num_segments=ROWS + 1)[:ROWS], half

    def text_loss(self, params: Weights, batch: Batch) -> Array:
        tokens, mask, whole, owner, labels, weight = batch
        logits, half = self.text_logits(params, tokens, mask, owner)
        known = weight[:, None] * (labels >= 0)
        losses = cross_entropy(jnp.where(known > 0, logits, 0.0), jnp.maximum(labels, 0))
        return (losses * known).sum() / jnp.maximum(known.sum(), 1) + self._moved(half, tokens, mask, whole)

    def pair_loss(self, params: Weights, batch: Batch) -> Array:
        tokens, mask, sides, place, labels, weight = batch
        half, last = self.states(params, tokens, mask)
        one, two = (
            (last * side[..., None]).sum(1) / jnp.maximum(side.sum(1, keepdims=True), 1)
            for side in (sides[0], sides[1])
        )
        logits = head(params, "pair", jnp.concatenate([one, two, jnp.abs(one - two), one * two], 1))
        chosen = jnp.take_along_axis(logits, place[:, None], 1)[:, 0]
        loss = (cross_entropy(chosen, labels) * weight).sum() / jnp.maximum(weight.sum(), 1)
        return loss + self._moved(half, tokens, mask, mask)

    def _moved(self, half: Array, tokens: Array, mask: Array, whole: Array) -> Array:
        """Return how far the states after the first half are from what they were, of whole windows."""
        before = _layers(self.start, self.embeddings.of(tokens), whole, range(_HALF))
        return (((half - before) ** 2).mean(-1) * mask).sum() / mask.sum()


# A model is an argument, not a constant, of what is compiled: constants of this size take minutes.
_text_step = jax.jit(jax.value_and_grad(lambda params, model, batch: model.text_loss(params, batch)))
_pair_step = jax.jit(jax.value_and_grad(lambda params, model, batch: model.pair_loss(params, batch)))
_text_logits = jax.jit(lambda params, model, *batch: model.text_logits(params, *batch)[0])


def cross_entropy(logits: Array, labels: Array) -> Array:
    return jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits)))


def _padded(windows: list[list[int]]) -> tuple[Array, Array]:
    length = next(size for size in LENGTHS if size >= max(map(len, windows)))
    tokens = np.zeros((ROWS, length), np.int32)
    mask = np.zeros((ROWS, length), bool)
    mask[:, 0] = True
    for row, window in enumerate(windows):
        tokens[row, : len(window)], mask[row, : len(window)] = window, True
    return tokens, mask


def _text_batch(texts: list[Text], dropped: float, chance: np.random.Generator) -> Batch:
    tokens, whole = _padded([window for text in texts for window in text.windows])
    mask = whole.copy()
    mask[:, 1:] &= chance.random(mask[:, 1:].shape) >= dropped
    owner = np.full(ROWS, ROWS)
    numbers = [number for number, text in enumerate(texts) for _ in text.windows]
    owner[: len(numbers)] = numbers
    labels, weight = np.full((ROWS, 4), -1.0, "f4"), np.zeros(ROWS, "f4")
    for number, text in enumerate(texts):
        labels[number], weight[number] = text.labels * 2, text.weight
    return tokens, mask, whole, owner, labels, weight


def _pair_batch(texts: list[Text]) -> Batch:
    tokens, mask = _padded([text.windows[0] for text in texts])
    sides = np.zeros((2, *mask.shape), "f4")
    place, labels, weight = np.zeros(ROWS, int), np.zeros(ROWS, "f4"), np.zeros(ROWS, "f4")
    for row, text in enumerate(texts):
        for side, (start, end) in enumerate(text.spans):
            sides[side, row, start:end] = 1
        place[row], labels[row], weight[row] = text.pair, text.labels[0], 1
    return tokens, mask, sides, place, labels, weight


def _in_batches(texts: list[Text], chance: random.Random) -> Iterator[list[Text]]:
    """Yield texts of about the same length together, as many as their windows fit a batch."""
    ordered = sorted(texts, key=lambda text: max(map(len, text.windows)) * chance.uniform(0.8, 1.25))
    batch: list[Text] = []
    for text in ordered:
        if sum(len(one.windows) for one in batch) + len(text.windows) > ROWS:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


class Data(NamedTuple):
    authors: dict[str, list[Text]]
    attacks: list[Text]
    harmless: list[Text]
    messages: list[Text]
    noise: list[Text]
    pairs: list[Text]

    def epoch(self, config: Config, held_out: Collection[str], chance: random.Random) -> list[tuple[bool, list[Text]]]:
        """Return the batches of an epoch in random order, and whether each is of pairs."""
        texts = [text for name, own in self.authors.items() if name not in held_out for text in own]
        for part, size in ((self.attacks, config.attacks), (self.harmless, config.harmless)):
            texts += chance.sample(part, min(size, len(part)))
        texts += chance.sample(self.messages, min(config.messages, len(self.messages))) + self.noise
        batches = [(False, batch) for batch in _in_batches(texts, chance)]
        # Pairs are few and short.
        batches += [(True, batch) for batch in _in_batches(self.pairs * 2, chance)]
        chance.shuffle(batches)
        return batches


def load(examples: Path, config: Config) -> Data:
    chance = random.Random(config.random_state)  # noqa: S311 - training data, no secret
    with gzip.open(examples, "rt", encoding="utf-8") as lines:
        known = [json.loads(line) for line in lines]
    known = [each for each in known if each["windows"] and each["windows"][0] and each["folds"][0] != -1]
    known = [each for each in known if len(each["windows"]) <= MAX_WINDOWS]

    def text(each: dict[str, Any]) -> Text:
        labels = (each["labels"][0], each["labels"][1])
        pair = _PAIRS.index(each["task"]) if each["task"] in _PAIRS else -1
        spans = tuple((start, end) for start, end, _ in each["spans"])
        return Text(each["windows"], labels, each["weight"] if each["task"] == "author" else 1.0, pair, spans)

    authors: dict[str, list[Text]] = {}
    for each in known:
        if each["task"] == "author":
            authors.setdefault(each["source"], []).append(text(each))
    corpora = [each for each in known if each["task"] == "injection"]
    # The development set has better labels, and fewer texts.
    chosen = [each for each in corpora if each["source"].startswith("dev:")]
    others = [each for each in corpora if not each["source"].startswith("dev:")]
    chosen += chance.sample([each for each in others if max(each["labels"]) == 1], 1_400)
    chosen += chance.sample([each for each in others if max(each["labels"]) == 0], 2_200)
    return Data(
        authors,
        [text(each) for each in chosen if max(each["labels"]) == 1],
        [text(each) for each in chosen if max(each["labels"]) == 0],
        [text(each) for each in known if each["task"] == "message"],
        [text(each) for each in known if each["task"] == "noise"],
        [text(each) for each in known if each["task"] in _PAIRS],
    )


def scores(model: Model, params: Weights, texts: list[Text]) -> Array:
    """Return the last logits of texts by mode."""
    found: dict[int, Array] = {}
    places = {id(text): place for place, text in enumerate(texts)}
    for batch in _in_batches(texts, random.Random(0)):  # noqa: S311 - no secret
        tokens, mask, _, owner, *_ = _text_batch(batch, 0.0, np.random.default_rng(0))
        logits = np.asarray(_text_logits(params, model, tokens, mask, owner))
        found |= {places[id(text)]: row[2:] for text, row in zip(batch, logits, strict=False)}
    return np.array([found[place] for place in range(len(texts))])


def _print_figures(model: Model, params: Weights, texts: list[Text]) -> None:
    found, labels = scores(model, params, texts), np.array([text.labels for text in texts])
    for mode, name in enumerate(("talk", "data")):
        attacks, harmless = (found[labels[:, mode] == label, mode] for label in (1, 0))
        area = (attacks[:, None] > harmless[None]).mean()
        at = {share: float((attacks > np.quantile(harmless, 1 - share)).mean()) for share in (0.01, 0.02, 0.05)}
        print(f"  {name}: area {area:.3f}, caught at 1, 2 and 5 % false: {list(at.values())}", flush=True)


@jax.jit
def _updated(params: Weights, moments: Moments, slopes: Weights, rates: Weights, step: int) -> tuple[Weights, Moments]:
    """Return the weights after one step of Adam with decay, and the moments of their slopes."""
    norm = jnp.sqrt(sum((slope**2).sum() for slope in slopes.values()))
    slopes = {name: slope * jnp.minimum(1.0, 1.0 / (norm + 1e-6)) for name, slope in slopes.items()}
    first = {name: 0.9 * moments[0][name] + 0.1 * slopes[name] for name in params}
    second = {name: 0.999 * moments[1][name] + 0.001 * slopes[name] ** 2 for name in params}
    new = {}
    for name, value in params.items():
        moved = (first[name] / (1 - 0.9**step)) / (jnp.sqrt(second[name] / (1 - 0.999**step)) + 1e-8)
        decayed = 0.01 * value if name.endswith(("matrix", "weight")) and "norm" not in name else 0.0
        new[name] = value - rates[name] * (moved + decayed)
    return new, (first, second)


def train(data: Data, model: Model, config: Config, held_out: Collection[str], params: Weights) -> Weights:
    """Return the weights after all epochs."""
    chance, noise = random.Random(config.random_state), np.random.default_rng(config.random_state)  # noqa: S311 - training data, no secret
    rates = {name: config.head_rate if name.split(".")[0] in TRAINED_HEADS else config.rate for name in params}
    nothing = {name: jnp.zeros_like(value) for name, value in params.items()}
    moments = nothing, nothing
    steps = config.epochs * len(data.epoch(config, held_out, random.Random(0)))  # noqa: S311 - training data, no secret
    step = 0
    for epoch in range(config.epochs):
        started, losses = time.monotonic(), []
        for is_pairs, texts in data.epoch(config, held_out, chance):
            step += 1
            share = max(0.0, min(step / (0.06 * steps), (steps - step) / (0.94 * steps)))
            if is_pairs:
                loss, slopes = _pair_step(params, model, _pair_batch(texts))
            else:
                loss, slopes = _text_step(params, model, _text_batch(texts, config.dropped, noise))
                losses.append(loss)
            now = {name: rate * share for name, rate in rates.items()}
            params, moments = _updated(params, moments, slopes, now, step)
        print(f"  epoch {epoch}: loss {np.mean(losses):.3f}, {time.monotonic() - started:.0f} s", flush=True)
    return params


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--go-on", type=Path, help="weights to begin with, if not --weights")
    parser.add_argument("--epochs", type=int, default=Config().epochs)
    parser.add_argument("--rate", type=float, default=Config().rate)
    parser.add_argument("--dropped", type=float, default=Config().dropped, help="share of tokens that are not seen")
    parser.add_argument("--corpora", type=float, default=1.0, help="share of the texts of the corpora in each epoch")
    parser.add_argument("--random-states", nargs="+", type=int, default=[1], help="trainings whose mean is written")
    parser.add_argument("--held-out", nargs="+", default=["f", "r", "s"], help="authors to leave out")
    given = parser.parse_args()
    weights = _read(given.weights)
    model = Model(Embeddings.installed(), _unpacked(weights))
    config = Config(
        epochs=given.epochs,
        rate=given.rate,
        head_rate=7 * given.rate,
        dropped=given.dropped,
        attacks=int(given.corpora * Config().attacks),
        harmless=int(given.corpora * Config().harmless),
    )
    data = load(given.examples, config)
    print({name: len(texts) for name, texts in data.authors.items()}, flush=True)
    first = _unpacked(_read(given.go_on)) if given.go_on else model.start
    found = [
        train(data, model, config._replace(random_state=state), given.held_out, first) for state in given.random_states
    ]
    params = {name: sum(each[name] for each in found) / len(found) for name in first}
    np.savez_compressed(given.out, **packed(params, weights))
    for name in given.held_out:
        print(name, flush=True)
        _print_figures(model, params, data.authors[name])


def _read(path: Path) -> Weights:
    content = path.read_bytes()
    return read_weights(content, hashlib.sha256(content).hexdigest())


if __name__ == "__main__":
    main()
