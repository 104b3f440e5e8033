"""From configs to libraries that the runner loads: compile processes, then one link for several."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from tilec.build.library import tool_versions
from tilec.build.records import CompiledVariant, compile_one
from tilec.errors import TilecError
from tilec.manifest import Variant
from tilec.package.model import PackageSpec, kernel_record
from tilec.package.write import write_package
from tilec.targets import Host

#: A compile process that dies takes others with it: so often is a config tried.
_ATTEMPTS = 2


@dataclass(frozen=True)
class Uncompiled:
    """A config that no code could be made of."""

    reason: str


Made = CompiledVariant | Uncompiled
Result = TypeVar("Result")


def entry_name(number: int) -> str:
    """The kernel of a candidate in its library."""
    return f"candidate_{number}"


def link(made: Mapping[int, CompiledVariant], host: Host, path: Path, tolerance: Mapping[str, float]) -> None:
    """Writes one library with a kernel for each candidate, by number."""
    kernels = tuple(
        kernel_record(entry_name(number), [(one.signature, one.record)], tolerance)
        for number, one in made.items()
    )
    spec = PackageSpec("candidates", "0", host, kernels, tool_versions())
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as folder:
        report = write_package(spec, Path(folder))
        shutil.move(report.library, path)


def run_all(
    executor: Callable[[], Executor],
    function: Callable[[Variant], Result],
    tasks: Iterable[tuple[int, Variant]],
    at_once: int,
    done: Callable[[int, Result | None], bool],
) -> None:
    """Calls ``function`` in the order of ``tasks``, ``at_once`` at a time; calls ``done`` as they finish,
    with None where the process died, which says whether to go on. ``executor`` gives the pool, a new one
    after a process died: what was under way then is tried again one by one, so that only what kills its
    process is lost."""
    waiting, running, attempts = iter(tasks), dict[Future[Result], tuple[int, Variant]](), dict[int, int]()
    again: list[tuple[int, Variant]] = []
    while True:
        for _ in range((1 if again else at_once) - len(running)):
            task = again.pop(0) if again else next(waiting, None)
            if task is None:
                break
            running[executor().submit(function, task[1])] = task
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            number, variant = running.pop(future)
            made = _made(future)
            attempts[number] = attempts.get(number, 0) + 1
            if made is None and attempts[number] < _ATTEMPTS:
                again.append((number, variant))
            elif not done(number, made):
                for other in running:
                    other.cancel()
                return


def compile_safely(variant: Variant) -> Made:
    """Compiles a variant; runs in a compile process."""
    try:
        return compile_one(variant)
    except TilecError as error:
        return Uncompiled("; ".join(part for part in (error.what, error.why) if part))


def _made(future: Future[Result]) -> Result | None:
    """None where the process died."""
    try:
        return future.result()
    except (BrokenProcessPool, CancelledError):
        return None


def registers_text(compiled: CompiledVariant) -> str:
    """What the assembler said of CUDA code; empty for other code."""
    launches: Sequence[object] = [one.gpu for one in compiled.record.image.launches if one.gpu is not None]
    return "; ".join(
        f"{getattr(one, 'registers', None)} registers, {getattr(one, 'spills', None)} bytes spilled"
        for one in launches
    )
