"""One loaded library and its cases, in this process."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.errors import EnvironmentError_, InputError, LibraryError, Place, VerifyError
from tilec.inspect import read_library
from tilec.targets import parse_target
from tilec.verify.arrays import guarded
from tilec.verify.compare import compare
from tilec.verify.facts import KernelFacts, VariantFacts, read_kernel
from tilec.verify.guarded import Guarded, OnDevice
from tilec.verify.oracle import Author, Expectation, Oracle, authors
from tilec.verify.results import FAILED, PASSED, SKIPPED, CaseResult, device_text
from tilec.verify.shapes import cases, refused

if TYPE_CHECKING:
    from tilec import loader

MOST_CASES = 10  # of one variant
MOST_ATTEMPTS = 16  # some dims may be undefined
_NO_ARCH = 20  # TILEC_ERR_NO_ARCH

#: Called with a variant id and dims just before the library runs.
Announce = Callable[[int, Mapping[str, int]], None]


@dataclass(frozen=True)
class Request:
    """What to verify: a library, whose references to use, one case (``dims``) or all, the seed; ``device`` is
    the number of a CUDA device, None for the CPU."""

    path: Path
    manifest: Path | None = None
    dims: Mapping[str, int] | None = None
    seed: int = 0
    device: int | None = None


class DeviceLost(VerifyError):
    """Work on a GPU failed, and with it all later work of this process."""


def read_facts(path: Path) -> list[KernelFacts]:
    """The kernels of a library, without loading it. Raises LibraryError."""
    info = read_library(path)
    texts = info.ir_texts()
    return [read_kernel(entry, texts) for entry in info.metadata["kernels"]]


def choose(
    path: Path,
    facts: Sequence[KernelFacts],
    kernels: Sequence[str],
    variant: int | None,
    on_cuda: bool = False,
) -> list[tuple[KernelFacts, VariantFacts]]:
    """The variants that match; for a GPU, those with CUDA code. Raises InputError where none does."""
    named = [kernel for kernel in facts if any(fnmatchcase(kernel.name, glob) for glob in kernels)]
    found = [(kernel, each) for kernel in named for each in kernel.variants if variant in (None, each.id)]
    if not found:
        what = f"there is no variant {variant} in the kernels chosen" if named else "no kernel matches"
        raise InputError(what, place=Place(str(path)), remedy="tilec inspect lists kernels and variants")
    fitting = [each for each in found if not (on_cuda and parse_target(each[1].target).is_cpu)]
    if not fitting:
        remedy = "leave --device out, or add CUDA targets to the manifest"
        raise InputError("the variants chosen have no CUDA code", place=Place(str(path)), remedy=remedy)
    return fitting


class Session:
    """A library loaded here. Expectations are shared between variants with the same tile IR."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._facts = {kernel.name: kernel for kernel in read_facts(request.path)}
        self._authors = authors(request.manifest) if request.manifest is not None else {}
        self._library = _load(request.path)
        if request.device is not None:
            _check_device(request.device)
        self._oracles: dict[str, Oracle] = {}

    def results(self, variant: int, announce: Announce) -> Iterator[CaseResult]:
        """The cases of the variant of an id."""
        for kernel in self._facts.values():
            for found in kernel.variants:
                if found.id == variant:
                    yield from self._walk(kernel, found, announce).results(self._request.dims)

    def _walk(self, kernel: KernelFacts, variant: VariantFacts, announce: Announce) -> _Walk:
        if kernel.name not in self._oracles:
            self._oracles[kernel.name] = Oracle(kernel, self._authors.get(kernel.name, Author()))
        call = self._library.kernels[kernel.name]
        return _Walk(kernel, variant, self._oracles[kernel.name], call, self._request, announce)


def _load(path: Path) -> loader.Library:
    from tilec import loader

    try:
        return loader.load(path)
    except loader.LibraryError as error:
        raise LibraryError(str(error), place=Place(str(path))) from error


def _check_device(number: int) -> None:
    """EnvironmentError_ where there is no such CUDA device."""
    from tilec.loader import DeviceMemory, LaunchError

    try:
        DeviceMemory(number, 1)
    except LaunchError as error:
        raise EnvironmentError_(
            f"there is no CUDA device {number} to verify on",
            why=str(error),
            remedy="run this on a machine with a GPU, or leave --device out",
        ) from error


class _Walk:
    """The cases of one variant."""

    def __init__(
        self,
        kernel: KernelFacts,
        variant: VariantFacts,
        oracle: Oracle,
        call: loader.Kernel,
        request: Request,
        announce: Announce,
    ) -> None:
        self._kernel, self._variant, self._oracle = kernel, variant, oracle
        self._call, self._announce = call, announce
        self._seed, self._device = request.seed, request.device

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
        if self._device is not None and not problems:
            problems = self._repeat(dims, arrays, expected)
        outcome = FAILED if problems else PASSED
        seconds = time.perf_counter() - start
        return self._result(
            dims, outcome, expected.oracle, error=error, detail="; ".join(problems), seconds=seconds
        )

    def _repeat(
        self, dims: dict[str, int], before: Mapping[str, Guarded], expected: Expectation
    ) -> list[str]:
        """What is wrong with a second call. It has to give the same bits unless blocks add to one place in
        any order: what changes from call to call is a race."""
        arrays = self._arrays(dims, expected.values)
        self._run(dims, arrays, expected.values)
        problems = self._check(arrays, expected)[1]
        if problems or "atomic_" in self._variant.ir_text:
            return [f"a second call: {text}" for text in problems]
        names = [param.name for param in self._kernel.tensors if param.is_written]
        changed = [name for name in names if not _same(arrays[name].array, before[name].array)]
        return [f"{name} differs between two calls with the same inputs" for name in changed]

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
        tensors = self._placed(arrays)
        args = [tensors[name] if name in tensors else values[name] for name in names]
        free: dict[str, Any] = {name: value for name, value in dims.items() if name not in names}
        self._announce(self._variant.id, dims)
        try:
            self._call(*args, variant=self._variant.id, **free)
        except LaunchError as error:
            return error.status, str(error)
        finally:
            _fetch(tensors)
        return 0, ""

    def _placed(self, arrays: Mapping[str, Guarded]) -> dict[str, Any]:
        """The arrays where the kernel runs."""
        if self._device is None:
            return {name: each.array for name, each in arrays.items()}
        dtypes = {param.name: param.dtype for param in self._kernel.tensors}
        return {name: OnDevice(each, dtypes[name], self._device) for name, each in arrays.items()}

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
            self._kernel.name,
            variant.id,
            variant.target,
            dims,
            self._seed,
            outcome,
            oracle,
            device_text(self._device),
            **more,
        )


def _fetch(tensors: Mapping[str, Any]) -> None:
    """Brings what is on a GPU back. Raises DeviceLost if a kernel failed there."""
    from tilec.loader import LaunchError

    try:
        for each in tensors.values():
            if isinstance(each, OnDevice):
                each.fetch()
    except LaunchError as error:
        raise DeviceLost("the kernel failed on the GPU", why=str(error)) from error


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    """Bit for bit."""
    return bool(np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes())
