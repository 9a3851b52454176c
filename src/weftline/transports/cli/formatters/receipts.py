"""Prompts and their receipts: blocks in order, omissions by reason, budget, savings and timing."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from weftline.transports.cli.render import block, cell, counted, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weftline.insight.usage import UsageFigures
    from weftline.prompts.assembly.operations import PromptAssembled
    from weftline.prompts.assembly.receipt_operations import (
        PromptReplayed,
        ReceiptList,
        ReceiptShown,
        SavingsReport,
    )
    from weftline.prompts.assembly.receipts import (
        CountingMethod,
        OmittedCandidate,
        ReceiptBlock,
        Savings,
        SavingsTotal,
        Shortening,
    )
    from weftline.prompts.efficiency import Efficiency, EfficiencyBasis, ItemUse

_BAR_WIDTH = 40
_SHARE_WIDTH = 12
_MAX_REFS = 3
_CACHE_POINT = "◆"
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_NUMERIC = frozenset("0123456789.,-$%")
_NOUNS = {
    "layer": "layer",
    "tool": "tool",
    "pin": "pin",
    "pins": "pin",
    "summary": "summarised event",
    "event": "event",
    "conversation": "event",
    "passage": "passage",
    "retrieved": "passage",
    "board": "board entry",
    "missing": "open question",
}
_PLURALS = {"board entry": "board entries"}


class _Row(NamedTuple):
    """Consecutive blocks of one kind, up to a cache point."""

    kind: str
    tokens: int
    refs: list[str]
    cache_point: bool


def render_receipt(receipt: ReceiptShown) -> str:
    sections = [
        _title(receipt),
        _budget(receipt),
        _prompt(receipt),
        _omitted(receipt),
        _shortened(receipt),
        _savings(receipt.savings),
        _efficiency(receipt.efficiency),
        _facts(receipt),
    ]
    return "\n\n".join(filter(None, sections))


def _title(receipt: ReceiptShown) -> str:
    where = f"{escape_controls(receipt.agent_id)} in session {escape_controls(receipt.session_id)}"
    model = escape_controls(receipt.model) if receipt.model else "no model named"
    lines = [
        click.style(f"Receipt {receipt.receipt_id}", bold=True) + f"  {cell(receipt.created_at)}",
        f"{where} · {model} · {click.style(receipt.mode, fg='green')}",
        *([] if receipt.task is None else [f"Task: {escape_controls(' '.join(receipt.task.split()))}"]),
        receipt.reason + _modelled(receipt),
    ]
    return "\n".join(lines)


def _modelled(receipt: ReceiptShown) -> str:
    """Return both modelled costs, if there was a choice."""
    costs = receipt.modelled
    if costs is None or costs.extended is None:
        return ""
    return (
        f" Modelled cost over the next calls: {costs.extended:,.0f} tokens appended, {costs.rebuilt:,.0f} rebuilt, "
        "at the price of uncached input."
    )


def _budget(receipt: ReceiptShown) -> str:
    limits = receipt.limits
    sources = {
        "budget of the call": limits.token_budget,
        "window": limits.window_tokens,
        "model": limits.model_tokens,
        "reserved for the answer": limits.reserved_output_tokens,
    }
    known = " · ".join(f"{name} {tokens:,}" for name, tokens in sources.items() if tokens is not None)
    lines = [f"{usage_bar(receipt.tokens, limits.limit)}  {_counting(receipt.counting)}", click.style(known, dim=True)]
    return _section("Budget", lines)


def usage_bar(used: int, limit: int, colour: str | None = None) -> str:
    """Return a bar of how much of a limit is used, with the figures; the colour warns of the limit by default."""
    part = used / limit if limit else 1.0
    colour = colour or ("green" if part < 0.8 else "yellow" if part <= 1 else "red")  # noqa: PLR2004 - nearly full, and beyond
    shown = click.style(f"▕{_filled(part, _BAR_WIDTH)}▏", fg=colour)
    return f"{shown} {used:,} of {limit:,} tokens ({part:.1%})"


def _filled(part: float, width: int) -> str:
    """Return a horizontal bar in eighths of a cell; a part above zero shows at least one."""
    eighths = min(width * 8, max(round(part * width * 8), 1 if part > 0 else 0))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).ljust(width)


def _counting(method: CountingMethod) -> str:
    if method.exact:
        return "counted exactly"
    origin = "learned" if method.learned else "catalog"
    return f"estimated (factor {method.factor:g}, {origin}; margin {method.margin:g})"


def _prompt(receipt: ReceiptShown) -> str:
    """Return the blocks in order, and where the part ends that the cache is expected to serve."""
    sent = receipt.savings.cached_tokens - receipt.tools_tokens
    tools = [_Row("tools", receipt.tools_tokens, [], cache_point=False)] if receipt.tools_tokens else []
    before, after = _split(receipt.blocks, sent)
    lines = [_block_line(each, receipt) for each in (*tools, *_rows(before))]
    if before:
        lines.append(click.style(f"{'─' * 8} expected from the cache up to here, new below", dim=True))
    lines += [_block_line(each, receipt) for each in _rows(after)]
    title = f"Prompt: {counted(len(receipt.blocks), 'block')} in order, {_CACHE_POINT} ends a cached prefix"
    return _section(title, lines)


def _split(blocks: Sequence[ReceiptBlock], tokens: int) -> tuple[Sequence[ReceiptBlock], Sequence[ReceiptBlock]]:
    """Split blocks where the given number of tokens ends."""
    reached = 0
    for place, each in enumerate(blocks):
        if reached + each.tokens > tokens:
            return blocks[:place], blocks[place:]
        reached += each.tokens
    return blocks, ()


def _rows(blocks: Iterable[ReceiptBlock]) -> list[_Row]:
    found: list[_Row] = []
    for each in blocks:
        last = found[-1] if found else None
        if last is None or last.kind != each.kind or last.cache_point or each.kind == "task":
            found.append(_Row(each.kind, each.tokens, _refs(each), each.cache_point))
        else:
            found[-1] = _Row(each.kind, last.tokens + each.tokens, [*last.refs, *_refs(each)], each.cache_point)
    return found


def _refs(block: ReceiptBlock) -> list[str]:
    """Return what a block contains; of a summary the events that it stands for."""
    return [*block.covers] if block.kind == "summary" else [*block.sources]


def _block_line(row: _Row, receipt: ReceiptShown) -> str:
    share = _filled(row.tokens / receipt.tokens if receipt.tokens else 0, _SHARE_WIDTH)
    what = "" if row.kind in {"task", "tools"} else _named(_nouns(row.kind, len(row.refs)), row.refs, receipt)
    mark = click.style(_CACHE_POINT, fg="cyan") if row.cache_point else " "
    return f"{row.tokens:>8,} {mark} {click.style(share, fg='cyan')}  {row.kind:<12}  {what}".rstrip()


def _named(what: str, refs: Sequence[str], receipt: ReceiptShown) -> str:
    """Return what there is with the first few refs, without the names of the receipt's own window and board."""
    own = (f"window:{receipt.session_id}:{receipt.agent_id}/", f"board:{receipt.session_id}/")
    names = [ref.removeprefix(own[0]).removeprefix(own[1]) for ref in refs[:_MAX_REFS]]
    more = f" and {len(refs) - _MAX_REFS} more" if len(refs) > _MAX_REFS else ""
    return escape_controls(f"{what}: {', '.join(names)}{more}")


def _nouns(kind: str, number: int) -> str:
    noun = _NOUNS.get(kind, kind)
    return f"{number} {_PLURALS[noun]}" if noun in _PLURALS and number != 1 else counted(number, noun)


def _omitted(receipt: ReceiptShown) -> str:
    if not receipt.candidates:
        return ""
    ordered = sorted(receipt.omitted, key=lambda each: each.reason)
    groups = {reason: list(group) for reason, group in groupby(ordered, key=lambda each: each.reason)}
    lines = [
        _omission_line(reason, group, receipt)
        for reason, group in sorted(groups.items(), key=lambda pair: -len(pair[1]))
    ]
    title = f"Omitted: {len(receipt.omitted)} of {counted(len(receipt.candidates), 'candidate')}"
    return _section(title, lines or [click.style("nothing", dim=True)])


def _omission_line(reason: str, group: Sequence[OmittedCandidate], receipt: ReceiptShown) -> str:
    by_ref = {each.ref: each for each in receipt.candidates}
    found = [by_ref[each.ref] for each in group if each.ref in by_ref]
    kinds = ", ".join(_nouns(kind, number) for kind, number in Counter(each.kind for each in found).items())
    tokens = sum(each.tokens for each in found)
    what = _named(kinds or counted(len(group), "item"), [each.ref for each in group], receipt)
    return f"{f'{tokens:,}' if tokens else '':>8}   {click.style(f'{reason:<18}', fg='yellow')}  {what}"


def _shortened(receipt: ReceiptShown) -> str:
    lines = [
        f"{each.kept_tokens:>8,}   of {each.original_tokens:,}, {_how(each)}: {escape_controls(each.ref)}"
        for each in receipt.shortened
    ]
    return _section("Shortened", lines) if lines else ""


def _how(shortening: Shortening) -> str:
    return "by the compaction" if shortening.compacted else "in the middle"


def _compaction(receipt: ReceiptShown) -> str:
    """Return what stands for older events in the prompt, and where to see them side by side."""
    used = receipt.compaction
    if used is None:
        return ""
    what = f"{counted(used.events, 'older event')} in {used.tokens:,} instead of {used.original_tokens:,} tokens"
    quoted = f", {used.quoted} of them quoted for the task" if used.quoted else ""
    return f"{what}{quoted} (weftline compaction show {used.compaction_id})"


def _savings(savings: Savings) -> str:
    rows = [
        {
            "": "this prompt",
            "tokens": f"{savings.engine_assembled_tokens:,}",
            "saved": "",
            "from cache": f"{savings.cached_tokens:,}",
            "cost": _money(savings.cost),
        },
        {
            "": "conversation alone",
            "tokens": f"{savings.naive_baseline_tokens:,}",
            "saved": f"{savings.savings_ratio:.1%}",
            "from cache": f"{savings.naive_cached_tokens:,}",
            "cost": _money(savings.naive_cost),
            "cost saved": _ratio(savings.cost, savings.naive_cost),
        },
        {
            "": "conversation and documents",
            "tokens": f"{savings.naive_baseline_tokens + savings.document_tokens:,}",
            "saved": f"{savings.savings_ratio_with_documents:.1%}",
        },
    ]
    price = "" if savings.cost is not None else "No price is known for this model."
    notes = filter(None, [more_than_conversation(savings), price])
    return _section("Savings", [aligned(rows), *(click.style(note, dim=True) for note in notes)])


def more_than_conversation(figures: Savings | SavingsTotal | UsageFigures) -> str:
    """Return by how much prompts are larger than what agents would send without Weftline; empty if they are not."""
    more = figures.engine_assembled_tokens - figures.naive_baseline_tokens
    return f"{more:,} tokens more than the conversation alone." if more > 0 else ""


_USE_TITLES: dict[EfficiencyBasis, str] = {
    "answer": "Use by the answer",
    "retrieval_scores": "Use, estimated from the scores of retrieval",
    "usual_share": "Use, estimated from what is usual",
}


def _efficiency(found: Efficiency | None) -> str:
    """Return how much of the prompt the answer used, by kind of item."""
    if found is None:
        return ""
    sent = found.sent_tokens - found.overhead_tokens
    title = _USE_TITLES[found.basis]
    facts = f"{found.overhead_tokens:,} tokens of overhead besides · window filled to {found.window_fill:.1%}"
    lines = [usage_bar(found.useful_tokens, sent, "green"), click.style(facts, dim=True)]
    return _section(title, [*lines, *_uses(found.items)])


def _uses(items: Sequence[ItemUse]) -> Iterator[str]:
    """Yield a line for each kind of item: its used tokens, all of its tokens, and items by use."""
    kinds = dict.fromkeys(item.kind for item in items if item.use != "required")
    for kind in kinds:
        own = [item for item in items if item.kind == kind and item.use != "required"]
        useful = sum(item.useful_tokens for item in own)
        uses = ", ".join(f"{number} {use}" for use, number in Counter(item.use for item in own).most_common())
        yield f"{useful:>8,} of {sum(item.tokens for item in own):>8,}  {kind:<12}  {uses}"


def aligned(rows: Sequence[Mapping[str, str]]) -> str:
    """Format rows as columns, those of numbers right-aligned; empty columns are left out."""
    columns = {name: [row.get(name, "") for row in rows] for row in rows for name in row}
    formats = {
        name: f"{'>' if _NUMERIC.issuperset(''.join(cells)) else '<'}{max(map(len, [name, *cells]))}"
        for name, cells in columns.items()
        if any(cells)
    }
    head, *body = (
        "  ".join(f"{line.get(name, ''):{layout}}" for name, layout in formats.items()).rstrip()
        for line in ({name: name for name in formats}, *rows)
    )
    return "\n".join([click.style(head, bold=True), *body])


def _facts(receipt: ReceiptShown) -> str:
    usage, timing = receipt.usage, receipt.timing_ms
    stages = " · ".join(f"{stage} {milliseconds:.1f}" for stage, milliseconds in timing.items())
    facts = {
        "retrieval": _confidence(receipt),
        "window": _window(receipt),
        "compacted": _compaction(receipt),
        "provider": "" if usage is None else _reported(receipt),
        "timing": f"{stages} = {sum(timing.values()):.1f} ms",
        "hash": receipt.prompt_hash,
        "previous": receipt.previous_id or "",
        "again": f"weftline receipt replay {receipt.receipt_id}",
    }
    return block({name: text for name, text in facts.items() if text})


def _confidence(receipt: ReceiptShown) -> str:
    found = receipt.confidence
    facts = [] if found.confidence is None else [f"confidence {found.confidence:.2f}"]
    facts += ["with doubtful passages"] if found.widened else []
    facts += ["no evidence was found"] if found.fallback else []
    waiting = {"document": found.pending_documents, "event": found.pending_events}
    facts += [f"{counted(number, noun)} not indexed yet" for noun, number in waiting.items() if number]
    return ", ".join(facts)


def _window(receipt: ReceiptShown) -> str:
    budgets = receipt.window_budgets
    return " · ".join(f"{name} {used:,} of {budgets.get(name, 0):,}" for name, used in receipt.window_tokens.items())


def _reported(receipt: ReceiptShown) -> str:
    usage = receipt.usage
    assert usage is not None  # noqa: S101 - asked for only then
    facts = [
        f"{usage.input_tokens:,} input tokens ({usage.input_tokens / receipt.tokens - 1:+.1%} against our count)",
        f"{usage.cache_read_tokens:,} from cache",
        f"{usage.output_tokens:,} output",
        _money(usage.cost),
        "" if usage.latency_ms is None else f"{usage.latency_ms:,.0f} ms",
        "" if usage.quality_score is None else f"quality {usage.quality_score:g}",
    ]
    return " · ".join(filter(None, facts))


def _render_assembled(answer: PromptAssembled) -> str:
    facts = [f"{_nouns(each.kind, each.items)}, {each.tokens:,}" for each in answer.blocks if each.kind != "task"]
    omitted = ", ".join(f"{number} {reason}" for reason, number in answer.omitted.items())
    summary = {
        "prompt": usage_bar(answer.tokens, answer.limit),
        "of": " · ".join(facts),
        "omitted": omitted or "nothing",
        "mode": f"{answer.mode}: {answer.reason}",
        "saved": _saved(answer.savings),
        "note": " · ".join(_notes(answer)),
        "receipt": f"weftline receipt show {answer.receipt_id}",
    }
    return f"{_body(answer.body)}\n\n{block({name: text for name, text in summary.items() if text})}"


def _notes(answer: PromptAssembled) -> Iterator[str]:
    if answer.widened:
        yield "some passages are doubtful: they may not help"
    if answer.fallback:
        yield "no evidence was found outside the conversation"
    if answer.compaction_due is True:
        yield "the window has reached its compaction threshold"
    if answer.unknown_model is True:
        yield (
            "the model is not in the catalog: its limit is a guess, check the name or add it with WEFTLINE_MODELS_FILE"
        )
    if answer.critical_update is not msgspec.UNSET:
        yield "a critical update waits: pull your context"


def _saved(savings: Savings) -> str:
    money = f", {_money(savings.cost)} instead of {_money(savings.naive_cost)}" if savings.cost is not None else ""
    alone = f"conversation alone: {savings.naive_baseline_tokens:,} tokens{money}"
    larger = more_than_conversation(savings).removesuffix(".")
    saved = f"nothing, {larger} ({alone})" if larger else f"{savings.savings_ratio:.1%} ({alone})"
    if not savings.document_tokens:
        return saved
    whole = savings.naive_baseline_tokens + savings.document_tokens
    return f"{saved} · {savings.savings_ratio_with_documents:.1%} (conversation and documents: {whole:,} tokens)"


def _body(body: Mapping[str, Any]) -> str:
    """Return the messages of a neutral body as text, or a provider's body as JSON."""
    if "max_output_tokens" not in body or "messages" not in body:
        return escape_controls(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())
    return "\n\n".join(_message(message) for message in body["messages"])


def _message(message: Mapping[str, Any]) -> str:
    speaker = " ".join(filter(None, [message["role"], message.get("name"), message.get("tool_call_id")]))
    calls = [f"calls {call['name']}({call['arguments']}) {call['call_id']}" for call in message.get("tool_calls", ())]
    text = "\n".join(filter(None, [message.get("content", ""), *calls]))
    return f"{click.style(escape_controls(speaker), fg='cyan', bold=True)}\n{indent(escape_controls(text))}"


def _render_replay(answer: PromptReplayed) -> str:
    footer = f"{answer.tokens:,} tokens · {answer.prompt_hash} · the same prompt as then"
    return f"{_body(answer.body)}\n\n{click.style(footer, dim=True)}"


def _render_list(found: ReceiptList) -> str:
    if not found.receipts:
        return "No receipts."
    rows = [
        {
            "receipt": each.receipt_id,
            "created": cell(each.created_at),
            "agent": escape_controls(each.agent_id),
            "session": escape_controls(each.session_id),
            "model": escape_controls(each.model or ""),
            "mode": each.mode,
            "tokens": f"{each.tokens:,}",
            "conversation": f"{each.naive_baseline_tokens:,}",
            "saved": f"{each.savings_ratio:.1%}",
            "with documents": f"{each.savings_ratio_with_documents:.1%}",
            "from cache": f"{each.cached_tokens:,}",
            "used": "" if each.efficiency is None else f"{each.efficiency:.0%}",
            "by": each.efficiency_basis or "",
        }
        for each in found.receipts
    ]
    more = f"\n\nMore: --cursor {found.next_cursor}" if found.next_cursor else ""
    return aligned(rows) + more


def _render_savings(report: SavingsReport) -> str:
    if not report.rows:
        return "No receipts."
    table = aligned([_total(report.by, row) for row in report.rows])
    larger = [(row.group, more_than_conversation(row)) for row in report.rows]
    notes = [f"{escape_controls(group or report.by)}: {more}" for group, more in larger if more]
    return "\n\n".join([table, click.style("\n".join(notes), dim=True)] if notes else [table])


def _total(by: str, row: SavingsTotal) -> dict[str, str]:
    return {
        by: escape_controls(row.group),
        "calls": f"{row.calls:,}",
        "tokens": f"{row.engine_assembled_tokens:,}",
        "conversation": f"{row.naive_baseline_tokens:,}",
        "saved": _ratio(row.engine_assembled_tokens, row.naive_baseline_tokens),
        "with documents": _ratio(row.engine_assembled_tokens, row.naive_baseline_tokens + row.document_tokens),
        "from cache": f"{row.cached_tokens:,}",
        "conversation cost": _money(row.naive_cost),
        "cost": _money(row.cost),
        "cost saved": _ratio(row.cost, row.naive_cost),
        "reported": f"{row.reported:,}",
        "reported cost": _money(row.reported_cost),
    }


def _ratio(part: float | None, whole: float | None) -> str:
    return f"{1 - part / whole:.1%}" if part is not None and whole else ""


def _money(dollars: float | None) -> str:
    return "" if dollars is None else f"${dollars:,.5f}"


def _section(title: str, lines: Iterable[str]) -> str:
    return f"{click.style(title, bold=True)}\n{indent(chr(10).join(lines))}"


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "context.assemble": _render_assembled,
    "receipt.show": render_receipt,
    "receipt.list": _render_list,
    "receipt.replay": _render_replay,
    "receipt.savings": _render_savings,
}
