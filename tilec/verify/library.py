"""`verify_library`: the variants to check, in this process or in one that may die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tilec.backends.base import backends
from tilec.errors import InputError
from tilec.families import Family, device_named, family_at
from tilec.package.library.inspect import find_library
from tilec.trials.library import read_facts
from tilec.verify.emulated import session_of
from tilec.verify.isolate import Chosen, run_isolated
from tilec.verify.raised import fail_unanswered
from tilec.verify.results import RANDOM, CaseResult
from tilec.verify.session import Request, choose


def verify_library(
    path: str | Path,
    *,
    manifest: str | Path | None = None,
    kernels: Sequence[str] = ("*",),
    variant: int | None = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    device: str = "cpu",
    emulate: bool = False,
    isolated: bool = True,
    values: str = RANDOM,
    jobs: int = 1,
    progress: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Runs every variant of a built library that the device can run.

    Inputs are random, and in one case of each variant hold NaN and infinities; outputs start as NaN or a byte
    pattern, all arrays lie between guarded margins, on a CPU in every second case at addresses that are
    aligned to their elements alone. Each case runs twice, on a CPU the second time on one thread: outputs
    that differ are a failure. They are compared with the manifest's reference where ``manifest`` is given
    and its reference takes the dims, else with the interpreter on the tile IR inside the library. A
    reference, or inputs, that raised in every case of a kernel are a failure of its first one.

    Args:
        path: the .so, or the folder that `tilec build` wrote.
        manifest: whose references, inputs and tolerances to use.
        kernels: globs over kernel names.
        variant: only the variant of this id.
        dims: only this case; every dim of the kernel. Default: edges of guards and tiles.
        seed: of shapes and inputs; a case is a function of kernel, variant, dims and seed.
        device: "cuda:1" runs the variants with CUDA code there. Default: the CPU.
        emulate: run the variants with code for GPUs on an emulated device, made again from the library's tile
            IR.
        values: with ``dims``: "special" for NaN and infinities among the inputs.
        isolated: run the library in processes of their own, so that a crash or a hang is a failed case.
        jobs: of which so many run at a time; of a GPU's there is one.
        progress: called with each result, of several variants in turns.

    Raises:
        LibraryError: the file is no tilec library, or is for another machine.
        InputError: no kernel or variant matches, or dims are missing.
        EnvironmentError_: there is no such device.
        UnsupportedError: the emulator does not know an instruction.
    """
    library = find_library(Path(path))
    chosen = choose(library, read_facts(library), kernels, variant, _families(device, emulate))
    for kernel, _ in chosen if dims is not None else ():
        if set(dims or ()) != set(kernel.dims):
            raise InputError(f"{kernel.name} has the dims {', '.join(kernel.dims)}", remedy="give each one")
    source = Path(manifest) if manifest is not None else None
    place = device_named(device)
    request = Request(library, source, dims, seed, str(place), values, emulate)
    at_once = jobs if place.on_host else 1
    found = run_isolated(request, chosen, jobs=at_once) if isolated else _run_here(request, chosen)
    results: dict[int, list[CaseResult]] = {each.id: [] for _, each in chosen}
    for result in found:
        results[result.variant].append(result)
        if progress is not None:
            progress(result)
    return fail_unanswered([result for cases in results.values() for result in cases])


def _families(device: str, emulate: bool) -> tuple[Family, ...]:
    """Whose code runs; none on this machine's cores, where cases of others are skipped."""
    if emulate:
        return tuple(each for each in backends() if each.emulated)
    family = family_at(device)
    return () if family.on_host else (family,)


def _run_here(request: Request, chosen: Sequence[Chosen]) -> Iterator[CaseResult]:
    session = session_of(request)
    for _, variant in chosen:
        yield from session.results(variant.id, lambda variant, dims, values: None)
