"""Train the model of word values included in Weftline.

    python -m evals.compaction.train ../shared/eval-data src/weftline/windows/compaction/reduction/word_model.npz

Logistic regression: is a word part of a fact? Trained on the AMI meetings (CC BY 4.0) and the BFCL memory conversations
(Apache-2.0); never on LoCoMo, whose licence is non-commercial: there the model meets talk of another kind. The ranks of
English words are those of the included vocabulary. Prints the retention by cross-validation: each meeting series and
conversation is reduced by a model that did not see it. Those models are saved for the evaluation. Deterministic; takes
a minute or two.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evals.compaction.corpora import SETS, normalise, read_set, retained_facts
from weftline.encoder.wordpiece import bert_vocabulary
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.windows.compaction.reduction.features import WordModel, load_model, word_features
from weftline.windows.compaction.reduction.reducer import Utterance, reduce_texts
from weftline.windows.compaction.reduction.units import ENGLISH, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evals.compaction.corpora import Conversation

    Array = np.ndarray[Any, Any]

_FOLDS_FILE = Path(__file__).parents[1] / "data" / "word_model_folds.npz"
_RANKED_WORDS = 12_000
# Words that have a weight of their own: too common to belong to a topic.
_COMMON_WORDS = 400
_FIRST_WORD = 1996
_FOLDS = 3
_TRAINED_ON = {"ami": 1.0, "bfcl_memory": 8.0}
_STEPS = 200
_RATE = 0.05
_DECAY = 1e-4
_WORD_DECAY = 6e-5
_SHARES = (0.4, 0.25, 0.1)


class Samples(NamedTuple):
    """The words of one conversation: features, the number of common words, whether part of a fact, and weights."""

    features: Array
    words: Array
    labels: Array
    weights: Array


def ranked_words() -> list[str]:
    """Return English words from the commonest."""
    words = [word for word in list(bert_vocabulary())[_FIRST_WORD:] if word.isascii() and word.isalpha()]
    return words[:_RANKED_WORDS]


def utterances(conversation: Conversation) -> list[Utterance]:
    return [Utterance(message.speaker, message.text) for message in conversation.messages]


def samples(conversation: Conversation, weight: float, common: dict[str, int], ranks: dict[str, int]) -> Samples:
    """Return the words of a conversation; those of a fact's tokens in the message that states it are positive."""
    units = split(utterances(conversation), TokenizerRegistry().named("o200k_base"))
    numbers = {message.message_id: number for number, message in enumerate(conversation.messages)}
    stated: dict[int, set[str]] = {}
    for fact in conversation.facts:
        for message_id, tokens in fact.groups:
            words = {word for token in tokens for word in normalise(token).split()}
            stated.setdefault(numbers.get(message_id, -1), set()).update(words)
    parts = [{*re.findall(r"[a-z0-9]+", normalise(form.key)), normalise(form.key)} for form in units.forms]
    places = zip(units.form.tolist(), units.utterance.tolist(), strict=True)
    labels = np.fromiter((not parts[form].isdisjoint(stated.get(at, ())) for form, at in places), np.float32)
    columns = word_features(units, ranks)
    own = np.fromiter((common.get(form.key, len(common)) for form in units.forms), np.int64)[units.form]
    features = np.stack([np.asarray(column, np.float32) for column in columns.values()], axis=1)
    return Samples(features, own, labels, np.full(len(labels), weight, np.float32))


def fit(parts: Sequence[Samples], names: Sequence[str], common: dict[str, int], ranks: dict[str, int]) -> WordModel:
    """Fit the weights by Adam over all samples."""
    features, words, labels, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    weights = weights / weights.sum()
    size = features.shape[1]
    # Features, then the common words, then all others together, then the bias.
    values = np.zeros(size + len(common) + 2)
    values[-1] = -4.0
    decay = np.concatenate([np.full(size, _DECAY), np.full(len(common), _WORD_DECAY), [1.0, 0.0]])
    mean, square = np.zeros_like(values), np.zeros_like(values)
    for step in range(1, _STEPS + 1):
        score = features @ values[:size].astype(np.float32) + values[size + words] + values[-1]
        error = (1 / (1 + np.exp(-score)) - labels) * weights
        own = np.bincount(words, error, len(common) + 1)
        gradient = np.concatenate([error.astype(np.float32) @ features, own, [error.sum()]]) + decay * values
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        values -= _RATE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-9)
    return WordModel(
        dict(zip(names, values[:size].tolist(), strict=True)),
        dict(zip(common, values[size:-2].tolist(), strict=True)),
        ranks,
        float(values[-1]),
        {},
    )


def save(model: WordModel, path: Path) -> None:
    np.savez_compressed(
        path,
        features=np.array(list(model.weights)),
        weights=np.array(list(model.weights.values()), np.float32),
        words=np.array(list(model.words)),
        word_weights=np.array(list(model.words.values()), np.float32),
        ranked=np.array(list(model.ranks)),
        bias=np.float32(model.bias),
    )


def save_folds(folds: Sequence[WordModel]) -> None:
    """Save the models of the folds; the ranks of words are those of the packaged model."""
    np.savez_compressed(
        _FOLDS_FILE,
        features=np.array(list(folds[0].weights)),
        weights=np.array([list(model.weights.values()) for model in folds], np.float32),
        words=np.array(list(folds[0].words)),
        word_weights=np.array([list(model.words.values()) for model in folds], np.float32),
        biases=np.array([model.bias for model in folds], np.float32),
    )


def load_trained() -> Trained:
    """Return the packaged model and the saved models of the folds."""
    packaged = load_model()
    with np.load(_FOLDS_FILE) as stored:
        features, words = stored["features"].tolist(), stored["words"].tolist()
        columns = (stored["weights"].tolist(), stored["word_weights"].tolist(), stored["biases"].tolist())
    folds = [
        WordModel(
            dict(zip(features, weights, strict=True)), dict(zip(words, own, strict=True)), packaged.ranks, bias, {}
        )
        for weights, own, bias in zip(*columns, strict=True)
    ]
    return Trained(packaged, folds)


def retention(conversation: Conversation, share: float, model: WordModel) -> list[bool]:
    """Return which facts the reduction of a conversation retains."""
    count = TokenizerRegistry().named("o200k_base")
    reduced = reduce_texts(utterances(conversation), int(share * count(conversation.text)), (), count, model)
    return retained_facts(reduced.text, conversation.strict_facts)


def fold_of(conversation: Conversation) -> int:
    """Return the fold of a conversation: meetings of one series are in the same."""
    series = re.sub(r"(?<=\d)[a-d]$", "", conversation.name)
    return int(hashlib.sha256(series.encode()).hexdigest(), 16) % _FOLDS


class Trained(NamedTuple):
    """The model of all conversations, and for each fold that of all others."""

    model: WordModel
    folds: Sequence[WordModel]

    def for_conversation(self, name: str, conversation: Conversation) -> WordModel:
        """Return a model that did not see a conversation of a set."""
        return self.folds[fold_of(conversation)] if name in _TRAINED_ON else self.model


def train(folder: Path) -> Trained:
    """Train the model, and those of the folds."""
    ranks = {word: rank for rank, word in enumerate(ranked_words())}
    listed = [*list(ranks)[:_COMMON_WORDS], *sorted(ENGLISH.function | ENGLISH.fillers | ENGLISH.negations)]
    common = {word: number for number, word in enumerate(dict.fromkeys(listed))}
    sets = {name: read_set(folder, name) for name in _TRAINED_ON}
    parts = [
        (fold_of(each), samples(each, weight, common, ranks))
        for name, weight in _TRAINED_ON.items()
        for each in sets[name]
    ]
    units = split(utterances(sets["ami"][0]), TokenizerRegistry().named("o200k_base"))
    names = list(word_features(units, ranks))
    return Trained(
        fit([part for _, part in parts], names, common, ranks),
        [fit([part for at, part in parts if at != fold], names, common, ranks) for fold in range(_FOLDS)],
    )


def main(folder: Path, path: Path) -> None:
    trained = train(folder)
    save(trained.model, path)
    save_folds(trained.folds)
    print(f"{path}: {path.stat().st_size:,} bytes")
    for share in _SHARES:
        for name in SETS:
            kept = [
                each
                for conversation in read_set(folder, name)
                for each in retention(conversation, share, trained.for_conversation(name, conversation))
            ]
            print(f"{name} at {share:.0%}: {np.mean(kept):.4f} of {len(kept)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
