"""Exports, imports and export policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weftline.transports.cli.render import block, cell, counted, escape_controls, indent

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.exchange.transfer.export import ContextExported
    from weftline.exchange.transfer.importer import ContextImported
    from weftline.exchange.transfer.policies import PolicyInfo, PolicyList
    from weftline.exchange.transfer.policy_filter import PolicyDefinition

_CONTENT = {"full": "exported", "reference": "digest only", "none": "not exported"}
_BLOCKED = {"omit": "omitted", "policy_blocked": "listed without content"}


def render_export(exported: ContextExported) -> str:
    counts = [(exported.masked, "masked"), (exported.omitted, "omitted")]
    withheld = [f"{number} {what}" for number, what in counts if number]
    by_policy = f" ({', '.join(withheld)} by the policy {exported.policy})" if withheld else ""
    size = f"{counted(exported.records, 'record')}, {counted(exported.bytes, 'byte')}"
    return f"{exported.bundle_id}: {size}{by_policy}\n{exported.digest}"


def render_import(imported: ContextImported) -> str:
    if imported.unchanged:
        return f"{imported.bundle_id} was imported before; nothing changed."
    counts = {
        "version": imported.versions,
        "message": imported.messages,
        "event": imported.events,
        "snapshot": imported.snapshots,
        "record": imported.records,
    }
    made = ", ".join(counted(number, what) for what, number in counts.items() if number) or "nothing"
    where = f" into the session {imported.session_id}" if imported.session_id else ""
    skipped = f" Skipped {imported.skipped} that already existed." if imported.skipped else ""
    return f"{'Would import' if imported.dry_run else 'Imported'} {made}{where}.{skipped}"


def _render_list(found: PolicyList) -> str:
    return "\n\n".join(map(_render_policy, found.policies)) or "No policy is available to you."


def _render_policy(policy: PolicyInfo) -> str:
    name = click.style(escape_controls(policy.name), bold=True)
    default = " (default)" if policy.is_default else ""
    facts = {**_rules(policy.definition), "set": "" if policy.built_in else _updated(policy)}
    rules = block({label: text for label, text in facts.items() if text})
    return "\n".join(
        [name + default, *map(indent, filter(None, [escape_controls(policy.definition.description), rules]))]
    )


def _rules(definition: PolicyDefinition) -> dict[str, str]:
    has_limits = definition.blocks_items
    return {
        "for": cell(definition.who),
        "content": _CONTENT[definition.content],
        "masked": cell(definition.mask) or "nothing",
        "kinds": _kinds(definition),
        "up to": definition.sensitivity if has_limits else "",
        "blocked items": _BLOCKED[definition.on_block] if has_limits else "",
    }


def _kinds(definition: PolicyDefinition) -> str:
    included, excluded = cell(definition.include_kinds), cell(definition.exclude_kinds)
    return " ".join(filter(None, [included, excluded and f"{'except' if included else 'all except'} {excluded}"]))


def _updated(policy: PolicyInfo) -> str:
    return f"{cell(policy.updated_at)} by {escape_controls(policy.updated_by or '')}"


FORMATTERS: dict[str, Callable[[Any], str]] = {"policy.list": _render_list, "policy.set": _render_policy}
