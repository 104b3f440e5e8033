"""What must hold for the kernels of a manifest: coverage, names, symbols."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence

from tilec.errors import ManifestError
from tilec.ir.guards import Guard
from tilec.manifest.expansion.overrides import Rule
from tilec.manifest.expansion.variants import KernelPlan
from tilec.manifest.guards import first_uncovered
from tilec.manifest.model import Kernel, searches
from tilec.manifest.text.document import Document
from tilec.reserved import LONGEST_DIM, is_identifier, shown
from tilec.spelling import suggestion
from tilec.targets import Target

#: Symbols that every library has beside those of its kernels.
_LIBRARY_SYMBOLS = ("library", "last_error", "check_build")


def check_dim_names(document: Document, entry: Kernel, at: int) -> None:
    """Dims become C parameters."""
    for name in entry.dims:
        if len(name) > LONGEST_DIM or not is_identifier(name):
            raise ManifestError(
                f'dimension "{shown(name)}" is no C identifier of at most {LONGEST_DIM} characters',
                place=document.place("kernel", at, "dims", name),
                remedy="name it as the kernel does",
            )
        if keyword.iskeyword(name):
            raise ManifestError(
                f'dimension "{name}" is a word of Python, which sizes cannot have',
                place=document.place("kernel", at, "dims", name),
                remedy=f"write {name}_: the dimension of that name in a kernel is called so",
            )


def check_model_dims(document: Document, entry: Kernel, at: int) -> None:
    """A table of layers gives every dim of the kernel, and no other."""
    for number, use in enumerate(entry.model):
        place = document.place("kernel", at, "model", number, "dims")
        unknown = next((name for name in use.dims if name not in entry.dims), None)
        if unknown is not None:
            raise ManifestError(
                f'unknown dimension "{unknown}" in the sizes of a layer',
                place=place,
                remedy=suggestion(unknown, entry.dims),
            )
        missing = [name for name in entry.dims if name not in use.dims]
        if missing:
            raise ManifestError(
                f"the layers {', '.join(use.layers)} give no {', '.join(missing)}",
                place=place,
                remedy="give every dimension of the kernel",
            )


def check_coverage(document: Document, entry: Kernel, at: int) -> None:
    """Variants are a product over dims, so each dim can be judged alone: one that lists only integers is
    closed, any other must admit every value."""
    if entry.fallback == "none":
        return
    for name, guards in entry.dims.items():
        missing = first_uncovered(guards)
        if missing is None or all(guard.eq is not None for guard in guards):
            continue
        raise ManifestError(
            f"{name} = {missing} would be served by no variant of {entry.name}",
            place=document.place("kernel", at, "dims", name),
            why=f"{name} lists {', '.join(str(guard) for guard in guards)}",
            remedy='add "dynamic" to the list, or fallback = "none" to the kernel if that is meant',
        )


def check_points(document: Document, entry: Kernel, at: int) -> None:
    """The points of the kernel's `tune` tables give dims that it has."""
    if entry.tune is None:
        return
    keys = [("points",), *(("on", name, "points") for name in entry.tune.on)]
    for table, key in zip(searches(entry), keys, strict=True):
        named = (name for point in table.points or () if isinstance(point, dict) for name in point)
        unknown = next((name for name in named if name not in entry.dims), None)
        if unknown is None:
            continue
        raise ManifestError(
            f'a point of {entry.name} gives "{unknown}", which is no dim',
            place=document.place("kernel", at, "tune", *key),
            remedy=suggestion(unknown, entry.dims),
        )


def check_overrides(
    document: Document,
    at: int,
    rules: Sequence[Rule],
    guards: Mapping[Target, Sequence[Mapping[str, Guard]]],
) -> None:
    """Every override says something, is for some variant, but of another manifest's kernels, and no two are
    for the same ones; ``rules`` stand in the file's order, ``guards`` are those of each target's variants."""
    for number, rule in enumerate(rules):
        twin = next((one for one in rules[:number] if rule.means_the_same(one)), None)
        if twin is not None:
            raise ManifestError(
                "two overrides are for the same targets, guards and values",
                place=document.place("kernel", at, "override", number),
                why=f"the other one is at line {twin.place.line}: which of both counts is easy to miss",
                remedy="put the keys of both into one",
            )
        if rule.is_idle:
            raise ManifestError(
                "an override changes nothing",
                place=document.place("kernel", at, "override", number),
                why="it gives no config, no schedules and no tolerance",
                remedy="give one of them, such as config = { bM = 16 }, or remove it",
            )
        if document.kernels is not None:
            continue
        if any(rule.applies(target, dims) for target, choices in guards.items() for dims in choices):
            continue
        raise ManifestError(
            "an override is for no variant of its kernel",
            place=document.place("kernel", at, "override", number),
            why="it is for variants whose target is listed and whose guards follow from those given here",
            remedy="list its guards in the kernel's dims too, or remove it",
        )


def check_symbols(plans: Sequence[KernelPlan]) -> None:
    """No two C functions of the library may have one name."""
    owners: dict[str, str] = dict.fromkeys(_LIBRARY_SYMBOLS, "the library itself")
    for plan in plans:
        for symbol in (plan.name, f"{plan.name}_workspace"):
            if symbol in owners:
                raise _duplicate(plan, symbol, owners[symbol])
            owners[symbol] = f"kernel {plan.name} ({plan.place})"


def _duplicate(plan: KernelPlan, symbol: str, owner: str) -> ManifestError:
    remedy = "rename one of the two"
    if plan.entry.for_:
        keys = ", ".join(f"{{{key}}}" for key in plan.entry.for_)
        remedy = f"let the name hold every key of for ({keys}), or rename one of the two"
    return ManifestError(
        f'kernel "{plan.name}" would define the symbol <package>_{symbol} a second time',
        place=plan.place,
        why=f"it belongs to {owner}",
        remedy=remedy,
    )
