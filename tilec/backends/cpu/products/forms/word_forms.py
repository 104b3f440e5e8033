"""Which instruction multiplies what, of those whose operands are words of several K elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cpu.products.forms.dot_forms import DOT_FORMS, DotForm, dot_form
from tilec.backends.cpu.products.forms.matrix_forms import MATRIX_FORMS, matrix_form
from tilec.backends.cpu.products.forms.tile_forms import TILE_FORMS, tile_form

if TYPE_CHECKING:
    from tilec.targets import Target

_FAMILIES: tuple[dict[str, DotForm], ...] = (TILE_FORMS, MATRIX_FORMS, DOT_FORMS)  # type: ignore[assignment]


def word_form(name: str) -> DotForm | None:
    """The form of a `RegisterBlock` whose operands are words; None where they are single elements."""
    return next((family[name] for family in _FAMILIES if name in family), None)


def takes_any(name: str) -> bool:
    """Whether the form of a `RegisterBlock` takes any K and any columns of its tiles: the last word along K
    has zeros behind it."""
    return name == "fma" or name in DOT_FORMS


def group_of(name: str) -> int:
    """Elements along K that one step of a form takes."""
    form = word_form(name)
    return 1 if form is None else form.group


def word_forms(target: Target, a: str, b: str, c: str) -> tuple[DotForm, ...]:
    """The forms for operands of types ``a`` and ``b`` into ``c``, the fastest first; none where plain
    multiply-adds serve."""
    found = (choose(target, a, b, c) for choose in (tile_form, matrix_form, dot_form))
    return tuple(form for form in found if form is not None)
