"""Measure the code in ``src/weftline``: its size, its rooms and the arrows between them, and the length of five calls.

``house.py`` prints everything; ``house.py --quick`` leaves out the calls, which need a server and a minute.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "weftline"
_SMALL_FILE = 60
_GENERATED = "# Written by scripts/generate.py"
# Packages around the rooms; every other one is a room.
_RINGS = frozenset(
    (
        "adapters",
        "app",
        "client",
        "demo",
        "encoder",
        "jobs",
        "kernel",
        "providers",
        "schemas",
        "search_index",
        "storage",
        "testing",
    )
) | {"transports", "validation"}
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@dataclass(frozen=True)
class Module:
    """A file of the package: ``name`` is dotted, without the package's own name."""

    name: str
    source: str
    tree: ast.Module
    is_package: bool

    @property
    def is_generated(self) -> bool:
        return self.source.startswith(_GENERATED)

    @property
    def room(self) -> str | None:
        parts = self.name.split(".")
        is_folder = len(parts) > 1 or (self.name and self.is_package)
        return parts[0] if is_folder and parts[0] not in _RINGS else None

    def code_lines(self) -> int:
        """Count the lines that hold code: no blank line, comment or docstring."""
        docs = {line for place in _docstrings(self.tree) for line in range(place.lineno, (place.end_lineno or 0) + 1)}
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        return len(lines - docs)

    def imports(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--quick"]):
        print(f"usage: {Path(__file__).name} [--quick]", file=sys.stderr)
        return 2
    rows = size_rows(modules())
    if not arguments:
        from traced_calls import traced_calls  # noqa: PLC0415 - loads the whole product

        rows |= {
            f"{name}: modules crossed / calls": f"{crossed} / {calls:,}" for name, crossed, calls in traced_calls()
        }
    for name, value in rows.items():
        print(f"{name:<48}{value:>14}")
    return 0


def modules() -> list[Module]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text("utf-8")
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        found.append(Module(name, source, ast.parse(source), path.name == "__init__.py"))
    return found


def size_rows(found: list[Module]) -> dict[str, str]:
    """Return every figure that needs no running server, as it is printed."""
    sizes = {module.name: module.code_lines() for module in found}
    generated = sum(sizes[module.name] for module in found if module.is_generated)
    data = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyi", ".pyc"}]
    stubs = sum(len(path.read_text("utf-8").splitlines()) for path in PACKAGE.rglob("*.pyi"))
    protocols = implementations(found)
    return {
        "code lines, written by hand": f"{sum(sizes.values()) - generated:,}",
        "code lines, generated": f"{generated:,}",
        "lines of stubs": f"{stubs:,}",
        "files of data": f"{len(data):,}",
        "kilobytes of data": f"{sum(path.stat().st_size for path in data) // 1024:,}",
        "files": f"{len(found):,}",
        f"files under {_SMALL_FILE} code lines": str(sum(lines < _SMALL_FILE for lines in sizes.values())),
        "rooms": str(len({module.room for module in found} - {None})),
        "arrows between rooms": str(len(arrows(found))),
        "Protocols": str(len(protocols)),
        "Protocols with at most one implementation": str(sum(not classes[1:] for classes in protocols.values())),
    }


def arrows(found: list[Module]) -> Counter[tuple[str, str]]:
    """Return the number of imported names for each pair of rooms of which the first imports the second."""
    rooms = {f"weftline.{module.name}": module.room for module in found if module.room is not None}
    pairs: Counter[tuple[str, str]] = Counter()
    for module in found:
        for name in module.imports():
            target = rooms.get(name) or rooms.get(name.rpartition(".")[0])
            if module.room and target and target != module.room:
                pairs[module.room, target] += 1
    return pairs


def implementations(found: list[Module]) -> dict[str, list[str]]:
    """Return the classes that implement each Protocol with methods: by name and parameters, inherited ones included."""
    nodes = [(m.name, node) for m in found for node in ast.walk(m.tree) if isinstance(node, ast.ClassDef)]
    methods = {node.name: _methods(node) for _, node in nodes}
    parents = {node.name: [_base_name(base) for base in node.bases] for _, node in nodes}
    protocols = {node.name: where for where, node in nodes if "Protocol" in parents[node.name]}
    complete = {name: _inherited(name, methods, parents) for name in methods}
    return {
        f"{where}.{name}": [
            other for other, own in complete.items() if other not in protocols and complete[name].items() <= own.items()
        ]
        for name, where in protocols.items()
        # Functions implement the others.
        if complete[name].keys() - {"__call__"}
    }


def _inherited(
    name: str, methods: Mapping[str, dict[str, tuple[str, ...]]], parents: Mapping[str, list[str]]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for parent in parents.get(name, []):
        if parent != name:
            found |= _inherited(parent, methods, parents)
    return found | methods.get(name, {})


def _methods(node: ast.ClassDef) -> dict[str, tuple[str, ...]]:
    """Return the parameters of each method, property and attribute of a class; attributes have none."""
    is_protocol = any(_base_name(base) == "Protocol" for base in node.bases)
    found: dict[str, tuple[str, ...]] = {}
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not is_protocol:
            # What a Protocol asks for as a property may be an attribute.
            found[item.target.id] = ()
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            taken = (*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs)
            found[item.name] = tuple(argument.arg.lstrip("_") for argument in taken)[1:]
    return found


def _base_name(base: ast.expr) -> str:
    inner = base.value if isinstance(base, ast.Subscript) else base
    return inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
