"""One loaded library and its cases, in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.backends.base import limits_of
from tilec.errors import InputError, Place, VerifyError
from tilec.families import device_named, family_at, family_of
from tilec.ir.num_sms import NUM_SMS
from tilec.portable.guarded import Guarded, OnDevice
from tilec.spelling import kernels_meant
from tilec.targets import native_target, parse_target
from tilec.trials.arrays import guarded
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.library import load_library, read_facts, require_device
from tilec.trials.oracle import Author, Expectation, Oracle, authors
from tilec.trials.shapes import refused
from tilec.verify.results import FAILED, PASSED, RANDOM, CaseResult
from tilec.verify.walk import Announce, Walk, same

if TYPE_CHECKING:
    from tilec.families import Family
    from tilec.portable import loader
    from tilec.portable.devices.base import Device


@dataclass(frozen=True)
class Request:
    """What to verify: a library, whose references to use, one case (``dims`` and ``values``) or all, the
    seed; ``device``: "cpu", "cuda:1"; ``emulate``: on an emulated device in its place."""

    path: Path
    manifest: Path | None = None
    dims: Mapping[str, int] | None = None
    seed: int = 0
    device: str = "cpu"
    values: str = RANDOM
    emulate: bool = False


class DeviceLost(VerifyError):
    """Work on a device failed, and with it all later work of this process."""


def choose(
    path: Path,
    facts: Sequence[KernelFacts],
    kernels: Sequence[str],
    variant: int | None,
    wanted: Sequence[Family] = (),
) -> list[tuple[KernelFacts, VariantFacts]]:
    """The variants that match, of the families that are wanted; of all without any. Raises InputError where
    none does."""
    meant = kernels_meant(kernels, (kernel.name for kernel in facts), path)
    named = [kernel for kernel in facts if kernel.name in meant]
    found = [(kernel, each) for kernel in named for each in kernel.variants if variant in (None, each.id)]
    if not found:
        what = f"there is no variant {variant} in the kernels chosen"
        raise InputError(what, place=Place(str(path)), remedy="tilec inspect lists kernels and variants")
    if not wanted:
        return found
    fitting = [each for each in found if family_of(parse_target(each[1].target)) in wanted]
    if not fitting:
        titles = " or ".join(each.title for each in wanted)
        remedy = f"check on the CPU, without --device and --emulate, or add {titles} targets to the manifest"
        what = f"the variants chosen have no {titles} code"
        raise InputError(what, place=Place(str(path)), remedy=remedy)
    return fitting


class Session(ABC):
    """The variants of a library, wherever they run. Expectations are shared between variants with the same
    tile IR."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._facts = read_facts(request.path)
        self._authors = authors(request.manifest) if request.manifest is not None else {}
        self._oracles: dict[str, Oracle] = {}

    def results(self, variant: int, announce: Announce) -> Iterator[CaseResult]:
        """The cases of the variant of an id, each announced before the library runs."""
        for kernel in self._facts:
            for found in kernel.variants:
                if found.id == variant:
                    walk = self.walk(kernel, found, announce)
                    yield from walk.results(self.request.dims, self.request.values)

    @abstractmethod
    def walk(self, kernel: KernelFacts, variant: VariantFacts, announce: Announce) -> Walk:
        """What goes through the cases of a variant."""

    def oracle(self, kernel: KernelFacts, device: Device | None = None) -> Oracle:
        """That of all variants of a kernel."""
        if kernel.name not in self._oracles:
            author = self._authors.get(kernel.name, Author())
            self._oracles[kernel.name] = Oracle(kernel, author, device)
        return self._oracles[kernel.name]


class LibrarySession(Session):
    """A library loaded here."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._library = load_library(request.path)
        self._device = device_named(request.device)
        self._features = native_target().features if self._device.on_host else ()
        if not self._device.on_host:
            require_device(self._device, "verify")

    def walk(self, kernel: KernelFacts, variant: VariantFacts, announce: Announce) -> _LibraryWalk:
        """Through the library's own calls."""
        call, oracle = self._library.kernels[kernel.name], self.oracle(kernel, self._device)
        seed, device, features = self.request.seed, self._device, self._features
        return _LibraryWalk(kernel, variant, oracle, call, seed, device, features, announce)


class _LibraryWalk(Walk):
    """Calls a variant through the loaded library."""

    def __init__(
        self,
        kernel: KernelFacts,
        variant: VariantFacts,
        oracle: Oracle,
        call: loader.Kernel,
        seed: int,
        device: Device,
        features: tuple[str, ...],
        announce: Announce,
    ) -> None:
        target = parse_target(variant.target)
        units = limits_of(target, device.facts()).units
        super().__init__(kernel, variant, oracle, seed, str(device), units, features)
        self._call, self._announce, self._place = call, announce, device

    def repeated(
        self, dims: dict[str, int], arrays: Mapping[str, Guarded], expected: Expectation
    ) -> list[str]:
        """What is wrong with a second call, on a CPU by one thread. It has to give the same bits unless
        blocks add to one place in any order, or one thread means fewer parts of the work: what changes from
        call to call is a race."""
        before, arrays, is_cpu = arrays, self.arrays(dims, expected.values), self._place.on_host
        status, message = self.run(dims, arrays, expected.values, serial=is_cpu)
        if status:
            return [f"a second call: {message}"]
        problems = self.check(arrays, expected, dims)[1]
        is_free = "atomic_" in self.variant.ir_text or (is_cpu and NUM_SMS in self.variant.ir_text)
        if problems or is_free:
            return [f"a second call: {text}" for text in problems]
        names = [param.name for param in self.kernel.tensors if param.is_written]
        changed = [name for name in names if not same(arrays[name].array, before[name].array)]
        return [f"{name} differs between two calls with the same inputs" for name in changed]

    def shifts(self, dims: Mapping[str, int]) -> bool:
        """On a CPU tensors need the alignment of their elements; every second case has no more."""
        return self._place.on_host and bool(self._case_seed(dims) & 1)

    def refusals(self, dims: dict[str, int]) -> Iterator[CaseResult]:
        """Calls just outside of the guards, on dims and on addresses."""
        self.values = RANDOM
        for each in refused(self.kernel, self.variant, dims):
            yield self._refused(each, self.arrays(each, {}))
        for name in self.variant.align if self._place.on_host else ():
            arrays = {
                param.name: guarded(param, dims, shifted=param.name == name) for param in self.kernel.tensors
            }
            yield self._refused(dims, arrays)

    def _refused(self, dims: dict[str, int], arrays: dict[str, Guarded]) -> CaseResult:
        """A call outside of the guards: it must fail before anything is written."""
        before = {name: each.array.copy() for name, each in arrays.items()}
        values = {param.name: param.default or 1 for param in self.kernel.params if not param.is_tensor}
        status, _ = self.run(dims, arrays, values)
        touched = [name for name, each in arrays.items() if not same(each.array, before[name])]
        if status == 0 or touched:
            detail = f"{', '.join(touched)} written" if touched else "the call was not refused"
            return self.result(dims, FAILED, "guard", detail=f"outside of the guards, but {detail}")
        return self.result(dims, PASSED, "guard")

    def run(
        self,
        dims: Mapping[str, int],
        arrays: Mapping[str, Guarded],
        values: Mapping[str, Any],
        serial: bool = False,
    ) -> tuple[int, str]:
        """Status and message of the call; 0 for success."""
        from tilec.portable.loader import LaunchError

        names = [param.name for param in self.kernel.params]
        try:
            tensors = self._on_device(arrays)
        except LaunchError as error:
            size = sum(each.block.nbytes for each in arrays.values())
            return error.status, f"no room for its {size} bytes of arrays on {self._place}: {error}"
        args = [tensors[name] if name in tensors else values[name] for name in names]
        free: dict[str, Any] = {name: value for name, value in dims.items() if name not in names}
        self._announce(self.variant.id, dims, self.values)
        try:
            self._call(*args, variant=self.variant.id, serial=serial, **free)
        except LaunchError as error:
            return error.status, str(error)
        finally:
            _fetch(tensors)
        return 0, ""

    def _on_device(self, arrays: Mapping[str, Guarded]) -> dict[str, Any]:
        """The arrays where the kernel runs."""
        if self._place.on_host:
            return {name: each.array for name, each in arrays.items()}
        dtypes = {param.name: param.dtype for param in self.kernel.tensors}
        return {name: OnDevice(each, dtypes[name], self._place) for name, each in arrays.items()}


def _fetch(tensors: Mapping[str, Any]) -> None:
    """Brings what is on a device back. Raises DeviceLost if a kernel failed there."""
    from tilec.portable.loader import LaunchError

    try:
        for each in tensors.values():
            if isinstance(each, OnDevice):
                each.fetch()
    except LaunchError as error:
        raise DeviceLost(
            f"the kernel failed on the {family_at(str(each.device)).word}", why=str(error)
        ) from error
