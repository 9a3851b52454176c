"""What a page function gets: its caller, its query, operations to call, and templates to render."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from msgspec import UNSET
from starlette.responses import HTMLResponse

from weftline.app.dispatch import may_use
from weftline.kernel.errors import InvalidInput
from weftline.kernel.thread_pools import TEXT_THREADS
from weftline.transports.console.actions import DONE
from weftline.transports.console.rendering import render

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from weftline.app.app import App
    from weftline.transports.console.sign_in import Browser


Row = TypeVar("Row")
# Of the largest number that a database stores, without its first.
_DIGITS = 18


class Page(NamedTuple):
    """A page: its path below /console, what its function does, and the operation that a caller needs for it.

    One with a ``menu`` is in the menu under that name, which the letter ``key`` after g opens.
    """

    path: str
    show: Callable[[PageView], Awaitable[Response]]
    operation: str
    menu: str | None = None
    key: str | None = None


class PageOf(NamedTuple, Generic[Row]):
    """A page of rows: how many there are in all, and which page follows."""

    rows: list[Row]
    total: int
    start: int
    number: int
    following: int | None


class MenuGroup(NamedTuple):
    """Pages that the menu shows together."""

    name: str
    pages: tuple[Page, ...]


class PageView:
    """One request for a page, by a signed-in browser."""

    def __init__(self, app: App, request: Request, browser: Browser, menu: Sequence[MenuGroup]) -> None:
        self.request = request
        self.browser = browser
        self.actor = browser.actor
        self._app = app
        self._menu = menu

    @property
    def path(self) -> str:
        return self.request.url.path

    @property
    def now(self) -> datetime:
        return self._app.clock.now()

    def part(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str | None:
        """Return a parameter of the query; an empty one counts as absent, as forms send it."""
        return self.request.query_params.get(name) or None

    def number(self, name: str) -> int:
        """Return a parameter of the query that is a whole number; 0 if it is absent."""
        text = self.query(name) or "0"
        if not whole_number(text):
            raise InvalidInput(f"{name}: a whole number is needed", field=name)
        return int(text)

    def may(self, operation: str) -> bool:
        """Tell whether the caller may use an operation at all."""
        return may_use(self._app.registry[operation], self.actor)

    async def call(self, operation: str, **fields: Any) -> Any:  # noqa: ANN401 - the operation's response
        """Call an operation as the signed-in principal; fields without a value are left out."""
        given = {name: value for name, value in fields.items() if value is not None}
        return await self._app.call(self._app.registry[operation], given, self.browser.context, strict=False)

    def link(self, **changes: str | float | None) -> str:
        """Return the address of this view with other parameters; None removes one."""
        query = {**self.request.query_params, **{name: value for name, value in changes.items() if value is not None}}
        for name, value in changes.items():
            if value is None:
                query.pop(name, None)
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def arranged(self, rows: Iterable[Row], *columns: str) -> list[Row]:
        """Return the rows that contain the text of ``?filter=``, in the order of ``?sort=`` and ``?order=``."""
        wanted = (self.query("filter") or "").lower()
        kept = [row for row in rows if not wanted or any(wanted in _text(row, name) for name in columns)]
        sort = self.query("sort")
        if sort in columns:
            kept.sort(key=lambda row: _sortable(getattr(row, sort)), reverse=self.query("order") == "desc")
        return kept

    def page_of(self, rows: Sequence[Row], size: int, name: str = "page") -> PageOf[Row]:
        """Return the rows of ``?page=`` or another parameter: a part of those that an operation answers at once."""
        text = self.query(name) or "1"
        page = int(text) if whole_number(text) else 1
        start = (max(page, 1) - 1) * size
        return PageOf(
            list(rows[start : start + size]), len(rows), start, page, page + 1 if start + size < len(rows) else None
        )

    async def render_long(self, template: str, **values: Any) -> Response:  # noqa: ANN401 - for templates
        """Return a page with long texts, which is rendered in a thread: others' calls do not wait for it."""
        return await TEXT_THREADS.run(self.render, template, **values)

    def render(self, template: str, status: int = 200, **values: Any) -> Response:  # noqa: ANN401 - for templates
        """Return a page. ``done`` in the query names the form that was sent; no link makes a page say anything else."""
        shown = {**values, "view": self, "menu": self._usable_menu(), "form_token": self.browser.form_token}
        shown["done"] = DONE.get(self.query("done") or "")
        return HTMLResponse(render(template, shown), status)

    def _usable_menu(self) -> list[MenuGroup]:
        """Return the menu with the pages that the caller may use."""
        groups = [
            MenuGroup(group.name, tuple(page for page in group.pages if page.menu and self.may(page.operation)))
            for group in self._menu
        ]
        return [group for group in groups if group.pages]


def whole_number(text: str) -> bool:
    """Tell whether a text of a query is a whole number that a database stores."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def _text(row: object, name: str) -> str:
    return str(getattr(row, name, "")).lower()


def _sortable(value: object) -> tuple[bool, Any]:
    """Return a key by which values of one column sort, absent ones first."""
    if value is None or value is UNSET:
        return False, 0
    return True, value if isinstance(value, int | float | str | datetime) else str(value)
