"""Names and arguments of the kernels that one `[[kernel]]` table makes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tilec.errors import ManifestError, Place
from tilec.manifest.expansion.variants import KernelPlan
from tilec.manifest.model import Backward, Kernel, given_values, searches
from tilec.manifest.text.document import Document
from tilec.reserved import LONGEST_KERNEL, is_c_identifier, shown
from tilec.spelling import suggestion


def backward_of(document: Document, entry: Kernel, at: int, values: Mapping[str, Any]) -> Backward | None:
    """The table with the values of ``for`` filled in."""
    if entry.backward is None:
        return None
    place = document.place("kernel", at, "backward", "kernel")
    name = _filled(entry.backward.kernel, values, place)
    return entry.backward.model_copy(update={"kernel": name})


def check_backward(plans: Sequence[KernelPlan]) -> None:
    """Every backward kernel is one of the manifest."""
    names = [plan.name for plan in plans]
    for plan in plans:
        if plan.backward is not None and plan.backward.kernel not in names:
            raise ManifestError(
                f"the backward kernel {plan.backward.kernel!r} of {plan.name} is not in the manifest",
                place=plan.place,
                remedy=suggestion(plan.backward.kernel, names),
            )


def kernel_name(document: Document, entry: Kernel, at: int, values: Mapping[str, Any]) -> str:
    """The name with the values of ``for`` filled in."""
    place = document.place("kernel", at, "name")
    name = _filled(entry.name, values, place)
    if len(name) > LONGEST_KERNEL:
        raise ManifestError(
            f'kernel name "{shown(name)}" has {len(name)} characters',
            place=place,
            why=f"it becomes part of symbols and files, which take {LONGEST_KERNEL}",
            remedy="give the kernel a shorter name",
        )
    if not is_c_identifier(name):
        raise ManifestError(
            f'kernel name "{name}" is no C identifier',
            place=place,
            why="it becomes part of a C symbol",
            remedy="use letters, digits and _, not starting with a digit, and no C or C++ keyword",
        )
    return name


def _filled(pattern: str, values: Mapping[str, Any], place: Place) -> str:
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()
    }
    try:
        return pattern.format_map(texts)
    except KeyError as error:
        raise ManifestError(
            f'name "{pattern}" uses {error}, which "for" does not give',
            place=place,
            remedy=suggestion(str(error.args[0]), texts),
        ) from error
    except (ValueError, IndexError, AttributeError) as error:
        raise ManifestError(
            f'name "{pattern}" is no usable pattern',
            place=place,
            why=str(error),
            remedy="write {key} for values",
        ) from error


def merge_args(document: Document, entry: Kernel, at: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """``args`` and the values of ``for``; a parameter may come from one place only."""
    homes = {"for": values, "args": entry.args, "dims": entry.dims}
    for (first, left), (second, right) in itertools.combinations(homes.items(), 2):
        _refuse_shared(document, at, first, left, second, right)
    configs = [given_values(entry.config), *(given_values(override.config) for override in entry.override)]
    chosen = [
        *(("config", config) for config in configs),
        *(("tune", table.axes) for table in searches(entry)),
    ]
    for name, keys in homes.items():
        for where, config in chosen:
            _refuse_shared(document, at, name, keys, where, config)
    return {**entry.args, **values}


def _refuse_shared(
    document: Document, at: int, first: str, left: Mapping[str, Any], second: str, right: Mapping[str, Any]
) -> None:
    shared = next((key for key in right if key in left), None)
    if shared is None:
        return
    raise ManifestError(
        f'parameter "{shared}" is given in {first} and in {second}',
        place=document.place("kernel", at, second, shared),
        remedy="give it in one of the two",
    )
