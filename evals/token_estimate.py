"""Accuracy of the token estimate compared with an exact count.

The baseline is characters divided by four. For each collection: the total estimate divided by the exact total. Below 1
the estimate is too low, and a limit lets too much through.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from evals.results import Row
from weftline.kernel.ports import approximate_tokens
from weftline.providers.tokenizers import TokenizerRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TEXTS_PER_COLLECTION = 400
_MIN_RATIO = 0.9

# The same statement in scripts that four characters per token undercount.
SCRIPTS = {
    "chinese": "连接池从两百减少到二十，高负载时线程不够用。在测试环境恢复到两百后，吞吐量恢复正常。",
    "japanese": "接続プールが二百から二十に減り、負荷が高いとスレッドが足りなくなる。元に戻すと直った。",
    "korean": "연결 풀이 이백에서 이십으로 줄어 부하가 높을 때 스레드가 부족했다. 되돌리니 정상이 되었다.",
    "russian": "Пул соединений уменьшили с двухсот до двадцати, под нагрузкой не хватало потоков.",
    "arabic": "تم تقليل تجمع الاتصالات من مئتين إلى عشرين، فنفدت الخيوط تحت الحمل المرتفع.",
    "hindi": "कनेक्शन पूल दो सौ से घटाकर बीस कर दिया गया, इसलिए भार बढ़ने पर थ्रेड कम पड़ गए।",
    "emoji": "✅ build 🚀 deploy ⚠️ latency 📈 rollback 🔁 done 🎉",
}


def token_estimate(folder: Path | None) -> Iterator[Row]:
    exact = TokenizerRegistry().named("o200k_base")
    for name, texts in _collections(folder):
        total = sum(map(exact, texts))
        estimated = sum(map(approximate_tokens, texts)) / total
        naive = sum(-(-len(text) // 4) for text in texts) / total
        yield Row(
            name=f"token_estimate.{name}",
            value=round(estimated, 4),
            unit="estimate / exact o200k_base",
            baseline=round(naive, 4),
            target=f">= {_MIN_RATIO}",
            met=estimated >= _MIN_RATIO,
        )


def _collections(folder: Path | None) -> Iterator[tuple[str, list[str]]]:
    for script, text in SCRIPTS.items():
        yield script, [text]
    for path in sorted(folder.rglob("*_docs.jsonl")) if folder else ():
        with path.open(encoding="utf-8") as lines:
            texts = [
                str(json.loads(line)["text"])[:20_000]
                for _, line in zip(range(_TEXTS_PER_COLLECTION), lines, strict=False)
            ]
        yield path.stem.removesuffix("_docs"), texts
