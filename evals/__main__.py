"""``make evals``: run every evaluation, print a table, write .results/evals.json."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from evals.assembly import assembly
from evals.board_answers import board_answers
from evals.cache_replay import cache_replay
from evals.calibration import calibration
from evals.calibration_fit import calibration_fit
from evals.chunking import chunking
from evals.compaction.retention import compaction
from evals.compaction_adversarial import compaction_adversarial
from evals.compaction_expansion import compaction_expansion
from evals.efficiency import efficiency
from evals.efficiency_alerts import efficiency_alerts
from evals.efficiency_fit import efficiency_fit
from evals.entities import entities
from evals.injection.bars import injection_bars
from evals.injection.table import injection, injection_closed
from evals.long_outputs import long_outputs
from evals.message_search import message_search
from evals.pairs import pairs
from evals.public_schemas import public_schemas
from evals.recommendations import recommendations
from evals.relevance import relevance, relevance_closed
from evals.relevance_fit import relevance_fit
from evals.results import Row, as_table
from evals.retrieval import retrieval
from evals.search_answers import search_answers
from evals.survival import survival, survival_closed
from evals.templates import templates
from evals.token_estimate import token_estimate
from evals.tool_choice import tool_choice
from evals.tool_selection import tool_selection

EVALUATIONS = {
    "assembly": assembly,
    "board_answers": board_answers,
    "cache_replay": cache_replay,
    "calibration": calibration,
    "calibration_fit": calibration_fit,
    "chunking": chunking,
    "compaction": compaction,
    "compaction_adversarial": compaction_adversarial,
    "compaction_expansion": compaction_expansion,
    "efficiency": efficiency,
    "efficiency_alerts": efficiency_alerts,
    "efficiency_fit": efficiency_fit,
    "entities": entities,
    "injection": injection,
    "injection_bars": injection_bars,
    "injection_closed": injection_closed,
    "long_outputs": long_outputs,
    "message_search": message_search,
    "pairs": pairs,
    "public_schemas": public_schemas,
    "recommendations": recommendations,
    "relevance": relevance,
    "relevance_closed": relevance_closed,
    "relevance_fit": relevance_fit,
    "retrieval": retrieval,
    "search_answers": search_answers,
    "survival": survival,
    "survival_closed": survival_closed,
    "templates": templates,
    "token_estimate": token_estimate,
    "tool_choice": tool_choice,
    "tool_selection": tool_selection,
}
RESULTS = Path(".results/evals.json")


def data_folder() -> Path | None:
    """Return the folder of the evaluation data: WEFTLINE_EVAL_DATA, else next to the checkout, else None."""
    for candidate in (os.environ.get("WEFTLINE_EVAL_DATA"), "../shared/eval-data"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return None


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in EVALUATIONS]
    if unknown:
        print(f"Unknown evaluation {unknown[0]}; choose from: {', '.join(EVALUATIONS)}.")
        return 2
    # Closed data is read only by its name.
    open_ = [name for name in EVALUATIONS if not name.endswith("_closed")]
    folder = data_folder()
    if folder is None:
        print("No evaluation data found: set WEFTLINE_EVAL_DATA to its folder. Only the built-in texts are evaluated.")
    rows: list[Row] = [row for name in names or open_ for row in EVALUATIONS[name](folder)]
    _save(rows)
    print(as_table(rows))
    return 0


def _save(rows: list[Row]) -> None:
    """Save the results; those of evaluations that were not run stay."""
    RESULTS.parent.mkdir(exist_ok=True)
    before = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    ran = {row.name.partition(".")[0] for row in rows}
    kept = [old for old in before if old["name"].partition(".")[0] not in ran]
    RESULTS.write_text(json.dumps([*kept, *(row.as_json() for row in rows)], indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
