"""Dispatch by exact shapes: variants of one target grouped by which dims they pin, and hashed by the
values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilec.errors import PackageError, Place
from tilec.package import perfect_hash
from tilec.package.ctext import array, reference, row
from tilec.package.model import KernelRecord, VariantRecord

MAX_SETS = 8


@dataclass(frozen=True)
class PinSet:
    """``pins`` are dim indices; ``buckets`` maps the values of the pinned dims to the variants (indices in
    dispatch order) that have them; ``table`` finds a bucket's number by those values, None without pins."""

    pins: tuple[int, ...]
    buckets: dict[tuple[int, ...], tuple[int, ...]]
    table: perfect_hash.PerfectHash | None


def pin_sets(kernel: KernelRecord, target: str) -> tuple[PinSet, ...]:
    """The sets of ``target``, most pins first. ``kernel`` has its variants in dispatch order. Raises
    PackageError for more than `MAX_SETS` sets."""
    grouped: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = {}
    for index, variant in enumerate(kernel.variants):
        if variant.target == target:
            pins = _pins(kernel, variant)
            values = tuple(_value(kernel, variant, pin) for pin in pins)
            grouped.setdefault(pins, {}).setdefault(values, []).append(index)
    if len(grouped) > MAX_SETS:
        raise _too_many(kernel, target, len(grouped))
    sets = [_pin_set(pins, buckets) for pins, buckets in grouped.items()]
    return tuple(sorted(sets, key=lambda item: -len(item.pins)))


def _pin_set(pins: tuple[int, ...], buckets: dict[tuple[int, ...], list[int]]) -> PinSet:
    table = perfect_hash.build(tuple(buckets)) if pins else None
    return PinSet(pins, {key: tuple(found) for key, found in buckets.items()}, table)


def source(sets: Sequence[PinSet], prefix: str) -> str:
    """The arrays of ``sets``, the last one named ``<prefix>_sets``."""
    parts = [_set_arrays(item, f"{prefix}_{number}") for number, item in enumerate(sets)]
    rows = [_set_row(item, f"{prefix}_{number}") for number, item in enumerate(sets)]
    return "".join(parts) + array("pin_set", f"{prefix}_sets", rows)


def _pins(kernel: KernelRecord, variant: VariantRecord) -> tuple[int, ...]:
    return tuple(i for i, dim in enumerate(kernel.dims) if variant.guard(dim.name).eq is not None)


def _value(kernel: KernelRecord, variant: VariantRecord, pin: int) -> int:
    value = variant.guard(kernel.dims[pin].name).eq
    assert value is not None
    return value


def _too_many(kernel: KernelRecord, target: str, count: int) -> PackageError:
    return PackageError(
        f"kernel {kernel.name!r} pins {count} different sets of dims on {target}",
        place=Place(key=kernel.name),
        why=f"dispatch probes one table per set and stops at {MAX_SETS}",
        remedy="pin the same dims in more of its variants, or split the kernel",
    )


def _set_arrays(item: PinSet, name: str) -> str:
    members = [index for bucket in item.buckets.values() for index in bucket]
    starts = [0, *accumulate(len(bucket) for bucket in item.buckets.values())]
    return "".join(
        [
            array("uint8_t", f"{name}_pins", _numbers(item.pins)),
            array(
                "uint16_t", f"{name}_displacements", _numbers(item.table.displacements if item.table else ())
            ),
            array("uint16_t", f"{name}_slots", _numbers(item.table.slots if item.table else ())),
            array("uint32_t", f"{name}_starts", _numbers(starts)),
            array("uint32_t", f"{name}_members", _numbers(members)),
        ]
    )


def _set_row(item: PinSet, name: str) -> str:
    bits = (item.table.displacement_bits, item.table.slot_bits) if item.table else (0, 0)
    hashed = [reference(f"{name}_{what}", item.pins) for what in ("pins", "displacements", "slots")]
    return row(*hashed, f"{name}_starts", f"{name}_members", len(item.pins), *bits)


def _numbers(values: Sequence[int]) -> list[str]:
    """Twenty numbers a row."""
    texts = [str(value) for value in values]
    return [", ".join(texts[start : start + 20]) for start in range(0, len(texts), 20)]
