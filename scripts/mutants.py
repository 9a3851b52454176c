"""Break twenty rules that matter most, one at a time, and tell whether the tests notice.

Each mutant is one change of source text, applied to a copy of ``src``; the test files that own the rule run against it
and stop at the first failure. A mutant that survives is a rule that nothing protects. ``mutants.py`` runs all of them,
``mutants.py budgets`` those of one rule, and ``mutants.py --list`` runs none; the exit code is the number of survivors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = ROOT / "src" / "weftline"
_SUMMARY = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
# Pytest's exit codes: tests failed, and tests could not be collected because the package cannot be imported.
_FAILED, _PASSED = 1, 0


class Mutant(NamedTuple):
    """A change of one text, which occurs once in its file, and the tests that shall notice it."""

    rule: str
    says: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


VISIBILITY = (
    Mutant(
        "visibility",
        "anyone reads a key of the board, whatever its read ACL",
        "state/board/model.py",
        "all(patterns == ANYONE or actor.matches(patterns) for patterns in (self.readable_by, *self.later_acls))",
        "True",
        ("integration/test_board_visibility.py",),
    ),
    Mutant(
        "visibility",
        "an older version of a key is read by those whom a later ACL excludes",
        "history/key_acls.py",
        "return _acls(later)",
        "return ()",
        ("integration/test_board_acl_history.py",),
    ),
    Mutant(
        "visibility",
        "a message to admins is listed for the whole session",
        "sessions/messages/model.py",
        "(audience for audience in named if audience in own)",
        "(audience for audience in named)",
        ("integration/test_message_visibility.py",),
    ),
    Mutant(
        "visibility",
        "a search of all sessions reads those that do not admit the caller",
        "search/scope.py",
        "    if stores.actor.is_admin:\n        return None\n    return await stores.known_sessions",
        "    return None\n    return await stores.known_sessions",
        ("integration/test_search_isolation.py", "integration/test_search_side_channels.py"),
    ),
    Mutant(
        "visibility",
        "an event is delivered to those whom its ACL excludes",
        "sessions/events/model.py",
        "return recorded.readable_by == ANYONE or actor.matches(recorded.readable_by)",
        "return True",
        ("integration/test_event_acl.py", "integration/test_event_feed.py"),
    ),
)
VERSIONS = (
    Mutant(
        "versions",
        "a key of the board is overwritten although another call has changed it",
        "state/board/board_writer.py",
        "if if_version is not None and if_version != version:",
        "if if_version is not None and if_version > version:",
        ("integration/test_board_entries.py",),
    ),
    Mutant(
        "versions",
        "a memory is overwritten although another call has changed it",
        "state/memory/service.py",
        "if expected is not None and expected != version:",
        "if expected is not None and expected > version:",
        ("integration/test_memory_entries.py",),
    ),
    Mutant(
        "versions",
        "a push replaces a version that the agent has not seen",
        "state/agent_context/push.py",
        "elif changed and not is_current:",
        "elif changed and context.root.seq < expected:",
        ("integration/test_context_push.py",),
    ),
    Mutant(
        "versions",
        "a key that is created again has the version numbers of the deleted one",
        "state/board/board_writer.py",
        "return (await lines.last_number(self.line_id, key)).created_again",
        "return KeyNumber(1, 1)",
        ("integration/test_board_entries.py", "integration/test_board_history.py"),
    ),
)
TENANTS = (
    Mutant(
        "tenants",
        "a key of the board is read from a session of the same name in any tenant",
        "state/board/sql.py",
        '_WITH_VALUE + "WHERE e.tenant = $1 AND e.session_id = $2 AND e.key = $3"',
        '_WITH_VALUE + "WHERE $1 <> e.tenant AND e.session_id = $2 AND e.key = $3"',
        ("integration/test_tenant_isolation.py",),
    ),
    Mutant(
        "tenants",
        "row-level security lets every tenant see every row",
        "storage/sql/dialects/postgres.py",
        "TO weftline_app USING (tenant = current_setting",
        "TO weftline_app USING (true OR tenant = current_setting",
        ("integration/test_tenant_isolation.py",),
    ),
    Mutant(
        "tenants",
        "the vector of a query is shared by agents of the same name in two tenants",
        "app/search/embedding_cache.py",
        "key = (actor.tenant, actor.principal_id, model, _digest(text))",
        'key = ("", actor.principal_id, model, _digest(text))',
        ("integration/test_embeddings.py",),
    ),
    Mutant(
        "tenants",
        "a memory is read from an agent of the same name in any tenant",
        "state/memory/sql.py",
        '_READ = _WITH_VALUE + "WHERE e.tenant = $1 AND',
        '_READ = _WITH_VALUE + "WHERE $1 <> e.tenant AND',
        ("integration/test_memory_privacy.py",),
    ),
)
SECRETS = (
    Mutant(
        "secrets",
        "a value is not masked by the name of its field",
        "safety/redaction.py",
        "if not key or self._scanner.is_empty or _is_document(text):",
        "if key or self._scanner.is_empty or _is_document(text):",
        ("unit/safety/redaction/test_masker.py",),
    ),
    Mutant(
        "secrets",
        "a redacted message stays readable where it is stored",
        "exchange/record_log/sealing.py",
        "await self.messages.rewrite(name.session_id, _redacted_message(message, redaction, original))",
        "pass",
        ("integration/test_redaction.py",),
    ),
    Mutant(
        "secrets",
        "the arguments of a refused call are logged",
        "app/dispatch.py",
        "            outcome = error.code\n            raise\n        except Exception as error:",
        '            outcome = error.code\n            _log.warning("refused: %s", fields)\n            raise\n'
        "        except Exception as error:",
        ("http/test_http_logging.py",),
    ),
    Mutant(
        "secrets",
        "a rule that redacts leaves the fields of requests and answers as they are",
        "safety/guardrails/service.py",
        "return structs.replace(value, **changes) if changes else value",
        "return value",
        ("integration/test_guardrails.py",),
    ),
)
BUDGETS = (
    Mutant(
        "budgets",
        "an agent that has spent its share of a budget makes further calls",
        "models/budget_limits.py",
        "found.append(BudgetUse(share, await self.store.spend(share.name, use.starts_at), use.starts_at))",
        "found.extend(())",
        ("integration/test_budgets.py",),
    ),
    Mutant(
        "budgets",
        "calls at the same time exceed a budget together",
        "models/budget_limits.py",
        'if use.is_over and use.budget.at_limit == "refuse":',
        'if use.used > 2 and use.budget.at_limit == "refuse":',
        ("integration/test_budgets.py",),
    ),
    Mutant(
        "budgets",
        "a persistent memory takes one entry more than the plan allows",
        "access/plans.py",
        "if entries > self.memory_entries:",
        "if entries > self.memory_entries + 1:",
        ("integration/test_plan_limits.py", "integration/test_context_push.py"),
    ),
)
MUTANTS = (*VISIBILITY, *VERSIONS, *TENANTS, *SECRETS, *BUDGETS)


def main(arguments: Sequence[str]) -> int:
    named = {argument for argument in arguments if not argument.startswith("-")}
    chosen = [mutant for mutant in MUTANTS if not named or mutant.rule in named]
    if not chosen:
        print(f"No rule is named so; there are {', '.join(dict.fromkeys(mutant.rule for mutant in MUTANTS))}.")
        return 2
    if "--list" in arguments:
        for mutant in chosen:
            print(f"{mutant.rule:<11} {mutant.says}")
        return 0
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="weftline-mutants-") as folder:
        source = Path(folder) / "src"
        # With its bytecode and times, so that only the changed module is compiled again.
        shutil.copytree(ROOT / "src", source)
        for mutant in chosen:
            began = time.monotonic()
            killer = _run(mutant, source)
            survivors += killer is None
            outcome = "survived" if killer is None else f"died by {killer}"
            print(f"{mutant.rule:<11} {mutant.says}: {outcome} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} died.")
    return survivors


def mutated(mutant: Mutant) -> str:
    """Return the source of a mutant; raises ValueError if the text to change is not there exactly once."""
    source = (_PACKAGE / mutant.file).read_text()
    if source.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file} has the text {source.count(mutant.old)} times, not once: {mutant.old}")
    return source.replace(mutant.old, mutant.new)


def _run(mutant: Mutant, source: Path) -> str | None:
    """Return the test that fails with a mutant; None if none does."""
    changed = source / "weftline" / mutant.file
    original = changed.read_bytes()
    changed.write_text(mutated(mutant))
    try:
        return _first_failure([f"tests/{test}" for test in mutant.tests], source)
    finally:
        changed.write_bytes(original)
        # A time of its own: bytecode belongs to a source by its time in seconds and its size.
        os.utime(changed, (time.time(), time.time() - 3600))


def _first_failure(tests: Sequence[str], source: Path) -> str | None:
    command = [sys.executable, "-m", "pytest", "--exitfirst", "-p", "no:cacheprovider", "--tb=no", "-rfE", *tests]
    # Before the installed package, also in the processes that tests start.
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in {_PASSED, _FAILED}:
        raise SystemExit(f"The tests could not run: {done.stdout}{done.stderr}")
    found = _SUMMARY.search(done.stdout)
    return None if done.returncode == _PASSED else found[1] if found else "a failure"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
