"""Attacks by a member that reads as much as it may, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.attacks import End, attack, flood, repeated

if TYPE_CHECKING:
    from benchmarks.attacks import Tally, Target

_QUESTION = "what was decided about the retry budget of the queue and who owns the deploy of the second attempt"


def _session(target: Target, rest: str) -> str:
    return f"/v1/sessions/{target.session}/{rest}"


def _board(target: Target, rest: str) -> str:
    return f"/v1/history/board:{target.session}/{rest}"


@attack(End.SHARED)
async def all_keys(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", _session(target, "context"), target.key))


@attack(End.SHARED)
async def snapshots(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", _session(target, "snapshots/first"), target.key))


@attack(End.SHARED)
async def comparisons(target: Target, tally: Tally) -> None:
    path = _session(target, "snapshots/first/comparison?to_label=second")
    await flood(target, tally, repeated("GET", path, target.key))


@attack(End.SHARED)
async def states(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", _board(target, "state?limit=1000"), target.key))


@attack(End.SHARED)
async def diffs(target: Target, tally: Tally) -> None:
    path = _board(target, "diff?from_version=first&to_version=second&words=true")
    await flood(target, tally, repeated("GET", path, target.key))


@attack(End.SHARED)
async def logs_of_one_key(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", _board(target, "log?key=key_1&limit=1000"), target.key))


@attack(End.SHARED)
async def verifications(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("POST", _board(target, "verify"), target.key, {"deep": True}))


@attack(End.SHARED)
async def bisections(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", _board(target, "bisect?key=key_1&contains=second"), target.key))


@attack(End.SHARED)
async def all_events(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", f"/v1/events?after=0&session_id={target.session}", target.key))


@attack(End.SHARED)
async def waiting_calls(target: Target, tally: Tally) -> None:
    """Calls that wait for events which do not come."""
    path = f"/v1/events?session_id={target.session}&wait_seconds=2&keys=none"
    await flood(target, tally, repeated("GET", path, target.key), 1_000)


@attack(End.SHARED)
async def batches_of_keys(target: Target, tally: Tally) -> None:
    keys = [f"key_{number}" for number in range(100)]
    await flood(target, tally, repeated("POST", _session(target, "read-batch"), target.key, {"keys": keys}))


@attack(End.SHARED)
async def message_searches(target: Target, tally: Tally) -> None:
    path = _session(target, f"messages/search?query={_QUESTION.replace(' ', '+')}&fuzzy_threshold=40&limit=100")
    await flood(target, tally, repeated("GET", path, target.key))


@attack(End.SHARED)
async def searches(target: Target, tally: Tally) -> None:
    body = {"query": _QUESTION, "session_id": target.session, "top_k": 100, "min_score": 0.0, "explain": True}
    await flood(target, tally, repeated("POST", "/v1/search", target.key, body))


@attack(End.SHARED)
async def entity_lists(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", f"/v1/entities?session_id={target.session}&limit=100", target.key))


@attack(End.SHARED)
async def assemblies(target: Target, tally: Tally) -> None:
    body = {"task_description": _QUESTION, "token_budget": 100_000, "fresh": True}
    await flood(target, tally, repeated("POST", _session(target, "assemble"), target.key, body))


@attack(End.SHARED)
async def key_facts(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", _session(target, "facts?limit=100"), target.key))


@attack(End.SHARED)
async def exports(target: Target, tally: Tally) -> None:
    body = {"session_id": target.session, "scope": "session", "history": True}
    await flood(target, tally, repeated("POST", "/v1/export/stream", target.key, body), 8)


@attack(End.SHARED)
async def record_lists(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", f"/v1/records?session_id={target.session}&limit=200", target.key))


@attack(End.SHARED)
async def board_checks(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", _session(target, "check"), target.key))


@attack(End.SHARED)
async def evaluations_of_a_domain(target: Target, tally: Tally) -> None:
    """Fifty searches for example questions in each call."""
    await flood(target, tally, repeated("POST", "/v1/domains/questions/evaluation", target.key, {}), 8)


@attack(End.SHARED)
async def alerts(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", "/v1/alerts?state=all&limit=200", target.key))


@attack(End.SHARED)
async def budget_lists(target: Target, tally: Tally) -> None:
    await flood(target, tally, repeated("GET", "/v1/budgets?limit=1000", target.key))
