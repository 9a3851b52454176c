"""``weft gather`` and ``weft similar``; and what searches find, for people: the best first, with where it is from."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli.base import JSON, Command
from weft.transports.cli.render import cell, counted, harmless, indent, show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.capabilities.search.operations import ContextGathered, EverythingFound, SimilarFound
    from weft.capabilities.search.results import FoundIn, FoundPassage, PendingItems
    from weft.transports.cli.target import Target

_SHOWN_CHARACTERS = 400
_WIDTH = 96
_DOMAIN = click.option("--domain", help="Only this domain of knowledge.")
_SESSION = click.option("--session", "-s", "session_id", help="Of sessions only this one; documents stay.")


@click.command(cls=Command, params=[JSON])
@click.argument("query", help="A question, or words that should be there.")
@click.option("--max-tokens", type=click.IntRange(16, 200_000), help="The text has at most this many.  [default: 2000]")
@_DOMAIN
@_SESSION
@click.pass_obj
def gather(target: Target, /, *, as_json: bool, **said: Any) -> None:  # noqa: ANN401 - as click hands over
    """Gather what matters for a question into one text that fits: the best passages with what stands around them."""
    show(_asked(target, "search.get_context", said), as_json=as_json, form=_render_context)


@click.command(cls=Command, params=[JSON])
@click.argument("chunk_id", help="The chunk_id of something found, such as domain:handbook/42.")
@click.option("--top-k", type=click.IntRange(1, 100), help="So many results.  [default: 10]")
@_DOMAIN
@_SESSION
@click.pass_obj
def similar(target: Target, /, *, as_json: bool, **said: Any) -> None:  # noqa: ANN401 - as click hands over
    """Find what means nearly the same as something that was found."""
    show(_asked(target, "search.find_similar", said), as_json=as_json, form=_render_similar)


def _asked(target: Target, operation: str, said: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the operation's answer
    from weft.app.registry import all_operations  # noqa: PLC0415 - help needs no operations

    return target.call(all_operations()[operation], {name: value for name, value in said.items() if value is not None})


def _render_everything(found: EverythingFound) -> str:
    said = []
    if not found.results:
        said.append("Nothing was found.")
    elif found.fallback is not None:
        said.append("Nothing is relevant; this is the most recent.")
    elif found.widened:
        said.append("Not sure that the answer is here: this is more, and less relevant, than was asked for.")
    if found.model is None:
        said.append("Meaning could not be compared; words alone had to do.")
    summary = f"{counted(len(found.results), 'result')} of {counted(found.searched, 'chunk')}, confidence "
    return "\n\n".join(
        [*said, *map(_result, found.results), f"{summary}{found.confidence:.2f}{_behind(found.pending)}"]
    )


def _render_similar(found: SimilarFound) -> str:
    summary = f"{counted(len(found.results), 'result')} of {counted(found.searched, 'chunk')}{_behind(found.pending)}"
    return "\n\n".join([*map(_result, found.results), summary])


def _render_context(gathered: ContextGathered) -> str:
    summary = f"{gathered.tokens} of {counted(gathered.max_tokens, 'token')}{_behind(gathered.pending)}"
    return "\n\n".join(filter(None, [harmless(gathered.context), click.style(summary, dim=True)]))


def _result(result: FoundPassage) -> str:
    """Show one result: how relevant it is, where it is from, how it begins, and what its score is made of."""
    score = click.style(f"{result.score:.2f}", fg="green", bold=True)
    said = textwrap.shorten(result.text, _SHOWN_CHARACTERS, placeholder=" ...")
    told = [harmless(result.chunk_id), cell(result.moment), _why(result.signals or {})]
    about = click.style(" | ".join(filter(None, told)), dim=True)
    text = "\n".join([*textwrap.wrap(harmless(said), _WIDTH), about])
    return f"{score}  {click.style(_place(result), bold=True)}\n{indent(text)}"


def _place(found: FoundIn) -> str:
    match found.source:
        case "document":
            return harmless(" > ".join(filter(None, [found.domain, found.document_id, found.heading])))
        case "message":
            return harmless(f"{found.session_id}, message {found.message_id} of {found.speaker}")
        case "board":
            return harmless(f"{found.session_id}, key {found.key}")
        case _:
            return harmless(f"memory, key {found.key}")


def _why(signals: Mapping[str, Any]) -> str:
    """Say what a score is made of: numbers as they are, and what merely holds by its name."""
    numbers = [f"{name} {value:.2f}" for name, value in signals.items() if isinstance(value, float)]
    return harmless(", ".join([*numbers, *(name for name, value in signals.items() if value is True)]))


def _behind(pending: PendingItems) -> str:
    waiting = [counted(pending.documents, "document")] if pending.documents else []
    waiting += [counted(pending.events, "event")] if pending.events else []
    missing = f"; {' and '.join(waiting)} not looked at yet" if waiting else ""
    return f"{missing}; an index is being made anew, so this is not all" if pending.in_part else missing


FORMS: dict[str, Callable[[Any], str]] = {
    "search.everything": _render_everything,
    "search.get_context": _render_context,
    "search.find_similar": _render_similar,
}
