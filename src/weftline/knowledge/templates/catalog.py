"""The templates that come with Weftline: one TOML file each, next to this module."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from weftline.kernel.errors import close_names
from weftline.knowledge.templates.model import DomainTemplate, TemplateNotFound, check_template

_FOLDER = Path(__file__).parent


@cache
def included_templates() -> dict[str, DomainTemplate]:
    """Return the included templates by name."""
    files = sorted(_FOLDER.glob("*.toml"))
    return {template.name: template for template in map(_load, files)}


def find_template(name: str) -> DomainTemplate:
    """Return an included template."""
    templates = included_templates()
    if name not in templates:
        raise TemplateNotFound(
            f"There is no template '{name}'.",
            resource_type="template",
            resource_id=name,
            available_alternatives=close_names(name, list(templates)) or list(templates),
        )
    return templates[name]


def _load(file: Path) -> DomainTemplate:
    template = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), DomainTemplate)
    check_template(template)
    return template
