"""Click parameters of text, of secrets and of URLs. Light: help and completion import them."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weftline.transports.cli.completion import complete_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_VISIBLE = "on the command line is visible to other users of this machine and kept by the shell."
# Far more than a template may have; larger files are not parsed.
_MAX_TEMPLATE_FILE_BYTES = 1_000_000
# Variables of options that have one without showing it as theirs.
_VARIABLES = {"database_url": "WEFTLINE_DATABASE_URL or WEFTLINE_DATABASE_URL_FILE"}


class Text(click.ParamType[Any]):
    """Literal text, ``-`` for standard input, ``@FILE`` for a file, ``@@`` for a leading ``@``."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        text = self._read(str(value), param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("is not UTF-8 text.", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return complete_name(ctx, param, incomplete)

    def _read(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "-":
            text = self._decode(sys.stdin.buffer.read(), "standard input", param, ctx)
            # More often a failed command in front of the pipe than an empty text.
            return text or self.fail("standard input is empty. For an empty text, pass ''.", param, ctx)
        if value.startswith("@@"):
            return value[1:]
        if not value.startswith("@"):
            return value
        try:
            return self._decode(Path(value[1:]).expanduser().read_bytes(), value[1:], param, ctx)
        except OSError as error:
            self.fail(f"{value[1:]!r} cannot be read: {error.strerror}.", param, ctx)

    def _decode(self, content: bytes, source: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Decode a file or stream without its final newline."""
        try:
            return content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            self.fail(f"{source} is not UTF-8 text.", param, ctx)


class TemplateFile(Text):
    """Name of a template, or a TOML or JSON file with one, by its path."""

    name = "template"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        path = Path(str(value).removeprefix("@")).expanduser()
        if path.suffix not in {".toml", ".json"}:
            return super().convert(value, param, ctx)
        try:
            if path.stat().st_size > _MAX_TEMPLATE_FILE_BYTES:
                self.fail(f"{str(path)!r} is larger than {_MAX_TEMPLATE_FILE_BYTES} bytes.", param, ctx)
            text = path.read_text(encoding="utf-8")
            return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        except OSError as error:
            self.fail(f"{str(path)!r} cannot be read: {error.strerror}.", param, ctx)
        except (ValueError, RecursionError) as error:
            self.fail(f"{str(path)!r} is not {path.suffix[1:].upper()}: {error}.", param, ctx)


class Secret(Text):
    """Secret from ``@FILE``, from standard input or a prompt (``-``), or from a variable; refused as an argument."""

    name = "secret"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        given = str(value)
        if not _is_argument(param, ctx):
            return given
        if given == "-" and _is_terminal():
            return str(click.prompt(_shown_name(param), hide_input=True, err=True))
        if given and given != "-" and (not given.startswith("@") or given.startswith("@@")):
            self.fail(
                f"a secret {_VISIBLE} Pass @FILE, or - for standard input or a prompt{_variable(param)}.", param, ctx
            )
        return super().convert(given, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, param, incomplete
        return []


class Url(Text):
    """URL without a password, unless it is from a variable."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        text = super().convert(value, param, ctx) if _is_argument(param, ctx) else str(value)
        if _is_argument(param, ctx) and text == str(value) and _has_password(text):
            self.fail(f"a password {_VISIBLE} Leave it out{_variable(param)}.", param, ctx)
        return text


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _is_argument(param: click.Parameter | None, ctx: click.Context | None) -> bool:
    """Return whether a value is on the command line."""
    if param is None or ctx is None or param.name is None:
        return True
    return ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE


def _variable(param: click.Parameter | None) -> str:
    variable = None if param is None else _VARIABLES.get(param.name or "", param.envvar)
    return f", or set {variable}" if isinstance(variable, str) else ""


def _shown_name(param: click.Parameter | None) -> str:
    return "Secret" if param is None else str(param.name).replace("_", " ").capitalize()


def _has_password(url: str) -> bool:
    from urllib.parse import parse_qsl, urlsplit  # noqa: PLC0415 - help and completion need none

    try:
        parts = urlsplit(url)
    except ValueError:
        return "@" in url
    return bool(parts.password) or any(value and "password" in name.lower() for name, value in parse_qsl(parts.query))
