"""Guardrails on the command line: refused calls, warnings, list, test and check."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli_support import CommandLine

RULES = json.dumps(
    [
        {"name": "no-delete", "prohibited_action": ["board.delete"], "message": "Keep it."},
        {"name": "soon", "prohibited_action": ["board.write"], "violation_response": "warn"},
        {"name": "repos", "prohibited_action": ["github.*"], "condition": "arguments.repo != 'acme/docs'"},
    ]
)


@pytest.mark.req("CE-F37")
def test_a_command_is_refused_and_a_warning_is_shown(launch: CommandLine) -> None:
    launch.run("agent", "create", "scout")
    launch.run("layer", "define", "tenant", "--guardrails", RULES)
    written = launch.run("--as", "scout", "board", "write", "goal", "Ship")
    assert "Warning: The guardrail 'soon' of the tenant prohibits board.write." in written.stderr
    refused = launch.run("--as", "scout", "board", "delete", "goal", "--yes", code=3)
    assert "The guardrail 'no-delete' of the tenant prohibits board.delete: Keep it." in refused.output
    assert launch.json("board", "read", "goal")["value"] == "Ship"


def test_rules_are_tested_listed_and_checked(launch: CommandLine) -> None:
    tested = launch.json("guardrail", "test", "board.delete", "--guardrails", RULES)
    assert (tested["decision"], tested["guardrail"]) == ("block", "no-delete")
    launch.run("layer", "define", "tenant", "--guardrails", RULES)
    assert "no-delete" in launch.run("guardrail", "list").output
    allowed = launch.json("guardrail", "check", "github.create_issue", "--arguments", '{"repo": "acme/docs"}')
    assert allowed["allowed"] is True
    launch.run("guardrail", "check", "github.create_issue", "--arguments", '{"repo": "x"}', code=3)
    wrong = json.dumps([{"name": "r", "prohibited_action": ["board.write"], "condition": "argument.key == 1"}])
    refused = launch.run("layer", "define", "tenant", "--guardrails", wrong, code=1)
    assert "line 1, column 1: there is no variable or function 'argument'" in refused.output
