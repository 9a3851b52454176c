"""The process that reads HTML and XML for others: one question as JSON on standard input, one answer on the other side.

It is run as a file and knows nothing of Weft. It fetches nothing, expands no entity and limits its own memory and time.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import cssselect
from lxml import etree

_MEMORY_BYTES = 1024 * 2**20
_CPU_SECONDS = 10
_UNREADABLE = "The source cannot be read as HTML or XML."
_text_of: Any = etree.XPath("string()")


def main() -> None:
    """Answer the one question there is."""
    _limit()
    question = json.loads(sys.stdin.buffer.read())
    try:
        root = _parsed(question["document"], html=question["html"])
    except (etree.LxmlError, ValueError):
        root = None
    json.dump({"problem": _UNREADABLE} if root is None else _answer(root, question), sys.stdout)


def _answer(root: Any, question: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - an element of whatever kind
    try:
        texts = [_first_text(root, kind, expression) for kind, expression in question["selectors"]]
    except (etree.LxmlError, cssselect.SelectorError, ValueError) as error:
        return {"problem": f"A selector cannot be understood: {str(error)[:200]}."}
    words = question["words"]
    holder = _holder(root, words) if words and words not in [text for text in texts if text] else None
    return {"texts": texts, "holder": holder}


def _parsed(document: str, *, html: bool) -> Any:  # noqa: ANN401 - an element of whatever kind
    if html:
        parser: Any = etree.HTMLParser(no_network=True, huge_tree=False, encoding="utf-8")
    else:
        parser = etree.XMLParser(no_network=True, huge_tree=False, resolve_entities=False, load_dtd=False)
        # What a declaration says of the encoding is about other bytes than these.
        document = document.removeprefix("\ufeff")
        if document.startswith("<?xml"):
            document = document[document.find("?>") + 2 :]
    root = etree.fromstring(document.encode(), parser)
    declared = root.getroottree().docinfo.internalDTD
    # Even one that was not expanded is expanded by whoever asks for the text around it.
    if not html and declared is not None and next(declared.iterentities(), None) is not None:
        raise ValueError
    return root


def _first_text(root: Any, kind: str, expression: str) -> str | None:  # noqa: ANN401 - an element of whatever kind
    path = cssselect.HTMLTranslator().css_to_xpath(expression) if kind == "css" else expression
    found = etree.XPath(path)(root)
    if isinstance(found, str):
        return str(found)
    if not isinstance(found, list) or not found:
        return None
    first = found[0]
    return str(first) if isinstance(first, str) else _text_of(first)


def _holder(root: Any, words: str) -> list[Any] | None:  # noqa: ANN401 - an element of whatever kind
    """Return the innermost element that holds the words, the first if several do, and how many there are."""
    if words not in _text_of(root):
        return None
    ties, element = 1, root
    while True:
        holding = [child for child in element.iterchildren("*") if words in _text_of(child)]
        if not holding:
            return [root.getroottree().getpath(element), ties]
        ties *= len(holding)
        element = holding[0]


def _limit() -> None:
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    for limited, most in ((resource.RLIMIT_AS, _MEMORY_BYTES), (resource.RLIMIT_CPU, _CPU_SECONDS)):
        # Where a system does not know a limit, the time that others wait still ends it.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limited, (most, most))


if __name__ == "__main__":
    main()
