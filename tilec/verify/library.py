"""The walk over a library: kernels, variants, cases."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.errors import InputError, LibraryError, Place
from tilec.inspect import read_library
from tilec.verify.arrays import Guarded, guarded
from tilec.verify.compare import compare
from tilec.verify.facts import KernelFacts, VariantFacts, read_kernel
from tilec.verify.oracle import Author, Expectation, Oracle, authors
from tilec.verify.results import FAILED, PASSED, SKIPPED, CaseResult
from tilec.verify.shapes import cases, refused

if TYPE_CHECKING:
    from tilec import loader

MOST_CASES = 10  # of one variant
MOST_ATTEMPTS = 16  # some dims may be undefined
_NO_ARCH = 20  # TILEC_ERR_NO_ARCH


def verify_library(
    path: str | Path,
    *,
    manifest: str | Path | None = None,
    kernels: Sequence[str] = ("*",),
    variant: int | None = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    progress: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Runs every variant of a built library that this machine can run.

    Inputs are random, outputs start as NaN or a byte pattern, all arrays lie between guarded margins. Outputs
    are compared with the manifest's reference where ``manifest`` is given and its reference takes the dims,
    else with the interpreter on the tile IR inside the library.

    Args:
        path: the .so, or the folder that `tilec build` wrote.
        manifest: whose references, inputs and tolerances to use.
        kernels: globs over kernel names.
        variant: only the variant of this id.
        dims: only this case; every dim of the kernel. Default: edges of guards and tiles.
        seed: of shapes and inputs; a case is a function of kernel, variant, dims and seed.
        progress: called with each result.

    Raises:
        LibraryError: the file is no tilec library, or is for another machine.
        InputError: no kernel or variant matches, or dims are missing.
    """
    info = read_library(Path(path))
    texts = info.ir_texts()
    facts = [read_kernel(entry, texts) for entry in info.metadata["kernels"]]
    chosen = [kernel for kernel in facts if any(fnmatchcase(kernel.name, glob) for glob in kernels)]
    _require(info.path, chosen, variant, dims)
    known = authors(manifest) if manifest is not None else {}
    library = _load(info.path)
    results = []
    for kernel in chosen:
        oracle = Oracle(kernel, known.get(kernel.name, Author()))
        for found in kernel.variants:
            if variant in (None, found.id):
                for result in _Walk(kernel, found, oracle, library, seed).results(dims):
                    results.append(result)
                    if progress is not None:
                        progress(result)
    return results


def _load(path: Path) -> loader.Library:
    from tilec import loader

    try:
        return loader.load(path)
    except loader.LibraryError as error:
        raise LibraryError(str(error), place=Place(str(path))) from error


def _require(
    path: Path, chosen: Sequence[KernelFacts], variant: int | None, dims: Mapping[str, int] | None
) -> None:
    ids = [found.id for kernel in chosen for found in kernel.variants]
    if not chosen or (variant is not None and variant not in ids):
        what = "no kernel matches" if not chosen else f"there is no variant {variant} in the kernels chosen"
        raise InputError(what, place=Place(str(path)), remedy="tilec inspect lists kernels and variants")
    for kernel in chosen if dims is not None else ():
        if set(dims or ()) != set(kernel.dims):
            raise InputError(f"{kernel.name} has the dims {', '.join(kernel.dims)}", remedy="give each one")


class _Walk:
    """The cases of one variant."""

    def __init__(
        self, kernel: KernelFacts, variant: VariantFacts, oracle: Oracle, library: loader.Library, seed: int
    ) -> None:
        self._kernel, self._variant, self._oracle = kernel, variant, oracle
        self._call: loader.Kernel = library.kernels[kernel.name]
        self._seed = seed

    def results(self, dims: Mapping[str, int] | None) -> Iterator[CaseResult]:
        """The case of ``dims``; or those of `cases` for which the kernel is defined, and refusals. A variant
        that this machine cannot run, or that is defined for none, gives one skipped result."""
        if dims is not None:
            yield self._admitted(dict(dims))
            return
        skipped = self._result({}, SKIPPED, "none", detail="no small dims satisfy the guards")
        served: list[dict[str, int]] = []
        for each in islice(cases(self._kernel, self._variant, self._seed), MOST_ATTEMPTS):
            result = self._admitted(each)
            if result.outcome == SKIPPED:
                skipped = result
            else:
                served.append(each)
                yield result
            if len(served) == MOST_CASES or result.oracle == "none":
                break
        if not served:
            yield skipped
        for each in refused(self._kernel, self._variant, served[0]) if served else ():
            yield self._refused(each)

    def _admitted(self, dims: dict[str, int]) -> CaseResult:
        start = time.perf_counter()
        expected = self._oracle.expect(self._variant, dims, self._case_seed(dims))
        if expected.problem:
            return self._result(dims, SKIPPED, expected.oracle, detail=expected.problem)
        arrays = self._arrays(dims, expected.values)
        status, message = self._run(dims, arrays, expected.values)
        if status == _NO_ARCH:
            return self._result(dims, SKIPPED, "none", detail=message)
        if status:
            return self._result(dims, FAILED, expected.oracle, detail=message)
        error, problems = self._check(arrays, expected)
        outcome = FAILED if problems else PASSED
        seconds = time.perf_counter() - start
        return self._result(
            dims, outcome, expected.oracle, error=error, detail="; ".join(problems), seconds=seconds
        )

    def _refused(self, dims: dict[str, int]) -> CaseResult:
        """A call outside of the guards: it must fail before anything is written."""
        arrays = self._arrays(dims, {})
        before = {name: each.array.copy() for name, each in arrays.items()}
        values = {param.name: param.default or 1 for param in self._kernel.params if not param.is_tensor}
        status, _ = self._run(dims, arrays, values)
        touched = [name for name, each in arrays.items() if not _same(each.array, before[name])]
        if status == 0 or touched:
            detail = f"{', '.join(touched)} written" if touched else "the call was not refused"
            return self._result(dims, FAILED, "guard", detail=f"outside of the guards, but {detail}")
        return self._result(dims, PASSED, "guard")

    def _arrays(self, dims: Mapping[str, int], values: Mapping[str, Any]) -> dict[str, Guarded]:
        arrays = {param.name: guarded(param, dims) for param in self._kernel.tensors}
        for name, each in arrays.items():
            if name in values:
                each.array[...] = values[name]
        return arrays

    def _run(
        self, dims: Mapping[str, int], arrays: Mapping[str, Guarded], values: Mapping[str, Any]
    ) -> tuple[int, str]:
        """Status and message of the call; 0 for success."""
        from tilec.loader import LaunchError

        names = [param.name for param in self._kernel.params]
        args = [arrays[name].array if name in arrays else values[name] for name in names]
        free: dict[str, Any] = {name: value for name, value in dims.items() if name not in names}
        try:
            self._call(*args, variant=self._variant.id, **free)
        except LaunchError as error:
            return error.status, str(error)
        return 0, ""

    def _check(self, arrays: Mapping[str, Guarded], expected: Expectation) -> tuple[float, list[str]]:
        """The largest difference and what is wrong: outputs, inputs, surroundings."""
        error, problems = 0.0, []
        for param in self._kernel.tensors:
            each = arrays[param.name]
            if param.is_written:
                found = compare(param.name, each.array, expected.outputs[param.name], self._oracle.tolerance)
                error = max(error, found.error)
                problems += [found.text] if found.text else []
            elif not _same(each.array, expected.values[param.name]):
                problems.append(f"{param.name} is an input, but was written")
            if not each.intact():
                problems.append(f"memory around {param.name} was written")
        return error, problems

    def _case_seed(self, dims: Mapping[str, int]) -> int:
        text = f"{self._kernel.name} {sorted(dims.items())}"
        return zlib.crc32(text.encode()) ^ self._seed

    def _result(self, dims: Mapping[str, int], outcome: str, oracle: str, **more: Any) -> CaseResult:
        variant = self._variant
        return CaseResult(
            self._kernel.name, variant.id, variant.target, dims, self._seed, outcome, oracle, **more
        )


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    """Bit for bit."""
    return bool(np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes())
