"""The orchestration of a build: expand, reuse, compile the rest in parallel, write the package."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from tilec.backends.base import backend_of
from tilec.build.answers.alike import alike
from tilec.build.answers.served import without_served
from tilec.build.elaborated.idle_keys import has_cpus_alone, remarks_on_cpus
from tilec.build.elaborated.plans import load_plans
from tilec.build.elaborated.value_kinds import remarks_on_space
from tilec.build.processes.pool import default_jobs, run_tasks
from tilec.build.records import CompiledVariant, as_listed, compile_one
from tilec.build.reuse.compiled import find, keep
from tilec.build.reuse.receipts import find_package, keep_package
from tilec.build.reuse.replaced import lost_to_a_part
from tilec.build.written.beside import LIBRARY_ALONE, Asked, Beside, write_beside
from tilec.cache import Store
from tilec.codegen.toolchain import find_toolchain, tool_versions
from tilec.disk import require_writable
from tilec.errors import Remark, StrictError
from tilec.manifest import KernelPlan, Plan, Variant
from tilec.package.model import PackageSpec, kernel_record
from tilec.settings import read_settings

if TYPE_CHECKING:
    from tilec.package.write import BuildReport

#: Called with (variants done, variants in all, title of the last one, whether it came from the cache).
Progress: TypeAlias = Callable[[int, int, str, bool], None]

#: How far apart variants stand in the manifest that are compiled one after the other.
_APART = 16


@dataclass(frozen=True)
class BuildResult:
    """What a build did: a plan, a spec and a report for each host. ``compiled`` + ``reused`` variants;
    ``package_reused``: the files on disk were the right ones already. ``remarks`` are what authors of kernels
    are to be told, ``warnings`` all else that is to be said. ``beside`` is what else was asked for.
    ``seconds`` is wall time."""

    plans: tuple[Plan, ...]
    specs: tuple[PackageSpec, ...]
    reports: tuple[BuildReport, ...]
    compiled: int
    reused: int
    package_reused: bool
    warnings: tuple[str, ...]
    remarks: tuple[Remark, ...]
    seconds: float
    beside: Beside

    @property
    def plan(self) -> Plan:
        """That of the first host."""
        return self.plans[0]

    @property
    def spec(self) -> PackageSpec:
        """That of the first host."""
        return self.specs[0]

    @property
    def report(self) -> BuildReport:
        """That of the first host."""
        return self.reports[0]

    @property
    def left_out(self) -> int:
        """Variants of the plans that others serve as well, with the same code."""
        kept = sum(len(kernel.variants) for spec in self.specs for kernel in spec.kernels)
        return sum(len(plan.variants) for plan in self.plans) - kept


def build(
    manifest: str | Path,
    out_dir: str | Path | None = None,
    *,
    targets: Sequence[str] = (),
    kernels: Sequence[str] = (),
    jobs: int | None = None,
    static: bool = False,
    asked: Asked = LIBRARY_ALONE,
    strict: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Builds the library of a manifest into ``out_dir`` (default ``dist/<name>``).

    ``targets`` and ``kernels`` (globs) build a part; ``jobs`` compile processes run at a time (default: the
    settings, then one per core); ``static`` also writes an archive, and ``asked`` says what else is written
    (`tilec.build.written.beside`); ``strict`` takes remarks on kernels as errors. Nothing below ``out_dir``
    changes unless every variant compiled and the library linked. Raises errors of the tree: wrong input,
    failed compilation, missing toolchain, StrictError.
    """
    start = time.monotonic()
    settings = read_settings()
    plans = load_plans(manifest, targets=targets, kernels=kernels, jobs=jobs)
    for plan in plans:
        _require_compilers(plan)
    folder = Path(out_dir) if out_dir is not None else Path("dist") / plans[0].name
    require_writable(folder, " with -o")
    if asked.sources is not None:
        require_writable(asked.sources, " with --emit-source")
    work = _Work(plans, Store(settings.cache_dir) if settings.cache else None, progress)
    jobs = jobs or default_jobs()
    work.run(jobs)
    remarks = work.remarks()
    if strict and remarks:
        raise StrictError(remarks)
    finished = (work.finished[at] for at in range(len(work.variants)))
    specs = tuple(_package_spec(plan, finished) for plan in plans)
    lost = lost_to_a_part(specs, folder) if targets or kernels else ()
    reports, package_reused = _packages(work, specs, folder, static)
    warnings = (*_warnings(work, plans, specs), *asked.lacking(specs[0]), *lost)
    return BuildResult(
        plans,
        specs,
        reports,
        compiled=work.compiled,
        reused=len(work.variants) - work.compiled,
        package_reused=package_reused,
        warnings=tuple(dict.fromkeys(warnings)),
        remarks=remarks,
        beside=write_beside(asked, plans, specs, reports, jobs),
        seconds=time.monotonic() - start,
    )


def _warnings(work: _Work, plans: Sequence[Plan], specs: Sequence[PackageSpec]) -> Iterator[str]:
    """What manifests and kernels warn of, and hosts with a newer libc than asked for."""
    for plan in plans:
        yield from plan.warnings
    yield from work.warnings
    for plan, spec in zip(plans, specs, strict=True):
        yield from _newer_glibc(plan, spec)


def _newer_glibc(plan: Plan, spec: PackageSpec) -> tuple[str, ...]:
    """That the library needs a newer glibc than the manifest's host has."""
    if spec.host == plan.host:
        return ()
    said = f"the library is for {spec.host.triple}, not for {plan.host.triple}: a system compiler links it"
    return (f"{said} against the glibc of this machine; pip install ziglang for the other",)


def _require_compilers(plan: Plan) -> None:
    """Raises EnvironmentError_ where the compiler of a target is missing, before anything is compiled."""
    for backend in {backend_of(variant.target) for variant in plan.variants}:
        backend.compiler()


class _Work:
    """The variants of one build on their way from the cache or the compiler."""

    def __init__(self, plans: Sequence[Plan], store: Store | None, progress: Progress | None) -> None:
        self.variants = tuple(variant for plan in plans for variant in plan.variants)
        self.cpus_alone = tuple(has_cpus_alone(plan) for plan in plans for _ in plan.variants)
        self.tunes = tuple(
            kernel.entry.tune for plan in plans for kernel in plan.kernels for _ in kernel.variants
        )
        self.store = store
        self.progress = progress
        self.finished: dict[int, CompiledVariant] = {}
        self.compiled = 0
        self.warnings: list[str] = []

    def run(self, jobs: int) -> None:
        """Finishes every variant."""
        for at, variant in enumerate(self.variants):
            found = find(self.store, variant) if self.store is not None else None
            if found is not None:
                self._finish(at, found, reused=True)
        others = alike((at, each) for at, each in enumerate(self.variants) if at not in self.finished)
        missing = _spread(list(others), jobs)
        if not missing:
            return

        def done(number: int, made: CompiledVariant) -> None:
            self._made(missing[number], made, others[missing[number]])

        with TemporaryDirectory() as folder:
            work = partial(compile_one, made=Store(Path(folder)), kept=self.store)
            run_tasks(work, [self.variants[at] for at in missing], jobs, done, lambda one: one.title)

    def remarks(self) -> tuple[Remark, ...]:
        """What is said of the kernels, each once, in the order of the plans."""
        found = (remark for at in range(len(self.variants)) for remark in self._remarks_on(at))
        return tuple(dict.fromkeys(found))

    def _remarks_on(self, at: int) -> Iterator[Remark]:
        yield from self.finished[at].remarks
        yield from remarks_on_space(self.variants[at], self.tunes[at], self.finished[at].kinds)
        if self.cpus_alone[at]:
            yield from remarks_on_cpus(self.finished[at].idle, self.variants[at])

    def _made(self, at: int, made: CompiledVariant, others: Sequence[int]) -> None:
        self.compiled += made.origin is not None
        self._finish(at, made, reused=made.origin is None)
        for other in others:
            self._finish(other, as_listed(made, self.variants[other]), reused=True)
        self.store_safely(lambda store: _keep(store, self.variants[at], made))

    def store_safely(self, action: Callable[[Store], None]) -> None:
        """A cache that cannot be written costs time later, not this build; it is said once."""
        if self.store is None:
            return
        try:
            action(self.store)
        except OSError as error:
            self.warnings.append(
                f"the cache {self.store.root} cannot be written ({error.strerror}); going on"
            )
            self.store = None

    def _finish(self, at: int, made: CompiledVariant, *, reused: bool) -> None:
        self.finished[at] = made
        if self.progress is not None:
            self.progress(len(self.finished), len(self.variants), self.variants[at].title, reused)


def _keep(store: Store, variant: Variant, made: CompiledVariant) -> None:
    """Stores a variant, and its code by what that was made from. Raises OSError."""
    from tilec.build.reuse.kept_code import keep_code

    keep(store, variant, made)
    if made.origin is not None:
        keep_code(store, made.origin, made.record.image)


def _spread(numbers: Sequence[int], jobs: int) -> list[int]:
    """In another order for several processes: neighbours often come to the same code, which is compiled twice
    where two make it at a time."""
    steps = 1 if jobs == 1 else _APART
    return [number for first in range(steps) for number in numbers[first::steps]]


def _backward(plan: Plan, kernel: KernelPlan) -> dict[str, Any] | None:
    """The table of the manifest, where the kernel that it names is part of this build."""
    named = kernel.backward
    is_there = named is not None and any(each.name == named.kernel for each in plan.kernels)
    return named.model_dump() if named is not None and is_there else None


def _package_spec(plan: Plan, in_order: Iterator[CompiledVariant]) -> PackageSpec:
    """The records of all kernels, without variants that others serve as well. ``in_order`` gives the variants
    of the plan, which numbers them kernel by kernel."""
    records = []
    for kernel in plan.kernels:
        made = list(islice(in_order, len(kernel.variants)))
        variants = [(one.signature, one.record) for one in made]
        layer = kernel.entry.layer
        tables = _backward(plan, kernel), None if layer is None else layer.model_dump()
        record = kernel_record(kernel.name, variants, kernel.tolerance, *tables)
        records.append(without_served(record))
    package = plan.manifest.package
    host = find_toolchain(plan.host).host
    tools = tool_versions(plan.host)
    return PackageSpec(package.name, package.version, host, tuple(records), tools, package.license or "")


def _packages(
    work: _Work, specs: Sequence[PackageSpec], folder: Path, static: bool
) -> tuple[tuple[BuildReport, ...], bool]:
    """Writes the package, unless the files in place are the ones that it would write."""
    found = find_package(work.store, specs, folder, static) if work.store is not None else None
    if found is not None:
        return found, True
    from tilec.package.write import write_packages

    reports = write_packages(specs, folder, static=static)
    work.store_safely(lambda store: keep_package(store, specs, static, reports))
    return reports, False
