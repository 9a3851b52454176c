"""CSS and XPath selectors on HTML and XML. Nothing is fetched and no entity is expanded."""

from __future__ import annotations

from typing import Any

import cssselect
from lxml import etree

_UNREADABLE = "The source cannot be read as HTML or XML."
_text_of: Any = etree.XPath("string()")


def answer(content: bytes, question: dict[str, Any]) -> dict[str, Any]:
    """Return the text of the first match of each selector, and the element that holds the words if none matches."""
    try:
        root = _parsed(content.decode(), html=question["html"])
    except (etree.LxmlError, ValueError):
        root = None
    if root is None:
        return {"problem": _UNREADABLE}
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
        # The declared encoding is that of other bytes than these.
        document = document.removeprefix("\ufeff")
        if document.startswith("<?xml"):
            document = document[document.find("?>") + 2 :]
    root = etree.fromstring(document.encode(), parser)
    declared = root.getroottree().docinfo.internalDTD
    # string() expands entities that the parser did not.
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
    """Return the path of the first innermost element that contains the words, and how many there are."""
    if words not in _text_of(root):
        return None
    ties, element = 1, root
    while True:
        holding = [child for child in element.iterchildren("*") if words in _text_of(child)]
        if not holding:
            return [root.getroottree().getpath(element), ties]
        ties *= len(holding)
        element = holding[0]
