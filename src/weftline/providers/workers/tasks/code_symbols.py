"""Symbols of a program: classes, functions and the like, each with its decorators and the comments above it."""

from __future__ import annotations

import re
from bisect import bisect_right
from importlib import import_module
from typing import Any

from tree_sitter import Language, Parser

_SYMBOL_NODE_TYPES = """
class_definition function_definition
class_declaration function_declaration generator_function_declaration method_definition interface_declaration
enum_declaration type_alias_declaration abstract_class_declaration internal_module
method_declaration constructor_declaration record_declaration annotation_type_declaration
struct_declaration namespace_declaration file_scoped_namespace_declaration property_declaration delegate_declaration
struct_specifier union_specifier enum_specifier class_specifier namespace_definition
type_spec
function_item struct_item enum_item trait_item impl_item mod_item macro_definition
module class method singleton_method
"""
_SYMBOL_NODES = frozenset(_SYMBOL_NODE_TYPES.split())
# A function value is named after the variable it is assigned to.
_FUNCTION_VALUES = frozenset(("arrow_function", "function_expression", "function", "generator_function", "class"))
_ABOVE = frozenset(("comment", "line_comment", "block_comment", "attribute_item", "attribute_list", "decorator"))
_WRAPPERS = frozenset(("decorated_definition", "export_statement", "template_declaration", "type_declaration"))
_MAX_SYMBOLS = 50_000
# Deeper symbols are not worth listing, and tree-sitter gets slower with depth.
_MAX_DEPTH = 200
_LINE_END = re.compile(rb"\n")


def answer(source: bytes, question: dict[str, Any]) -> dict[str, Any]:
    """Return the start, end and name of each symbol, in characters."""
    tree = Parser(_language(question["language"])).parse(source)
    parts = sorted(_parts(tree.root_node, _LineIndex(source)), key=lambda part: (part[0], -part[1]))[:_MAX_SYMBOLS]
    places = _in_characters(source, sorted({place for start, end, _ in parts for place in (start, end)}))
    return {"names": [[places[start], places[end], name] for start, end, name in parts]}


def _language(name: str) -> Language:
    if name in {"typescript", "tsx"}:
        return Language(getattr(import_module("tree_sitter_typescript"), f"language_{name}")())
    return Language(import_module(f"tree_sitter_{name}").language())


class _LineIndex:
    """Byte offsets of lines. Reading rows and columns of nodes corrupts memory in tree-sitter 0.26."""

    def __init__(self, source: bytes) -> None:
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(source))]

    def row(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def start(self, offset: int) -> int:
        """Return the start of the line that contains an offset."""
        return self._starts[self.row(offset) - 1]


def _parts(root: Any, lines: _LineIndex) -> list[tuple[int, int, str]]:  # noqa: ANN401 - a node of whatever kind
    parts = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if node.is_named and node.type in _SYMBOL_NODES and (name := _name(node)):
            parts.append((_start(node, lines), node.end_byte, name))
        elif node.type == "variable_declarator" and (name := _assigned(node)):
            parts.append((_start(node.parent, lines), node.parent.end_byte, name))
        if depth < _MAX_DEPTH:
            waiting.extend((child, depth + 1) for child in node.children if child.child_count)
    return parts


def _name(node: Any) -> str:  # noqa: ANN401 - likewise
    if node.type == "impl_item":
        return _words(node.child_by_field_name("type"))
    named = node.child_by_field_name("name")
    if named is None:
        return _declared(node)
    receiver = node.child_by_field_name("receiver")
    if receiver is None:
        return _words(named)
    return f"{_words(receiver).strip('()').split()[-1].lstrip('*')}.{_words(named)}"


def _declared(node: Any) -> str:  # noqa: ANN401 - likewise
    """Return the name in a C declarator."""
    inner = node.child_by_field_name("declarator")
    while inner is not None and (deeper := inner.child_by_field_name("declarator")) is not None:
        inner = deeper
    return _words(inner)


def _assigned(node: Any) -> str:  # noqa: ANN401 - likewise
    value = node.child_by_field_name("value")
    return _words(node.child_by_field_name("name")) if value is not None and value.type in _FUNCTION_VALUES else ""


def _words(node: Any) -> str:  # noqa: ANN401 - likewise
    return " ".join(node.text.decode(errors="replace").split())[:200] if node is not None else ""


def _start(node: Any, lines: _LineIndex) -> int:  # noqa: ANN401 - likewise
    """Return the start of a symbol: that of its decorators, attributes and the comments directly above it."""
    while node.parent is not None and node.parent.type in _WRAPPERS:
        node = node.parent
    above = _before(node)
    while above is not None and above.type in _ABOVE and _rows_between(above, node, lines) <= 1:
        if _shares_its_line(above, lines):
            break
        node, above = above, _before(above)
    # With its indentation, so that symbols start at line starts.
    before = _before(node)
    begins_its_line = before is None or _rows_between(before, node, lines) > 0
    start: int = lines.start(node.start_byte) if begins_its_line else node.start_byte
    return start


def _before(node: Any) -> Any:  # noqa: ANN401 - likewise
    """Return the node before a node; for the first of a block, the one before the block."""
    if node.prev_sibling is None and node.parent is not None and node.parent.start_byte == node.start_byte:
        return node.parent.prev_sibling
    return node.prev_sibling


def _shares_its_line(comment: Any, lines: _LineIndex) -> bool:  # noqa: ANN401 - likewise
    before = _before(comment)
    return before is not None and not _rows_between(before, comment, lines)


def _rows_between(above: Any, below: Any, lines: _LineIndex) -> int:  # noqa: ANN401 - likewise
    return lines.row(below.start_byte) - lines.row(above.end_byte)


def _in_characters(source: bytes, places: list[int]) -> dict[int, int]:
    found, bytes_before, characters_before = {}, 0, 0
    for place in places:
        characters_before += len(source[bytes_before:place].decode(errors="replace"))
        bytes_before = place
        found[place] = characters_before
    return found
