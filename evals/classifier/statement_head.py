"""Fit the head of the text classifier that tells whether a sentence states anything; takes a minute on a processor.

    python -m evals.classifier.statement_head ../shared/eval-data weights.npz

Adds the head to a file of weights that evals.classifier.train made. Authors of lists write long statements, and few of
them into a message: the head for kinds took length for meaning. So this one sees sentences alone, in their
message and in messages of random sentences, short statements by two other authors (evals/data/fact_statements.jsonl,
those that are not held out, and evals/data/short_statements, with short talk), and meetings as talk. Prints the figures
on the short statements that are held out.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evals.classifier.examples import KINDS, LISTS, list_lines
from evals.injection.corpora import lines_of
from weftline.encoder.classifier import TextClassifier, pooled, read_weights
from weftline.encoder.onnx_files import installed_weights
from weftline.windows.compaction.facts.units import units_of

Array = np.ndarray[Any, np.dtype[Any]]
Sentence = tuple[str, int]

_SHORT = Path(__file__).parents[1] / "data" / "fact_statements.jsonl"
_SHORT_LISTS = _SHORT.with_name("short_statements")
# A statement whose author did not say of which kind it is.
_ANY_KIND = -1
_ROUNDS = 400
_RATE, _DECAY = 0.02, 3e-4
_SHORT_ROUNDS, _SHORT_LIST_ROUNDS, _SHORT_WEIGHT = 6, 3, 2.0
_MEETINGS, _MEETING_MESSAGES = 40, 400
_TALK_ALONE_WEIGHT, _MEETING_WEIGHT = 0.4, 0.5


class _Examples(NamedTuple):
    states: list[Array]
    kinds: list[int]
    weights: list[float]

    def add(self, classifier: TextClassifier, message: list[Sentence], weight: float = 1.0) -> None:
        found = _states(classifier, [text for text, _ in message])
        self.states.append(found)
        self.kinds.extend(kind for _, kind in message[: len(found)])
        self.weights.extend([weight] * len(found))


def _states(classifier: TextClassifier, sentences: list[str]) -> Array:
    """Return mean and maximum of the states of the sentences of a message, as the classifier reads them."""
    ids, spans = [101], []
    for sentence in sentences:
        tokens = classifier.tokens(sentence)[:120] or [102]
        if len(ids) + len(tokens) > 200:
            break
        spans.append((len(ids), len(ids) + len(tokens)))
        ids += tokens
    states = classifier.states([*ids, 102])
    return np.array([pooled(states[start:end]) for start, end in spans], np.float32)


def _messages(folder: Path) -> dict[str, list[list[Sentence]]]:
    """Return the messages of a list by language, as sentences with their kinds."""
    found: dict[str, list[list[Sentence]]] = {}
    for row in list_lines(folder):
        if row["type"] in {"answer", "replacement"} or row.get("role") == "tool":
            continue
        message, stated = row["message"], row.get("statement", row["message"])
        start = message.find(stated)
        end, place, sentences = start + len(stated), 0, []
        for unit in units_of(message):
            at = message.find(unit.text, place)
            place = max(at, place) + len(unit.text)
            is_stated = at < end - 1 and place > start + 1
            sentences.append((unit.text, KINDS.index(row["kind"]) if is_stated else 0))
        found.setdefault(row["lang"], []).append(sentences)
    return found


def _meetings(data: Path) -> list[list[Sentence]]:
    rows = lines_of(data / "compaction/ami_conversations.jsonl")[:_MEETINGS]
    texts = [message["text"] for row in rows for message in row["messages"]]
    return [sentences for text in texts if (sentences := [(unit.text, 0) for unit in units_of(text)][:6])]


def examples(classifier: TextClassifier, data: Path, chance: random.Random) -> _Examples:
    found = _Examples([], [], [])
    talk_messages: list[list[Sentence]] = []
    for folder in sorted(each for each in LISTS.iterdir() if each.is_dir()):
        for messages in _messages(folder).values():
            sentences = [one for message in messages for one in message]
            stated, talk = [one for one in sentences if one[1]], [one for one in sentences if not one[1]]
            talk_messages += [message for message in messages if not any(kind for _, kind in message)]
            for message in messages:
                found.add(classifier, message)
            for one in stated:
                found.add(classifier, [one])
            for one in chance.sample(talk, len(stated) // 3):
                found.add(classifier, [one], _TALK_ALONE_WEIGHT)
            for _ in range(len(stated) // 2):
                share = chance.choice((0.2, 0.6))
                size = chance.randint(2, 6)
                drawn = [chance.choice(stated if chance.random() < share else talk) for _ in range(size)]
                found.add(classifier, drawn)
    meetings = _meetings(data)
    for message in chance.sample(meetings, _MEETING_MESSAGES):
        found.add(classifier, message, _MEETING_WEIGHT)
    short = [row["text"] for row in lines_of(_SHORT) if not row.get("held_out")] * _SHORT_ROUNDS
    short += [row["text"] for row in lines_of(_SHORT_LISTS / "statements.jsonl")] * _SHORT_LIST_ROUNDS
    short_talk = [[(row["text"], 0)] for row in lines_of(_SHORT_LISTS / "talk.jsonl")]
    for message in among_talk(short, [*talk_messages, *meetings, *short_talk * 4], chance):
        found.add(classifier, message, _SHORT_WEIGHT)
    for message in short_talk:
        found.add(classifier, message, _SHORT_WEIGHT)
    return found


def among_talk(statements: list[str], talk: list[list[Sentence]], chance: random.Random) -> list[list[Sentence]]:
    """Return messages in which short statements stand alone, in talk, or with others."""
    found: list[list[Sentence]] = []
    for statement in statements:
        form = chance.random()
        if form < 0.35:
            found.append([(statement, _ANY_KIND)])
        elif form < 0.8:
            near = chance.choice(talk)[:5]
            place = chance.randrange(len(near) + 1)
            found.append([*near[:place], (statement, _ANY_KIND), *near[place:]])
        else:
            found.append([(each, _ANY_KIND) for each in chance.sample(statements, 4)])
    return found


def fit(found: _Examples) -> tuple[Array, float]:
    """Return weights and bias of a linear head by logistic regression."""
    states, stated = np.concatenate(found.states), np.array(found.kinds) != 0
    weights = np.array(found.weights, np.float32)
    weights /= weights.sum()
    mean, spread = states.mean(0), states.std(0) + 1e-3
    scaled = (states - mean) / spread
    parameters = np.zeros(states.shape[1] + 1, np.float32)
    first, second = np.zeros_like(parameters), np.zeros_like(parameters)
    for step in range(1, _ROUNDS + 1):
        error = (_logistic(scaled @ parameters[:-1] + parameters[-1]) - stated) * weights
        slope = np.append(scaled.T @ error + _DECAY * parameters[:-1], error.sum()).astype(np.float32)
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope * slope
        parameters -= _RATE * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    weight = parameters[:-1] / spread
    return weight.astype(np.float32), float(parameters[-1] - mean @ weight)


def _logistic(logits: Array) -> Array:
    shares: Array = 1 / (1 + np.exp(-logits))
    return shares


def main() -> None:
    data, path = map(Path, sys.argv[1:])
    packed = path.read_bytes()
    weights = read_weights(packed, hashlib.sha256(packed).hexdigest())
    # The head that is fitted here is not used by the states.
    placeholder = {"stated.weight": weights["kind.weight"][:1], "stated.bias": weights["kind.bias"][:1]}
    classifier = TextClassifier({**placeholder, **weights}, installed_weights())
    chance = random.Random(11)  # noqa: S311 - training data, no secret
    weight, bias = fit(examples(classifier, data, chance))
    held_out = [row["text"] for row in lines_of(_SHORT) if row.get("held_out")]
    messages = among_talk(held_out * 2, _meetings(data)[-500:], chance)
    scored = _scored(classifier, messages, weight, bias)
    stated = np.array([share for kind, share in scored if kind])
    talk = np.array([share for kind, share in scored if not kind])
    area = float((stated[:, None] > talk[None]).mean())
    print(json.dumps({"auc": area, "recall": float((stated > 0.3).mean()), "false": float((talk > 0.3).mean())}))
    weights["stated.weight"], weights["stated.bias"] = weight[None], np.array([bias], np.float32)
    np.savez_compressed(path, **weights)  # type: ignore[arg-type]


def _scored(
    classifier: TextClassifier, messages: list[list[Sentence]], weight: Array, bias: float
) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for message in messages:
        shares = _logistic(_states(classifier, [text for text, _ in message]) @ weight + bias).tolist()
        found += [(kind, share) for (_, kind), share in zip(message, shares, strict=False)]
    return found


if __name__ == "__main__":
    main()
