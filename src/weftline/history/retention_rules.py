"""Retention rules: how long old versions are kept, and which rule a context follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.history.line_kinds import find_kind, line_kinds
from weftline.history.model import trunk_of
from weftline.history.store import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.access.plans import Allowance
    from weftline.history.line_kinds import LineKind


class StoredRule(NamedTuple):
    """A rule as it was set: its subject, by whom and when."""

    subject: str
    rule: Rule
    updated_by: str
    updated_at: int


class Pruning(NamedTuple):
    """What retention removed from one line in one run."""

    pruning_id: str
    line_id: str
    pruned_at: int
    pruned_by: str
    rule: str
    versions: int
    bytes: int
    first_seq: int
    last_seq: int


def default_rules() -> Mapping[str, Rule]:
    """Return the rules that hold unless a tenant sets others, by subject."""
    return {subject: rule for kind in line_kinds().values() for subject, rule in kind.retention.items()}


def subject_of(line_id: str) -> str | None:
    """Return the subject whose rule a line follows unless it has its own; None if it is never pruned."""
    kind = find_kind(line_id)
    return None if kind is None else kind.retention_subject(line_id)


def kind_of_subject(subject: str) -> LineKind | None:
    """Return the kind of line that a rule's subject names: a subject of defaults, or one line."""
    declared = (kind for kind in line_kinds().values() if subject in kind.retention)
    return next(declared, find_kind(subject))


def rule_for(subject: str, rules: Mapping[str, Rule]) -> tuple[str, Rule]:
    """Return the rule of a line or subject and what it was set for: the line, its trunk or the subject."""
    known = {**default_rules(), **rules}
    candidates = (subject, trunk_of(subject), subject_of(subject))
    found = next((name for name in candidates if name in known), subject)
    return found, known.get(found, Rule(None, None))


def pruning_rule(line_id: str, rules: Mapping[str, Rule], allowance: Allowance) -> tuple[str, Rule] | None:
    """Return the rule by which a line is pruned, within the plan, and its subject; None if everything is kept."""
    if subject_of(line_id) is None:
        return None
    subject, rule = rule_for(line_id, rules)
    if allowance.versions is not None and (rule.versions is None or rule.versions > allowance.versions):
        subject, rule = f"{subject} (plan {allowance.plan})", rule._replace(versions=allowance.versions)
    return None if rule.days is None and rule.versions is None else (subject, rule)


def describe_rule(subject: str, rule: Rule) -> str:
    """Return a rule as text, for the prune log."""
    limits = [f"{rule.days} days" if rule.days else "", f"{rule.versions} versions" if rule.versions else ""]
    return f"{subject}: {', '.join(filter(None, limits))}"
