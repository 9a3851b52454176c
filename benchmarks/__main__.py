"""``python -m benchmarks [NAME ...]``: run benchmarks, print a table, store the results."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

from benchmarks.harness import run_in_subprocess, save, show

NAMES = (
    "startup",
    "idle_memory",
    "indexing_cost",
    "rest_write",
    "mcp_write",
    "inprocess_write",
    "trust_cost",
    "flat_cost",
    "history_cost",
    "history_storage",
    "records_cost",
    "export_cost",
    "many_clients",
    "collaboration_growth",
    "thousand_agents",
    "alerts",
    "latency_targets",
    "ingestion",
    "search_scale",
    "search_pgvector",
    "assembly",
    "budget_cost",
    "efficiency_cost",
    "metering",
    "proxy",
    "proxy_cache",
    "compaction",
    "recommendations",
    "assembly_postgres",
    "console",
    "validation",
    "postgres_write",
    "peer",
    "tool_list",
    "gateway_cost",
    "tool_selection",
    "hostile",
    "kills",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: a smoke test, not a measurement")
    parser.add_argument("--results", type=Path, default=Path(".results"), help="where bench.json goes")
    options = parser.parse_args()
    names = list(dict.fromkeys(options.names)) or list(NAMES)
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    failed = False
    for name in names:
        started = time.monotonic()
        try:
            rows = run_in_subprocess(name, quick=options.quick)
        except Exception:  # noqa: BLE001 - one that fails must not take the others with it
            failed = True
            traceback.print_exc()
            continue
        show(rows)
        save(options.results, rows)
        print(f"  ({name}: {time.monotonic() - started:.0f} s)", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
