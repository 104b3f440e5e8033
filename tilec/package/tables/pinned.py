"""Dispatch by exact shapes: variants of one target grouped by which dims they pin, and hashed by the
values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilec.errors import PackageError, Place
from tilec.package.model import KernelRecord, VariantRecord
from tilec.package.tables import perfect_hash
from tilec.package.tables.costs import runs_of
from tilec.package.text.c import array, record, reference

MAX_SETS = 8
#: The arrays of a set that has pins.
_HASHED = ("pins", "displacements", "slots", "hashes", "keys")


@dataclass(frozen=True)
class PinSet:
    """``pins`` are dim indices; ``buckets`` maps the values of the pinned dims to the variants (indices in
    dispatch order) that have them; ``table`` finds a bucket's number by those values, None without pins."""

    pins: tuple[int, ...]
    buckets: dict[tuple[int, ...], tuple[int, ...]]
    table: perfect_hash.PerfectHash | None


def pin_sets(kernel: KernelRecord, target: str) -> tuple[PinSet, ...]:
    """The sets of ``target``, most pins first; of schedules of a list with the same guards, the first stands
    for all. ``kernel`` has its variants in dispatch order. Raises
    PackageError for more than `MAX_SETS` sets, or for a set that 16 bits cannot number."""
    grouped: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = {}
    others = {index for run in runs_of(kernel) for index in run[1:]}
    for index, variant in enumerate(kernel.variants):
        if variant.target == target and index not in others:
            pins = _pins(kernel, variant)
            values = tuple(_value(kernel, variant, pin) for pin in pins)
            grouped.setdefault(pins, {}).setdefault(values, []).append(index)
    if len(grouped) > MAX_SETS:
        raise _too_many(kernel, target, len(grouped))
    most = max((sum(map(len, buckets.values())) for buckets in grouped.values()), default=0)
    if most >= perfect_hash.EMPTY_SLOT:
        raise _too_large(kernel, target, most)
    sets = [_pin_set(pins, buckets) for pins, buckets in grouped.items()]
    return tuple(sorted(sets, key=lambda item: -len(item.pins)))


def _pin_set(pins: tuple[int, ...], buckets: dict[tuple[int, ...], list[int]]) -> PinSet:
    table = perfect_hash.build([perfect_hash.hash_of(pins, key) for key in buckets]) if pins else None
    return PinSet(pins, {key: tuple(found) for key, found in buckets.items()}, table)


def source(sets: Sequence[PinSet], prefix: str, guards: Sequence[tuple[int, int]]) -> str:
    """The arrays of ``sets``, the last one named ``<prefix>_sets``. ``guards`` are, per variant of the
    kernel, the place of its first guard in the kernel's array of guards and their number."""
    parts = [_set_arrays(item, f"{prefix}_{number}", guards) for number, item in enumerate(sets)]
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


def _too_large(kernel: KernelRecord, target: str, count: int) -> PackageError:
    return PackageError(
        f"kernel {kernel.name!r} has {count} variants that pin the same dims on {target}",
        place=Place(key=kernel.name),
        why=f"dispatch numbers at most {perfect_hash.EMPTY_SLOT - 1} of them",
        remedy="leave a dim open, or split the kernel",
    )


def _set_arrays(item: PinSet, name: str, guards: Sequence[tuple[int, int]]) -> str:
    displacements = item.table.displacements if item.table else ()
    return "".join(
        [
            array("uint8_t", f"{name}_pins", _numbers(item.pins)),
            array("uint16_t", f"{name}_displacements", _numbers(displacements)),
            array("uint16_t", f"{name}_slots", _numbers(_slots(item))),
            array("uint64_t", f"{name}_hashes", _hashes(item)),
            array("int64_t", f"{name}_keys", _keys(item)),
            array("candidate", f"{name}_candidates", _candidates(item, guards)),
        ]
    )


def _slots(item: PinSet) -> list[int]:
    """The slots of the hash, with the place of a bucket's first candidate for its number; empty ones lead
    past the last candidate."""
    starts = [0, *accumulate(len(bucket) for bucket in item.buckets.values())]
    slots = item.table.slots if item.table else ()
    return [starts[-1] if slot == perfect_hash.EMPTY_SLOT else starts[slot] for slot in slots]


def _hashes(item: PinSet) -> list[str]:
    """The hash of the pinned values of every candidate, then one for empty slots."""
    if not item.table:
        return []
    hashes = [(perfect_hash.hash_of(item.pins, key), bucket) for key, bucket in item.buckets.items()]
    return [f"UINT64_C({value})" for value, bucket in hashes for _ in bucket] + ["0"]


def _keys(item: PinSet) -> list[str]:
    """The pinned values of every candidate, then, for empty slots, values that no dims have."""
    if not item.table:
        return []
    values = [value for key, bucket in item.buckets.items() for value in key * len(bucket)]
    return _numbers([*values, *(-1 for _ in item.pins)])


def _candidates(item: PinSet, guards: Sequence[tuple[int, int]]) -> list[str]:
    """Where a variant's guards are its pinned values alone, the keys have said it all."""
    rows = []
    for bucket in item.buckets.values():
        for index in bucket:
            first, count = guards[index]
            open_guards = 0 if count == len(item.pins) else count
            last = int(index == bucket[-1])
            rows.append(record(variant=index, first_guard=first, num_guards=open_guards, last=last))
    return rows


def _set_row(item: PinSet, name: str) -> str:
    hashed = {what: reference(f"{name}_{what}", item.pins) for what in _HASHED}
    return record(
        **hashed,
        candidates=f"{name}_candidates",
        num_pins=len(item.pins),
        displacement_bits=item.table.displacement_bits if item.table else 0,
        slot_bits=item.table.slot_bits if item.table else 0,
    )


def _numbers(values: Sequence[int]) -> list[str]:
    """Twenty numbers a row."""
    texts = [str(value) for value in values]
    return [", ".join(texts[start : start + 20]) for start in range(0, len(texts), 20)]
