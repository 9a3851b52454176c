"""Every error has a unique code, a message, a hint and one shape."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from weftline.app.registry import all_operations
from weftline.kernel.errors import Conflict, Forbidden, NotFound, Rejected, Unavailable, WeftlineError

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from error_tree import ROOMS

PACKAGES = ("kernel", *ROOMS, "storage", "providers", "app")
KINDS = (NotFound, Conflict, Rejected, Forbidden, Unavailable)


def all_errors() -> list[type[WeftlineError]]:
    for name in PACKAGES:
        package = importlib.import_module(f"weftline.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    return sorted(set(_subclasses(WeftlineError)), key=lambda error: error.__name__)


def _subclasses(error: type[WeftlineError]) -> Iterator[type[WeftlineError]]:
    for child in error.__subclasses__():
        yield child
        yield from _subclasses(child)


LEAVES = [error for error in all_errors() if error not in KINDS and error.__module__.startswith("weftline.")]


@pytest.mark.req("MS-10")
def test_codes_are_unique() -> None:
    codes = [error.code for error in LEAVES]
    assert sorted(codes) == sorted(set(codes))


@pytest.mark.req("MS-10")
def test_each_error_has_a_message_and_a_hint() -> None:
    for error in LEAVES:
        raised = error()
        assert raised.message.endswith("."), error
        assert raised.hint.endswith("."), error
        assert error.code == error.code.upper(), error
        assert error.code == "INTERNAL_ERROR" or issubclass(error, KINDS), error


@pytest.mark.req("MS-10")
def test_each_error_refers_to_existing_tools() -> None:
    tools = set(all_operations().tools())
    assert {error.__name__: set(error.related) - tools for error in LEAVES if set(error.related) - tools} == {}


@pytest.mark.req("MS-10")
def test_the_error_body_has_one_shape() -> None:
    body = next(error for error in LEAVES if error.code == "KEY_NOT_FOUND")("No such key.", resource_id="goal")
    assert msgspec.json.decode(msgspec.json.encode(body.body("2026-02-20T14:30:00Z"))) == {
        "success": False,
        "error": "No such key.",
        "code": "KEY_NOT_FOUND",
        "severity": "error",
        "recoverable": True,
        "suggestions": [body.hint],
        "context": {"resource_id": "goal"},
        "related_resources": ["shared_context"],
        "timestamp": "2026-02-20T14:30:00Z",
    }


@pytest.mark.req("MS-13")
def test_forbidden_errors_are_denials() -> None:
    assert {error for error in LEAVES if error().denial} == {error for error in LEAVES if issubclass(error, Forbidden)}
    hidden, missing = NotFound(), NotFound()
    hidden.denial = True
    assert (hidden.denial, missing.denial) == (True, False)


@pytest.mark.req("SC-09")
@pytest.mark.req("MS-10")
def test_all_specified_codes_exist() -> None:
    board_codes = {
        "KEY_NOT_FOUND",
        "VALUE_TOO_LARGE",
        "STORE_FULL",
        "INVALID_KEY",
        "SESSION_NOT_FOUND",
        "SESSION_ARCHIVED",
    }
    server_codes = {
        "AUTHENTICATION_ERROR",
        "CONTENT_TOO_LARGE",
        "INVALID_API_KEY",
        "INVALID_INPUT_FORMAT",
        "MEMORY_LIMIT_EXCEEDED",
        "PERMISSION_DENIED",
        "POOL_NOT_INITIALIZED",
        "SYSTEM_UNAVAILABLE",
    }
    assert board_codes | server_codes <= {error.code for error in LEAVES}
