"""Visible text of an HTML page, as Markdown."""

from __future__ import annotations

import re
from typing import Any

from lxml import etree

_INVISIBLE_TAGS = "script style template noscript head svg iframe object canvas"
_BLOCK_TAGS = """
address article aside blockquote body center dd details dialog div dl dt fieldset figcaption figure footer form header
hr html main nav ol p section summary table tbody tfoot thead ul
"""
_INVISIBLE = frozenset(_INVISIBLE_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_CELLS = frozenset(("td", "th"))
_LISTS = frozenset(("ul", "ol"))
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_GAPS = re.compile(r"[^\S\xa0]+")
_MAX_LIST_DEPTH = 8
_TOO_DEEP = "ERR_RESOURCE_LIMIT"


def answer(content: bytes, _question: dict[str, Any]) -> dict[str, Any]:
    """Return the text and the title of a page."""
    parser: Any = etree.HTMLParser(no_network=True, huge_tree=True, encoding="utf-8", remove_pis=True)
    try:
        root: Any = etree.fromstring(content, parser) if content.strip() else None
    except (etree.LxmlError, ValueError):
        return {"problem": "The page cannot be read as HTML.", "hint": "Add its text, or save the page again."}
    if any(error.type_name == _TOO_DEEP for error in parser.error_log):
        # libxml2 dropped the rest, so searches would silently miss it.
        return {"problem": "The page is nested too deep to be read.", "hint": "Add its text, or save the page again."}
    if root is None:
        return {"text": "", "title": ""}
    page = _Page()
    walk: Any = etree.iterwalk(root, events=("start", "end", "comment"))
    for event, element in walk:
        if event == "start" and not page.begin(element):
            walk.skip_subtree()
        elif event != "start":
            page.end(element)
    title = root.findtext(".//title") or page.first_heading
    return {"text": page.text(), "title": " ".join(title.split())}


class _Page:
    """Collects the text of a page. A separator is written only when more text follows."""

    def __init__(self) -> None:
        self.first_heading = ""
        self._parts: list[str] = []
        self._pending = ""
        self._heading: list[str] | None = None
        self._lists = 0
        self._in_row = 0

    def text(self) -> str:
        return "".join(self._parts)

    def begin(self, element: Any) -> bool:  # noqa: ANN401 - an lxml element
        """Begin an element; return whether to visit its content."""
        tag = element.tag
        if tag in _INVISIBLE or _is_hidden(element):
            return False
        if tag == "pre":
            self._code("".join(element.itertext()))
            return False
        self._open(tag, element)
        self._text(element.text)
        return True

    def end(self, element: Any) -> None:  # noqa: ANN401 - likewise
        tag = element.tag
        if isinstance(tag, str) and tag not in _INVISIBLE and tag != "pre" and not _is_hidden(element):
            self._close(tag)
        self._text(element.tail)

    def _open(self, tag: str, element: Any) -> None:  # noqa: ANN401 - likewise
        if tag in _HEADINGS:
            self._separate("\n\n")
            self._heading = []
            self._put(_HEADINGS[tag])
        elif tag == "li":
            self._separate("\n")
            self._put("  " * min(max(self._lists - 1, 0), _MAX_LIST_DEPTH) + "- ")
        elif tag == "tr":
            self._separate("\n")
            self._in_row += 1
            self._put("|")
        elif tag in _CELLS:
            self._separate(" ")
        elif tag == "br":
            self._separate("\n")
        elif tag == "img":
            self._text(element.get("alt"))
        elif tag in _BLOCKS:
            self._separate("\n" if self._lists else "\n\n")
            self._lists += tag in _LISTS

    def _close(self, tag: str) -> None:
        if tag in _HEADINGS:
            self.first_heading = self.first_heading or " ".join("".join(self._heading or ()).split())
            self._heading = None
            self._separate("\n\n")
        elif tag == "tr":
            self._in_row = max(self._in_row - 1, 0)
            self._separate("\n")
        elif tag in _CELLS:
            self._pending = ""
            self._put(" |")
        elif tag in _BLOCKS:
            self._lists -= tag in _LISTS
            self._separate("\n" if self._lists else "\n\n")

    def _text(self, words: str | None) -> None:
        if not words:
            return
        plain = _GAPS.sub(" ", words)
        if plain.startswith(" "):
            self._separate(" ")
        if plain.strip(" "):
            self._put(plain.strip(" "))
            if self._heading is not None:
                self._heading.append(plain)
        if plain.endswith(" "):
            self._separate(" ")

    def _code(self, code: str) -> None:
        if not code.strip():
            return
        if self._in_row:
            self._text(code)
            return
        longest = max((len(run) for run in re.findall("`+", code)), default=0)
        fence = "`" * max(3, longest + 1)
        self._separate("\n\n")
        self._put(f"{fence}\n{code.strip(chr(10))}\n{fence}")
        self._separate("\n\n")

    def _separate(self, by: str) -> None:
        """Request a separator; the widest requested wins. Table rows and headings have no line breaks."""
        if self._in_row or self._heading is not None:
            by = " "
        if (len(by), by != " ") > (len(self._pending), self._pending != " "):
            self._pending = by

    def _put(self, words: str) -> None:
        if self._parts:
            self._parts.append(self._pending)
        self._pending = ""
        self._parts.append(words)


def _is_hidden(element: Any) -> bool:  # noqa: ANN401 - an lxml element
    return element.get("hidden") is not None or _HIDDEN_STYLE.search(element.get("style") or "") is not None
