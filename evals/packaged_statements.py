"""Draws the packaged sample of `weftline validate` from the open lists: python -m evals.packaged_statements."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from evals.survival import OPEN, read_lists

_FILE = Path(__file__).parents[1] / "src/weftline/validation/statements.jsonl"
_EACH = 40


def main() -> None:
    draw = random.Random(0)  # noqa: S311 - the same sample each time, not a secret
    lines = []
    for field, known in read_lists(OPEN).items():
        for name in ("statement", "talk"):
            said = draw.sample([each for each in known if each.type == name], _EACH)
            lines += [msgspec.json.encode(msgspec.structs.replace(each, field=field)) for each in said]
    _FILE.write_bytes(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    main()
