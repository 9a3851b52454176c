"""Types of templates, and of the evaluation of their example questions."""

from __future__ import annotations

import tomllib
from collections import Counter
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from weftline.indexing.chunking.model import ChunkingOptions
from weftline.kernel.errors import ContentTooLarge, InvalidInput, NotFound, close_names
from weftline.kernel.fields import Name, ShortText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


FieldType = Literal["string", "integer", "number", "boolean", "date"]
TemplateName = Annotated[
    Name, msgspec.Meta(description="Name of the template.", extra_json_schema={"examples": ["support_handbook"]})
]
_Phrase = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Phrases = Annotated[tuple[_Phrase, ...], msgspec.Meta(max_length=20)]
_Description = Annotated[str, msgspec.Meta(max_length=2_000)]
_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "date": (str,),
}
# Copies of templates are read with their domains: they stay small.
MAX_TEMPLATE_BYTES = 65_536
# A refusal names this many allowed values of a field, and this many fields.
_MAX_NAMED = 10
_ARTICLES = {"integer": "an integer", "date": "a date such as 2026-01-31"}


class _TemplatePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of the parts of a template: unknown fields are refused, so that a misspelt one is noticed."""


class MetadataField(_TemplatePart, frozen=True):
    """A metadata field of documents. ``values`` are the allowed ones, of a string."""

    name: Annotated[Name, msgspec.Meta(description="Name of the field.")]
    type: Annotated[FieldType, msgspec.Meta(description="Type of its values.")] = "string"
    required: Annotated[bool, msgspec.Meta(description="Documents without it are refused.")] = False
    values: Annotated[
        tuple[_Phrase, ...], msgspec.Meta(max_length=100, description="Allowed values; by default any.")
    ] = ()
    description: Annotated[ShortText, msgspec.Meta(description="What the field means.")] = ""

    @property
    def expected(self) -> str:
        """Return what a value has to be."""
        return f"one of {_listed(self.values, ', ')}" if self.values else _ARTICLES.get(self.type, f"a {self.type}")

    def accepts(self, value: object) -> bool:
        if isinstance(value, bool) is not (self.type == "boolean") or not isinstance(value, _FIELD_TYPES[self.type]):
            return False
        if self.type == "date":
            return _is_date(str(value))
        return not self.values or value in self.values


class ExampleQuestion(_TemplatePart, frozen=True):
    """A question that the documents should answer, and what its evidence contains.

    ``contains``: texts that all have to be in it; ``contains_any``: texts of which one has to be. Case is ignored.
    """

    question: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, description="A question to search for.")]
    contains: Annotated[_Phrases, msgspec.Meta(description="Texts that its evidence must contain, all of them.")] = ()
    contains_any: Annotated[_Phrases, msgspec.Meta(description="Texts of which it must contain one.")] = ()


class DomainTemplate(_TemplatePart, frozen=True):
    """What a domain is created with. ``pinned`` are patterns of document ids, such as glossary*.

    Documents are deleted ``retention_days`` after their timestamp; without it they stay.
    """

    name: TemplateName
    version: Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="Version of the template.")] = 1
    description: Annotated[_Description, msgspec.Meta(description="What the domain is about.")] = ""
    chunking: ChunkingOptions = ChunkingOptions()
    metadata: Annotated[
        tuple[MetadataField, ...], msgspec.Meta(max_length=50, description="Metadata fields of documents.")
    ] = ()
    pinned: Annotated[
        tuple[_Phrase, ...], msgspec.Meta(max_length=20, description="Patterns of ids of documents to pin.")
    ] = ()
    retention_days: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=36_500)] | None,
        msgspec.Meta(description="Days after which documents are deleted; by default never."),
    ] = None
    questions: Annotated[
        tuple[ExampleQuestion, ...], msgspec.Meta(max_length=50, description="Questions to evaluate the domain with.")
    ] = ()

    @property
    def texts(self) -> str:
        """Return everything in it that agents may read, as one text."""
        return "\n".join(filter(None, self._texts()))

    def _texts(self) -> Iterator[str]:
        yield self.description
        for field in self.metadata:
            yield from (field.description, *field.values)
        yield from self.pinned
        for example in self.questions:
            yield from (example.question, *example.contains, *example.contains_any)


class QuestionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a question found: the evidence is complete at ``rank`` (0: in pinned documents), with ``document_id``.

    ``rank`` is None if the first results do not contain it. ``confidence`` is that of the search.
    """

    question: str
    found: bool
    rank: int | None
    document_id: str | None
    confidence: float


class DomainEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """How many example questions found their evidence, of the version of the template that the domain has."""

    template: str
    version: int
    evaluated_at: datetime
    documents: int
    found: int
    questions: tuple[QuestionResult, ...]

    @property
    def score(self) -> float | None:
        """Return the part of the questions that found their evidence; None if there are none."""
        return round(self.found / len(self.questions), 4) if self.questions else None


class TemplateNotFound(NotFound):
    """There is no template with this name."""

    code = "TEMPLATE_NOT_FOUND"
    hint = "List the templates with `knowledge.list_templates`, or give a template of your own as an object."
    related = ("knowledge",)


class MetadataMismatch(InvalidInput):
    """The metadata of a document does not fit the fields that the template of its domain defines."""

    code = "METADATA_MISMATCH"
    hint = "Add the document again with these fields in metadata."
    related = ("knowledge",)


def check_template(template: DomainTemplate) -> None:
    """Raise InvalidInput if parts of a template contradict each other, ContentTooLarge if they are too large."""
    size = len(msgspec.json.encode(template))
    if size > MAX_TEMPLATE_BYTES:
        raise ContentTooLarge(
            f"template: has {size} bytes as JSON, {MAX_TEMPLATE_BYTES} is the maximum.",
            hint="Shorten descriptions and lists of values, or leave out questions.",
            field="template",
            limit_bytes=MAX_TEMPLATE_BYTES,
        )
    if template.chunking.overlap_tokens >= template.chunking.chunk_tokens:
        raise _invalid("chunking: overlap_tokens must be below chunk_tokens")
    repeated = next((name for name, uses in Counter(field.name for field in template.metadata).items() if uses > 1), "")
    if repeated:
        raise _invalid(f"metadata: the field '{repeated}' is defined twice")
    for field in template.metadata:
        if field.values and field.type != "string":
            raise _invalid(f"metadata: the field '{field.name}' has values, so its type must be string")
    for number, example in enumerate(template.questions, 1):
        if not (example.contains or example.contains_any):
            raise _invalid(f"questions: say in contains or contains_any what the evidence of question {number} has")


def check_metadata(template: DomainTemplate, metadata: Mapping[str, Any] | None) -> None:
    """Raise MetadataMismatch, with every field that is missing or wrong. Fields of other names are allowed."""
    problems = list(_problems(template.metadata, metadata or {}))
    if problems:
        raise MetadataMismatch(
            f"metadata: {_listed(problems, '; ')}.",
            field="metadata",
            template=template.name,
            template_version=template.version,
        )


def _problems(fields: Iterable[MetadataField], metadata: Mapping[str, Any]) -> Iterator[str]:
    for field in fields:
        value = metadata.get(field.name)
        if value is None:
            if field.required:
                yield f"{field.name} is missing, it must be {field.expected}"
        elif not field.accepts(value):
            yield f"{field.name} must be {field.expected}"


def _listed(texts: Sequence[str], separator: str) -> str:
    """Return the first of many texts, and how many there are besides."""
    rest = len(texts) - _MAX_NAMED
    return separator.join([*texts[:_MAX_NAMED], *([f"{rest} more"] if rest > 0 else [])])


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _invalid(problem: str) -> InvalidInput:
    return InvalidInput(f"template: {problem}.", field="template")


# The templates that come with Weftline: one TOML file each, next to this module.

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
