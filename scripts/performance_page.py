"""``python scripts/performance_page.py``: write docs/reference/performance.md from the results of ``make bench``."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".results"
PAGE = ROOT / "docs" / "reference" / "performance.md"

GROWTH = {
    "get_messages": "`get_messages`, 50 messages",
    "add_message": "`add_message`",
    "search_warm": "`search_context`, index in memory",
    "search_cold": "`search_context`, index not built",
    "set_memory": "`set_memory`",
    "get_memory": "`get_memory`",
    "list_memory": "`list_memory`, 50 keys",
}
SESSION = {
    "public.first_page": "first page of 50",
    "public.last_page": "last page, by `offset`",
    "public.after_id": "messages after another, by `after_id`",
    "mixed.first_page": "first page, one message in ten private to another",
    "mixed.last_page": "last page by `offset`, likewise",
    "mixed.after_id": "`after_id`, likewise",
    "search_cold": "first search, which builds the index",
    "search_warm": "later search",
    "search_cold.resident": "memory of the first search, MB",
}
AGENTS = {
    "calls": "calls",
    "errors": "errors",
    "rate_limited": "refused by a rate limit",
    "lost": "acknowledged writes lost",
    "rate": "calls per second",
    "server_cpu": "server CPU, % of a core",
    "cost": "ms of CPU per call",
    "resident": "resident memory, MB",
    "p50": "p50, ms",
    "p95": "p95, ms",
    "p99": "p99, ms",
    "p95.add_message": "p95 of `add_message`, ms",
    "p95.get_messages": "p95 of `get_messages`, ms",
    "p95.search_context": "p95 of `search_context`, ms",
    "p95.set_memory": "p95 of `set_memory`, ms",
}
LATENCY = {
    "create_session": ("`create_session`", 10),
    "add_message": ("`add_message`", 20),
    "get_messages": ("`get_messages`, 50 of 1,000", 30),
    "search": ("`search_context` over 1,000 messages", 100),
    "search_cold": ("the same, index not built", 100),
    "set_memory": ("`set_memory`", 10),
    "get_memory": ("`get_memory`", 10),
}
HISTORY = {
    "write.100000_commits": "a board write, history of 100,000 commits",
    "write.10000_entries": "a board write, board of 10,000 entries",
    "branch.100000_commits": "a branch, 100,000 commits",
    "branch.10000_entries": "a branch, 10,000 entries",
    "rollback.100000_commits": "a rollback of one key, 100,000 commits",
    "rollback.10000_entries": "a rollback of one key, 10,000 entries",
}
DIFFS = {
    "diff.10000_apart.100_keys": "a diff of versions 10,000 commits apart, 100 keys",
    "diff.10000_apart.as_many_keys": "the same, 10,000 keys that all differ",
}
STORAGE = {"200_bytes": "values of 200 bytes", "2000_bytes": "values of 2,000 bytes"}
RECORDS = {
    "board_write": "a board write",
    "board_write_in_a_turn": "the same, part of a turn, a task and a trace",
    "message": "a message",
    "message_in_a_turn": "the same, part of a turn, a task and a trace",
}
EXCHANGE = {
    "export.10000_events": "seconds to export",
    "export_cpu.10000_events": "of these, CPU",
    "import.10000_events": "seconds to import",
    "lines.10000_events": "lines of the bundle",
    "export_peak": "memory to export, KiB",
    "import_peak": "memory to import, KiB",
}
SEARCHING = {
    "1_callers.p50": "a search, end to end: p50, ms",
    "1_callers.p95": "p95, ms",
    "cpu": "of CPU, ms",
    "8_callers.p50": "eight concurrent callers: p50, ms",
    "8_callers.p95": "p95, ms",
    "nearest": "ten nearest neighbours alone, ms",
    "recall": "recall against exact search",
    "build": "building the index, s",
    "memory": "resident memory, MB",
    "files": "index files, MB",
}
IN_FILES = {
    "1000": "1,000",
    "10000": "10,000",
    "100000": "100,000",
    "1000000": "1,000,000",
    "1000000_in_10_tenants": "1,000,000 in ten tenants",
}
IN_POSTGRES = {
    "100000": "100,000",
    "100000_in_10_tenants": "100,000 in ten tenants",
    "1000000": "1,000,000",
    "1000000_in_10_tenants": "1,000,000 in ten tenants",
}
BARE = {"nearest": "full scan with numpy, ms", "nearest_to_graph": "usearch, HNSW over float16, ms"}
INGESTION = {"long_documents": "long documents", "short_documents": "documents of one chunk"}
PEER = ("create_session", "add_message", "get_messages", "search_context", "set_memory", "get_memory")
CLIENTS = {"official": "the official Python client", "fastmcp": "FastMCP"}
WITH_CLIENTS = {
    "add_message": "`add_message`",
    "get_messages": "`get_messages`, 50 messages",
    "search_context": "`search_context`",
}
TRUST = {
    "guard": "guardrails, no rules",
    "gate": "content gate",
    "all": "everything, no rules",
    "all_1000_tokens": "everything, value of 1,000 tokens",
    "1000_rules_mix": "added by 1,000 rules, one in ten about board writes",
    "1000_rules_all_match": "added by 1,000 rules, all about board writes",
    "1000_rules_all_regex": "the same, a regular expression in each",
}
COMPACTION = {
    "agent_100k": "an agent's session of 100,000 tokens with results of tools",
    "talk_100k": "a conversation of 100,000 tokens without them",
    "key_facts": "the agent's session by key facts",
    "hierarchical": "by minute, hour, day and week",
    "task_scoped": "by tasks",
    "agent_1000k": "each 100,000 of 1,000,000 tokens of an agent's session",
    "talk_1000k": "each 100,000 of 1,000,000 tokens of a conversation",
}
ROLES = {"subagent": "sub-agent", "orchestrator": "orchestrator", "admin": "admin"}
LISTS = {"default": "default", "collaboration": "`/mcp/collaboration`", "full": "`/mcp/full`"}
ANSWERS = {
    "get_messages": "`get_messages`, 50 messages",
    "search_context": "`search_context`",
    "search": "`search`",
    "search_unanswerable": "`search` for what is not there",
    "assemble_context": "`assemble_context`, budget of 4,000",
}
INDEXED = {
    "message": "a message",
    "board_key": "a board key",
    "memory": "a memory entry",
    "window_event": "a window event",
}
INDEXING_PARTS = ("call", "words", "embedding", "storing_vectors", "total")
RESIDENT = {
    "start": "idle, after the start",
    "first_search": "after the first search, which loads the model",
    "backlog": "peak while a backlog of 1,000 messages is embedded",
    "released": "after the model was released",
}
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SESSION_SIZES = (1_000, 10_000, 100_000, 300_000, 1_000_000)


class Results:
    """Rows of the benchmark results, by name."""

    def __init__(self) -> None:
        rows = json.loads((RESULTS / "bench.json").read_text("utf-8"))
        self._rows: dict[str, dict[str, Any]] = {row["name"]: row for row in rows}
        self.machine: dict[str, Any] = json.loads((RESULTS / "bench-machine.json").read_text("utf-8"))

    def row(self, name: str) -> dict[str, Any]:
        return self._rows[name]

    def value(self, name: str) -> str:
        """Return a figure; nothing if its benchmark has run without it."""
        benchmark = name.partition(".")[0]
        if not any(known.startswith(f"{benchmark}.") for known in self._rows):
            raise KeyError(name)
        return _number(self._rows[name]["value"]) if name in self._rows else ""


def _number(value: float) -> str:
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2  # noqa: PLR2004
    return f"{value:,.{digits}f}"


def _table(head: list[str], body: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in [head, rule, *body])


def _growth(results: Results, database: str, sizes: tuple[int, ...]) -> str:
    body = []
    for name, title in GROWTH.items():
        rows = [results.row(f"collaboration_growth.{database}.{name}.{size}") for size in sizes[1:]]
        cells = [rows[-1]["baseline"]["value"], *(row["value"] for row in rows)]
        body.append([title, *map(_number, cells), f"{rows[-1]['ratio']:.2f}"])
    head = [
        "µs of CPU per call",
        f"{sizes[0]:,} messages",
        *(f"{size:,}" for size in sizes[1:]),
        "ratio of last to first",
    ]
    return _table(head, body)


def _session(results: Results) -> str:
    body = [
        [title, *(results.value(f"collaboration_growth.one_session.{name}.{size}") for size in SESSION_SIZES)]
        for name, title in SESSION.items()
    ]
    return _table(["ms of CPU per call", *(f"{size:,}" for size in SESSION_SIZES)], body)


def _agents(results: Results) -> str:
    body = [
        [title, *(results.value(f"thousand_agents.{pace}.{name}") for pace in ("paced", "burst"))]
        for name, title in AGENTS.items()
    ]
    return _table(["", "one call in two seconds", "without pauses"], body)


def _latency(results: Results) -> str:
    columns = [f"{who}.{{}}.{share}" for who in ("alone", "twenty") for share in ("p50", "p95")]
    body = [
        [title, str(target), *(results.value(f"latency_targets.{column.format(name)}") for column in columns)]
        for name, (title, target) in LATENCY.items()
    ]
    validation = [results.value(f"latency_targets.token_validation.{share}") for share in ("p50", "p95")]
    body.append(["validating a token at its first use", "5", *validation, "", ""])
    return _table(["ms", "target", "alone p50", "alone p95", "of twenty p50", "of twenty p95"], body)


def _history(results: Results) -> str:
    body = []
    for name, title in HISTORY.items():
        rows = [results.row(f"history_cost.{database}.{name}") for database in ("sqlite", "postgres")]
        body.append([title, *(f"{row['ratio']:.2f}" for row in rows), rows[0]["target"].removesuffix(" x")])
    for name, title in DIFFS.items():
        rows = [results.row(f"history_cost.{database}.{name}") for database in ("sqlite", "postgres")]
        body.append([title, *(f"{_number(row['value'])} ms" for row in rows), rows[0]["target"]])
    return _table(["", "SQLite", "PostgreSQL", "target"], body)


def _storage(results: Results) -> str:
    body = []
    for name, title in STORAGE.items():
        row = results.row(f"history_storage.{name}.history")
        body.append([title, _number(row["value"]), _number(row["baseline"]["value"]), f"{row['ratio']:.2f}"])
    return _table(["", "bytes per write", "value and commit uncompressed", "ratio"], body)


def _records(results: Results) -> str:
    body = []
    for name, title in RECORDS.items():
        rows = [results.row(f"records_cost.{database}.{name}") for database in ("sqlite", "postgres")]
        body.append([title, *(f"{row['ratio']:.2f}" for row in rows)])
    return _table(["", "SQLite", "PostgreSQL"], body)


def _exchange(results: Results) -> str:
    body = []
    for name, title in EXCHANGE.items():
        rows = [results.row(f"export_cost.{database}.{name}") for database in ("sqlite", "postgres")]
        body.append([title, *(f"{_number(row['value'])}{_times(row)}" for row in rows), rows[0]["target"] or ""])
    return _table(["", "SQLite", "PostgreSQL", "target"], body)


def _searching(results: Results, benchmark: str, sizes: dict[str, str]) -> str:
    measured = {size: title for size, title in sizes.items() if results.value(f"{benchmark}.{size}.nearest")}
    body = [
        [title, *(results.value(f"{benchmark}.{size}.{name}") for size in measured)]
        for name, title in SEARCHING.items()
    ]
    for name, title in BARE.items():
        rows = [results.row(f"{benchmark}.{size}.{name}") for size in measured]
        body.append([title, *(_number(row["baseline"]["value"]) for row in rows)])
    return _table(["chunks", *measured.values()], body)


def _ten_millions(results: Results) -> str:
    figures = {name: results.value(f"search_scale.10000000.by_a_line.{name}") for name in ("cpu", "files", "build")}
    text = (
        f"Ten million chunks, extrapolated linearly from the last two sizes: {figures['cpu']} ms of CPU per search, "
        f"{figures['files']} MB of files, {figures['build']} s to build them."
    )
    return textwrap.fill(text, 120)


def _ingestion(results: Results) -> str:
    body = []
    for name, title in INGESTION.items():
        rows = [results.row(f"ingestion.{name}_{database}") for database in ("sqlite", "postgres")]
        body.append([title, *(f"{_number(row['value'])} ({row['ratio']:.2f})" for row in rows), rows[0]["target"]])
    return _table(["chunks per second (ratio to the embedder alone)", "SQLite", "PostgreSQL", "target"], body)


def _indexing(results: Results) -> str:
    body = [
        [f"{title}, {length}", *(results.value(f"indexing_cost.{kind}.{length}.{part}") for part in INDEXING_PARTS)]
        for kind, title in INDEXED.items()
        for length in ("short", "long")
    ]
    return _table(["ms of CPU", "the call", "its words", "its vector", "storing the vector", "all told"], body)


def _resident(results: Results) -> str:
    body = [[title, results.value(f"indexing_cost.resident.{name}")] for name, title in RESIDENT.items()]
    return _table(["resident memory of a server", "MB"], body)


def _others(results: Results) -> str:
    row = results.row("indexing_cost.others_p95")
    text = (
        f"While a backlog is indexed, the p95 of calls in another session is {_number(row['value'])} ms, against "
        f"{_number(row['baseline']['value'])} ms without a backlog: {row['ratio']:.2f} times; the target is 1.2."
    )
    return textwrap.fill(text, 120)


def _times(row: dict[str, Any]) -> str:
    return "" if row["ratio"] is None else f" ({row['ratio']:.2f} times)"


def _peer(results: Results) -> str:
    body = []
    for name in PEER:
        cpu, p95 = results.row(f"peer.{name}_cpu"), results.row(f"peer.{name}_p95")
        body.append(
            [
                f"`{name}`",
                _number(cpu["value"]),
                _number(cpu["baseline"]["value"]),
                f"{cpu['ratio']:.0f} times",
                _number(p95["value"]),
                _number(p95["baseline"]["value"]),
            ]
        )
    return _table(["", "Weftline, ms of CPU", "the other", "ratio", "Weftline, p95 ms", "the other"], body)


def _clients(results: Results) -> str:
    body = []
    for client, title in CLIENTS.items():
        for name, operation in WITH_CLIENTS.items():
            rows = [results.row(f"peer.{client}.{name}_{figure}") for figure in ("cpu", "p50", "p95")]
            cells = [_number(value) for row in rows for value in (row["value"], row["baseline"]["value"])]
            body.append([f"{operation}, {title}", *cells])
    head = ["", "Weftline, ms of CPU", "the other", "Weftline, p50 ms", "the other", "Weftline, p95 ms", "the other"]
    return _table(head, body)


def _unlisted(results: Results) -> str:
    parts = [
        f"{results.value(f'peer.{client}.search_context.unlisted_client_cpu')} instead of "
        f"{results.value(f'peer.{client}.search_context_client_cpu')} ms with {title}"
        for client, title in CLIENTS.items()
    ]
    text = (
        "This is the endpoint `/mcp/collaboration`, which lists the tools that the other server lists. Both clients "
        "request the list again after every call of a tool that is not in it, such as `search_context` on `/mcp`: "
        f"a call then takes {' and '.join(parts)} of the client's CPU. Calls through `weftline_tools` do not have that "
        "cost."
    )
    return textwrap.fill(text, 120)


def _schemas(results: Results) -> str:
    parts = [
        f"{results.value(f'peer.{client}.{name}.with_schemas_client_cpu')} instead of "
        f"{results.value(f'peer.{client}.{name}_client_cpu')} ms for `{name}` with {title}"
        for client, title in CLIENTS.items()
        for name in ("get_messages", "search_context")
    ]
    text = (
        "These clients validate every answer against the output schema of its tool, if the server lists one. Weftline "
        f"lists none. With them, a call would take more of the client's CPU: {', '.join(parts)}."
    )
    return textwrap.fill(text, 120)


def _lists(results: Results) -> str:
    parts = ("names", "descriptions", "input_schemas")
    body = []
    for role, title in ROLES.items():
        for profile, endpoint in LISTS.items():
            name = f"tool_list.{role}.{profile}"
            cells = [results.value(f"{name}.{part}") for part in ("tools", *parts)]
            body.append([f"{title}, {endpoint}", *cells, results.value(name)])
    theirs = [results.value(f"tool_list.peer.{part}") for part in (*parts, "total")]
    body.append(["the other server", "", *theirs])
    return _table(["tokens", "tools", "names", "descriptions", "input schemas", "as listed"], body)


def _answers(results: Results) -> str:
    body = []
    for name, title in ANSWERS.items():
        row = results.row(f"tool_list.answer.{name}")
        body.append([title, _number(row["value"]), _number(row["baseline"]["value"]) if row["baseline"] else ""])
    return _table(["tokens of an answer", "Weftline", "the other server"], body)


def _peer_words(results: Results) -> str:
    rate, memory = results.row("peer.throughput"), results.row("peer.resident")
    text = (
        f"Twenty concurrent writers: {_number(rate['value'])} messages per second, against "
        f"{_number(rate['baseline']['value'])} on the other server; no write to Weftline failed or "
        "was lost. Memory after "
        f"the run: {_number(memory['value'])} MB against {_number(memory['baseline']['value'])} MB."
    )
    return textwrap.fill(text, 120)


def _trust(results: Results) -> str:
    body = []
    for name, title in TRUST.items():
        row = results.row(f"trust_cost.{name}")
        unit = row["unit"].partition(" ")[0].replace("us", "µs")
        body.append([title, f"{_number(row['value'])} {unit}", _ratio(row), row["target"] or ""])
    return _table(["", "CPU", "ratio", "target"], body)


def _compaction(results: Results) -> str:
    body = []
    for name, title in COMPACTION.items():
        row = results.row(f"compaction.{name}")
        against = row["baseline"]["name"]
        body.append([title, f"{_number(row['value'])} s", f"{_ratio(row)} x {against}", row["target"] or ""])
    return _table(["", "CPU", "relative to", "target"], body)


def _compaction_words(results: Results) -> str:
    pause, memory = results.value("compaction.loop_pause"), results.value("compaction.memory")
    text = (
        f"Meanwhile an event loop with nothing else to do waits at most {pause} ms (99th percentile). A compaction "
        f"takes at most {memory} bytes of memory for each token of its window, besides the events themselves."
    )
    return textwrap.fill(text, 120)


def _ratio(row: dict[str, Any]) -> str:
    return "" if row["ratio"] is None else f"{row['ratio']:.2f}"


def page(results: Results, before: str) -> str:
    """Return the page. A section whose benchmarks have not run stays as it is."""
    template = (ROOT / "scripts" / "performance_page.md").read_text("utf-8")
    kept = _sections(before)
    sections: dict[str, str] = {}
    for title, section in _sections(template).items():
        try:
            sections[title] = section.format_map(_Figures(results))
        except KeyError:
            sections[title] = kept[title]
    # The head describes the machine of the whole page.
    head = next(iter(sections))
    if any(sections[title] == text for title, text in kept.items() if title != head):
        sections[head] = kept[head]
    return "".join(sections.values())


def _sections(text: str) -> dict[str, str]:
    """Return the sections of a page by their first line."""
    return {part.partition("\n")[0]: part for part in re.split(r"(?m)^(?=## )", text)}


class _Figures(dict[str, str]):
    """The placeholders of the template, computed when they are used."""

    def __init__(self, results: Results) -> None:
        super().__init__()
        self._results = results

    def __missing__(self, name: str) -> str:
        return _PLACEHOLDERS[name](self._results)


_PLACEHOLDERS: dict[str, Callable[[Results], str]] = {
    "cores": lambda results: str(results.machine["cores"]),
    "cpu": lambda results: results.machine["cpu"],
    "memory": lambda results: str(round(results.machine["memory_mb"] / 1024)),
    "python": lambda results: results.machine["python"],
    "sqlite": lambda results: results.machine["sqlite"],
    "on_sqlite": lambda results: _growth(results, "sqlite", SIZES),
    "on_postgres": lambda results: _growth(results, "postgres", SIZES[:3]),
    "one_session": _session,
    "agents": _agents,
    "latency": _latency,
    "history": _history,
    "storage": _storage,
    "records": _records,
    "exchange": _exchange,
    "in_files": lambda results: _searching(results, "search_scale", IN_FILES),
    "ten_millions": _ten_millions,
    "in_postgres": lambda results: _searching(results, "search_pgvector", IN_POSTGRES),
    "ingestion": _ingestion,
    "indexing": _indexing,
    "resident": _resident,
    "others": _others,
    "peer": _peer,
    "peer_words": _peer_words,
    "clients": _clients,
    "unlisted": _unlisted,
    "schemas": _schemas,
    "lists": _lists,
    "answers": _answers,
    "trust": _trust,
    "compaction": _compaction,
    "compaction_words": _compaction_words,
}


if __name__ == "__main__":
    PAGE.write_text(page(Results(), PAGE.read_text("utf-8")), "utf-8")
