"""Run the Python examples of a page as one program. Run as: page_runner.py PAGE."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


async def run(page: str, text: str) -> None:
    """Run the blocks in order; they may await at the top level, and tracebacks show the lines of the page."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in _BLOCK.finditer(text):
        source = "\n" * text.count("\n", 0, block.start(1)) + block[1]
        code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[1]).read_text("utf-8")))
