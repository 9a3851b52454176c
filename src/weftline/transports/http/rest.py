"""REST route for each operation in the registry."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qs

from starlette.routing import Route

from weftline.app.dispatch import Incoming
from weftline.kernel.client_gone import ClientGone
from weftline.kernel.errors import InvalidInput, WeftlineError
from weftline.kernel.fields import MAX_INT
from weftline.kernel.guards import collected_warnings
from weftline.kernel.operation import Audience
from weftline.transports.http.http_io import (
    ANONYMOUS_BODY_BYTES,
    context_of,
    note_caller,
    parse_object,
    read_body,
    refuse,
    send_json,
    warning_headers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.types import Receive, Scope, Send

    from weftline.app.app import App
    from weftline.app.dispatch import CallContext
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation, Request

_WITHOUT_BODY = frozenset({"GET", "DELETE"})
# More than any operation has, including lists of a thousand, and few enough to parse quickly.
_MANY_PARAMETERS = 2_000
_LONGEST_NUMBER = len(str(MAX_INT))


class RestRequest(Incoming):
    """A request to a route; its body is received when its caller is known."""

    __slots__ = ("_endpoint", "_receive", "_scope")

    def __init__(self, endpoint: OperationEndpoint, scope: Scope, receive: Receive) -> None:
        self._endpoint = endpoint
        self._scope = scope
        self._receive = receive

    async def read(self, caller: Actor) -> Mapping[str, Any]:
        note_caller(self._scope, caller)
        return await self._endpoint.read(self._scope, self._receive, caller)


class OperationEndpoint:
    """Endpoint of one operation; plain ASGI, without the overhead of a framework."""

    def __init__(self, app: App, operation: Operation) -> None:
        self._app = app
        self._operation = operation
        self._in_body = operation.route.method not in _WITHOUT_BODY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            context = context_of(scope)
            request = await self._request(scope, receive, context)
            with collected_warnings() as warnings:
                response = await self._app.call(self._operation, request, context, strict=self._in_body)
        except WeftlineError as error:
            await refuse(scope, send, error, self._app.clock)
        except ClientGone:
            return
        else:
            await send_json(send, self._operation.route.status, response, warning_headers(warnings))

    async def read(self, scope: Scope, receive: Receive, caller: Actor) -> dict[str, Any]:
        """Return the fields of a request from its path and its body or query."""
        if not self._in_body:
            return self._with_path(scope, self._from_query(scope["query_string"]))
        body = await read_body(scope, receive, self._app.settings.max_body_bytes)
        return self._with_path(scope, await self._app.json_bodies.decode(parse_object, body, caller))

    async def _request(self, scope: Scope, receive: Receive, context: CallContext) -> Mapping[str, Any] | Incoming:
        if self._operation.audience is not Audience.ANONYMOUS:
            return RestRequest(self, scope, receive)
        await self._app.admit_without_credential(context)
        return self._with_path(scope, parse_object(await read_body(scope, receive, ANONYMOUS_BODY_BYTES)))

    def _with_path(self, scope: Scope, given: dict[str, Any]) -> dict[str, Any]:
        named_twice = given.keys() & scope["path_params"].keys()
        if named_twice:
            raise InvalidInput(f"{min(named_twice)}: given in the path already", field=min(named_twice))
        return {**given, **{name: self._typed(name, text) for name, text in scope["path_params"].items()}}

    def _typed(self, name: str, text: str) -> str | int:
        """Convert a path parameter to a number if its field is one."""
        is_number = name in _number_fields(self._operation.request)
        number = is_number and len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdigit()
        return int(text) if number else text

    def _from_query(self, query: bytes) -> dict[str, Any]:
        try:
            parsed = parse_qs(
                query.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MANY_PARAMETERS,
            )
        except ValueError as error:
            raise InvalidInput("The query string is not valid.") from error
        lists = _list_fields(self._operation.request)
        repeated = next((name for name, values in parsed.items() if len(values) > 1 and name not in lists), None)
        if repeated is not None:
            raise InvalidInput(f"{repeated[:100]}: given more than once", field=repeated[:100])
        return {name: values if name in lists else values[0] for name, values in parsed.items()}


class PathEndpoint:
    """Endpoint of all operations at one path, so that 405 can list the methods."""

    def __init__(self, endpoints: Mapping[str, OperationEndpoint]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette passes only these methods, and HEAD for GET.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._endpoints[method](scope, receive, send)


class RouteTable:
    """The endpoints of all operations, by path.

    A framework tries one route after the other, which takes longer than many a call. Paths with a parameter of several
    segments are left to it.
    """

    def __init__(self, app: App) -> None:
        self._paths: dict[str, dict[str, OperationEndpoint]] = {}
        # By method and segments, with {} for parameters; and where those of one length can have parameters.
        self._endpoints: dict[tuple[str, ...], tuple[OperationEndpoint, dict[str, int]]] = {}
        self._places: dict[tuple[str, int], list[tuple[int, ...]]] = {}
        for operation in app.registry:
            endpoint = OperationEndpoint(app, operation)
            self._paths.setdefault(operation.route.path, {})[operation.route.method] = endpoint
            if ":path}" not in operation.route.path:
                self._add(operation.route.method, operation.route.path.split("/"), endpoint)

    def _add(self, method: str, segments: Sequence[str], endpoint: OperationEndpoint) -> None:
        names = {segment[1:-1]: place for place, segment in enumerate(segments) if segment.startswith("{")}
        fixed = ["{}" if segment.startswith("{") else segment for segment in segments]
        self._endpoints[(method, *fixed)] = endpoint, names
        places = self._places.setdefault((method, len(segments)), [])
        if (added := tuple(names.values())) not in places:
            places.append(added)
            places.sort(key=len)

    def find(self, method: str, path: str) -> tuple[OperationEndpoint, dict[str, str]] | None:
        """Return the endpoint and the parameters of a path; None if the framework has to look."""
        segments = path.split("/")
        for places in self._places.get((method, len(segments)), ()):
            key = [method, *segments]
            for place in places:
                key[place + 1] = "{}"
            found = self._endpoints.get(tuple(key))
            if found is not None and all(map(segments.__getitem__, places)):
                endpoint, names = found
                return endpoint, {name: segments[place] for name, place in names.items()}
        return None

    def routes(self) -> Iterator[Route]:
        """Return the routes of the framework: for what is not found here, other methods, and HEAD."""
        for path, endpoints in self._paths.items():
            yield Route(path, endpoint=PathEndpoint(endpoints), methods=list(endpoints))


# Resolving annotations is slow, so it is left to the first use.
@cache
def _list_fields(request: type[Request]) -> frozenset[str]:
    """Return the fields that may be repeated in a query string."""
    return frozenset(name for name, hint in get_type_hints(request).items() if _is_list(hint))


@cache
def _number_fields(request: type[Request]) -> frozenset[str]:
    """Return the fields that are whole numbers."""
    return frozenset(name for name, hint in get_type_hints(request).items() if hint is int)


def _is_list(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    return get_origin(hint) in {list, tuple} or any(get_origin(part) in {list, tuple} for part in get_args(hint))
