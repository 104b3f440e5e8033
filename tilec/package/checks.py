"""What must hold of a package before anything is generated."""

from __future__ import annotations

from collections import Counter

from tilec.capacity import CAPACITY
from tilec.errors import PackageError, Place
from tilec.package.bindings import doors
from tilec.package.family import package_family
from tilec.package.hub.layers import layers_of
from tilec.package.model import KernelRecord, PackageSpec, VariantRecord
from tilec.package.tables.costs import runs_of
from tilec.package.text.c import identifier
from tilec.targets import parse_target


def exported_symbols(spec: PackageSpec) -> tuple[str, ...]:
    """Every public symbol of the shared library, in order."""
    return doors.public_symbols(spec.name, [kernel.name for kernel in spec.kernels])


def check_spec(spec: PackageSpec) -> None:
    """Raises PackageError for a library without kernels, colliding symbols, foreign targets, or more of
    something than the runtime holds."""
    if not spec.kernels:
        raise PackageError(f"library {spec.name!r} has no kernels")
    for name, count in Counter(exported_symbols(spec)).items():
        if count > 1:
            raise PackageError(
                f"library {spec.name!r} would define {name!r} {count} times",
                place=Place(key=name),
                remedy="rename a kernel",
            )
    for kernel in spec.kernels:
        _check_kernel(spec, kernel)
    layers_of(spec)
    _check_entries(spec)


def _check_kernel(spec: PackageSpec, kernel: KernelRecord) -> None:
    if not kernel.variants:
        raise PackageError(f"kernel {kernel.name!r} has no variants", place=Place(key=kernel.name))
    _check_names(kernel)
    _check_backward(spec, kernel)
    extents = sum(len(param.extents) + len(param.strides or ()) for param in kernel.params)
    check_count(kernel, "parameters", len(kernel.params), CAPACITY.max_params)
    check_count(
        kernel,
        "schedules for the same calls",
        max(map(len, runs_of(kernel)), default=0),
        CAPACITY.max_choices,
    )
    taken = any(variant.takes_num_sms for variant in kernel.variants)
    check_count(kernel, "dims", len(kernel.dims) + taken, CAPACITY.max_dims)
    check_count(kernel, "extents and strides", extents, CAPACITY.max_extents)
    for variant in kernel.variants:
        launches, slices = len(variant.image.launches), len(variant.image.workspace)
        check_count(kernel, "launches in one variant", launches, CAPACITY.max_launches)
        check_count(kernel, "workspace buffers in one variant", slices, CAPACITY.max_slices)
        _check_target(spec, kernel, variant)


def _check_backward(spec: PackageSpec, kernel: KernelRecord) -> None:
    """Every input of the backward kernel is given, and every gradient is one of an input's, of its dtype."""
    if kernel.backward is None:
        return
    other = next(each for each in spec.kernels if each.name == kernel.backward["kernel"])
    ours, theirs = ({param.name: param for param in each.params} for each in (kernel, other))
    given, gradients = kernel.backward["arguments"], kernel.backward["gradients"]
    known = {*ours, *(f"grad {name}" for name, param in ours.items() if param.output)}
    wanted = {name for name, param in theirs.items() if not param.output}
    problems = [f"{name} of {other.name} is not given" for name in sorted(wanted - set(given))]
    problems += [f"{name} is no input of {other.name}" for name in given if name not in wanted]
    problems += [f'"{text}" is no parameter of {kernel.name}' for text in given.values() if text not in known]
    for name, of in gradients.items():
        if name not in theirs or not theirs[name].output:
            problems.append(f"{name} is no output of {other.name}")
        elif of not in ours or ours[of].output or ours[of].dtype != theirs[name].dtype:
            problems.append(f"{name} of {other.name} is no gradient of an input {of} of {kernel.name}")
    if len(set(gradients.values())) != len(gradients):
        problems.append("an input has two gradients")
    if problems:
        raise PackageError(
            f"kernel {kernel.name!r} cannot have {other.name!r} as its backward kernel",
            place=Place(key=kernel.name),
            why="; ".join(problems),
            remedy="correct arguments and gradients of [kernel.backward]",
        )


def _check_names(kernel: KernelRecord) -> None:
    """Parameters and the dims behind them become the parameters of one C function."""
    names = [param.name for param in kernel.params] + [dim.name for dim in doors.free_dims(kernel)]
    for name, count in Counter(map(identifier, names)).items():
        if count > 1:
            raise PackageError(
                f"kernel {kernel.name!r} has {count} parameters or dims named {name!r}",
                place=Place(key=kernel.name),
                remedy="rename one of them",
            )


def check_count(kernel: KernelRecord, what: str, count: int, most: int) -> None:
    """Raises PackageError for more of something than the runtime has room for."""
    if count > most:
        why = f"at most {most} are possible"
        raise PackageError(
            f"kernel {kernel.name!r} has {count} {what}",
            place=Place(key=kernel.name),
            why=why,
            remedy="make two kernels of it, the second of which takes what the first one gives",
        )


def _check_target(spec: PackageSpec, kernel: KernelRecord, variant: VariantRecord) -> None:
    target = parse_target(variant.target)
    family = package_family(target)
    if family.fits(target, spec.host):
        return family.check(kernel, variant)
    raise PackageError(
        f"kernel {kernel.name!r} has code for {target.name}, the library is for {spec.host.triple}",
        place=Place(key=kernel.name),
        remedy="make targets and host agree",
    )


def _check_entries(spec: PackageSpec) -> None:
    """One symbol may come from one image alone."""
    owners: dict[str, str] = {}
    images = ((kernel, variant.image) for kernel in spec.kernels for variant in kernel.variants)
    for kernel, image in images:
        for launch in image.launches:
            if owners.setdefault(launch.symbol, image.sha256) != image.sha256:
                raise PackageError(
                    f"two images define the entry {launch.symbol!r}", place=Place(key=kernel.name)
                )
