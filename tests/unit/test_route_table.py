"""Operations are found by their path as the framework would find them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from starlette.routing import Match, Route

from weftline.app.registry import all_operations
from weftline.transports.http.rest import RouteTable

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def table() -> RouteTable:
    return RouteTable(cast("Any", SimpleNamespace(registry=all_operations())))


def test_every_path_leads_where_the_framework_leads(table: RouteTable) -> None:
    routes = list(table.routes())
    for method, path in _requests():
        found, expected = table.find(method, path), _framework_finds(routes, method, path)
        if found is not None:
            endpoint, parameters = found
            assert (endpoint._operation.name, parameters) == expected, path
        else:
            assert expected is None or ":path}" in _path_of(expected[0]), path


@pytest.mark.parametrize("path", ["/v1/sessions/", "/v1/sessions//context/goal", "/v1/nothing", "", "/", "/v1"])
def test_what_is_no_path_of_an_operation_is_left_to_the_framework(table: RouteTable, path: str) -> None:
    assert table.find("GET", path) is None


def _requests() -> Iterator[tuple[str, str]]:
    """Return the paths of operations, with fixed words of other paths as values of their parameters."""
    templates = [operation.route.path.replace(":path}", "}").split("/") for operation in all_operations()]
    for operation, template in zip(all_operations(), templates, strict=True):
        alike = [other for other in templates if len(other) == len(template)]
        for other in [["x1"] * len(template), *alike]:
            values = [value.strip("{}") for value in other]
            path = [value if part.startswith("{") else part for part, value in zip(template, values, strict=True)]
            yield operation.route.method, "/".join(path)


def _framework_finds(routes: list[Route], method: str, path: str) -> tuple[str, dict[str, Any]] | None:
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    for route in routes:
        match, child = route.matches(scope)
        if match is Match.FULL:
            return child["endpoint"]._endpoints[method]._operation.name, child["path_params"]
    return None


def _path_of(name: str) -> str:
    return next(operation.route.path for operation in all_operations() if operation.name == name)
