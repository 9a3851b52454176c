"""Operations on the templates that come with Weftline."""

from __future__ import annotations

from weftline.indexing.chunking.model import ChunkingOptions
from weftline.kernel.operation import Request, Response, shared_fields
from weftline.knowledge.model import read_operation
from weftline.knowledge.templates.model import (
    DomainTemplate,
    ExampleQuestion,
    MetadataField,
    TemplateName,
    TemplateNotFound,
    find_template,
    included_templates,
)


class ListTemplates(Request):
    """Lists the templates that come with Weftline."""


class ShowTemplate(Request):
    """A template."""

    name: TemplateName


class TemplateSummary(Response):
    """A template in a list."""

    name: str
    version: int
    description: str


class TemplateList(Response):
    """Templates, by name."""

    templates: list[TemplateSummary]


class TemplateInfo(Response, omit_defaults=False):
    """A template: a domain that is created from it has a copy of it.

    ``pinned``: documents with such ids are part of every search; ``retention_days``: documents are deleted so many days
    after their timestamp; ``questions`` are evaluated once documents are indexed.
    """

    name: str
    version: int
    description: str
    chunking: ChunkingOptions
    metadata: tuple[MetadataField, ...]
    pinned: tuple[str, ...]
    retention_days: int | None
    questions: tuple[ExampleQuestion, ...]


@read_operation("knowledge.list_templates", action="list_templates", http="GET /v1/templates")
async def list_templates(request: ListTemplates) -> TemplateList:
    """List the templates for domains that come with Weftline."""
    del request
    summaries = [TemplateSummary(**shared_fields(each, TemplateSummary)) for each in included_templates().values()]
    return TemplateList(templates=summaries)


@read_operation(
    "knowledge.show_template", action="show_template", http="GET /v1/templates/{name}", errors=(TemplateNotFound,)
)
async def show_template(request: ShowTemplate) -> TemplateInfo:
    """Show a template: chunking, metadata fields, pinned documents, retention and example questions."""
    return template_info(find_template(request.name))


def template_info(template: DomainTemplate) -> TemplateInfo:
    return TemplateInfo(**shared_fields(template, TemplateInfo))
