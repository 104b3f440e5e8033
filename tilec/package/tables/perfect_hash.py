"""Perfect hashing of pinned dims by hash and displace; the same arithmetic as runtime_c/src/dispatch/hash.h.

Method: D. Belazzougui, F. C. Botelho, M. Dietzfelbinger, "Hash, displace, and compress", ESA 2009: keys fall
into groups by their hash, and each group in turn, largest first, searches a displacement that sends all its
keys to free slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilec.errors import PackageError

EMPTY_SLOT = 0xFFFF
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class PerfectHash:
    """``displacements`` has ``2**displacement_bits`` entries; ``slots`` has ``2**slot_bits``, each the index
    of a key or EMPTY_SLOT."""

    displacements: tuple[int, ...]
    slots: tuple[int, ...]
    displacement_bits: int
    slot_bits: int

    def find(self, value: int) -> int:
        """The only index that a hash can have (the caller compares), or EMPTY_SLOT."""
        displacement = self.displacements[value >> (64 - self.displacement_bits)]
        return self.slots[_mix(value, displacement) >> (64 - self.slot_bits)]


def hash_of(pins: Sequence[int], values: Sequence[int]) -> int:
    """The hash of the values of some dims, whose indices are ``pins``: a sum over these, so that a call
    computes one word for each of its dims, whatever the sets of pins."""
    factors = (pow(_GOLDEN, pin + 1, _MASK + 1) for pin in pins)
    return sum(_folded(value * factor) for value, factor in zip(values, factors, strict=True)) & _MASK


def build(hashes: Sequence[int]) -> PerfectHash:
    """The table of distinct ``hashes``, of 64 bits. Raises PackageError for too many, or in the practically
    impossible case that no displacement is found in a table of any tried size, or two are the same."""
    if len(hashes) >= EMPTY_SLOT:
        raise PackageError(
            f"{len(hashes)} combinations of pinned dims are too many", why=f"at most {EMPTY_SLOT - 1}"
        )
    least = max(1, (2 * len(hashes) - 1).bit_length())
    for slot_bits in range(least, least + 4):
        found = _place(hashes, max(1, slot_bits - 2), slot_bits)
        if found is not None:
            return found
    raise PackageError(
        "no perfect hash was found for the pinned dims", why=f"{len(hashes)} combinations were tried"
    )


def _folded(value: int) -> int:
    value &= _MASK
    return value ^ (value >> 32)


def _mix(value: int, word: int) -> int:
    return _folded((value ^ word) * _GOLDEN)


def _place(hashes: Sequence[int], displacement_bits: int, slot_bits: int) -> PerfectHash | None:
    groups: list[list[int]] = [[] for _ in range(1 << displacement_bits)]
    for index, value in enumerate(hashes):
        groups[value >> (64 - displacement_bits)].append(index)
    slots = [EMPTY_SLOT] * (1 << slot_bits)
    displacements = [0] * len(groups)
    for number in sorted(range(len(groups)), key=lambda number: -len(groups[number])):
        displacement = _displace([hashes[index] for index in groups[number]], slots, slot_bits)
        if displacement is None:
            return None
        displacements[number] = displacement
        for index in groups[number]:
            slots[_mix(hashes[index], displacement) >> (64 - slot_bits)] = index
    return PerfectHash(tuple(displacements), tuple(slots), displacement_bits, slot_bits)


def _displace(hashes: Sequence[int], slots: Sequence[int], slot_bits: int) -> int | None:
    for displacement in range(1 << 16):
        places = {_mix(value, displacement) >> (64 - slot_bits) for value in hashes}
        if len(places) == len(hashes) and all(slots[place] == EMPTY_SLOT for place in places):
            return displacement
    return None
