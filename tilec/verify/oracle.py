"""What a variant should compute: the author's reference, or the interpreter on the library's own tile IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.errors import VerifyError
from tilec.manifest import KernelPlan
from tilec.verify.arguments import placed, random_value

_RTOL = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 2e-2}
_RTOL_SMALL_FLOAT = 0.13


@dataclass(frozen=True)
class Author:
    """What the manifest offers for a kernel: reference, inputs, tolerances; None where it is silent."""

    reference: Callable[..., Any] | None = None
    inputs: Callable[..., Any] | None = None
    rtol: float | None = None
    atol: float | None = None
    max_mismatch: float = 0.0


def author_of(kernel: KernelPlan | None) -> Author:
    """Loads the functions that a manifest names. Raises SourceError when they cannot be found."""
    if kernel is None:
        return Author()
    from tilec.language.elaborate import load_entry

    base, entry = kernel.variants[0].base, kernel.entry
    functions = [load_entry(text, base) if text else None for text in (entry.reference, entry.inputs)]
    return Author(functions[0], functions[1], entry.rtol, entry.atol, entry.max_mismatch or 0.0)  # type: ignore[arg-type]


def make_arguments(
    params: Sequence[Mapping[str, Any]], dims: Mapping[str, int], author: Author, rng: np.random.Generator
) -> dict[str, Any]:
    """A value for every parameter; those that the kernel only writes start poisoned."""
    from tilec.verify.arguments import empty_tensor

    given = [param for param in params if param["access"] != "out"]
    values = author.inputs(dict(dims), rng) if author.inputs else None
    if values is not None and len(values) != len(given):
        raise VerifyError(
            f"inputs() made {len(values)} values for {len(given)} parameters",
            why=f"the kernel reads {', '.join(param['name'] for param in given)}",
            remedy="let inputs(dims, rng) return one value per parameter that is no output",
        )
    made = {
        param["name"]: placed(param, dims, values[at])
        if values is not None
        else random_value(param, dims, rng)
        for at, param in enumerate(given)
    }
    outputs = {param["name"]: empty_tensor(param, dims) for param in params if param["access"] == "out"}
    return {param["name"]: made.get(param["name"], outputs.get(param["name"])) for param in params}


def expected(
    params: Sequence[Mapping[str, Any]],
    dims: Mapping[str, int],
    values: Mapping[str, Any],
    author: Author,
    ir_text: str,
) -> dict[str, np.ndarray[Any, Any]]:
    """Output name to what it should hold. ``values`` are not changed."""
    written = [param["name"] for param in params if param["kind"] == "tensor" and param["access"] != "in"]
    if author.reference is not None:
        given = [values[param["name"]] for param in params if param["access"] != "out"]
        made = author.reference(*given)
        made = list(made) if isinstance(made, (tuple, list)) else [made]
        return {name: np.asarray(value) for name, value in zip(written, made, strict=True)}
    from tilec.ir.interpreter import run
    from tilec.ir.parser import parse_kernel

    copies = {
        name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()
    }
    run(parse_kernel(ir_text), [copies[param["name"]] for param in params], dims)
    return {name: copies[name] for name in written}


def mismatch(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], author: Author) -> tuple[float, float]:
    """(largest absolute error, share of elements out of tolerance). Integers must be equal; a NaN must be
    met by a NaN. The default absolute tolerance is the relative one times the largest expected magnitude."""
    if got.shape != want.shape:
        return float("inf"), 1.0
    if got.size == 0:
        return 0.0, 0.0
    rtol, atol = _tolerance(got.dtype, want, author)
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    reach = np.where(np.isfinite(b), np.abs(b), 0.0)
    wrong = ~same & (error > atol + rtol * reach)
    return float(error.max()), float(wrong.mean())


def _tolerance(dtype: np.dtype[Any], want: np.ndarray[Any, Any], author: Author) -> tuple[float, float]:
    """(relative, absolute); 0 for integers."""
    if dtype.kind in "bui":
        return 0.0, 0.0
    rtol = author.rtol if author.rtol is not None else _RTOL.get(dtype.name, _RTOL_SMALL_FLOAT)
    if author.atol is not None:
        return rtol, author.atol
    magnitudes = np.abs(want.astype(np.float64))
    return rtol, rtol * float(np.max(magnitudes, initial=0.0, where=np.isfinite(magnitudes)))
