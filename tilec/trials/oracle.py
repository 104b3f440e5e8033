"""What outputs should be: by the author's reference, or by the interpreter on the library's tile IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.backends.base import backend_of
from tilec.errors import EvalError, InputError, SourceError, UnsupportedError
from tilec.ir.interp.values import cast, numpy_dtype
from tilec.targets import parse_target
from tilec.trials.arrays import guarded, plant_special, random_values
from tilec.trials.comparison import HALF_SUMS, Tolerance, default_tolerance
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.indices import indices_of
from tilec.trials.pointed import Blocks
from tilec.trials.references import error_text, require_inputs, require_outputs, require_values

if TYPE_CHECKING:
    from types import ModuleType

    from tilec.package.model import ParamRecord
    from tilec.portable.devices.base import Device


@dataclass(frozen=True)
class Author:
    """What a manifest says about checking a kernel: its functions, and any of rtol, atol, max_mismatch.
    ``peer``: the same as the reference in torch, to be measured beside the kernel."""

    reference: Callable[..., Any] | None = None
    inputs: Callable[..., Any] | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)
    peer: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Expectation:
    """``values``: what the parameters that are read hold; ``outputs``: what the written ones hold afterwards,
    by name; ``oracle`` says who computed them. ``problem``: why there is nothing to compare with; ``raised``:
    which function of the author raised, and what."""

    values: Mapping[str, Any]
    outputs: Mapping[str, np.ndarray]
    oracle: str = "interpreter"
    problem: str = ""
    raised: str = ""


class Oracle:
    """The expectations of one kernel. Variants with the same tile IR share them."""

    def __init__(self, kernel: KernelFacts, author: Author, device: Device | None = None) -> None:
        """``device``: what follows addresses among the inputs; by default, and on the host, host memory is
        enough."""
        self._kernel = kernel
        self._author = author
        self._blocks = Blocks(None if device is None or device.on_host else device)
        self._known: dict[tuple[str, str, int, bool], Expectation] = {}

    def tolerance(self, variant: VariantFacts, dims: Mapping[str, int] | None = None) -> Tolerance:
        """What is said of the variant, as far as it goes; then the author's, that of the library, and the
        default of the kernel's types, and of the length of its sums at ``dims``, for the rest."""
        dtypes = {param.dtype for param in self._kernel.tensors}
        if "float32" in dtypes and _rounds_products(variant):
            dtypes.add("tfloat32")
        if _sums_halves(variant):
            dtypes.add(HALF_SUMS)
        said = {**self._kernel.tolerance, **self._author.tolerance, **variant.tolerance}
        terms = 1 if dims is None else self._kernel.terms(dims)
        return replace(default_tolerance(dtypes, terms), of_terms=_scales_sums(variant, dtypes), **said)

    def expect(
        self, variant: VariantFacts, dims: Mapping[str, int], seed: int, *, special: bool = False
    ) -> Expectation:
        """What a call of ``variant`` with these dims should do. ``special``: inputs hold NaN and infinities,
        and the interpreter alone says what becomes of them."""
        key = (variant.ir_text, str(sorted(dims.items())), seed, special)
        if key not in self._known:
            self._known[key] = self._compute(variant, dims, seed, special)
        return self._known[key]

    def inputs(
        self, variant: VariantFacts, dims: Mapping[str, int], rng: np.random.Generator
    ) -> dict[str, Any]:
        """What the parameters that are read hold: of the author's function, or random. May raise anything for
        dims that the function does not know."""
        return self._values(variant, dims, rng)

    def referred(self, values: Mapping[str, Any]) -> Expectation | None:
        """The outputs that the author's reference gives for ``values``; None without one that takes them."""
        found = self._refer(Expectation(values, {}))
        return found if found.oracle == "reference" else None

    def interpreted(
        self, variant: VariantFacts, values: Mapping[str, Any], dims: Mapping[str, int]
    ) -> dict[str, np.ndarray]:
        """What the tile IR of a variant makes of ``values``. Raises EvalError, UnsupportedError."""
        return self._interpret(variant, values, dims)[0]

    def _compute(
        self, variant: VariantFacts, dims: Mapping[str, int], seed: int, special: bool
    ) -> Expectation:
        rng = np.random.default_rng(seed)
        try:
            values = self._values(variant, dims, rng)
        except UnsupportedError as error:  # tensors at addresses that nothing looks at
            return Expectation({}, {}, problem=error.what)
        except SourceError:  # its values are those of another kernel
            raise
        except Exception as error:  # the author's function may raise anything for dims that it does not know
            raised = f"inputs raised {error_text(self._author.inputs, error)}"
            return Expectation({}, {}, problem=raised, raised=raised)
        if special:
            plant_special(self._kernel, values, rng)
        return self._expected(variant, dims, values, special)

    def _expected(
        self, variant: VariantFacts, dims: Mapping[str, int], values: Mapping[str, Any], special: bool
    ) -> Expectation:
        try:
            outputs, are_doubtful = self._interpret(variant, values, dims)
            problem = self._doubt(variant, values, dims, outputs, are_doubtful)
        except UnsupportedError as error:  # groups that only run at the same time, say: the reference is left
            known = None if special else self.referred(values)
            return known or Expectation({}, {}, problem=error.what)
        except (EvalError, InputError) as error:  # undefined for these values, or dims outside of the guards
            return Expectation({}, {}, problem=error.what)
        except Exception as error:  # no memory for its arrays, say
            return Expectation({}, {}, problem=f"the interpreter raised {type(error).__name__}: {error}")
        if problem:
            return Expectation({}, {}, problem=f"{problem} for these inputs; the manifest may give others")
        made = Expectation(values, outputs)
        return made if special else self._refer(made)

    def _doubt(
        self,
        variant: VariantFacts,
        values: Mapping[str, Any],
        dims: Mapping[str, int],
        outputs: Mapping[str, np.ndarray],
        are_doubtful: bool,
    ) -> str:
        """Why outputs may be others, too: the order of blocks, or of terms, decides."""
        if self._may_race and not _equal(outputs, self._interpret(variant, values, dims, reverse=True)[0]):
            return "blocks race"
        if are_doubtful and not _equal(outputs, self._interpret(variant, values, dims, spoils=True)[0]):
            return "sums overflow in one order of their terms and not in another"
        return ""

    @property
    def _may_race(self) -> bool:
        """Whether random integers may send several blocks to one element."""
        return self._author.inputs is None and any(
            "int" in param.dtype and param.access != "out" for param in self._kernel.tensors
        )

    def _values(
        self, variant: VariantFacts, dims: Mapping[str, int], rng: np.random.Generator
    ) -> dict[str, Any]:
        if self._author.inputs is None:
            values = random_values(self._kernel, dims, rng, indices_of(variant.ir_text))
            self._blocks.fill(variant.ir_text, values, dims, rng)
            return values
        values = random_values(self._kernel, dims, rng)
        given = list(self._author.inputs(dict(dims), rng))
        require_values(self._author.inputs, given, tuple(values))
        for param, value in zip((p for p in self._kernel.params if p.name in values), given, strict=True):
            values[param.name] = _filling(values[param.name], param, value) if param.is_tensor else value
        return values

    def _interpret(
        self,
        variant: VariantFacts,
        values: Mapping[str, Any],
        dims: Mapping[str, int],
        **ways: bool,
    ) -> tuple[dict[str, np.ndarray], bool]:
        """The outputs, and whether the order of a sum decides whether it overflows."""
        from tilec.ir.interp.interpreter import run
        from tilec.ir.text.parser import parse_kernel

        arguments: dict[str, Any] = {}
        for param in self._kernel.params:
            if param.is_tensor:
                arguments[param.name] = guarded(param, dims).array
                if param.name in values:
                    arguments[param.name][...] = values[param.name]
            else:
                arguments[param.name] = values[param.name]
        are_doubtful = run(parse_kernel(variant.ir_text), list(arguments.values()), dims, **ways)
        written = {param.name: arguments[param.name] for param in self._kernel.params if param.is_written}
        return written, are_doubtful

    def _refer(self, found: Expectation) -> Expectation:
        """``found`` with the reference's outputs instead, where the author gave one that takes these dims.
        Raises SourceError where it takes other parameters, or gives other outputs, than the kernel has."""
        if self._author.reference is None:
            return found
        given = {p.name: found.values[p.name] for p in self._kernel.params if p.name in found.values}
        require_inputs(self._author.reference, tuple(given))
        try:
            result = self._author.reference(*(_copy(value) for value in given.values()))
        except Exception as error:  # a reference may be narrower than its kernel; the interpreter remains
            stands_in = f"interpreter (the reference raised {type(error).__name__})"
            raised = f"the reference raised {error_text(self._author.reference, error)}"
            return replace(found, oracle=stands_in, raised=raised)
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        names = [param.name for param in self._kernel.params if param.is_written]
        require_outputs(self._author.reference, outputs, names)
        arrays = {name: _numpy(value) for name, value in zip(names, outputs, strict=True)}
        return Expectation(found.values, arrays, "reference")


def _rounds_products(variant: VariantFacts) -> bool:
    """Whether tensor cores multiply what the variant has in float32: they round it to TF32."""
    return backend_of(parse_target(variant.target)).rounds_products and "gemm(" in variant.ir_text


def _multiplies_halves(variant: VariantFacts) -> bool:
    """Whether a variant has a product, and numbers of 16 bits."""
    return "gemm(" in variant.ir_text and "float16" in variant.ir_text


def _scales_sums(variant: VariantFacts, dtypes: Iterable[str]) -> bool:
    """Whether products may leave out that scaled integers are rounded to 16 bits each."""
    stored = any(dtype.startswith(("int", "uint")) for dtype in dtypes)
    return stored and _multiplies_halves(variant) and backend_of(parse_target(variant.target)).scales_sums


def _sums_halves(variant: VariantFacts) -> bool:
    """Whether a product adds up in float16, where the reference has float32 sums."""
    from tilec.ir.nodes import PRODUCTS, walk
    from tilec.ir.text.parser import parse_kernel

    if not _multiplies_halves(variant):
        return False
    products = (stmt for stmt in walk(parse_kernel(variant.ir_text).body) if isinstance(stmt, PRODUCTS))
    return any(str(stmt.c.buffer.dtype) == "float16" for stmt in products)


def _equal(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> bool:
    """Bit for bit."""
    return all(left[name].tobytes() == right[name].tobytes() for name in left)


def _filling(like: np.ndarray, param: ParamRecord, value: Any) -> np.ndarray:
    """What an author gave for a tensor, of its shape. Raises ValueError where it cannot have that."""
    found = cast(_numpy(value), numpy_dtype(param.dtype))
    return found if found.shape == like.shape else np.array(np.broadcast_to(found, like.shape))


def _copy(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value


def _numpy(value: Any) -> np.ndarray:
    """An array of NumPy or torch as NumPy."""
    if hasattr(value, "detach"):
        return np.asarray(value.detach().cpu().double().numpy())
    return np.asarray(value)


def authors(manifest: str | Path) -> dict[str, Author]:
    """What the kernels of a manifest say about checking, by kernel name.

    Raises:
        ManifestError: the manifest cannot be used.
        SourceError: a function that it names cannot be imported, or is none.
    """
    from tilec.manifest import load_manifest

    modules: dict[Path, ModuleType] = {}
    found = {}
    for kernel in load_manifest(manifest).kernels:
        entry, base = kernel.entry, kernel.variants[0].base
        sources = (entry.reference, entry.inputs, entry.peer)
        reference, inputs, peer = (_load(source, base, modules) for source in sources)
        found[kernel.name] = Author(reference, inputs, kernel.tolerance, peer)
    return found


def _load(source: str | None, base: Path, modules: dict[Path, ModuleType]) -> Callable[..., Any] | None:
    from tilec.language.frontend.elaborate import load_entry

    if source is None:
        return None
    function = load_entry(source, base, modules)
    if not callable(function):
        raise SourceError(
            f"{source} is no function",
            why=f"it is {type(function).__name__}",
            remedy="name the function that computes the outputs, or makes the inputs",
        )
    return function
