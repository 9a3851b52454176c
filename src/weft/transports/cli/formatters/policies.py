"""Export policies for people: what each one lets leave, and who may use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli.render import block, cell, harmless, indent

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.capabilities.transfer.policies import PolicyInfo, PolicyList
    from weft.capabilities.transfer.policy_filter import PolicyDefinition

_LEAVES = {"full": "as it is", "reference": "only by its digest", "none": "not at all"}
_BLOCKED = {"omit": "left out", "policy_blocked": "there without what it says"}


def _render_list(found: PolicyList) -> str:
    return "\n\n".join(map(_render_policy, found.policies)) or "There is no policy that you may use."


def _render_policy(policy: PolicyInfo) -> str:
    name = click.style(harmless(policy.name), bold=True)
    default = " (holds where none is named)" if policy.is_default else ""
    told = {**_said(policy.definition), "set": "" if policy.built_in else _changed(policy)}
    shown = block({label: text for label, text in told.items() if text})
    return "\n".join([name + default, *map(indent, filter(None, [harmless(policy.definition.description), shown]))])


def _said(definition: PolicyDefinition) -> dict[str, str]:
    kept_back = definition.keeps_back
    return {
        "for": cell(definition.who),
        "content": _LEAVES[definition.content],
        "masked": cell(definition.mask) or "nothing",
        "kinds": _kinds(definition),
        "up to": definition.sensitivity if kept_back else "",
        "other items": _BLOCKED[definition.on_block] if kept_back else "",
    }


def _kinds(definition: PolicyDefinition) -> str:
    only, without = cell(definition.include_kinds), cell(definition.exclude_kinds)
    return " ".join(filter(None, [only, without and f"{'but not' if only else 'all but'} {without}"]))


def _changed(policy: PolicyInfo) -> str:
    return f"{cell(policy.updated_at)} by {harmless(policy.updated_by or '')}"


# Which operations' answers are shown in a form of their own.
FORMS: dict[str, Callable[[Any], str]] = {"policy.list": _render_list, "policy.set": _render_policy}
