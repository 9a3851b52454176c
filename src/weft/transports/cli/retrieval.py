"""What searches find, for people: each result with where it is from, the best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli.render import cell, counted, harmless, indent

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.capabilities.retrieval.operations import ContextGathered, EverythingFound, SimilarFound
    from weft.capabilities.retrieval.showing import FoundIn, FoundPassage, Pending


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
    head = click.style(f"{result.score:.2f}", bold=True) + f"  {_place(result)}  ({harmless(result.chunk_id)})"
    return f"{head}\n{indent(harmless(result.text.strip()))}"


def _place(found: FoundIn) -> str:
    match found.source:
        case "document":
            return harmless(f"{found.domain} > {found.document_id}")
        case "message":
            return harmless(f"{found.session_id}, message {found.message_id} of {found.speaker}, {cell(found.moment)}")
        case "board":
            return harmless(f"{found.session_id}, key {found.key}")
        case _:
            return harmless(f"memory, key {found.key}")


def _behind(pending: Pending) -> str:
    waiting = [counted(pending.documents, "document")] if pending.documents else []
    waiting += [counted(pending.events, "event")] if pending.events else []
    return f"; {' and '.join(waiting)} not looked at yet" if waiting else ""


FORMS: dict[str, Callable[[Any], str]] = {
    "search.everything": _render_everything,
    "search.get_context": _render_context,
    "search.find_similar": _render_similar,
}
