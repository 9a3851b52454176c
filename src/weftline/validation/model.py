"""Validations: what they measure, and their figures against targets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from weftline.kernel.operation import Response

if TYPE_CHECKING:
    from weftline.settings import Settings
    from weftline.validation.compaction import Material

_MAX_NAMED = 5

State = Literal["met", "missed", "not_measured"]


class Figure(Response, omit_defaults=False):
    """A measured value and its target. ``met`` is null for a value without a target; ``misses`` names what failed."""

    measured: str
    value: float
    unit: str = ""
    target: str = ""
    met: bool | None = None
    misses: tuple[str, ...] = ()


class ValidationResult(Response, omit_defaults=False):
    """The figures of one validation. ``note``: what they were measured on, or why there are none."""

    validation: str
    shows: str
    state: State
    figures: tuple[Figure, ...]
    note: str = ""


class ProductValidation(NamedTuple):
    """One validation: its name, what it shows, and what it is measured on. The module of its name measures it.

    ``drawn``: on texts that are drawn at random.
    """

    name: str
    shows: str
    note: str
    drawn: bool = False

    async def run(
        self, settings: Settings, material: Material | None = None, note: str | None = None
    ) -> ValidationResult:
        """Measure, one that is ``drawn`` on the material given."""
        # Loaded when it is run: the command line lists validations without a database.
        module = import_module(f"weftline.validation.{self.name.replace('-', '_')}")
        drawn = [material] if self.drawn and material else []
        return self.result(await module.measure(settings, *drawn), note)

    def result(self, figures: Sequence[Figure], note: str | None = None) -> ValidationResult:
        """Return the result for figures that were measured."""
        missed = any(figure.met is False for figure in figures)
        state: State = "not_measured" if not figures else "missed" if missed else "met"
        return ValidationResult(
            validation=self.name,
            shows=self.shows,
            state=state,
            figures=tuple(figures),
            note=self.note if note is None else note,
        )


def share_at_least(measured: str, part: float, whole: float, percent: float, misses: Collection[str] = ()) -> Figure:
    """Return a share in percent that must not be below a target; nothing measured is a miss."""
    value = 100 * part / whole if whole else 0.0
    return Figure(
        measured=measured,
        value=round(value, 2),
        unit="%",
        target=f">= {percent:g} %",
        met=bool(whole) and value >= percent,
        misses=tuple(misses)[:_MAX_NAMED],
    )


def all_of(measured: str, attempts: int, misses: Collection[str]) -> Figure:
    """Return how many attempts ended as they must: all of them, and there must be some."""
    return Figure(
        measured=measured,
        value=attempts - len(misses),
        unit=f"of {attempts}",
        target="all",
        met=attempts > 0 and not misses,
        misses=tuple(misses)[:_MAX_NAMED],
    )


def none_of(measured: str, found: Collection[str]) -> Figure:
    """Return the number of what must not happen."""
    return Figure(measured=measured, value=len(found), target="0", met=not found, misses=tuple(found)[:_MAX_NAMED])
