"""Methods made from the operation index are functions like others, and the stub says the same as they do."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weftline.client
from weftline import Client, SyncClient, errors, types
from weftline.client import _operations
from weftline.client._operations import Operations, SyncOperations
from weftline.kernel.data_files import operation_index

STUB = Path(weftline.client.__file__).with_name("_operations.pyi")
PROGRAM = """
from weftline import Client, SyncClient
from weftline.errors import KeyNotFound
from weftline.types import EntryRead

async def read(client: Client) -> EntryRead:
    return await client.board.read("s", "key")

def read_sync(client: SyncClient) -> EntryRead:
    return client.board.read("s", "key", branch=None)

def misspelt(client: SyncClient) -> None:
    client.board.read("s")
    client.board.read("s", "key", brunch="x")
    client.board.reed("s", "key")
"""


class Recorder:
    """Keeps what it is called with."""

    def call(self, operation: str, arguments: dict[str, Any], /) -> Any:
        return operation, arguments


def methods(kind: type) -> dict[str, Any]:
    """Return each method as its class defines it."""
    groups = vars(kind(Recorder())).items()
    return {
        f"{name}.{verb}": getattr(type(group), verb)
        for name, group in groups
        if name != "_caller"
        for verb in dir(group)
        if not verb.startswith("_")
    }


def test_what_is_left_out_is_left_to_the_operation() -> None:
    board: Any = SyncOperations(Recorder()).board
    assert board.write("s", "key", None) == (
        "board.write",
        {"session_id": "s", "key": "key", "value": None, "derived_from": ()},
    )
    assert board.write("s", key="key", value=1, if_version=3)[1]["if_version"] == 3


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        (("s",), {}, "BoardOperations.read() missing 1 required positional argument: 'key'"),
        (("s", "k", "main"), {}, "BoardOperations.read() takes 3 positional arguments but 4 were given"),
        (("s", "k"), {"brunch": "x"}, "BoardOperations.read() got an unexpected keyword argument 'brunch'"),
        (("s", "k"), {"key": "x"}, "BoardOperations.read() got multiple values for argument 'key'"),
    ],
)
@pytest.mark.parametrize(("kind", "prefix"), [(Client, ""), (SyncClient, "Sync")])
def test_wrong_arguments_are_refused_by_python(
    kind: type, prefix: str, arguments: tuple[str, ...], named: dict[str, str], message: str
) -> None:
    client = kind("http://127.0.0.1:9", "key")
    with pytest.raises(TypeError) as refused:
        client.board.read(*arguments, **named)
    assert str(refused.value).startswith(prefix + message)


def test_help_completion_and_inspect_know_a_method() -> None:
    operations = Operations(Recorder())  # type: ignore[arg-type]
    read = operations.board.read
    assert (read.__name__, read.__qualname__) == ("read", "BoardOperations.read")
    assert read.__doc__ == operation_index()["board.read"]["doc"]
    assert inspect.iscoroutinefunction(read)
    assert not inspect.iscoroutinefunction(SyncOperations(Recorder()).board.read)
    assert str(inspect.signature(read)).startswith("(session_id: 'str', key: 'str', *, branch: 'str | None' = None)")
    assert {"read", "write", "list_keys"} <= set(dir(operations.board))
    assert {"board", "session", "import_"} & set(dir(operations)) == {"board", "session"}


def test_classes_of_groups_can_be_pickled_by_name() -> None:
    for operations in (Operations(Recorder()), SyncOperations(Recorder())):  # type: ignore[arg-type]
        kind = type(operations.board)
        assert getattr(_operations, kind.__name__) is kind
        assert pickle.loads(pickle.dumps(kind)) is kind
    with pytest.raises(AttributeError, match="no attribute 'BordOperations'"):
        _operations.BordOperations  # noqa: B018


def test_the_stub_has_the_signature_and_the_text_of_every_method(subtests: pytest.Subtests) -> None:
    classes = {node.name: node for node in ast.parse(STUB.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}
    for kind in (Operations, SyncOperations):
        for name, method in methods(kind).items():
            with subtests.test(method.__qualname__):
                owner, verb = method.__qualname__.split(".")
                nodes = [each for each in classes[owner].body if getattr(each, "name", None) == verb]
                assert isinstance(nodes[0], ast.FunctionDef | ast.AsyncFunctionDef), name
                assert isinstance(nodes[0], ast.AsyncFunctionDef) == inspect.iscoroutinefunction(method)
                assert ast.get_docstring(nodes[0]) == inspect.getdoc(method)
                assert parameters(nodes[0]) == runtime_parameters(method)


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [f"{each.arg}: {_plain(ast.unparse(each.annotation))}" for each in _arguments(node) if each.annotation]


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*node.args.args, *node.args.kwonlyargs]


def runtime_parameters(method: Any) -> list[str]:
    found = inspect.signature(method).parameters.values()
    return [f"{each.name}: {_plain(each.annotation)}" for each in found if each.name != "self"]


def _plain(annotation: str) -> str:
    return ast.unparse(ast.parse(annotation, mode="eval"))


def test_type_checkers_of_users_find_the_types_and_their_mistakes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r":(\d+): error: .* \[(.+)\]", checked.stdout)
    assert found == [("13", "call-arg"), ("14", "call-arg"), ("15", "attr-defined")], checked.stdout + checked.stderr


@pytest.mark.parametrize("module", [errors, types])
def test_public_classes_are_imported_when_they_are_first_used(module: Any) -> None:
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name).__name__ == name
        assert name in dir(module)
    with pytest.raises(AttributeError, match="no attribute 'Loom'"):
        module.Loom  # noqa: B018
