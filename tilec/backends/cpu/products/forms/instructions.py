"""By which instruction a register block multiplies: what `explain` and `inspect` say of a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.lowering.emission.storage import compute_type

if TYPE_CHECKING:
    from tilec.backends.cpu.nodes import RegisterBlock
    from tilec.targets import Target

#: On x86-64, what multiplies vectors of each type, with a fused multiply-add and without.
_FUSED = {"float16": "vfmadd231ph", "float32": "vfmadd231ps", "float64": "vfmadd231pd", "int32": "vpmulld"}
_PLAIN = {"float32": "mulps", "float64": "mulpd", "int32": "pmulld"}


def instruction_of(block: RegisterBlock, dtype: str, target: Target) -> str:
    """The instruction of products into sums of ``dtype`` by ``block``, as assemblers name it."""
    kind = "float16" if block.halves else compute_type(dtype)
    form = word_form(block.along or block.form)
    if form is not None:
        return f"v{form.name}" if form.name.startswith("pm") and target.has_fma else form.instruction
    if target.arch == "aarch64":
        return "mla" if kind == "int32" else "fmla"
    return (_FUSED if target.has_fma else _PLAIN)[kind]
