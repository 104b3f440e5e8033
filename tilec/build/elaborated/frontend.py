"""From a variant of a manifest to verified tile IR; what goes wrong is said with the variant's name."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, NamedTuple

from tilec.build.elaborated.asked import asked_roads, remarks_on_roads
from tilec.build.elaborated.device_limits import check_limits
from tilec.build.elaborated.idle_keys import idle_on_cpus, remarks_on_cpus, remarks_on_keys
from tilec.build.elaborated.sampling import Choice, distinct, sampled
from tilec.build.elaborated.value_kinds import blaming_values, check_conditions, kinds_of, remarks_on_space
from tilec.build.processes.pool import run_tasks
from tilec.build.reuse.loaded_files import author_modules_afresh, loaded_files
from tilec.errors import CompileError, ManifestError, Place, Remark, TilecError
from tilec.families import families
from tilec.manifest import Plan, Variant
from tilec.manifest.model import Tune

if TYPE_CHECKING:
    from pathlib import Path

    from tilec.ir.nodes import Kernel
    from tilec.language.frontend.elaborate import Traced


class Elaborated(NamedTuple):
    """A verified kernel, the Python files that it was made from, what its author is to be told, and the kinds
    of its factory's parameters (`kinds_of`)."""

    kernel: Kernel
    files: tuple[Path, ...]
    remarks: tuple[Remark, ...]
    kinds: Mapping[str, str]


def elaborate_variant(variant: Variant) -> Elaborated:
    """The kernel of a variant. What its file prints goes to stderr, as stdout is the command's.

    Raises SourceError for what the author can mend, and other errors of the tree for defects.
    """
    from tilec.language.frontend.elaborate import check_parameters, defaults, load_entry
    from tilec.language.frontend.verified import verify_source

    with naming(variant), author_modules_afresh(variant.source, variant.base), redirect_stdout(sys.stderr):
        entry = load_entry(variant.source, variant.base)
        check_parameters(entry, variant.value_places, variant.kernel)
        with blaming_values(entry, variant):
            found = _traced(entry, variant)
        verify_source(found.kernel)
        check_outputs(variant, found.kernel)
        remarks = (*found.remarks, *remarks_on_keys(found.kernel, variant))
        files = loaded_files(variant.source, variant.base)
        return Elaborated(found.kernel, files, remarks, kinds_of(defaults(entry)))


def _traced(entry: object, variant: Variant) -> Traced:
    from tilec.language.frontend.elaborate import trace

    return trace(entry, name=variant.kernel, dims=variant.dims, args=variant.args, config=variant.config)


def check_outputs(variant: Variant, kernel: Kernel) -> None:
    """Raises ManifestError where the manifest names other outputs than the kernel writes."""
    from tilec.ir.nodes import TensorParam

    tensors = [param for param in kernel.params if isinstance(param, TensorParam)]
    written = [tensor.name for tensor in tensors if tensor.access != "in"]
    if variant.outputs is None or set(variant.outputs) == set(written):
        return
    listed = ", ".join(variant.outputs) or "nothing"
    raise ManifestError(
        f"outputs lists {listed}, {variant.kernel} writes {', '.join(written) or 'nothing'}",
        place=variant.place,
        remedy="list what the kernel writes, or leave outputs out",
    )


class Checked(NamedTuple):
    """What the authors of a plan are to be told, each remark once; ``elaborated`` of ``total`` different
    choices of guards and config were made into tile IR."""

    remarks: tuple[Remark, ...]
    elaborated: int
    total: int


def check_sources(
    plan: Plan,
    jobs: int,
    *,
    every: bool = False,
    progress: Callable[[int, int, str], None] = lambda done, total, title: None,
) -> Checked:
    """Elaborates and verifies the tile IR of a plan, and lowers variants that ask for a road: each choice of
    guards and config, or a sample of thousands (`tilec.build.elaborated.sampling`) unless ``every`` one is
    asked for. Raises what `elaborate_variant` and lowering raise, and UnsupportedError for what no device of
    a target has."""
    choices = distinct(plan)
    chosen = choices if every else sampled(choices)
    found: dict[int, tuple[Remark, ...]] = {}

    def done(at: int, remarks: tuple[Remark, ...]) -> None:
        found[at] = remarks
        progress(len(found), len(chosen), chosen[at].variant.title)

    tables = {kernel.name: kernel.entry.tune for kernel in plan.kernels}
    alone = has_cpus_alone(plan)
    asked = [_Task(one, tables[one.variant.kernel], alone) for one in chosen]
    run_tasks(_check_one, asked, jobs, done, lambda task: task.choice.variant.title)
    remarks = tuple(dict.fromkeys(remark for at in sorted(found) for remark in found[at]))
    return Checked(remarks, len(chosen), len(choices))


def has_cpus_alone(plan: Plan) -> bool:
    """Whether a manifest with kernels of its own is for CPUs alone, whatever was chosen of its targets."""
    others = (plan.manifest.targets.of(family.name) for family in families() if not family.on_host)
    return plan.manifest.extends is None and not any(others)


class _Task(NamedTuple):
    """A choice, what its kernel is tuned over, and whether it is for CPUs alone."""

    choice: Choice
    tune: Tune | None
    cpus_alone: bool


def _check_one(task: _Task) -> tuple[Remark, ...]:
    """Runs in a compile process: tile IR itself does not cross."""
    choice = task.choice
    kernel, _, remarks, kinds = elaborate_variant(choice.variant)
    for variant in choice.variants:
        remarks = (*remarks, *remarks_on_space(variant, task.tune, kinds))
        check_conditions(variant, task.tune)
    if task.cpus_alone:
        idle = idle_on_cpus(kernel, choice.variant)
        remarks = (*remarks, *remarks_on_cpus(idle, choice.variant))
    check_limits(kernel, choice.targets, choice.variant)
    for variant in choice.variants:
        _check_statements(kernel, variant)
    asking = [variant for variant in choice.variants if asked_roads(kernel, variant)]
    return (*remarks, *(remark for variant in asking for remark in _roads(kernel, variant)))


def _check_statements(kernel: Kernel, variant: Variant) -> None:
    from tilec.backends.pipeline import refuse

    with naming(variant):
        refuse(kernel, variant.target)


def _roads(kernel: Kernel, variant: Variant) -> Iterator[Remark]:
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    with naming(variant):
        launches = to_tir(lower(kernel, variant.target), variant.target).launches
        roads = (road for launch in launches for road in launch.roads)
        yield from remarks_on_roads(kernel, variant, roads)


@contextmanager
def naming(variant: Variant) -> Iterator[None]:
    """Errors that leave the block say which variant they are about; foreign ones become CompileError."""
    try:
        yield
    except TilecError as error:
        error.place = _in_manifest(error.place, variant)
        about = (error.why, f"while compiling {variant.title}", _config_text(variant))
        error.why = "; ".join(part for part in about if part)
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise CompileError(
            f"compiling {variant.title} failed: {type(error).__name__}: {error}",
            place=variant.place,
            why=f"an error that tilec did not foresee, at {last.filename}:{last.lineno}",
            remedy="this is a defect of tilec: report it with the kernel",
        ) from error


def _in_manifest(place: Place | None, variant: Variant) -> Place:
    """``place``, or where a key stands that is all that an error knows of its place."""
    if place is not None and place.file is None:
        place = variant.value_places.get(place.key or "")
    return place or variant.place


def _config_text(variant: Variant) -> str:
    """Where the values that reached the kernel are from: `with the config of engine.toml:9 and 14`."""
    lines = [str(place.line) for place in variant.config_places if place.line is not None]
    return f"with the config of {variant.config_places[0].file}:{' and '.join(lines)}" if lines else ""
