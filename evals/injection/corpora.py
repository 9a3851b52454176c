"""Harmless public documents, requests and conversations for training and calibrating the injection detector.

Deterministic. No injection data set is among them, nor LoCoMo (CC BY-NC).
Licences: SciFact CC BY 4.0 and ODC-By; tau2, QMSum, chunking_evaluation and MetaTool MIT; AMI CC BY 4.0; LiveMCP and
BFCL Apache-2.0; Python's reference and library PSF; descriptions of installed packages only where MIT, BSD or Apache;
the rest are Weftline's own texts. One text in four is kept for calibration, and all of tau2, which the evaluation
scores.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_TURNS = 14
_PARAGRAPHS = 6
_CODE_LINES = 40
_CALIBRATION_SHARE = 4
# The evaluation scores them.
_NEVER_TRAINED_ON = frozenset({"tau2_banking"})
_MIN_MESSAGE = 25


class Text(NamedTuple):
    """A harmless text with its source; ``talk`` if it is what people say to each other."""

    source: str
    text: str
    talk: bool = False

    @property
    def is_for_calibration(self) -> bool:
        return self.source in _NEVER_TRAINED_ON or digest(self.text) % _CALIBRATION_SHARE == 0


def digest(text: str) -> int:
    """Return a number that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


def lines_of(path: Path) -> list[Any]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def texts(data: Path, repository: Path = Path()) -> Iterator[Text]:
    yield from _documents(data)
    yield from _requests(data)
    yield from _messages(data)
    yield from _own(repository)
    yield from _python()


def more_for_calibration(data: Path) -> Iterator[Text]:
    """Yield further texts of the larger sources that are not among ``texts``."""
    for row in lines_of(data / "doc_retrieval/scifact_docs.jsonl"):
        if digest(str(row["id"])) % 3 == 1:
            yield Text("scifact", f"{row['title']}\n{row['text']}")
    for source, messages in _conversations(data).items():
        every = _MESSAGES_EVERY[source]
        for message in messages[every // 2 :: every] if every > 1 else ():
            yield Text(source, message, talk=True)


def _documents(data: Path) -> Iterator[Text]:
    for row in lines_of(data / "doc_retrieval/scifact_docs.jsonl"):
        if digest(str(row["id"])) % 3 == 0:
            yield Text("scifact", f"{row['title']}\n{row['text']}")
    for row in lines_of(data / "doc_retrieval/tau2_banking_docs.jsonl"):
        yield Text("tau2_banking", f"{row['title']}\n\n{row['text']}")
    for row in lines_of(data / "chunking/qmsum_docs.jsonl"):
        yield from _grouped("qmsum", row["text"].split("\n"), 3)
    for row in lines_of(data / "compaction/ami_conversations.jsonl"):
        yield from _grouped("ami", [f"{turn['speaker']}: {turn['text']}" for turn in row["messages"]], 9)
    for row in lines_of(data / "chunking/chunkeval_docs.jsonl"):
        if row["doc_id"] == "chatlogs":
            continue
        parts = [part for part in row["text"].split("\n") if part.strip()]
        yield from _grouped(row["doc_id"], parts, 3 if row["doc_id"] == "finance" else 1, _PARAGRAPHS)
    for name in ("livemcp_tools", "bfcl_live_tools", "metatool_tools"):
        for row in lines_of(data / f"tools/{name}.jsonl"):
            yield Text(name, f"{row['name']}: {row['description']}")


def _requests(data: Path) -> Iterator[Text]:
    for name in (
        "tools/livemcp_queries",
        "tools/bfcl_live_queries",
        "tools/metatool_queries",
        "chunking/qmsum_queries",
        "chunking/chunkeval_queries",
    ):
        for row in lines_of(data / f"{name}.jsonl"):
            yield Text(name.split("/")[1], row["query"], talk=True)


_MESSAGES_EVERY = {"ami_messages": 12, "qmsum_messages": 4, "bfcl_memory": 1}


def _messages(data: Path) -> Iterator[Text]:
    for source, messages in _conversations(data).items():
        for message in messages[:: _MESSAGES_EVERY[source]]:
            yield Text(source, message, talk=True)


def _conversations(data: Path) -> dict[str, list[str]]:
    """Return the messages of conversations, but for the shortest."""
    ami = [turn["text"] for row in lines_of(data / "compaction/ami_conversations.jsonl") for turn in row["messages"]]
    bfcl = lines_of(data / "compaction/bfcl_memory_conversations.jsonl")
    qmsum = [row["text"].split("\n") for row in lines_of(data / "chunking/qmsum_docs.jsonl")]
    found = {
        "ami_messages": ami,
        "bfcl_memory": [turn["text"] for row in bfcl for turn in row["messages"]],
        "qmsum_messages": [line.partition(": ")[2] for lines in qmsum for line in lines],
    }
    return {source: [one for one in messages if len(one) >= _MIN_MESSAGE] for source, messages in found.items()}


def _own(repository: Path) -> Iterator[Text]:
    for path in sorted([*repository.glob("docs/**/*.md"), *repository.glob("*.md")]):
        yield from _grouped("weftline_docs", path.read_text(encoding="utf-8").split("\n\n"), 1, _PARAGRAPHS, "\n\n")
    for path in sorted([*repository.glob("src/**/*.py"), *repository.glob("scripts/**/*.py")]):
        if digest(path.name) % 3 == 0:
            yield from _grouped("weftline_code", path.read_text(encoding="utf-8").split("\n"), 3, _CODE_LINES)


def _python() -> Iterator[Text]:
    """Yield the Python reference, parts of the standard library, and the descriptions of the installed packages."""
    library = Path(sysconfig.get_paths()["stdlib"])
    topics: dict[str, Any] = {}
    exec((library / "pydoc_data/topics.py").read_text(encoding="utf-8"), topics)  # noqa: S102 - Python's own file
    for text in topics["topics"].values():
        yield from _grouped("python_reference", text.split("\n\n"), 2, _PARAGRAPHS, "\n\n")
    for path in sorted(library.glob("*.py")):
        if digest(path.name) % 3 == 0:
            yield from _grouped("python_library", path.read_text(encoding="utf-8").split("\n"), 4, _CODE_LINES)
    for package in sorted(importlib.metadata.distributions(), key=lambda one: one.metadata["Name"]):
        metadata: Any = package.metadata
        fields = (metadata.get("License", ""), metadata.get("License-Expression", ""), metadata.get_all("Classifier"))
        if re.search("MIT|BSD|Apache", str(fields)):
            body = metadata.get_payload()
            text = body if isinstance(body, str) and body.strip() else metadata.get("Description", "")
            yield from _grouped("package_descriptions", text.split("\n\n"), 1, _PARAGRAPHS, "\n\n")


def _grouped(source: str, parts: list[str], every: int, size: int = _TURNS, joint: str = "\n") -> Iterator[Text]:
    """Yield every n-th group of neighbouring parts."""
    for number, start in enumerate(range(0, len(parts), size)):
        text = joint.join(parts[start : start + size])
        if number % every == 0 and text.strip():
            yield Text(source, text)
