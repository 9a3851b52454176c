"""Examples for the text classifier, as token ids, so that the machine that trains needs neither data nor tokenizer.

    python -m evals.classifier.examples ../shared/eval-data examples.jsonl

Sources: the injection sets of the evaluation data, ordinary public texts (evals.injection.corpora), the lists of
statements in evals/data/statements and the texts about injection in evals/data, each by an author who saw neither the
code nor another's texts. One line is one text: its task, its source, its fold, and its windows of token ids.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.injection import corpora
from weftline.encoder.wordpiece import WordPieceTokenizer
from weftline.safety.injection import normalise, segments, token_windows
from weftline.windows.compaction.facts.units import units_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

FOLDS = 5
KINDS = ("nothing", "decision", "commitment", "constraint", "requirement", "open_question", "fact")
LISTS = Path(__file__).parents[1] / "data" / "statements"
AUTHORS = LISTS.with_name("injection_authors")
# A source of an injection set is judged by the model that saw no text of it.
_FOLD_OF_SOURCE = {
    "deepset": 0,
    "bipia": 1,
    "agentdojo": 2,
    "asb": 2,
    "ipi_coding_agent": 3,
    "promptinject": 3,
    "tau2_banking": 3,
    "inthewild_jailbreak": 4,
    "notinject": 4,
    "security_docs": 4,
}
# What people and agents say to an assistant: there a request is in place, and only the wording of an attack counts.
_TALK = frozenset(
    [
        "benign_query",
        "benign_trigger_words",
        "benign_agent_task",
        "benign_system_prompt",
        "direct_injection",
        "direct_role_assignment",
        "jailbreak",
        "jailbreak_in_the_wild",
        "system_prompt_extraction",
    ]
)
# Harmless or not wherever they stand.
_BOTH = frozenset(
    [
        "agent_message_injection",
        "benign_agent_message",
        "benign_dialog",
        "benign_dialog_insert",
        "benign_memory",
        "benign_request_to_human",
        "benign_role_tags",
        "benign_security_prose",
        "benign_security_text",
        "direct_injection",
        "jailbreak",
        "jailbreak_in_the_wild",
        "system_prompt_extraction",
    ]
)
# The development set has fewer rows and better labels than the training corpus.
_DEVELOPMENT_WEIGHT = 4.0
_AUTHOR_WEIGHT = 2.0
_MESSAGES = 1_500
_IN_RECORDS, _NOISE = 0.3, 1_200
_FIELDS = (
    *("id", "name", "status", "question", "note", "title", "kind", "reason", "created_at", "owner", "summary", "items"),
    *(
        "candidate_sources",
        "blocked_actions",
        "Betreff",
        "Status",
        "titre",
        "estado",
        "comment",
        "value",
        "path",
        "tags",
    ),
)
_MOST_BEFORE = 3


class Example(NamedTuple):
    """A text. ``labels`` say whether it is an attack as talk and as data, -1 where that is not known.

    ``folds``: by source, for models that saw no text of it, and by group, for models that saw others of its source.
    ``spans`` are the sentences of its only window.
    """

    task: str
    source: str
    folds: tuple[int, int]
    windows: list[list[int]]
    labels: tuple[int, int] = (-1, -1)
    weight: float = 1.0
    spans: list[tuple[int, int, int]] = []  # noqa: RUF012 - a named tuple's default
    kind: str = ""
    lang: str = ""


class Tokens:
    def __init__(self) -> None:
        self._tokenizer = WordPieceTokenizer()

    def of(self, text: str) -> list[int]:
        return self._tokenizer.numbers(text, 10**6)[1:-1]

    def windows(self, text: str) -> list[list[int]]:
        """Return the windows of a text as the detector reads them."""
        normal = normalise(text)
        parts = [part for each in (normal.text, *normal.decoded) for part in segments(each)]
        return [window.tokens for window in token_windows([self.of(part) for part in parts])]


def examples(data: Path) -> Iterator[Example]:
    tokens = Tokens()
    yield from _injection_sets(data, tokens)
    yield from _ordinary(data, tokens)
    for folder in sorted(each for each in LISTS.iterdir() if each.is_dir()):
        yield from statements(folder.name, list_lines(folder), tokens)
    yield from by_authors(tokens)


def by_authors(tokens: Tokens) -> Iterator[Example]:
    """Yield the texts of single authors about injection, and messages of the lists of statements as harmless talk."""
    for folder in sorted(each for each in AUTHORS.iterdir() if each.is_dir()):
        # By author, so that a new one changes nothing about the others.
        rows, chance = list_lines(folder), random.Random(folder.name)  # noqa: S311 - training data, no secret
        for row in [*rows, *joined(rows, chance), *in_records(rows, chance)]:
            windows, kind = tokens.windows(row["text"]), row.get("kind", "joined")
            labels = author_labels(row)
            yield Example("author", folder.name, (0, 0), windows, labels, _AUTHOR_WEIGHT, kind=kind, lang=row["lang"])
    lists = [row for folder in sorted(LISTS.iterdir()) if folder.is_dir() for row in list_lines(folder)]
    said = [row["message"] for row in lists if "message" in row and row.get("role") != "tool"]
    for message in random.Random(1).sample(said, _MESSAGES):  # noqa: S311 - training data, no secret
        yield Example("message", "statements", (0, 0), tokens.windows(message), (0, 0))
    for text in noise(said, random.Random(2)):  # noqa: S311 - training data, no secret
        yield Example("noise", "statements", (0, 0), tokens.windows(text), (0, 0))


def author_labels(row: dict[str, Any]) -> tuple[int, int]:
    """Return whether a text is an attack as talk and as data.

    Harmless talk may be out of place in data, and what is hidden in a document may be a fair request in talk.
    """
    if row["mode"] == "talk":
        return (1, 1) if row["label"] else (0, -1)
    return (-1, 1) if row["label"] else (0, 0)


def joined(
    rows: list[dict[str, Any]], chance: random.Random, among_harmless: Collection[str] = ("talk", "data")
) -> Iterator[dict[str, Any]]:
    """Yield harmless texts of an author joined, and attacks after some in these modes: length tells nothing then."""
    by_form: dict[tuple[str, str, int], list[str]] = {}
    for row in rows:
        by_form.setdefault((row["mode"], row["lang"], row["label"]), []).append(row["text"])
    for (mode, lang, label), texts in by_form.items():
        harmless = by_form.get((mode, lang, 0), [])
        if label == 0:
            for _ in range(len(texts) // 2):
                together = chance.sample(texts, min(len(texts), chance.randint(2, 4)))
                yield {"mode": mode, "lang": lang, "label": 0, "text": "\n".join(together)}
        elif mode in among_harmless and len(harmless) >= _MOST_BEFORE:
            between = " " if mode == "talk" else "\n"
            for text in texts:
                before = chance.sample(harmless, chance.randint(1, _MOST_BEFORE))
                yield {"mode": mode, "lang": lang, "label": 1, "text": between.join([*before, text])}


def in_records(rows: list[dict[str, Any]], chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield some texts of an author as one value of a record: that something is a record tells nothing then."""
    harmless = [row["text"] for row in rows if row["label"] == 0]
    for row in rows:
        if chance.random() < _IN_RECORDS:
            values = [_short(harmless, chance) for _ in range(chance.randint(1, 4))]
            values.insert(chance.randint(0, len(values)), row["text"])
            yield {"mode": row["mode"], "lang": row["lang"], "label": row["label"], "text": _record(values, chance)}


def noise(said: list[str], chance: random.Random) -> Iterator[str]:
    """Yield records of short values, and of characters that say nothing: an encoder has no opinion about them."""
    for number in range(_NOISE):
        value = _characters if number % 2 else lambda chance: _short(said, chance)
        yield _record([value(chance) for _ in range(chance.randint(1, 5))], chance)


def _record(values: list[str], chance: random.Random) -> str:
    names = [_FIELDS[chance.randrange(len(_FIELDS))] if chance.random() < 0.8 else _characters(chance) for _ in values]
    form = chance.randrange(5)
    if form == 0:
        return json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=chance.random() < 0.5)
    if form == 1:
        return json.dumps(values, ensure_ascii=False)
    if form == 2:
        return "\n".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
    if form == 3:
        return ",".join(names) + "\n" + ",".join(f'"{value}"' for value in values)
    return "\n".join([*names[1:], *(f"- {value}" for value in values)])


def _short(texts: list[str], chance: random.Random) -> str:
    """Return a number, a date, an identifier or the first words of a text."""
    form = chance.randrange(8)
    if form < 5:
        words = texts[chance.randrange(len(texts))].split()
        return " ".join(words[: chance.randint(1, 5)]) + chance.choice(["", "", "?", "."])
    if form == 5:
        return str(chance.randrange(10**6) / chance.choice([1, 100]))
    if form == 6:
        return f"20{chance.randrange(10, 30)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
    return "".join(chance.choices("abcdef0123456789-", k=chance.randint(4, 24)))


def _characters(chance: random.Random) -> str:
    first, last = chance.choice([(33, 126), (33, 126), (48, 122), (192, 591), (0x400, 0x4FF), (0x3040, 0x9FFF)])
    return "".join(chr(chance.randint(first, last)) for _ in range(chance.randint(1, 12)))


def list_lines(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.jsonl")) for row in corpora.lines_of(path)]


def _injection_sets(data: Path, tokens: Tokens) -> Iterator[Example]:
    for row in corpora.lines_of(data / "injection/injection.jsonl"):
        folds = _FOLD_OF_SOURCE[row["source"]], corpora.digest(str(group_of(row))) % FOLDS
        yield _of_row(row, folds, _DEVELOPMENT_WEIGHT, f"dev:{row['source']}", tokens)
    for row in corpora.lines_of(data / "injection_training/train.jsonl"):
        fold = corpora.digest(str(group_of(row))) % FOLDS
        yield _of_row(row, (fold, fold), 1.0, f"train:{row['source']}", tokens)


def group_of(row: dict[str, Any]) -> object:
    """Return what the texts that are alike have in common: a payload with its carriers, or the text itself."""
    if "group" in row:
        return row["group"]
    attack = row.get("subkind") if row["source"] == "bipia" else row.get("carrier")
    return (row["label"] and attack) or row["text"]


def _of_row(row: dict[str, Any], folds: tuple[int, int], weight: float, source: str, tokens: Tokens) -> Example:
    kind, label = row["kind"], row["label"]
    talk = label if kind in _TALK or kind in _BOTH else -1
    data = label if kind not in _TALK or kind in _BOTH else -1
    return Example("injection", source, folds, tokens.windows(row["text"]), (talk, data), weight, kind=kind)


def _ordinary(data: Path, tokens: Tokens) -> Iterator[Example]:
    """Yield harmless public texts; those for calibration have no fold: no model is trained on them."""
    kept = [*corpora.texts(data), *(text for text in corpora.more_for_calibration(data))]
    for number, text in enumerate(kept):
        fold = -1 if text.is_for_calibration else corpora.digest(text.source) % FOLDS
        if fold < 0 or number % 2 == 0:
            labels = (0, -1) if text.talk else (-1, 0)
            yield Example(
                "injection", f"ordinary:{text.source}", (fold, fold), tokens.windows(text.text), labels, kind="ordinary"
            )


def statements(name: str, rows: Iterable[dict[str, Any]], tokens: Tokens) -> Iterator[Example]:
    """Yield the examples of a list: the sentences of a message in one window, and pairs."""
    fold = sorted(each.name for each in LISTS.iterdir() if each.is_dir()).index(name) % FOLDS
    for row in rows:
        if row["type"] in {"answer", "replacement"}:
            yield _pair(name, fold, row, tokens)
        elif row.get("role") != "tool":
            parts, spans = labelled_sentences(row, tokens)
            if spans:
                kind = row.get("form", row["kind"])
                yield Example("statement", name, (fold, fold), [parts], spans=spans, kind=kind, lang=row["lang"])


def labelled_sentences(row: dict[str, Any], tokens: Tokens) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return the tokens of a message, and of each sentence where it is in them, with its kind."""
    message, stated = row["message"], row.get("statement", row["message"])
    start = message.find(stated)
    end = start + len(stated)
    ids: list[int] = [101]
    spans: list[tuple[int, int, int]] = []
    place = 0
    for unit in units_of(message):
        at = message.find(unit.text, place)
        place = max(at, place) + len(unit.text)
        is_stated = at < end - 1 and place > start + 1
        piece = tokens.of(unit.text)
        if piece and len(ids) + len(piece) < 255:
            spans.append((len(ids), len(ids) + len(piece), KINDS.index(row["kind"]) if is_stated else 0))
            ids += piece
    return [*ids, 102], spans


def _pair(name: str, fold: int, row: dict[str, Any], tokens: Tokens) -> Example:
    is_answer = row["type"] == "answer"
    first, second = (row["question"], row["reply"]) if is_answer else (row["earlier"], row["later"])
    one, two = tokens.of(first)[:100], tokens.of(second)[:100]
    label = row["answered"] if is_answer else row["replaces"]
    spans = [(1, 1 + len(one), 0), (2 + len(one), 2 + len(one) + len(two), 0)]
    ids = [101, *one, 102, *two, 102]
    return Example(row["type"], name, (fold, fold), [ids], (int(label), -1), spans=spans, lang=row["lang"])


def main() -> None:
    data, out = map(Path, sys.argv[1:])
    with out.open("w", encoding="utf-8") as lines:
        for example in examples(data):
            lines.write(json.dumps(example._asdict(), ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
